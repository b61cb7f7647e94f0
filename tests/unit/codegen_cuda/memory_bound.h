// Emulates memory-bound kernels and compares them with the interpreter, for every schedule that the sizes
// allow.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/loop/program.h"

namespace stridec::codegen::cuda {

// A program over x [d0, d1, ..]; `text` uses sizes d0, d1, .. and dtype T.
struct Program {
  std::string name, text;
};

struct Sizes {
  std::vector<int64_t> shape;  // of x
  bool fixed = false;          // constant sizes instead of symbols
};

loop::Program parse(const Program& p, const std::string& dtype, const Sizes& sizes);

// The first kernel's text of the only nest, for sm_90a with its default schedule.
std::string first_text(loop::Program program);

// `team`: threads per row, instead of the chosen number; `schedule`: the whole schedule.
void check(const Program& p, const std::string& dtype, const Sizes& sizes, int team = 0,
           const std::string& schedule = "", const GpuTarget& target = gpu_target("sm_90a"));

// Programs shared by several tests.
extern const Program kRows, kNorm, kColumnSum, kTranspose;

}  // namespace stridec::codegen::cuda
