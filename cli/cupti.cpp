#include "cli/cupti.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>

#include "compiler/base/diagnostic.h"
#include "compiler/base/sort.h"
#include "compiler/base/text.h"

namespace stridec::cli {
namespace {

// The part of CUPTI's interface that is used, as in cupti_activity.h of CUDA 11.0 to 13.0.
constexpr int32_t kKernels = 10;               // CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL
constexpr uint32_t kForced = 1;                // CUPTI_ACTIVITY_FLAG_FLUSH_FORCED
constexpr int32_t kNotPermitted[] = {35, 40};  // ..._INSUFFICIENT_PRIVILEGES, also of virtual devices

// The beginning of CUpti_ActivityKernel4 and of all later versions of the record.
struct Record {
  int32_t kind;
  uint8_t before[12];
  uint64_t begin, end;
  uint64_t completed;
  uint32_t numbers[13];
  uint32_t correlation;
  int64_t grid;
  const char* name;
  uint8_t after[44];
  uint32_t graph;  // 0: launched by itself
};
static_assert(offsetof(Record, begin) == 16 && offsetof(Record, correlation) == 92 &&
              offsetof(Record, name) == 104 && offsetof(Record, graph) == 156);

constexpr size_t kBuffer = 1 << 20, kAlignment = 8;

std::mutex mutex;                     // of the two below: CUPTI calls back on a thread of its own
std::vector<Cupti::Kernel> finished;  // not taken yet
int32_t (*next_record)(uint8_t* buffer, size_t bytes, void** record);

void give_buffer(uint8_t** buffer, size_t* size, size_t* records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, kBuffer));
  *size = *buffer ? kBuffer : 0;
  *records = 0;  // as many as there is room for
}

void take_buffer(void*, uint32_t, uint8_t* buffer, size_t, size_t used) {
  const std::lock_guard lock(mutex);
  void* at = nullptr;
  while (used > 0 && next_record(buffer, used, &at) == 0) {
    const auto& record = *static_cast<const Record*>(at);
    if (record.kind == kKernels)
      finished.push_back({record.name ? record.name : "", static_cast<int64_t>(record.begin),
                          static_cast<int64_t>(record.end), record.graph != 0});
  }
  std::free(buffer);
}

std::vector<std::string> candidates() {
  namespace fs = std::filesystem;
  constexpr const char* kNames[] = {"libcupti.so", "libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8"};
  std::vector<std::string> folders = {""};
  if (const char* given = std::getenv("STRIDEC_CUPTI"); given && *given) {
    if (!fs::is_directory(given)) return {given};
    folders = {cat(given, "/")};
  } else {
    for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
      if (const char* home = std::getenv(variable); home && *home)
        folders.insert(folders.end(), {cat(home, "/extras/CUPTI/lib64/"), cat(home, "/lib64/")});
    folders.insert(folders.end(), {"/usr/local/cuda/extras/CUPTI/lib64/", "/usr/local/cuda/lib64/"});
  }
  std::vector<std::string> all;
  for (const std::string& folder : folders)
    for (const char* name : kNames) all.push_back(folder + name);
  return all;
}

void* open_library() {
  const std::vector<std::string> all = candidates();
  for (const std::string& path : all)
    if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
  fail(ErrorKind::kUnsupported, "no-cupti",
       all.size() == 1
           ? cat("'", all[0], "' is not a CUPTI library that can be loaded")
           : "CUPTI, which has the times of kernels inside recorded graphs, is not on this machine",
       "without --cupti kernels are launched one by one, and timed by the driver's events; CUPTI is in CUDA "
       "toolkits and in 'pip install nvidia-cuda-cupti': STRIDEC_CUPTI=/path/to/libcupti.so.13");
}

}  // namespace

struct Cupti::Library {
  int32_t (*register_callbacks)(decltype(&give_buffer), decltype(&take_buffer));
  int32_t (*enable)(int32_t kind);
  int32_t (*disable)(int32_t kind);
  int32_t (*flush)(uint32_t flag);
  int32_t (*text_of)(int32_t status, const char** text);
  int32_t (*timestamp)(uint64_t* nanoseconds);
};

Cupti::Cupti() {
  static Library library;
  void* const handle = open_library();
  bool complete = true;
  const auto get = [&](auto& function, const char* name) {
    void* const symbol = dlsym(handle, name);
    complete = complete && symbol;
    std::memcpy(&function, &symbol, sizeof symbol);
  };
  get(library.register_callbacks, "cuptiActivityRegisterCallbacks");
  get(library.enable, "cuptiActivityEnable");
  get(library.disable, "cuptiActivityDisable");
  get(library.flush, "cuptiActivityFlushAll");
  get(library.text_of, "cuptiGetResultString");
  get(library.timestamp, "cuptiGetTimestamp");
  get(next_record, "cuptiActivityGetNextRecord");
  if (!complete)
    fail(ErrorKind::kUnsupported, "no-cupti", "the CUPTI library lacks functions that are needed");
  library_ = &library;
  check(library.register_callbacks(give_buffer, take_buffer), "cuptiActivityRegisterCallbacks");
  check(library.enable(kKernels), "cuptiActivityEnable");
}

Cupti::~Cupti() {
  library_->disable(kKernels);
  library_->flush(kForced);
}

void Cupti::check(int32_t status, const char* what) const {
  if (status == 0) return;
  const char* text = nullptr;
  if (library_->text_of(status, &text) != 0) text = nullptr;
  const bool permission = std::ranges::count(kNotPermitted, status) > 0;
  fail(permission ? ErrorKind::kUnsupported : ErrorKind::kToolchain, permission ? "no-cupti" : "cupti",
       permission ? "the driver does not let this user record kernels with CUPTI"
                  : cat("CUPTI: ", what, ": ", text ? text : "unknown error"),
       permission
           ? "an administrator allows it by the driver's option NVreg_RestrictProfilingToAdminUsers=0; "
             "without --cupti kernels are timed by the driver's events"
           : "without --cupti kernels are timed by the driver's events");
}

std::vector<Cupti::Kernel> Cupti::take() {
  check(library_->flush(kForced), "cuptiActivityFlushAll");
  std::vector<Kernel> taken;
  {
    const std::lock_guard lock(mutex);
    taken.swap(finished);
  }
  sort_stable(taken, [](const Kernel& a, const Kernel& b) { return a.begin < b.begin; });
  return taken;
}

int64_t Cupti::to_host() const {
  const auto now = [] {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  int64_t shortest = INT64_MAX, offset = 0;
  for (int attempt = 0; attempt < 5; ++attempt) {
    uint64_t theirs = 0;
    const int64_t before = now();
    check(library_->timestamp(&theirs), "cuptiGetTimestamp");
    const int64_t took = now() - before;
    if (took >= shortest) continue;
    shortest = took;
    offset = before + took / 2 - static_cast<int64_t>(theirs);
  }
  return offset;
}

}  // namespace stridec::cli
