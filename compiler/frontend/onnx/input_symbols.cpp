#include "compiler/frontend/onnx/input_symbols.h"

#include <algorithm>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/sym/text.h"

namespace stridec::onnx {
namespace {

std::optional<sym::Expr> parsed(const std::string& text) {
  if (text.size() > 200 || text.find('%') != std::string::npos) return std::nullopt;
  try {
    const sym::Expr e = sym::parse(text);
    if (e.is_const() || e.is_condition()) return std::nullopt;
    return e;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Text that exporters write for a size without a name. It does not relate the size to other sizes.
bool is_placeholder(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return true;
  text = text.substr(first, text.find_last_not_of(kSpaces) + 1 - first);
  return text == "?" || text == "-1" || text == "*" || text == "None";
}

}  // namespace

InputSymbols::InputSymbols(const Graph& graph, const ImportOptions& options)
    : sizes_(options.dims, options.sizes_stay_open) {
  for (const ValueInfo& v : graph.inputs) {
    if (!v.type.shape) continue;
    for (const Dim& d : *v.type.shape) {
      const auto e = d.value || is_placeholder(d.param) ? std::nullopt : parsed(d.param);
      if (!e) continue;
      const auto vars = sym::free_vars(*e);
      if (vars.size() != 1) continue;
      const auto linear = sym::linear_in(*e, vars[0]);
      const auto multiple = linear ? sym::as_const(linear->coefficient) : std::nullopt;
      if (multiple && *multiple >= 1 && linear->rest.is_const(0)) given_.insert(vars[0]);
    }
  }
}

sym::Expr InputSymbols::dim(const std::string& input, size_t position, const Dim& d) {
  if (d.value) return *d.value;
  if (is_placeholder(d.param)) return sizes_.size(cat(input, ".", position));
  if (auto e = parsed(d.param)) {
    const auto vars = sym::free_vars(*e);
    if (std::all_of(vars.begin(), vars.end(), [&](sym::Expr v) { return given_.count(v) > 0; })) {
      sym::Substitution fixed;
      for (sym::Expr v : vars) fixed[v] = sizes_.size(v.name());
      return sym::substitute(*e, fixed);
    }
  }
  return sizes_.size(d.param);
}

}  // namespace stridec::onnx
