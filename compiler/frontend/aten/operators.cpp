#include "compiler/frontend/aten/operators.h"

#include <algorithm>

#include "compiler/frontend/aten/all_schemas.h"
#include "compiler/frontend/aten/call.h"

namespace stridec::aten {

std::vector<OperatorSupport> operator_support() {
  std::vector<OperatorSupport> out;
  for (const auto& [space, schema] : all_schemas()) {
    if (std::any_of(schema->arguments.begin(), schema->arguments.end(),
                    [](const SchemaArgument& a) { return a.written; }))
      continue;
    const std::string name = space + "." + schema->name;
    if (out.empty() || out.back().name != name)
      out.push_back({.name = name, .supported = {}, .unsupported = {}});
    auto& list = find_row(*schema) ? out.back().supported : out.back().unsupported;
    list.push_back(schema->overload.empty() ? "default" : schema->overload);
  }
  return out;
}

}  // namespace stridec::aten
