// Random draws with the bits of PyTorch's generators: on CPUs (at::CPUGeneratorImpl) MT19937, and the
// formulas of aten/src/ATen/core/TransformationHelper.h and native/cpu/DistributionTemplates.h; on NVIDIA
// GPUs (at::CUDAGeneratorImpl) Philox 4x32-10 (loop/philox.h), and those of
// native/cuda/DistributionTemplates.h. Draws take their numbers in the order in which they are added. Each
// distribution takes as many words as PyTorch's kernel does, in the order of the elements in `shape`; a
// tensor that lies in memory in another order is drawn in that order.
#pragma once

#include <cstdint>

#include "compiler/ops/term.h"

namespace stridec::ops {

// Which of PyTorch's generators a graph draws from.
struct TorchGenerator {
  int64_t threads = 0;  // 0: that on CPUs; otherwise that on a GPU that holds so many threads at once
};
// Gives the graph the state kGenerator (random.h) with the generator as it is when a process starts.
void add_torch_generator(Builder& b, const TorchGenerator& generator);
bool has_torch_generator(const graph::Graph& graph);
bool has_cuda_generator(const graph::Graph& graph);
// Keeps the state after the last draw for the next run, or removes it if nothing was drawn.
void finish_torch_generator(Builder& b);

// The functions that follow require has_torch_generator(). They throw Error (kUnsupported) in branches and
// loops.
//
// `count` words, i64: of 32 bits, or if `wide` holds, of 64.
Term torch_words(Builder& b, sym::Expr count, sym::Expr wide);
Term torch_permutation(Builder& b, sym::Expr count);  // on GPUs of a constant
// In [0, 1): with as many bits as the dtype's mantissa has, as f32, or f64 if the dtype is f64. On GPUs in
// (0, 1] with as many as f32 and f64 have.
Term torch_uniform(Builder& b, const Shape& shape, DType dtype);
Term torch_uniform(Builder& b, const Shape& shape, DType dtype, double low, double high);
// `dense`: the elements lie in memory in the order of `shape`. On CPUs, PyTorch draws other tensors, and
// those of fewer than 16 elements, one by one.
Term torch_normal(Builder& b, const Shape& shape, DType dtype, double mean, double deviation, bool dense);
// As f64, with numbers of 53 bits; log-normals on CPUs are exp() of these.
Term torch_normal_pairs(Builder& b, const Shape& shape, double mean, double deviation);
// low + (a word) mod (high - low).
Term torch_integers(Builder& b, const Shape& shape, sym::Expr low, sym::Expr high);

// ---- of the generator on GPUs ----------------------------------------------------------------------------
// As f32, or f64 if the dtype is f64. `layout`: how elements are dealt to threads (Deal in loop/philox.h).
Term cuda_uniform(Builder& b, const Shape& shape, DType dtype, sym::Expr layout);
Term cuda_normal(Builder& b, const Shape& shape, DType dtype, double mean, double deviation);
Term cuda_logarithm(Builder& b, const Shape& shape, DType dtype);  // of a uniform
Term cuda_exponential(Builder& b, const Shape& shape, DType dtype, double rate);

}  // namespace stridec::ops
