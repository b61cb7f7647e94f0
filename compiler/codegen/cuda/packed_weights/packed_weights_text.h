// What the kernels of weights of few bits (kernels/packed_weights.h) have in common: such weights in a nest, and the text that takes
// numbers out of words as pairs of 16-bit floats.
//
// sd_take<i>: the fragment of a chunk's i-th product, number - zero, exactly; sd_zeros: what is added for that, for columns
// g and g + 8.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "compiler/codegen/emit_text.h"
#include "compiler/kernels/cuda_matrix.h"
#include "compiler/kernels/packed_weights.h"

namespace stridec::codegen::cuda {

// What holds the numbers exactly on the way to the product.
DType numbers_dtype(DType element);
// Declarations; `dtype` is f16 or bf16.
std::string numbers_text(const kernels::PackedLayout& layout, DType dtype);

// The weights that a nest reads in words.
struct Words {
  kernels::PackedLayout layout;
  int64_t zero = 0;
  loop::BufferId words;
  std::optional<loop::BufferId> scales, zeros;
};
Words words_of(const loop::Program& program, const loop::Nest& nest, const loop::Block& block,
               kernels::PackedLayout layout);

// Rows, columns and depth of a product by words; what the other factor's elements are.
kernels::MatrixPlan packed_plan(const loop::Program& program, const loop::Nest& nest);
DType packed_element(const loop::Nest& nest, const kernels::MatrixPlan& plan);

// A chunk in registers, its zero points and scales.
class PackedWeightsText {
 public:
  PackedWeightsText(KernelText& text, const loop::Program& program, const Words& words);

  // Chunk: what a lane needs of a chunk, in memory's form.
  void print_chunk_type() const;
  // load_chunk(chunk, tile, first, warps): of the chunk's number the second part is known to the compiler.
  void print_loads(int warps) const;
  // Registers of a chunk.
  int registers() const;
  std::string zeros(const std::string& chunk, int64_t block) const;
  // Of column g, high: g + 8; an f32.
  std::string scale(const std::string& chunk, int64_t block, int high) const;
  DType scale_dtype() const { return scale_dtype_; }
  // Of a chunk: its blocks' numbers of columns g and g + 8.
  int pairs() const { return static_cast<int>(2 * w_.layout.blocks()); }

  const std::string& words() const { return words_; }
  const std::string& all_scales() const { return scales_; }
  const std::string& all_zeros() const { return zeros_; }

 private:
  KernelText& text_;
  const Words& w_;
  std::string words_, scales_, zeros_;
  DType scale_dtype_ = DType::kF32;
};

}  // namespace stridec::codegen::cuda
