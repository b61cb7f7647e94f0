// The range of keys that a block of attention rows may attend to, printed for kernels of any target.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "compiler/codegen/body.h"
#include "compiler/kernels/flash.h"

namespace stridec::codegen {

// The statements of the body that compute `wanted`, and with `stores` also those that stores need; the
// statement at `except` is left out.
std::vector<const loop::Stmt*> slice(const loop::Block& body, size_t except, std::set<loop::ValueId> wanted,
                                     bool stores);

// Generated variable `hides`: some key is visible to all rows of the block (by the data-dependent part of the
// mask), so that keys hidden by the index mask have weight zero and can be skipped.
class SeenKeys {
 public:
  SeenKeys(const kernels::Flash& flash, KernelText& text);

  // `scores` is a body for the score statements in which the batch dims' indices are set. The printed lengths
  // become known to it and to `others`.
  void print_lengths(Body& scores, const std::vector<Body*>& others = {}) const;
  void print_hides(const Body& scores, const std::string& first_row) const;
  // Declares a number of keys: keys beyond it are masked for the row and all earlier rows, or do not exist.
  void print_end(const Body& scores, const std::string& name, const std::string& row) const;
  std::set<sym::Expr, sym::ExprLess> batch_dims() const;  // the batch dims that the key range depends on

 private:
  const kernels::Flash& flash_;
  KernelText& text_;
  std::vector<const loop::Stmt*> lengths_, others_;
};

}  // namespace stridec::codegen
