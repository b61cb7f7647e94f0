// The prologue of a GEMM that computes its rows from whole rows (kernels/norm_prologue.h). Before a block
// multiplies, all of its threads load the rows of its only tile of columns into registers, one thread group
// per row, reduce the statistics, and store the computed rows where the products read them. What depends on
// weights alone is loaded while the previous launch runs.
#pragma once

#include <string>
#include <vector>

#include "compiler/codegen/cuda/matrix/matrix_side.h"

namespace stridec::codegen::cuda {

class MatrixRows {
 public:
  // `vectors`: 16-byte loads where the rows allow them for some sizes; see condition() and aligned().
  MatrixRows(MatrixFrame& frame, const MatrixSide& side, bool vectors);

  sym::Expr condition() const { return condition_; }
  const std::vector<loop::BufferId>& aligned() const { return aligned_; }
  // Declares the thread groups and loads from weights.
  void print_weights();
  // Everything else, between barriers of the block: stores the elements of steps begin .. end - 1 from byte
  // `at` of `shared` on.
  void print(const std::string& at);

 private:
  struct Held {           // a load along the row: a thread's elements of it
    loop::Access access;  // in terms of along()
    std::string name;
    bool wide;  // its elements are contiguous
    bool made;  // used only to compute the row: loaded for the block's own part of it
    bool weight(const loop::Program& program) const {
      return program[access.buffer].storage == loop::Storage::kParameter;
    }
  };

  static sym::Expr along();  // the position in the row
  static loop::Access by_place(const loop::Access& access, sym::Expr var);
  void find(const loop::Block& block, const loop::Dim& dim, bool made);
  bool is_wide(const loop::Access& access);
  const Held* held_of(const loop::Access& access, sym::Expr var) const;
  // Opens the loop over a thread's vectors: of the block's own part of the row (`made`), or of the whole row.
  void open_vectors(bool made);
  void print_loads(bool weights);
  void print_statistic(Body& body, const loop::Reduce& reduce);
  void print_row(Body& body, const loop::For& loop, const std::string& to);
  void print_stored(Body& body, const loop::Store& store, const loop::Dim& dim, const std::string& name);

  MatrixFrame& f_;
  const MatrixSide& side_;
  const bool vectors_;
  const int64_t depth_;
  const int vectors_of_thread_;
  std::vector<Held> held_;
  sym::Expr condition_ = 1;
  std::vector<loop::BufferId> aligned_;
};

}  // namespace stridec::codegen::cuda
