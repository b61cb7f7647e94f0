#include "compiler/codegen/cpu/link.h"

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <thread>

#include "compiler/base/diagnostic.h"
#include "compiler/codegen/cpu/clang.h"

using namespace stridec;
using namespace stridec::codegen;

namespace {

std::string link(const std::string& source, LinkOptions options = {.soname = "t.so"}) {
  const std::string object = compile_to_object("t", source, {});
  const LinkInput inputs[] = {{"t.o", object}};
  return link_shared(inputs, options);
}

// The library stays open; unloading is not tested.
void* open_library(const std::string& bytes) {
  const int fd = memfd_create("library", MFD_CLOEXEC);
  REQUIRE(write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  void* library = dlopen(("/proc/self/fd/" + std::to_string(fd)).c_str(), RTLD_NOW | RTLD_LOCAL);
  REQUIRE_MESSAGE(library, dlerror());
  close(fd);
  return library;
}

constexpr const char* kSource = R"(
#define EXPORT extern "C" __attribute__((visibility("default")))
extern "C" void* malloc(unsigned long);
extern "C" __attribute__((weak)) int pthread_create(void*, const void*, void* (*)(void*), void*);
static int counter = 3;
struct Init { Init() { counter += 4; } } init;
EXPORT int count() { return counter; }
EXPORT void* get() { return malloc(8); }
EXPORT int threads() { return pthread_create != nullptr; }
extern "C" int unused(int x) { return x * 77; }
)";

}  // namespace

TEST_CASE("a linked library loads, runs its constructors and reaches libc") {
  void* library = open_library(link(kSource));
  CHECK(reinterpret_cast<int (*)()>(dlsym(library, "count"))() == 7);
  CHECK(reinterpret_cast<void* (*)()>(dlsym(library, "get"))() != nullptr);
  CHECK(reinterpret_cast<int (*)()>(dlsym(library, "threads"))() == 1);
  CHECK(dlsym(library, "unused") == nullptr);
}

TEST_CASE("equal inputs give equal bytes, also from several threads") {
  const std::string first = link(kSource);
  std::vector<std::string> results(3);
  std::vector<std::thread> threads;
  for (std::string& r : results) threads.emplace_back([&r] { r = link(kSource); });
  for (std::thread& t : threads) t.join();
  for (const std::string& r : results) CHECK(r == first);
  CHECK(first.size() < 12000);
}

TEST_CASE("symbols outside libc.map are an error that names symbol and input, and the next link works") {
  try {
    link(R"(extern "C" double cos(double);
extern "C" __attribute__((visibility("default"))) double f(double x) { return cos(x); })");
    FAIL("linked");
  } catch (const Error& e) {
    CHECK(e.diagnostic.kind == ErrorKind::kToolchain);
    std::string all;
    for (const std::string& n : e.diagnostic.notes) all += n + "\n";
    CHECK(all.find("undefined symbol: cos") != std::string::npos);
    CHECK(all.find("referenced by") != std::string::npos);
    CHECK(all.find("/proc/self") == std::string::npos);
  }
  const LinkInput garbage[] = {{"garbage.o", "garbage"}};
  CHECK_THROWS_AS(link_shared(garbage, {.soname = "t.so"}), Error);
  CHECK_NOTHROW(link(kSource));
}
