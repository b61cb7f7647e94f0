// The sizes that a model names, subject to `--dim name=lower..upper%multiple`. Every frontend takes the
// sizes of its inputs from here, so that the flag means the same for each format.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/graph/graph.h"

namespace stridec::graph {

// A range and a divisor that the caller guarantees for a named size.
struct SizeRange {
  std::string name;
  std::optional<int64_t> lower, upper;
  int64_t multiple = 1;
  bool fixed() const { return lower && upper == lower; }
};

class NamedSizes {
 public:
  // `stay_open`: sizes that a flag fixes stay symbols. `flags` must outlive this.
  NamedSizes(const std::vector<SizeRange>& flags, bool stay_open) : flags_(flags), stay_open_(stay_open) {}

  // What a name of the model stands for: a number if a flag fixes it, otherwise the symbol of that name.
  sym::Expr size(const std::string& name);
  // A number that a flag has to fix, such as the length of a sequence; none if it does not.
  std::optional<int64_t> given(const std::string& name);
  // All names that the calls above asked for.
  const std::set<std::string>& used() const { return used_; }

  // Adds the ranges of used names. A range without a lower end begins at 1.
  void set_ranges(sym::Facts& facts) const;
  // Applies the flags to a graph whose symbols exist already.
  void restrict(Graph& graph);
  // For each flag whose name was not used: adds "--dim NAME" to `absent`, or throws a usage Error if that is
  // null.
  void check_used(std::set<std::string>* absent) const;

 private:
  const SizeRange* flag(const std::string& name) const;

  const std::vector<SizeRange>& flags_;
  bool stay_open_;
  std::set<std::string> used_;
};

}  // namespace stridec::graph
