// Kernels that memory bounds, emulated, against the interpreter, by every choice that the sizes allow.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/loop/program.h"

namespace stridec::codegen::cuda {

// A program over x [d0, d1, ..]; `text` has sizes d0, d1, .. and the dtype T.
struct Program {
  std::string name, text;
};

struct Sizes {
  std::vector<int64_t> shape;  // of x
  bool fixed = false;          // numbers in the program instead of symbols
};

loop::Program parse(const Program& p, const std::string& dtype, const Sizes& sizes);

// The first kernel of the only nest, for sm_90a with the schedule that is chosen there.
std::string first_text(loop::Program program);

// `team`: threads of a row, instead of those chosen; `schedule`: all of it.
void check(const Program& p, const std::string& dtype, const Sizes& sizes, int team = 0,
           const std::string& schedule = "", const GpuTarget& target = gpu_target("sm_90a"));

// Programs of several tests.
extern const Program kRows, kNorm, kColumnSum, kTranspose;

}  // namespace stridec::codegen::cuda
