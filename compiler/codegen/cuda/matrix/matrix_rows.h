// The prologue of a product whose rows are made from whole rows by itself (kernels/norm_prologue.h): before a block
// multiplies, all of its threads read the rows of its only tile of columns into registers, a team of threads each, add up
// their statistics, and put what they make of them where the products read it. What depends on weights alone is loaded
// while the launch before this one runs.
#pragma once

#include <string>
#include <vector>

#include "compiler/codegen/cuda/matrix/matrix_side.h"

namespace stridec::codegen::cuda {

class MatrixRows {
 public:
  // `vectors`: 16-byte loads where the rows allow them for some sizes; condition() and aligned() say which.
  MatrixRows(MatrixFrame& frame, const MatrixSide& side, bool vectors);

  sym::Expr condition() const { return condition_; }
  const std::vector<loop::BufferId>& aligned() const { return aligned_; }
  // The teams, and what they load of weights.
  void print_weights();
  // All else, between barriers of the block: elements of the steps begin .. end - 1, from the byte `at` of `shared` on.
  void print(const std::string& at);

 private:
  struct Held {           // a load that runs along the row: a thread's elements of it
    loop::Access access;  // by along()
    std::string name;
    bool wide;  // they lie side by side
    bool made;  // of what is made alone: of a block's own part of the row
    bool weight(const loop::Program& program) const {
      return program[access.buffer].storage == loop::Storage::kWeight;
    }
  };

  static sym::Expr along();  // the place in the row
  static loop::Access by_place(const loop::Access& access, sym::Expr var);
  void find(const loop::Block& block, const loop::Dim& dim, bool made);
  bool is_wide(const loop::Access& access);
  const Held* held_of(const loop::Access& access, sym::Expr var) const;
  // Opens the loop over a thread's vectors, of its part of the row alone (`made`) or of all of it.
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
