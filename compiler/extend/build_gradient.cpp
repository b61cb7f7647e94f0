// The gradient that the user declares for an operator, as formulas.
#include "compiler/base/diagnostic.h"
#include "compiler/base/sha256.h"
#include "compiler/base/text.h"
#include "compiler/extend/user_operator.h"
#include "compiler/ops/helpers.h"
#include "compiler/ops/term.h"
#include "compiler/ops/user_gradient.h"

namespace stridec::extend {
namespace {

using graph::Builder;
using graph::ValueId;
using Ids = std::vector<ValueId>;

struct DeclaredGradient {
  UserOperator op;
  std::map<std::string, Attr, std::less<>> attributes;

  Ids operator()(Builder& b, const Ids& xs, const Ids& ys, const Ids& gs) const {
    Bindings bindings{.values = {}, .attributes = attributes};
    for (size_t i = 0; i < xs.size(); ++i) bindings.values.emplace(op.inputs[i].name, xs[i]);
    for (size_t i = 0; i < ys.size(); ++i) {
      bindings.values.emplace(op.outputs[i].name, ys[i]);
      if (is_float(b.dtype(ys[i])))
        bindings.values.emplace(
            gradient_name(op.outputs[i].name),
            gs[i].valid() ? gs[i] : ops::filled(b, b.shape(ys[i]), b.dtype(ys[i]), 0).id());
    }
    Evaluator(b, bindings).side({.results = op.gradient, .locals = {}});
    Ids out;
    for (size_t i = 0; i < xs.size(); ++i) {
      const auto found = bindings.values.find(gradient_name(op.inputs[i].name));
      const bool has = found != bindings.values.end() && is_float(b.dtype(xs[i]));
      out.push_back(has ? fitted(b, op.inputs[i].name, xs[i], found->second) : ValueId());
    }
    return out;
  }

  // In the type and the shape of its input.
  ValueId fitted(Builder& b, const std::string& name, ValueId x, ValueId gradient) const {
    const graph::Type &type = b.type(x), own = b.type(gradient);
    const auto refuse = [&] {
      fail(ErrorKind::kDoesNotFit, "does-not-fit",
           cat(op.name, ": the gradient of '", name, "' is ", graph::to_string(own), ", and the input ",
               graph::to_string(type)));
    };
    if (!is_float(own.dtype) || own.shape.size() != type.shape.size()) refuse();
    // A check by each run would narrow the sizes that the trained model takes.
    for (size_t d = 0; d < own.shape.size(); ++d)
      if (!b.holds(sym::eq(own.shape[d], type.shape[d]))) refuse();
    return ops::cast({b, gradient}, type.dtype, false);
  }
};

}  // namespace

std::string gradient_name(const std::string& tensor) { return cat("grad_", tensor); }

Ids with_declared_gradient(Builder& builder, const UserOperator& op, const Bindings& bindings,
                           const Ids& inputs, const Ids& results) {
  // Equal keys have equal formulas, and equal values of their names.
  std::string key = cat(op.name, " ", op.hash);
  for (const auto& [name, value] : bindings.attributes) key += cat("\n", name, "=", extend::to_string(value));
  key = cat(op.name, " ", sha256(key.data(), key.size()).substr(0, 16));
  return ops::with_gradient(builder, results, inputs, key, DeclaredGradient{op, bindings.attributes});
}

}  // namespace stridec::extend
