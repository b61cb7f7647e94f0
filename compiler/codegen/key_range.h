// Of attention: which keys a block of rows sees, printed for kernels of any target.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "compiler/codegen/body.h"
#include "compiler/kernels/flash.h"

namespace stridec::codegen {

// The statements of the body that compute `wanted`, and stores where `stores`; without the one at `except`.
std::vector<const loop::Stmt*> slice(const loop::Block& body, size_t except, std::set<loop::ValueId> wanted,
                                     bool stores);

// Generated variables: hides (some key is seen by all of the rows, where memory says whether, so that those that the mask
// of indices hides have no weight).
class SeenKeys {
 public:
  SeenKeys(const kernels::Flash& flash, KernelText& text);

  // `scores` is a body of the scores' statements that knows the batch dims' indices. It learns the lengths, and so do
  // `others`.
  void print_lengths(Body& scores, const std::vector<Body*>& others = {}) const;
  void print_hides(const Body& scores, const std::string& first_row) const;
  // Declares a number of keys: those beyond are hidden from the row and from those before it, or are none.
  void print_end(const Body& scores, const std::string& name, const std::string& row) const;
  std::set<sym::Expr, sym::ExprLess> batch_dims() const;  // that the keys differ by

 private:
  const kernels::Flash& flash_;
  KernelText& text_;
  std::vector<const loop::Stmt*> lengths_, others_;
};

}  // namespace stridec::codegen
