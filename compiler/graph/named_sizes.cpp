#include "compiler/graph/named_sizes.h"

#include <algorithm>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/graph/context_sizes.h"

namespace stridec::graph {

const SizeRange* NamedSizes::flag(const std::string& name) const {
  const auto found = std::ranges::find(flags_, name, &SizeRange::name);
  return found == flags_.end() ? nullptr : &*found;
}

sym::Expr NamedSizes::size(const std::string& name) {
  used_.insert(name);
  const SizeRange* const range = flag(name);
  return range && range->fixed() && !stay_open_ ? sym::Expr(*range->lower) : sym::var(name);
}

std::optional<int64_t> NamedSizes::given(const std::string& name) {
  used_.insert(name);
  const SizeRange* const range = flag(name);
  return range && range->fixed() ? range->lower : std::nullopt;
}

void NamedSizes::set_ranges(sym::Facts& facts) const {
  for (const SizeRange& range : flags_) {
    if (range.fixed() || !used_.contains(range.name)) continue;
    facts.set_range(sym::var(range.name), range.lower.value_or(1), range.upper);
    if (range.multiple > 1) facts.set_divisible(sym::var(range.name), range.multiple);
  }
}

void NamedSizes::restrict(Graph& graph) {
  for (const Symbol& symbol : graph.symbols) {
    if (!is_bound_before_run(graph, symbol)) continue;
    const sym::Expr size = this->size(symbol.var.name());
    if (size.is_const()) graph.facts.set_range(symbol.var, size.value(), size.value());
  }
  set_ranges(graph.facts);
}

void NamedSizes::check_used(std::set<std::string>* absent) const {
  for (const SizeRange& range : flags_) {
    if (used_.contains(range.name)) continue;
    if (!absent)
      fail(ErrorKind::kUsage, "unknown-dim", cat("the model has no dim '", range.name, "'"),
           used_.empty()
               ? "all dims of its inputs are fixed"
               : cat("its dims are ", join(std::vector<std::string>(used_.begin(), used_.end()), ", ")));
    absent->insert(cat("--dim ", range.name));
  }
}

}  // namespace stridec::graph
