// Small programs for tests of the schedule layer, built from pieces and compared by the interpreter.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/loop/build.h"
#include "compiler/loop/interpret.h"

namespace stridec::testing {

// A program under construction: every method adds nests and returns the view of the result.
struct Pieces {
  explicit Pieces(std::string name);

  loop::View input(const std::string& name, std::vector<sym::Expr> shape, DType dtype = DType::kF32);
  loop::View weight(const std::string& name, const std::vector<int64_t>& shape, uint32_t seed);
  // Copies into a new output buffer.
  void output(const std::string& name, const loop::View& value);

  using Function = std::function<loop::Value(const std::vector<loop::Value>&)>;
  // Pointwise; operands broadcast to the first one's shape, right-aligned.
  loop::View map(const std::string& name, const std::vector<loop::View>& operands, const Function& f,
                 DType dtype = DType::kF32);
  loop::View reduce_last(const loop::View& x, loop::Combine combine);  // keeps the dim with extent 1
  loop::View reduce_first(const loop::View& x);                        // sum; drops the dim
  loop::View softmax(const loop::View& x);                             // over the last dim, as five nests
  loop::View matmul(const loop::View& a, const loop::View& b);         // [m, k] x [k, n]
  // A GEMM with a weight of these sizes, named after the seed.
  loop::View product(const loop::View& x, int64_t depth, int64_t columns, uint32_t seed);
  loop::View concat(const std::vector<loop::View>& parts);            // along dim 1
  loop::View gather(const loop::View& table, const loop::View& ids);  // rows

  loop::View temporary(const std::string& name, std::vector<sym::Expr> shape, DType dtype = DType::kF32);

  loop::Program program;
  sym::Expr n, m;  // symbols
};

// A transposed copy of a matrix.
loop::View permute_copy(Pieces& pieces, const loop::View& x);

// Pointwise ops, reductions, softmaxes, contractions, transposes and concats over tensors like [n, 4], with
// several outputs.
Pieces random_program(uint32_t seed);

// x [images, n, in] -> y [images, n - 5, out] in the form of a Winograd convolution: every point of [images,
// n - 5] is transformed to six planes, each plane is multiplied by a weight matrix, and the planes are
// transformed back. The symbols are n and images.
loop::Program planes_of_products(int64_t in, int64_t out);

// A chain of convolutions with ReLU on x [images, rows, width, in]; rows is the symbol n, images is m.
struct Layer {
  int64_t out, taps = 1, stride = 1, dilation = 1, pad = 0;
  // Layers to read and to add, counted from 1. -1: read the previous layer, add nothing.
  int from = -1, adds = -1;
};
loop::Program convolutions(int64_t width, int64_t in, const std::vector<Layer>& layers);

// The program with its first nest replaced by the result of `parts_of`, verified; unchanged if that is empty.
loop::Program with_first_nest_replaced(
    loop::Program program,
    const std::function<std::vector<loop::Nest>(loop::Program& program, const loop::Nest& nest)>& parts_of);

// Random values for a program's inputs at these sizes: floats in [-2, 2), integers in 0..3.
std::vector<loop::HostTensor> random_inputs(const loop::Program& program, const loop::Bindings& sizes,
                                            uint32_t seed);

// Same shapes and dtypes, and values that differ by at most `relative` of max(1, |value|); NaN equals NaN.
bool close(const std::vector<loop::HostTensor>& a, const std::vector<loop::HostTensor>& b, double relative);

// Runs both programs on equal random inputs of these sizes and compares them with a relative tolerance of
// 1e-5; `after` uses its planned arena.
bool same_results(const loop::Program& before, const loop::Program& after, const loop::Bindings& sizes,
                  uint32_t seed = 1);

}  // namespace stridec::testing
