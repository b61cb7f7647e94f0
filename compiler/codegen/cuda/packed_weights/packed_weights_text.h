// What the packed-weight kernels (kernels/packed_weights.h) share: the packed weights of a nest, and device
// functions that extract numbers from words as pairs of 16-bit floats.
//
// sd_take<i> returns the fragment of a chunk's i-th MMA step, number - zero, exactly. sd_zeros returns the
// addends for that, for columns g and g + 8.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "compiler/codegen/emit_text.h"
#include "compiler/kernels/cuda_matrix.h"
#include "compiler/kernels/packed_weights.h"

namespace stridec::codegen::cuda {

// The type that holds the numbers exactly until they are multiplied.
DType numbers_dtype(DType element);
// The device functions; `dtype` is f16 or bf16.
std::string numbers_text(const kernels::PackedLayout& layout, DType dtype);

// The packed weights that a nest reads.
struct Words {
  kernels::PackedLayout layout;
  int64_t zero = 0;
  loop::BufferId words;
  std::optional<loop::BufferId> scales, zeros;
};
Words words_of(const loop::Program& program, const loop::Nest& nest, const loop::Block& block,
               kernels::PackedLayout layout);

// packed_plan(): rows, columns and depth of a GEMM by packed weights. packed_element(): element type of the
// other factor.
kernels::MatrixPlan packed_plan(const loop::Program& program, const loop::Nest& nest);
DType packed_element(const loop::Nest& nest, const kernels::MatrixPlan& plan);

// Text for a chunk of packed weights in registers, with its zero points and scales.
class PackedWeightsText {
 public:
  PackedWeightsText(KernelText& text, const loop::Program& program, const Words& words);

  // The type Chunk: what a lane needs of a chunk, in memory's format.
  void print_chunk_type() const;
  // load_chunk(chunk, tile, first, warps): loads the chunk with number first + warps * N, where N is the
  // argument of print_loads() and `warps` is a compile-time constant.
  void print_loads(int warps) const;
  // Registers per chunk.
  int registers() const;
  std::string zeros(const std::string& chunk, int64_t block) const;
  // The scale, an f32, of column g, or with `high` of column g + 8.
  std::string scale(const std::string& chunk, int64_t block, int high) const;
  DType scale_dtype() const { return scale_dtype_; }
  // Elements per chunk: one per block for each of columns g and g + 8.
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
