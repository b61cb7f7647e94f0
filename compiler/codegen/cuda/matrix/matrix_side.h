// Prints the code that copies tiles of one factor of a GEMM to shared memory.
//
// A tile consists of lines of `width()` elements, along the depth (one line per row) or along the rows (one
// line per step of the depth), whichever way the factor is contiguous in memory. It has the same orientation
// in shared memory, with two exceptions. Tensor cores read elements of other than 16 bits only along the
// depth, and simt threads read along the rows: there, 16-byte pieces are copied in memory's orientation and
// transposed in shared memory by the thread that issued the copy. Threads copy pieces of `lanes` elements: 16
// bytes by asynchronous copies; single elements the same way if they are 4 or 8 bytes, otherwise through
// registers. A factor's own computations (casts, scales, masks with other fills) also go through registers.
// On Hopper, for warp groups and for FMAs, a factor that is a matrix in memory, or windows of images, is
// copied as boxes by TMA.
#pragma once

#include <string>
#include <vector>

#include "compiler/codegen/cuda/matrix/matrix_frame.h"
#include "compiler/codegen/device_kernel.h"
#include "compiler/kernels/im2col.h"

namespace stridec::codegen::cuda {

class MatrixSide {
 public:
  // `name`: "a" or "b". `vectors`: 16-byte copies if the factor allows them for some sizes; see condition().
  // `engine`: uses TMA where possible.
  MatrixSide(MatrixFrame& frame, const std::string& name, bool vectors, bool engine);

  // The printed code is correct only under this condition, and if the buffer is aligned to 16 bytes.
  sym::Expr condition() const { return condition_; }
  bool vector() const { return lanes_ > 1; }
  std::optional<loop::BufferId> buffer() const;  // set if it is read by vectors
  bool is_weight() const {
    return load_ && f_.program[load_->access.buffer].storage == loop::Storage::kParameter;
  }
  // The orientation in shared memory.
  bool along_depth() const { return !is_threads() && (along_depth_ || kernels::wants_depth(f_.kernel)); }
  DType element() const { return element_; }
  // The factor as a tensor map, whose boxes one thread requests.
  const std::optional<TensorMap>& map() const { return map_; }
  bool is_windows() const { return windows_.has_value(); }
  // Copies the tile of step `next` to `fill_tile`, counted by the barrier `full`; `map`: the parameter's
  // name.
  void print_boxes(const std::string& map);
  int tile_bytes() const;
  // Bytes of a tile before its pieces are transposed; 0 if they are copied to their final places.
  int staged_bytes() const;
  bool is_staged() const { return staged_bytes() > 0; }
  int stage_bytes() const { return is_staged() ? staged_bytes() : tile_bytes(); }  // per stage of the ring

  void print_line();   // declares a thread's line, and its position in it
  void print_start();  // also declares addresses that are constant over a tile
  void print_issue();  // issues the copies of the tile of step `next` to `fill_tile`, a shared-memory address
  void print_deposit();  // stores the elements that were loaded into registers to `fill_tile`
  // Transposes `staged_tile` into `turned_tile` (offsets in shared memory); a thread transposes the pieces
  // that it copied.
  void print_turn();

  // C expression: byte offset of an element from the tile's start. `line` and `at` (the position in the line)
  // are C expressions in the orientation of shared memory.
  std::string place(const std::string& line, const std::string& at) const;

 private:
  // Whether the tile is transposed on its way into shared memory.
  bool is_turned() const { return along_depth() != along_depth_; }
  // Whether threads own register tiles, which they read along the rows.
  bool is_threads() const { return !f_.kernel.is_tensor() && !f_.kernel.is_sliced(); }
  std::string place_taken(const std::string& line, const std::string& at) const;
  int pitch() const;  // distance between lines of thread tiles, in elements
  int width() const;  // elements per line, as threads copy them
  int lines() const;
  int pieces() const;      // per thread
  bool is_scarce() const;  // whether some threads have no piece
  void find_map();
  bool find_matrix();
  void find_windows();
  void print_windows(const std::string& map);
  // Copies one box to `to`; `row`: the tile's first row that it holds.
  void print_window(const std::string& map, const std::string& to, const std::string& row);
  std::string mask_text(Body& body, const std::string& i);

  MatrixFrame& f_;
  const std::string name_, first_;  // first row of the tile
  const kernels::Factor& factor_;
  const Dims& dims_;
  const int extent_;                  // of the tile
  const DType element_;               // in shared memory
  const loop::Load* load_ = nullptr;  // the factor, if it is only this load, at a linear offset
  kernels::LinearForm form_;          // of the load's offset, along the depth
  sym::Expr deeper_ = 0;              // the part of the offset that depends on the depth
  std::optional<sym::Expr> step_;     // stride of the depth in the offset, if it acts as one flattened dim
  bool along_depth_ = true;           // in memory
  int lanes_ = 1;
  sym::Expr condition_ = 1;
  bool ragged_ = false;  // the last piece of a line may be partial
  std::optional<TensorMap> map_;
  std::vector<sym::Expr> map_batch_;  // for a matrix: the map's dims after the first two
  std::optional<kernels::Im2col> windows_;
  Dims positions_;  // of the windows, in order
};

}  // namespace stridec::codegen::cuda
