#include "compiler/base/target.h"

#include <doctest/doctest.h>

#include "compiler/base/diagnostic.h"

using namespace stridec;

TEST_CASE("processors are found by name and grow in strength") {
  CHECK(cpu_target("x86-64-v2").vector_bytes == 16);
  CHECK_FALSE(cpu_target("x86-64-v2").fma);
  CHECK(cpu_target("x86-64-v3").lanes(4) == 8);
  CHECK(cpu_target("x86-64-v4").vector_registers == 32);
  CHECK(cpu_target("znver5").avx512_bf16);
  int bytes = 0;
  for (const CpuTarget& t : cpu_targets()) {
    CHECK(t.vector_bytes >= bytes);
    bytes = t.vector_bytes;
    CHECK(t.avx512 == (t.vector_bytes == 64));
    CHECK(&cpu_target(t.name) == &t);
  }
}

TEST_CASE("native is one of the rows") {
  const CpuTarget& native = cpu_target("native");
  CHECK(&cpu_target(native.name) == &native);
}

TEST_CASE("an unknown processor is a usage error that lists the names") {
  try {
    cpu_target("z80");
    FAIL("not reached");
  } catch (const Error& e) {
    CHECK(e.diagnostic.kind == ErrorKind::kUsage);
    CHECK(e.diagnostic.code == "unknown-cpu");
    CHECK(e.diagnostic.help.find("x86-64-v3") != std::string::npos);
  }
}
