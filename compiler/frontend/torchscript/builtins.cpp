#include "compiler/frontend/torchscript/builtins.h"

#include <algorithm>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/frontend/torchscript/operators.h"

namespace stridec::torchscript {

const Value& Call::at(size_t i) const {
  if (i >= given.values.size())
    fail(ErrorKind::kMalformed, "bad-source", cat("'", name, "' has too few arguments"));
  return given.values[i];
}

const Value* Call::named(size_t place, const std::string& argument) const {
  for (size_t i = 0; i < given.values.size(); ++i)
    if (given.names[i] == argument || (given.names[i].empty() && i == place)) return &given.values[i];
  return nullptr;
}

int64_t Call::integer(size_t i) const {
  const Value& v = at(i);
  if (!v.is_whole()) Evaluator::unsupported(cat("'", name, "' of ", kind_name(v)));
  const sym::Expr known = e.b.simplify(v.integer);
  if (!known.is_const())
    Evaluator::unsupported(cat("'", name, "' with ", printed(v), ", which only the run knows"));
  return known.value();
}

bool is_python_function(const std::string& name) {
  return has_number_function(name) || has_container_function(name) || has_string_function(name) ||
         has_query(name);
}

Value call_builtin(Evaluator& e, const std::string& space, const std::string& name, Arguments arguments) {
  if (space == "quantized")
    if (auto out = call_quantized(e, name, arguments)) return std::move(*out);
  for (Value& v : arguments.values) v = e.loaded(std::move(v));
  for (const Value& v : arguments.values) expect_known(v);
  const Call call{e, name, arguments};
  // An exception is raised even if its message is not known, and a container keeps a failed item.
  const bool raises = space == "prim" && name == "RaiseException";
  const bool failed = std::ranges::any_of(arguments.values, has_failed);
  // An operator that is missing is named although its arguments are not known.
  const bool is_operator =
      !space.empty() && space != "prim" && !(space == "aten" && is_python_function(name));
  if (failed && is_operator && !is_supported(e, space, name)) e.record_unsupported(cat(space, ".", name));
  if (space == "prim") {
    if (failed && !raises) return Value::failed();
    if (auto out = call_prim(call)) return std::move(*out);
  } else if (space.empty() || space == "aten") {
    if (auto out = call_rows(call)) return std::move(*out);
    if (auto out = call_container(call)) return std::move(*out);
    if (failed) return Value::failed();
    if (auto out = call_number(call)) {
      if (out->is_whole()) out->integer = e.short_form(out->integer);
      return std::move(*out);
    }
    if (auto out = call_string(call)) return std::move(*out);
    if (auto out = call_query(call)) return std::move(*out);
  }
  if (failed) return Value::failed();
  if (space.empty() || space == "prim") {
    e.record_unsupported(space.empty() ? name : cat("prim.", name));
    return Value::failed();
  }
  return call_operator(e, space, name, std::move(arguments));
}

}  // namespace stridec::torchscript
