// Symbolic integers: sizes over named symbols ("batch"), index expressions over loop variables ("%i"), and
// conditions.
//
// Semantics. An expression denotes a 64-bit integer for each assignment of its variables, or nothing if its
// evaluation divides by zero or overflows. True is 1 and false is 0; a condition is any expression, taken as
// `!= 0`. `floordiv` rounds towards minus infinity and `mod` has the sign of the divisor, so a ==
// b*floordiv(a,b) + mod(a,b). `select` needs a value only on the chosen side; `&&` and `||` have one as soon
// as one operand decides. Rewriting keeps every value, and may give a value where there was none (x*y
// floordiv y -> x).
//
// Form. Every constructor returns the canonical form: constants are folded; sums are linear combinations of
// products in a fixed order, constant last; products are multiplied out while that stays small; constant
// multiples are moved out of floordiv and mod; comparisons have positive terms on both sides, without common
// terms or factors; there is no `>`, `>=`, `!` (logical_not builds the opposite comparison). Simplifications
// that need facts about variables are in facts.h.
//
// Nodes are interned, immutable and never freed: structural equality is pointer equality. Thread-safe.
// A constant that leaves 64 bits throws Error kDoesNotFit, code "size-overflow".
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <vector>

namespace stridec::sym {

// The order is the order of operands in printed text.
enum class Op : uint8_t {
  kVar,
  kMul,       // n-ary; a constant factor, if any, is first and is neither 0 nor 1
  kFloorDiv,  // a, b
  kMod,       // a, b
  kMin,       // n-ary
  kMax,       // n-ary
  kSelect,    // condition, then, else
  kAdd,       // n-ary; terms are never sums; a constant, if any, is last and is not 0
  kEq,        // a, b
  kNe,        // a, b
  kLt,        // a, b
  kLe,        // a, b
  kAnd,       // n-ary, of conditions
  kOr,        // n-ary, of conditions
  kConst,
};

class Expr;

// What an Expr points to. Only the constructors below make nodes; other code reads them through Expr.
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

class Expr {
 public:
  Expr();  // 0
  template <class T>
    requires std::is_integral_v<T>
  Expr(T value) : node_(constant(static_cast<int64_t>(value))) {}  // implicit on purpose

  Op op() const { return node_->op; }
  // Empty for constants and variables.
  std::span<const Expr> args() const { return {node_->args, node_->count}; }
  const Expr& arg(size_t i) const { return args()[i]; }
  int64_t value() const { return node_->value; }            // kConst only
  const std::string& name() const { return *node_->name; }  // kVar only; loop variables include their '%'
  bool is_const() const { return op() == Op::kConst; }
  bool is_const(int64_t value) const { return is_const() && node_->value == value; }
  bool is_var() const { return op() == Op::kVar; }
  bool is_condition() const { return node_->condition; }  // the value is 0 or 1 by construction
  uint64_t hash() const { return node_->hash; }           // a structural hash: the same in every process
  uint32_t size() const { return node_->size; }           // number of nodes written out as a tree, saturating

  // Structural identity, not the symbolic comparison eq(a, b).
  friend bool operator==(Expr a, Expr b) { return a.node_ == b.node_; }

  const Node* node() const { return node_; }
  explicit Expr(const Node* node) : node_(node) {}

 private:
  static const Node* constant(int64_t value);
  const Node* node_;
};

// A total order on structure, the same in every process: negative, 0 or positive. Sums and products are
// sorted by it.
int compare(Expr a, Expr b);
struct ExprLess {
  bool operator()(Expr a, Expr b) const { return compare(a, b) < 0; }
};
struct ExprHash {
  size_t operator()(Expr e) const { return static_cast<size_t>(e.hash()); }
};

// A symbol, or a loop variable if the name starts with '%'. Equal names give the same variable.
Expr var(std::string_view name);
inline bool has_index(Expr e) { return e.node()->index; }               // some loop variable occurs in it
inline bool is_index(Expr e) { return e.is_var() && e.node()->index; }  // a loop variable itself

Expr operator+(Expr a, Expr b);
Expr operator-(Expr a, Expr b);
Expr operator-(Expr a);
Expr operator*(Expr a, Expr b);
inline Expr& operator+=(Expr& a, Expr b) { return a = a + b; }
inline Expr& operator-=(Expr& a, Expr b) { return a = a - b; }
inline Expr& operator*=(Expr& a, Expr b) { return a = a * b; }

Expr sum(std::span<const Expr> terms);
Expr product(std::span<const Expr> factors);
Expr floordiv(Expr a, Expr b);
Expr mod(Expr a, Expr b);
Expr ceildiv(Expr a, Expr b);   // b > 0
Expr align_up(Expr a, Expr b);  // the least multiple of b that is >= a; b > 0
Expr min(Expr a, Expr b);
Expr max(Expr a, Expr b);
Expr min(std::span<const Expr> args);  // at least one
Expr max(std::span<const Expr> args);
Expr abs(Expr a);

Expr eq(Expr a, Expr b);
Expr ne(Expr a, Expr b);
Expr lt(Expr a, Expr b);
Expr le(Expr a, Expr b);
Expr gt(Expr a, Expr b);
Expr ge(Expr a, Expr b);
Expr logical_and(Expr a, Expr b);
Expr logical_or(Expr a, Expr b);
Expr logical_and(std::span<const Expr> args);  // empty: 1
Expr logical_or(std::span<const Expr> args);   // empty: 0
Expr logical_not(Expr a);
Expr select(Expr condition, Expr then, Expr otherwise);

inline std::optional<int64_t> as_const(Expr e) {
  if (!e.is_const()) return std::nullopt;
  return e.value();
}

// A map from variables to expressions, all replaced simultaneously.
using Substitution = std::unordered_map<Expr, Expr, ExprHash>;
Expr substitute(Expr e, const Substitution& replacements);
Expr substitute(Expr e, Expr variable, Expr replacement);

std::vector<Expr> free_vars(Expr e);  // in the order of compare()
bool depends_on(Expr e, Expr variable);

// Calls `visit` once for every different node of e, operands first.
void for_each_node(Expr e, const std::function<void(Expr)>& visit);

// Nothing on overflow, division by zero, or if `lookup` (called with each kVar) returns nothing.
std::optional<int64_t> evaluate(Expr e, const std::function<std::optional<int64_t>(Expr)>& lookup);

// e == coefficient * v + rest, neither depending on v.
struct Linear {
  Expr coefficient, rest;
};
std::optional<Linear> linear_in(Expr e, Expr v);

}  // namespace stridec::sym

template <>
struct std::hash<stridec::sym::Expr> {
  size_t operator()(stridec::sym::Expr e) const { return static_cast<size_t>(e.hash()); }
};
