#include "compiler/codegen/cpu/jit.h"

#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "compiler/base/diagnostic.h"
#include "compiler/codegen/cpu/clang.h"

using namespace stridec;
using namespace stridec::codegen;

namespace {

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    CHECK(e.diagnostic.kind == ErrorKind::kToolchain);
    std::string all = e.diagnostic.message;
    for (const std::string& note : e.diagnostic.notes) all += "\n" + note;
    return all;
  }
  return "no error";
}

}  // namespace

TEST_CASE("objects load, see each other, and their hidden symbols are found") {
  Jit jit;
  jit.add_object(
      compile_to_object("a", R"(extern "C" int g(int); extern "C" int f(int x) { return g(x) + 1; })", {}));
  jit.add_object(compile_to_object("b", R"(extern "C" int g(int x) { return x * 10; })", {}));
  CHECK(reinterpret_cast<int (*)(int)>(jit.lookup("f"))(4) == 41);
}

TEST_CASE("a large copy may become memcpy") {
  const std::string object = compile_to_object("copy", R"(struct S { char bytes[100000]; };
extern "C" void copy(S* to, const S* from) { *to = *from; })",
                                               {});
  Jit jit;
  jit.add_object(object);
  std::string from(100000, 'x'), to(100000, ' ');
  reinterpret_cast<void (*)(char*, const char*)>(jit.lookup("copy"))(to.data(), from.data());
  CHECK(to == from);
}

TEST_CASE("what an artifact could not use is not found here either") {
  Jit jit;
  jit.add_object(compile_to_object(
      "a", R"(extern "C" float expf(float); extern "C" float f(float x) { return expf(x); })", {}));
  CHECK(message_of([&] { jit.lookup("f"); }).find("expf") != std::string::npos);
  CHECK(message_of([&] { jit.lookup("nothing"); }).find("nothing") != std::string::npos);
  CHECK(message_of([&] { jit.add_object("garbage"); }) != "no error");
}

TEST_CASE("several loaders and threads at once") {
  const std::string object = compile_to_object("a", R"(extern "C" int f(int x) { return x + 1; })", {});
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) {
        Jit jit;
        jit.add_object(object);
        right += reinterpret_cast<int (*)(int)>(jit.lookup("f"))(i) == i + 1;
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(right == 40);
}
