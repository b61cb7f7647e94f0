// Building blocks of transforms: copying bodies between nests, substituting, cleaning up. Each keeps the
// meaning of the nest (but `clone`, which makes new statements).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/sym/facts.h"

namespace stridec::loop {

// Replaces index variables and symbols in every expression of the block (not the variables that the block
// defines).
void substitute(Block& block, const sym::Substitution& replacements);
void substitute(Access& access, const sym::Substitution& replacements);

// Copies statements into a nest: values get fresh ids, index variables that the statements define (dims,
// binds) get names that are free in `into`. What the statements use from outside is mapped by the caller
// first.
//
//   Cloner c(consumer);
//   c.map(producer.dims[0].var, at[0]);
//   Block copy = c.clone(producer, producer.body);
//   ValueId v = c.value(stored);   // the copy of a value of the producer
class Cloner {
 public:
  explicit Cloner(Nest& into);

  void map(ValueId from, ValueId to) { values_[from.value] = to; }
  void map(sym::Expr variable, sym::Expr replacement) { indices_[variable] = replacement; }
  void forget() { values_.clear(), indices_.clear(); }  // the mappings; names stay taken

  Block clone(const Nest& from, const Block& block);
  Stmt clone(const Nest& from, const Stmt& stmt);

  ValueId value(ValueId from) const;  // its copy; a check fails where there is none
  sym::Expr expr(sym::Expr e) const { return sym::substitute(e, indices_); }
  Access access(const Access& from) const;

  ValueId fresh_value(DType dtype);
  sym::Expr fresh_index(sym::Expr like);  // the same name where it is free, else with a number
  const sym::Substitution& indices() const { return indices_; }

 private:
  Nest& into_;
  std::unordered_set<sym::Expr> taken_;
  std::unordered_map<int32_t, ValueId> values_;
  sym::Substitution indices_;
};

ValueId add_value(Nest& nest, DType dtype);
// Statements of a nest, one after the other at the end of one of its blocks; each gives its result.
struct Writer {
  Nest& nest;
  Block& block;

  ValueId let(ScalarOp op, DType dtype, std::vector<ValueId> args);
  ValueId cast(ValueId value, DType to);  // the value itself where it has that dtype
  ValueId constant(const Scalar& scalar);
  ValueId number(int64_t value) { return constant(int_scalar(DType::kI32, value)); }
  ValueId index(sym::Expr e, DType dtype);
  ValueId load(DType dtype, Access access);  // 0 where masked off
  void store(Access access, ValueId value);
};
// A nest that stores at `to`, for each point of the dims, the element at `from`, or `fill` where its mask is off.
Nest copy_nest(std::string name, std::vector<Dim> dims, Access from, Scalar fill, Access to);
// The load whose result is `value` reads at `access` instead.
void redirect(Nest& nest, ValueId value, const Access& access);
// Uses of `from` become uses of `to`, everywhere in the block.
void replace_uses(Block& block, ValueId from, ValueId to);

// Renames every index variable (%i0, %i1, ... in order of definition) and value (%0, %1, ...), dropping
// unused ids.
void renumber(Nest& nest);

// The parallel dim becomes `replacement` everywhere (a merge, a split, a dim that is always 0) and leaves
// nest.dims.
void replace_dim(Nest& nest, sym::Expr dim, sym::Expr replacement);

// Where the nest's point stores element `at`: the values of its dims as expressions over `at`. Handles stores
// whose indices are dims, constants, and mixed-radix sums of dims (i*64 + j, by extents under facts). Nothing
// where the indices do not determine the dims.
std::optional<sym::Substitution> invert(const Nest& nest, const Access& store,
                                        const std::vector<sym::Expr>& at, const sym::Facts& facts);

// Facts inside the nest's body: the program's and the ranges of the nest's dims.
sym::Facts facts_of(const Program& program, const Nest& nest);
// With the ranges of what the statement defines for its own body, or (bind) for what follows.
void add_facts(sym::Facts& facts, const Stmt& stmt);
void add_facts(sym::Facts& facts, const Bind& bind);

// ---- clean-up
// --------------------------------------------------------------------------------------------------------

// Simplifies extents, indices, masks and index values under the facts; statements masked off for ever become
// their fill or go.
void simplify(const Program& program, Nest& nest);
// Drops statements whose results nobody uses; stores and binds that can fail stay.
void eliminate_dead(Nest& nest);
// One load, let, constant or index value where several are equal; loads are shared only where no store can
// come between.
void eliminate_common(Nest& nest);
// Moves what does not depend on a loop in front of it; loads only where they are in bounds whether the loop
// runs or not.
void hoist(const Program& program, Nest& nest);
// Constants, identities and casts folded: x*1, x+0 (integers), cast of a constant, select of a constant.
void fold(Nest& nest);
// All of it, until nothing changes.
void clean(const Program& program, Nest& nest);

// Drops nests and buffers that nothing reaches from the steps, inputs, outputs and states; ids change.
void eliminate_dead_code(Program& program);

// Launches what `parts_of` gives for a launched nest, in order, instead of it; where it gives none, the nest stays.
// `parts_of` may add buffers and nests to the program.
void replace_nests(Program& program, const std::function<std::vector<Nest>(const Nest& nest)>& parts_of);

}  // namespace stridec::loop
