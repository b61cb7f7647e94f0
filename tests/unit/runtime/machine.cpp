#include "runtime/src/machine.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "runtime/src/cpu_features.h"
#include "runtime/src/text.h"
#include "stridec/abi.h"

using namespace stridec::runtime;
namespace fs = std::filesystem;

namespace {

struct Root {
  fs::path path = fs::temp_directory_path() / ("stridec-machine-" + std::to_string(getpid()));
  Root() { fs::create_directories(path / "proc/self"); }
  ~Root() { fs::remove_all(path); }
  void write(const std::string& name, const std::string& content) {
    fs::create_directories((path / name).parent_path());
    std::ofstream(path / name) << content;
  }
  int32_t processors() { return cgroup_processors(path.c_str()); }
};

}  // namespace

TEST_CASE("no cgroup, or one without a quota, sets no limit") {
  Root root;
  CHECK(root.processors() == 0);
  root.write("proc/self/cgroup", "0::/\n");
  CHECK(root.processors() == 0);
  root.write("sys/fs/cgroup/cpu.max", "max 100000\n");
  CHECK(root.processors() == 0);
}

TEST_CASE("cgroup v2: the least quota of the group and those above, rounded up") {
  Root root;
  root.write("proc/self/cgroup", "0::/app/worker\n");
  root.write("sys/fs/cgroup/app/worker/cpu.max", "450000 100000\n");
  CHECK(root.processors() == 5);
  root.write("sys/fs/cgroup/app/cpu.max", "150000 100000\n");
  CHECK(root.processors() == 2);
  root.write("sys/fs/cgroup/cpu.max", "50000 100000\n");
  CHECK(root.processors() == 1);
}

TEST_CASE("cgroup v1: quota and period of the cpu controller") {
  Root root;
  root.write("proc/self/cgroup", "5:cpuset:/\n4:cpu,cpuacct:/docker/x\n1:name=systemd:/\n");
  root.write("sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "-1\n");
  root.write("sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000\n");
  CHECK(root.processors() == 0);
  root.write("sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "300000\n");
  CHECK(root.processors() == 3);
  // Inside the container's file system, the cgroup is the root.
  root.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000\n");
  root.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  CHECK(root.processors() == 2);
}

TEST_CASE("at least one processor is usable") { CHECK(usable_processors() >= 1); }

TEST_CASE("STRIDEC_THREADS is how many threads there are by default, if it is a number") {
  setenv("STRIDEC_THREADS", "3", 1);
  CHECK(default_threads(1024) == 3);
  CHECK(default_threads(2) == std::min(usable_processors(), 2));
  for (const char* text : {"", "0", "-1", "two", "3x", "1025", "999999", "99999999999999999999"}) {
    setenv("STRIDEC_THREADS", text, 1);
    CHECK(wished_threads(1024) == 0);
    CHECK(default_threads(1024) == usable_processors());
  }
  setenv("STRIDEC_THREADS", "1024", 1);
  CHECK(wished_threads(1024) == 1024);
  unsetenv("STRIDEC_THREADS");
  CHECK(default_threads(1024) == usable_processors());
}

TEST_CASE("features include the baseline of the machine that runs this, and have names") {
  uint64_t features = cpu_features(false);
#if defined(__AVX512F__)
  CHECK((features & STRIDEC_CPU_AVX512F) != 0);
#endif
#if defined(__x86_64__)
  CHECK((__builtin_cpu_supports("avx2") != 0) == ((features & STRIDEC_CPU_AVX2) != 0));
  CHECK((__builtin_cpu_supports("avx512f") != 0) == ((features & STRIDEC_CPU_AVX512F) != 0));
  CHECK((__builtin_cpu_supports("avx512vnni") != 0) == ((features & STRIDEC_CPU_AVX512VNNI) != 0));
  CHECK((__builtin_cpu_supports("avx512bf16") != 0) == ((features & STRIDEC_CPU_AVX512BF16) != 0));
  CHECK((__builtin_cpu_supports("fma") != 0) == ((features & STRIDEC_CPU_FMA) != 0));
  CHECK((__builtin_cpu_supports("sse4a") != 0) == ((features & STRIDEC_CPU_SSE4A) != 0));
#endif
  char out[256];
  Text text(out, sizeof out);
  list_features(text, STRIDEC_CPU_X86_64_V4 & ~STRIDEC_CPU_X86_64_V3);
  CHECK(std::string(out) == "avx512f, avx512bw, avx512cd, avx512dq, avx512vl");
}

TEST_CASE("text is cut off where the room ends") {
  char out[8];
  Text(out, sizeof out) << "abc" << INT64_MIN;
  CHECK(std::string(out) == "abc-922");
  Text(nullptr, 0) << "nothing";
  int64_t dims[] = {2, -1};
  char more[32];
  Text text(more, sizeof more);
  text << Dims{dims, 2} << Dims{dims, 0};
  CHECK(std::string(more) == "[2, ?][]");
}
