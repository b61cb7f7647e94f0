#include "compiler/frontend/parameters.h"

#include <algorithm>

#include "compiler/base/diagnostic.h"
#include "compiler/base/pattern.h"
#include "compiler/base/text.h"

namespace stridec::frontend {

bool selects(const std::vector<std::string>& patterns, std::string_view name, const graph::Type& type) {
  if (!is_float(type.dtype) && (!is_integer(type.dtype) || byte_size(type.dtype) > 1)) return false;
  const bool single =
      std::all_of(type.shape.begin(), type.shape.end(), [](sym::Expr dim) { return dim.is_const(1); });
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return single ? pattern == name : matches_pattern(pattern, name);
  });
}

void make_parameters(graph::Graph& graph, const std::vector<std::string>& patterns) {
  for (graph::Value& value : graph.values)
    if (value.data && !value.name.empty() && selects(patterns, value.name, value.type))
      value.replaceable = true;
}

void check_parameters(const graph::Graph& graph, const std::vector<std::string>& patterns,
                      std::set<std::string>* absent) {
  std::vector<std::string> without;
  for (const std::string& pattern : patterns) {
    if (std::any_of(graph.values.begin(), graph.values.end(), [&](const graph::Value& value) {
          return value.replaceable && matches_pattern(pattern, value.name);
        }))
      continue;
    if (absent)
      absent->insert(cat("--refit ", pattern));
    else
      without.push_back(cat("'", pattern, "'"));
  }
  if (!without.empty())
    fail(ErrorKind::kUsage, "no-parameter",
         cat("--refit: the model has no weight ", join(without, ", "), " that can be replaced"),
         "weights of floats and of 8-bit integers can be, unless their values decide sizes or operations; "
         "'stridec inspect MODEL --stage=graph' lists constants with their names");
}

}  // namespace stridec::frontend
