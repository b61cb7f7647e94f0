// What both forms of attention's backward pass for Hopper share: tensor maps of the factors, places of heads,
// stores of results, and the launch that prepares the rows.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/codegen/body.h"
#include "compiler/codegen/cuda/attention/flash_source.h"
#include "compiler/codegen/cuda/common/frame.h"
#include "compiler/codegen/device_kernel.h"
#include "compiler/kernels/flash_backward.h"
#include "compiler/loop/program.h"

namespace stridec::codegen::cuda {

class BackwardFrame {
 public:
  // Tiles have `tile_rows` queries and `tile_keys` keys. `at`: the offset in the workspace of what the first
  // launch writes.
  BackwardFrame(const loop::Program& program, const loop::Nest& nest, const kernels::FlashBackward& flash,
                int tile_rows, int tile_keys, sym::Expr at);

  // Makes the tensor maps of q, the gradient, k and v. Adds the conditions under which TMA copies their
  // tiles, and the buffers that must be aligned. False if TMA does not support a factor.
  bool add_sources(DeviceChoice& choice, std::vector<sym::Expr>& conditions);

  // The assignments to the fields of `struct Backward a` that both forms have.
  void print_sizes(KernelText& text) const;
  // Prints locate(head), which returns the place of a head, and load(factor, to, bar, row, place), which
  // copies a tile (0: q, 1: the gradient of o, 2: k, 3: v). Sets the batch indices in `body` to the fields
  // of a place named `at`.
  void print_copies(KernelText& text, Body& body) const;
  // Prints `out`, an Output (backward_machine()) of these results. Requires the batch indices in `body`.
  void print_stores(KernelText& text, const Body& body,
                    const std::vector<const kernels::FlashBackward::Result*>& results) const;
  // Prints the stores of two neighbouring elements x, y of a result, at columns `column` and `column + 1`.
  // Requires the indices of the batch and of the line in `base`.
  void print_pair(KernelText& text, const Body& base, const kernels::FlashBackward::Result& result) const;
  // Sets the batch dims' indices from `head`, a C expression.
  void print_place(KernelText& text, Body& body, const std::string& head) const;

  // The launch that writes the log-sum-exp times log2(e) of each row, and its sum of o times the gradient, to
  // the workspace, padded to whole tiles. `declared` declares struct Backward, and `print_fields` sets its
  // further fields. `clear`: lines that run once per row; `at` is the row's number over all heads, padding
  // included.
  DeviceKernel rows_kernel(const std::string& declared, const std::function<void(KernelText&)>& print_fields,
                           const std::vector<std::string>& clear, sym::Expr workspace_bytes) const;

  // Adds the maps of the factors. Returns the declarations of barriers and of what copies tiles.
  std::string add_maps(Geometry& geometry) const;

  const loop::Program& program;
  const loop::Nest& nest;
  const kernels::FlashBackward& flash;
  const int tile_rows, tile_keys;
  sym::Expr heads, row_tiles;
  sym::Expr sums, deltas, end;  // offsets in the workspace; what follows the deltas

 private:
  void add_aligned(DeviceChoice& choice, const kernels::Flash::Operand& factor) const;
  // Evaluates the statements for x and y. Stores in `paired` write to pair0[2], pair1[2], ...; all others
  // write to memory.
  void print_words(KernelText& text, const Body& base, const kernels::FlashBackward::Result& result,
                   const std::vector<const loop::Store*>& paired) const;
  // The result's stores of 16-bit elements of which each group of `lanes` columns is contiguous and aligned
  // in memory.
  std::vector<const loop::Store*> aligned_stores(const kernels::FlashBackward::Result& result,
                                                 int lanes) const;
  // Whether threads can store 8 columns at once.
  bool is_wide(const kernels::FlashBackward::Result& result) const;
  const loop::Stmt* log_sum_exp() const;

  std::vector<FlashSource> sources_;
};

}  // namespace stridec::codegen::cuda
