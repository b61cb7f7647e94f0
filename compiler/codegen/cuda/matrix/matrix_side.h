// One factor of a matrix product on its way into shared memory.
//
// A tile is taken as lines of `width()` elements, along the depth (a line per row) or along the rows (a line per
// step of the depth), whichever way the factor is contiguous in memory. It lies in shared memory that way, but that
// tensor cores take elements that have not 16 bits along the depth alone, and threads (simt) along the rows: there
// 16-byte pieces come as they lie in memory, and are turned within shared memory by who asked for them. Threads take
// pieces of `lanes` elements: 16 bytes by asynchronous copies, single elements that way where they are 4 or 8 bytes, and
// else through registers, which is where a factor's own computations (casts, scales, masks with other fills) are done.
// On Hopper, for warp groups and for multiply-adds, a factor that is a matrix in memory, or windows of images, comes as
// boxes by the copy engine (TMA).
#pragma once

#include <string>
#include <vector>

#include "compiler/codegen/cuda/matrix/matrix_frame.h"
#include "compiler/codegen/device_kernel.h"
#include "compiler/kernels/im2col.h"

namespace stridec::codegen::cuda {

class MatrixSide {
 public:
  // `name`: "a" or "b". `vectors`: 16-byte copies where the factor allows them for some sizes; condition() says which.
  // `engine`: they are the copy engine's where it can.
  MatrixSide(MatrixFrame& frame, const std::string& name, bool vectors, bool engine);

  // Under which the text is right; besides, the buffer lies on a multiple of 16 bytes.
  sym::Expr condition() const { return condition_; }
  bool vector() const { return lanes_ > 1; }
  std::optional<loop::BufferId> buffer() const;  // of vectors
  bool is_weight() const {
    return load_ && f_.program[load_->access.buffer].storage == loop::Storage::kWeight;
  }
  // In shared memory.
  bool along_depth() const { return !is_threads() && (along_depth_ || kernels::wants_depth(f_.kernel)); }
  DType element() const { return element_; }
  // The factor as a tensor map, whose boxes one thread asks for.
  const std::optional<TensorMap>& map() const { return map_; }
  bool is_windows() const { return windows_.has_value(); }
  // Copies of the tile of step `next` into `fill_tile`, counted by the barrier `full`; `map`: the parameter's name.
  void print_boxes(const std::string& map);
  int tile_bytes() const;
  // Where pieces that come whole lie before they are turned: bytes of a tile, 0 where they come in their places.
  int staged_bytes() const;
  bool is_staged() const { return staged_bytes() > 0; }
  int stage_bytes() const { return is_staged() ? staged_bytes() : tile_bytes(); }  // of a stage of the ring

  void print_line();     // a thread's line, and its place in it
  void print_start();    // this, and addresses that stay the same for a tile
  void print_issue();    // sends for the tile of step `next`, into `fill_tile` (an address in shared memory)
  void print_deposit();  // puts into `fill_tile` what came by registers
  // Turns what lies in `staged_tile` into `turned_tile`, offsets in shared memory: a thread its own pieces.
  void print_turn();

  // C expression: bytes from the tile's start of an element; `line` and `at` (in the line) are C expressions, of lines as
  // they lie in shared memory.
  std::string place(const std::string& line, const std::string& at) const;

 private:
  bool is_turned() const { return along_depth() != along_depth_; }  // on its way into shared memory
  // Threads with a tile of registers each, which read it along the rows.
  bool is_threads() const { return !f_.kernel.is_tensor() && !f_.kernel.is_sliced(); }
  std::string place_taken(const std::string& line, const std::string& at) const;
  int pitch() const;  // of lines of threads' tiles, in elements
  int width() const;  // of a line, as threads take them
  int lines() const;
  int pieces() const;      // of a thread
  bool is_scarce() const;  // threads without a piece
  void find_map();
  bool find_matrix();
  void find_windows();
  void print_windows(const std::string& map);
  std::string mask_text(Body& body, const std::string& i);

  MatrixFrame& f_;
  const std::string name_, first_;  // first row of the tile
  const kernels::Factor& factor_;
  const Dims& dims_;
  const int extent_;                  // of the tile
  const DType element_;               // in shared memory
  const loop::Load* load_ = nullptr;  // the factor is this load and no more, at a linear offset
  kernels::LinearForm form_;          // of its offset, along the depth
  sym::Expr deeper_ = 0;              // the offset's part that the depth makes
  std::optional<sym::Expr> step_;     // of the offset, where the depth runs through it as one dim
  bool along_depth_ = true;           // in memory
  int lanes_ = 1;
  sym::Expr condition_ = 1;
  bool ragged_ = false;  // the last piece of a line may be a part of one
  std::optional<TensorMap> map_;
  std::vector<sym::Expr> map_batch_;  // of a matrix: dims of the map behind the first two
  std::optional<kernels::Im2col> windows_;
};

}  // namespace stridec::codegen::cuda
