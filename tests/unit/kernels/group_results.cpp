#include "compiler/kernels/group_results.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "compiler/base/text.h"
#include "compiler/loop/text.h"

namespace stridec::kernels {
namespace {

GroupRegisters registers(const char* kernel, DType element = DType::kBF16, bool gathers = false) {
  return {*find_matrix_kernel(kernel), element, gathers};
}

constexpr int kCast = 2, kGelu = 30;

TEST_CASE("costly results are computed where registers hold sums of a whole part, others everywhere") {
  for (const char* kernel :
       {"wgmma.128x256x64", "wgmma.128x128x64.turns", "wgmma.128x64x64", "wgmma.64x16x64"}) {
    INFO(kernel);
    CHECK(registers(kernel).have_results(kCast));
    CHECK(registers(kernel).have_results(kGelu));
  }
  for (const char* kernel : {"wgmma.128x192x64", "wgmma.192x192x64", "wgmma.192x128x64"}) {
    INFO(kernel);
    CHECK(registers(kernel).columns() == 32);
    CHECK(registers(kernel).have_results(kCast));
    CHECK(!registers(kernel).have_results(kGelu));
  }
  // Threads that load operands keep their registers.
  CHECK(registers("wgmma.128x256x64").handed());
  CHECK(!registers("wgmma.128x256x64", DType::kBF16, true).handed());
  CHECK(registers("wgmma.128x256x64", DType::kBF16, true).free() < registers("wgmma.128x256x64").free());
}

TEST_CASE(
    "sums of a step beside the others: two where registers are enough, which takes those of who loads") {
  const DType fp8 = DType::kF8E4M3;
  CHECK(registers("wgmma.128x128x128.8bit", fp8).parts() == 2);
  CHECK(registers("wgmma.128x128x128.8bit", fp8).handed());
  CHECK(registers("wgmma.128x128x128.8bit", fp8, true).parts() == 1);
  CHECK(!registers("wgmma.128x128x128.8bit", fp8, true).handed());
  CHECK(registers("wgmma.64x128x128.deep.8bit", fp8).parts() == 2);
  // Addresses take the remaining registers.
  CHECK(registers("wgmma.64x128x128.deep.8bit", fp8, true).parts() == 1);
  CHECK(registers("wgmma.64x64x128.8bit", fp8).parts() == 1);
  CHECK(registers("wgmma.128x128x128.8bit", DType::kI8).parts() == 0);
  CHECK(registers("wgmma.128x128x64").parts() == 0);
}

// The epilogue of a nest whose rows are %m.
bool in_registers(const std::string& result, const std::string& behind) {
  const loop::Program program = loop::parse_program(
      cat("program p\n  input x f32 [64, 32] ordinal 0\n  input c f32 [16] ordinal 1\n  input r f16 [64, 16] "
          "ordinal 2\n  output y ",
          result,
          " [64, 16] ordinal 0\n  inputs (x, c, r)\n  outputs (y)\n  steps\n    nest 0 n (%m<64, %n<16)\n"
          "      %0 : f32 = load x[%m, %n]\n",
          behind));
  const loop::Nest& nest = program.nests[0];
  std::vector<const loop::Stmt*> statements;
  for (size_t i = 1; i < nest.body.size(); ++i) statements.push_back(&nest.body[i]);
  return results_in_registers(program, statements, {nest.dims[0]});
}

TEST_CASE("results in registers: one that is narrow, and nothing that each row has for itself") {
  const std::string cast = "      %1 : f16 = cast %0\n      store y[%m, %n] %1\n";
  CHECK(in_registers("f16", cast));
  CHECK(in_registers("f16",
                     "      %2 : f32 = load c[%n]\n      %3 : f32 = add %0 %2\n      %1 : f16 = cast %3\n"
                     "      store y[%m, %n] %1\n"));
  CHECK(!in_registers("f32", "      store y[%m, %n] %0\n"));
  CHECK(
      !in_registers("f16",
                    "      %2 : f16 = load r[%m, %n]\n      %3 : f16 = cast %0\n      %1 : f16 = add %2 %3\n"
                    "      store y[%m, %n] %1\n"));
  CHECK(!in_registers("f16", cast + "      store y[%m, 15 - %n] %1\n"));
}

}  // namespace
}  // namespace stridec::kernels
