// Compares compiled contractions with the interpreter.
#pragma once

#include <vector>

#include "compiler/base/target.h"
#include "compiler/kernels/gemm_plan.h"
#include "compiler/loop/interpret.h"
#include "compiler/loop/program.h"

namespace stridec::test {

// A random index below `count`. Schedules are sampled from the tuner's spaces, different ones in every test.
size_t drawn(size_t count);

// A program and its contraction.
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
  int64_t fill = 0;  // value of the padding
};

// channels_last only affects strides: the order of dims stays batch, channel, space.
Case conv(sym::Expr batch, const Conv& c, loop::Program program);

// Compares the results of a plan with the interpreter's, with the tasks in one share and in several.
void check_plan(const Case& c, const kernels::GemmPlan& plan, const CpuTarget& target,
                const std::vector<loop::Bindings>& shapes);
// Checks every plan on this machine, with and without tile registers, a sample of its search space, and the
// best plan for every other instruction set.
void check(const Case& c, const std::vector<loop::Bindings>& shapes = {{}});

}  // namespace stridec::test
