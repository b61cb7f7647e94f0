// One or several adjacent points per thread, and tiles that are transposed through shared memory.
#include <doctest/doctest.h>

#include "tests/unit/codegen_cuda/memory_bound.h"

namespace stridec::codegen::cuda {
namespace {

const Program kPoints = {"a matrix plus a row, turned where it has two", R"(  input x T [d0, d1] ordinal 0
  input b T [d1] ordinal 1
  output y T [d0, d1] ordinal 0
  output z T [d1, d0] ordinal 1
  inputs (x, b)
  outputs (y, z)
  steps
    nest 0 add (%i<d0, %j<d1)
      %0 : T = load x[%i, %j]
      %1 : T = load b[%j] if %j < 500 else 3
      %2 : T = add %0 %1
      store y[%i, %j] %2
      store z[%j, %i] %0
)"};

const Program kRuns = {"matrices plus rows and columns", R"(  input x T [d0, d1, d2] ordinal 0
  input b T [d0, d2] ordinal 1
  input c T [d1] ordinal 2
  output y T [d0, d1, d2] ordinal 0
  inputs (x, b, c)
  outputs (y)
  steps
    nest 0 add (%a<d0, %i<d1, %j<d2)
      %0 : T = load x[%a, %i, %j]
      %1 : T = load b[%a, %j]
      %2 : T = add %0 %1
      %3 : T = load c[%i]
      %4 : T = sub %2 %3
      store y[%a, %i, %j] %4
)"};

const Program kPadded = {"a transpose of a padded matrix", R"(  input x T [d0, d1] ordinal 0
  output y T [d1 + 3, d0 + 2] ordinal 0
  inputs (x)
  outputs (y)
  steps
    nest 0 turn (%i<d1 + 3, %j<d0 + 2)
      %0 : T = load x[%j - 1, %i - 2] if 1 <= %j && %j <= d0 && 2 <= %i && %i < d1 + 2 else 7
      store y[%i, %j] %0
)"};

TEST_CASE("points") {
  for (const char* dtype : {"f16", "f64", "u8"})
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{300, 1023}, {263000, 1}, {40, 24}, {0, 3}})
      for (const bool fixed : {false, true}) check(kPoints, dtype, {shape, fixed});
}

TEST_CASE("points side by side, across the ends of rows") {
  for (const char* dtype : {"f16", "f32", "u8"})
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{3, 300, 333}, {2, 131, 1003}, {45000, 2, 3}, {1, 1, 270001}})
      for (const bool fixed : {false, true}) check(kRuns, dtype, {shape, fixed});
}

TEST_CASE("rows of odd widths are moved by vectors") {
  const auto has = [](const Program& p, const std::vector<int64_t>& shape, const std::string& what) {
    return first_text(parse(p, "bf16", {shape, true})).find(what) != std::string::npos;
  };
  CHECK(has(kRuns, {3, 300, 333}, "sd_store<8>("));
  CHECK(has(kTranspose, {1, 1025, 333}, "sd_load<8>("));
}

TEST_CASE("tiles") {
  for (const char* dtype : {"f16", "f32", "f64", "u8"})
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{2, 136, 72},
                                                                               {1, 129, 65},
                                                                               {1, 263, 133},
                                                                               {1, 16, 200},
                                                                               {2, 3, 40},
                                                                               {3, 145, 19},
                                                                               {1, 20, 257},
                                                                               {0, 20, 20}})
      check(kTranspose, dtype, {shape});
  check(kTranspose, "bf16", {{1, 256, 64}, true});
  check(kTranspose, "bf16", {{2, 387, 131}, true});
  for (const char* dtype : {"f16", "i32"})
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{131, 69}, {30, 61}})
      check(kPadded, dtype, {shape});
}

}  // namespace
}  // namespace stridec::codegen::cuda
