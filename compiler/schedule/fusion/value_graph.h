// Follows a value through the buffers between nests, so that a rule can match a computation however fusion
// has cut it into nests.
#pragma once

#include <map>
#include <optional>
#include <set>

#include "compiler/kernels/definitions.h"
#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/flow.h"

namespace stridec::schedule {

// Of one list of steps; valid while its program, steps and flow do not change.
class ValueGraph {
 public:
  // A value of a nest; `at` gives the nest's index variables in terms of the variables of the element at
  // which the walk began. Variables that are not in it stand for themselves.
  struct Element {
    const loop::Nest* nest = nullptr;
    loop::ValueId value;
    sym::Substitution at;
    bool operator==(const Element&) const = default;
  };

  ValueGraph(const loop::Program& program, const loop::Steps& steps, const Flow& flow);

  // Skips casts between floats, and loads of local and arena buffers that are written once, up to a load of
  // one of `stops` or to a value of another kind.
  Element resolve(Element element, const std::set<loop::BufferId>& stops) const;

  // What defines the element; null if it is of another kind.
  const loop::Let* let_of(const Element& element) const;
  const loop::Load* load_of(const Element& element) const;
  const loop::IndexValue* index_of(const Element& element) const;
  const loop::Reduce* sum_of(const Element& element, sym::Expr extent) const;  // over one dim of this extent
  std::optional<loop::Scalar> constant_of(const Element& element) const;

 private:
  const loop::Stmt* definition(const Element& element) const;
  template <class T>
  const T* definition_as(const Element& element) const;
  // The element that was stored where `load` reads; nothing if that is not certain.
  std::optional<Element> stored(const Element& element, const loop::Load& load) const;

  const loop::Program& program_;
  mutable std::map<const loop::Nest*, kernels::Definitions> definitions_;
  std::map<loop::BufferId, const loop::Nest*> writers_;  // of arena buffers that one launch writes
};

}  // namespace stridec::schedule
