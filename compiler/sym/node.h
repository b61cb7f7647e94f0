// Inside of the symbolic integers: nodes and their table. Nothing outside this folder includes it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "compiler/sym/expr.h"

namespace stridec::sym {

struct Node {
  Op op = Op::kConst;
  bool condition = false;  // 0 or 1 by construction
  bool index = false;      // a loop variable occurs in it
  uint16_t depth = 0;
  uint32_t size = 1;
  uint32_t count = 0;
  const Expr* args = nullptr;
  int64_t value = 0;
  const std::string* name = nullptr;
  uint64_t hash = 0;
  uint64_t variables = 0;  // one bit for each name, by hash: disjoint masks mean disjoint variables
};

// The node as given, which must be in canonical form. Throws Error kOverBudget for an expression nested too
// deeply.
Expr intern(Op op, std::span<const Expr> args);
inline Expr intern(Op op, Expr a, Expr b) {
  const Expr args[] = {a, b};
  return intern(op, args);
}

}  // namespace stridec::sym
