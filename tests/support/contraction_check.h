// Contractions compared with the interpreter.
#pragma once

#include <vector>

#include "compiler/base/target.h"
#include "compiler/kernels/gemm_plan.h"
#include "compiler/loop/interpret.h"
#include "compiler/loop/program.h"

namespace stridec::test {

// Draws from the spaces that the tuner measures, others in every test.
size_t drawn(size_t count);

// A contraction of a program.
struct Case {
  loop::Program program;
  loop::NestId nest;
};

struct Conv {
  std::vector<int64_t> in, kernel;  // sizes of the spatial dims
  int64_t channels = 3, filters = 5, groups = 1;
  int64_t stride = 1, dilation = 1, pad = 0;
  bool channels_last = true;
  bool residual = false;
  DType data = DType::kF32, weights = DType::kF32, sum = DType::kF32;
  int64_t fill = 0;  // of the padding
};

// Channels-last is a matter of strides: the dims stay batch, channel, space.
Case conv(sym::Expr batch, const Conv& c, loop::Program program);

// Compares what a plan computes with the interpreter's result, on one share of the tasks and on several.
void check_plan(const Case& c, const kernels::GemmPlan& plan, const CpuTarget& target,
                const std::vector<loop::Bindings>& shapes);
// ... every plan on this machine, with and without tile registers, some of the space there, the best plan on every other
// instruction set.
void check(const Case& c, const std::vector<loop::Bindings>& shapes = {{}});

}  // namespace stridec::test
