#include "compiler/package/elf.h"

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <elf.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "compiler/base/diagnostic.h"
#include "compiler/base/files.h"
#include "compiler/codegen/cpu/clang.h"
#include "compiler/codegen/cpu/link.h"
#include "compiler/codegen/embedded.h"
#include "tests/support/folder.h"

using namespace stridec;
using namespace stridec::package;
using stridec::testing::Folder;
namespace fs = std::filesystem;

namespace {

// The runtime with a program without inputs and outputs, and functions that the tests call.
const std::string& shared_object() {
  static const std::string linked = [] {
    const std::string source =
        "#define STRIDEC_ABI_FREESTANDING 1\n" + std::string(codegen::abi_header()) + R"(
extern "C" {
const stridec_abi_target targets[] = {{"x86-64", 0}};
const stridec_abi_variant variants[] = {{}};
const stridec_abi_function functions[] = {{"empty", 0, 0, 0, 0, 0, 0, 0, variants}};
const stridec_abi_module stridec_module = {STRIDEC_ABI_VERSION, sizeof(stridec_abi_module), "empty", "test",
                                           1, 1, 0, 0, 0, 0, 0, 0, 0, functions, targets};
extern const stridec_abi_note stridec_note __attribute__((visibility("hidden")));
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
__attribute__((visibility("default"))) const char* weights() { return __ehdr_start + stridec_note.weights_address; }
__attribute__((visibility("default"))) uint64_t weights_bytes() { return stridec_note.weights_bytes; }
__attribute__((visibility("default"))) const char* manifest() { return __ehdr_start + stridec_note.manifest_address; }
})";
    const std::string program = codegen::compile_to_object("program", source, {.cpu = "x86-64"});
    const codegen::LinkInput inputs[] = {{"program", program}, {"runtime", codegen::runtime_object()}};
    return codegen::link_shared(inputs, {.soname = "empty.so"});
  }();
  return linked;
}

std::string noise(size_t bytes) {
  std::string out(bytes, '\0');
  uint32_t state = 1;
  for (char& c : out) c = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return out;
}

struct Loaded {
  void* library;
  explicit Loaded(const std::string& path) : library(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    REQUIRE_MESSAGE(library, dlerror());
  }
  ~Loaded() { dlclose(library); }
  template <class T>
  T call(const char* name) {
    return reinterpret_cast<T (*)()>(dlsym(library, name))();
  }
};

constexpr std::string_view kManifest = R"({"format": 1})";

void write_committed(const std::string& path, std::string_view shared_object, const Payload& payload) {
  UnfinishedFile file(path);
  write_artifact(file, shared_object, payload);
  file.commit();
}

}  // namespace

TEST_CASE("weights and manifest are where the artifact looks for them") {
  const Folder folder;
  const std::string path = folder.file("m.so"), bytes = noise(10 << 20);
  const WeightPiece pieces[] = {{0, std::string_view(bytes).substr(0, 1000)},
                                {4096, std::string_view(bytes).substr(1000)}};
  const uint64_t size = bytes.size() + 5000;
  uint64_t last = 0, total = 0;
  const auto progress = [&](uint64_t d, uint64_t t) {
    CHECK(d >= last);
    last = d;
    total = t;
  };
  write_committed(path, shared_object(),
                  {.weights = pieces, .weights_bytes = size, .manifest = kManifest, .progress = progress});
  CHECK(folder.count() == 1);
  CHECK(last == total);
  CHECK(fs::file_size(path) == total);
  // The constant part of every artifact is small.
  CHECK(shared_object().size() < 144000);

  Loaded so(path);
  const char* weights = so.call<const char*>("weights");
  CHECK(reinterpret_cast<uintptr_t>(weights) % 4096 == 0);
  // The kernel can map huge pages of the file if file offset and address agree modulo 2 MiB (glibc 2.35 and
  // later).
  CHECK(reinterpret_cast<uintptr_t>(weights) % (2 << 20) ==
        artifact_layout(read_file(path)).weights_offset % (2 << 20));
  CHECK(so.call<uint64_t>("weights_bytes") == size);
  const std::string_view seen(weights, size), second = pieces[1].bytes;
  CHECK(seen.substr(0, 1000) == pieces[0].bytes);
  CHECK(seen.substr(1000, 3096) == std::string(3096, '\0'));
  CHECK((seen.substr(4096, second.size()) == second));
  CHECK(seen.substr(4096 + second.size()) == std::string(1904, '\0'));
  CHECK(std::string_view(so.call<const char*>("manifest"), kManifest.size()) == kManifest);
}

TEST_CASE("the layout reads back, and so does the manifest alone") {
  const Folder folder;
  const std::string path = folder.file("m.so"), bytes = noise(100);
  const WeightPiece pieces[] = {{0, bytes}};
  write_committed(path, shared_object(), {.weights = pieces, .weights_bytes = 100, .manifest = kManifest});
  const std::string file = read_file(path);
  const ArtifactLayout layout = artifact_layout(file);
  CHECK(layout.weights_offset % 4096 == 0);
  CHECK(file.substr(layout.weights_offset, layout.weights_bytes) == bytes);
  CHECK(file.substr(layout.manifest_offset, layout.manifest_bytes) == kManifest);

  write_committed(path, shared_object(), {.manifest = kManifest});
  CHECK(artifact_layout(read_file(path)).weights_bytes == 0);
  CHECK(Loaded(path).call<uint64_t>("weights_bytes") == 0);
  write_committed(path, shared_object(), {});
  CHECK(artifact_layout(read_file(path)).manifest_bytes == 0);  // only the hash
}

TEST_CASE("it asks the loader for libc alone, and an old one") {
  const LoaderNeeds needs = loader_needs(shared_object());
  CHECK(needs.libraries == std::vector<std::string>{"libc.so.6"});
  CHECK(needs.soname == "empty.so");
  CHECK(needs.glibc == "2.17");
}

TEST_CASE("equal arguments give equal bytes") {
  const Folder folder;
  const std::string bytes = noise(5000);
  const WeightPiece pieces[] = {{64, bytes}};
  const Payload payload = {.weights = pieces, .weights_bytes = 6000, .manifest = kManifest};
  write_committed(folder.file("a.so"), shared_object(), payload);
  write_committed(folder.file("b.so"), shared_object(), payload);
  CHECK((read_file(folder.file("a.so")) == read_file(folder.file("b.so"))));
}

TEST_CASE("strip keeps the payload") {
  if (std::system("command -v strip >/dev/null") != 0) return;
  const Folder folder;
  const std::string path = folder.file("m.so"), bytes = noise(5000000);
  const WeightPiece pieces[] = {{0, bytes}};
  write_committed(path, shared_object(),
                  {.weights = pieces, .weights_bytes = bytes.size(), .manifest = kManifest});
  REQUIRE(std::system(("strip --strip-all " + path).c_str()) == 0);
  Loaded so(path);
  CHECK((std::string_view(so.call<const char*>("weights"), bytes.size()) == bytes));
  CHECK(std::string_view(so.call<const char*>("manifest"), kManifest.size()) == kManifest);
  CHECK(artifact_layout(read_file(path)).weights_bytes == bytes.size());
}

TEST_CASE("a full disk leaves what was there before, and nothing else") {
  const Folder folder;
  const std::string path = folder.file("m.so"), bytes = noise(1 << 20);
  write_file(path, "before");
  shared_object();
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {500000, 500000};
    setrlimit(RLIMIT_FSIZE, &limit);
    const WeightPiece pieces[] = {{0, bytes}};
    try {
      write_committed(path, shared_object(),
                      {.weights = pieces, .weights_bytes = bytes.size(), .manifest = kManifest});
    } catch (const Error& e) {
      _exit(static_cast<int>(e.diagnostic.kind));
    }
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == static_cast<int>(ErrorKind::kOverBudget));
  CHECK(folder.count() == 1);
  CHECK(read_file(path) == "before");
}

TEST_CASE("a missing folder is named") {
  try {
    write_committed("/nonexistent/folder/m.so", shared_object(), {});
    FAIL("written");
  } catch (const Error& e) {
    CHECK(e.diagnostic.kind == ErrorKind::kUnreadable);
    CHECK(e.diagnostic.message.find("/nonexistent/folder/m.so") != std::string::npos);
  }
}

TEST_CASE("files that are not an artifact, or part of one, are refused") {
  const Folder folder;
  const std::string bytes = noise(20000);
  const WeightPiece pieces[] = {{0, bytes}};
  const Payload payload = {.weights = pieces, .weights_bytes = bytes.size(), .manifest = kManifest};
  write_committed(folder.file("m.so"), shared_object(), payload);
  const std::string whole = read_file(folder.file("m.so"));
  const auto refused = [](std::string_view file) {
    try {
      artifact_layout(file);
      return false;
    } catch (const Error& e) {
      return e.diagnostic.kind == ErrorKind::kMalformed;
    }
  };
  CHECK(!refused(whole));
  CHECK(refused(""));
  CHECK(refused("ELF"));
  CHECK(refused(bytes));
  for (size_t n = 0; n < whole.size(); n += n < 2000 ? 1 : 997)
    CHECK(refused(std::string_view(whole).substr(0, n)));
  CHECK(refused(std::string_view(whole).substr(0, whole.size() - 1)));

  // A flipped header byte must give a result or a rejection.
  for (size_t at = 0; at < 1024; ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ (1 + at % 255));
    for (bool layout : {true, false}) {
      try {
        layout ? void(artifact_layout(changed)) : void(loader_needs(changed));
      } catch (const Error& e) {
        CHECK(e.diagnostic.kind == ErrorKind::kMalformed);
      }
    }
  }
}
