// Building blocks of transforms: copying bodies between nests, substituting, cleaning up. Each preserves the
// semantics of the nest (except `clone`, which makes new statements).
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

// Replaces index variables and symbols in every expression of the block (not the variables that it defines).
void substitute(Block& block, const sym::Substitution& replacements);
void substitute(Access& access, const sym::Substitution& replacements);

// Copies statements into a nest. Values get fresh ids; index variables that the statements define (dims,
// binds) get names that are free in `into`. The caller first maps what the statements use from outside.
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
  void forget() { values_.clear(), indices_.clear(); }  // drops the mappings; names stay taken

  Block clone(const Nest& from, const Block& block);
  Stmt clone(const Nest& from, const Stmt& stmt);

  ValueId value(ValueId from) const;  // its copy; a check fails if there is none
  sym::Expr expr(sym::Expr e) const { return sym::substitute(e, indices_); }
  Access access(const Access& from) const;

  ValueId fresh_value(const ValueInfo& like);
  sym::Expr fresh_index(sym::Expr like);  // the same name if it is free, else one with a number
  const sym::Substitution& indices() const { return indices_; }

 private:
  Nest& into_;
  std::unordered_set<sym::Expr> taken_;
  std::unordered_map<int32_t, ValueId> values_;
  sym::Substitution indices_;
};

ValueId add_value(Nest& nest, DType dtype);
ValueId add_value(Nest& nest, const ValueInfo& like);  // a copy of a value, also of another nest
// Made by a pass for `of`, or in its place: a value of the same node.
ValueId add_value(Nest& nest, DType dtype, ValueId of);
// Appends statements to a block of a nest; each method returns the result's id.
struct Writer {
  Nest& nest;
  Block& block;
  NodeId node = {};  // that the values are computed for; invalid: origins_of finds it

  ValueId let(ScalarOp op, DType dtype, std::vector<ValueId> args);
  ValueId cast(ValueId value, DType to);  // returns the value itself if it has that dtype
  ValueId constant(const Scalar& scalar);
  ValueId number(int64_t value) { return constant(int_scalar(DType::kI32, value)); }
  ValueId index(sym::Expr e, DType dtype);
  ValueId load(DType dtype, Access access);  // 0 where the mask is false
  void store(Access access, ValueId value);
};
// A nest that copies the element at `from`, or `fill` where its mask is false, to `to`, for each point of the
// dims.
Nest copy_nest(std::string name, std::vector<Dim> dims, Access from, Scalar fill, Access to);
// Changes the load whose result is `value` so that it reads `access`.
void redirect(Nest& nest, ValueId value, const Access& access);
// Replaces all uses of `from` by `to` in the block.
void replace_uses(Block& block, ValueId from, ValueId to);

// Renames all index variables (%i0, %i1, ... in order of definition) and values (%0, %1, ...), dropping
// unused ids.
void renumber(Nest& nest);

// Replaces a parallel dim by an expression everywhere (merging, splitting, a dim that is always 0) and
// removes it from nest.dims.
void replace_dim(Nest& nest, sym::Expr dim, sym::Expr replacement);

// Inverts a store's index map: expressions over `at` for the dims of the point that stores the element at
// `at`. Handles stores whose indices are dims, constants, and mixed-radix sums of dims (i*64 + j, by extents
// under facts). Nothing if the indices do not determine the dims.
std::optional<sym::Substitution> invert(const Nest& nest, const Access& store,
                                        const std::vector<sym::Expr>& at, const sym::Facts& facts);

// The facts inside the nest's body: the program's, and the ranges of the nest's dims.
sym::Facts facts_of(const Program& program, const Nest& nest);
// The same within one of its reductions.
sym::Facts facts_of(const Program& program, const Nest& nest, const Reduce& reduce);
// Adds the ranges of index variables that the statement defines for its own body or (bind) for later
// statements.
void add_facts(sym::Facts& facts, const Stmt& stmt);
void add_facts(sym::Facts& facts, const Bind& bind);

// ---- clean-up --------------------------------------------------------------------------------------------

// Simplifies extents, indices, masks and index values under the facts. Accesses whose mask is always false
// become their fill or are removed.
void simplify(const Program& program, Nest& nest);
// DCE: removes statements whose results are unused; stores and binds that can fail stay.
void eliminate_dead(Nest& nest);
// CSE: merges equal loads, lets, constants and index values; loads only if no store can intervene.
void eliminate_common(Nest& nest);
// Hoists loop-invariant statements; loads only if they are in bounds even when the loop does not run.
void hoist(const Program& program, Nest& nest);
// Folds constants, identities and casts: x*1, x+0 (integers), cast of a constant, select by a constant.
void fold(Nest& nest);
// Runs all of the above until nothing changes.
void clean(const Program& program, Nest& nest);

// Removes nests and buffers that are unreachable from the steps, inputs, outputs and states; ids change.
void eliminate_dead_code(Program& program);

// Replaces each launched nest by launches of the nests that `parts_of` returns for it, in order; without any
// the nest stays, as do nests of tiled groups. `parts_of` may add buffers and nests to the program.
void replace_nests(Program& program, const std::function<std::vector<Nest>(const Nest& nest)>& parts_of);

}  // namespace stridec::loop
