// ai.onnx.preview.training: gradients and optimizer steps.
#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/ops/composite/optimizer.h"
#include "compiler/ops/copy_nodes.h"
#include "compiler/ops/gradient.h"
#include "compiler/ops/region.h"

namespace stridec::onnx {
namespace {

using namespace ops;

constexpr const char* kTraining = "ai.onnx.preview.training";

// Inputs are rate, step count, then groups of n tensors: parameters, gradients, states. `update` computes the
// new parameter and states of one tensor. Outputs are grouped in the same way.
Outputs optimizer(
    Context& c, size_t groups,
    const std::function<std::vector<Term>(Term rate, Term step, const std::vector<Term>& tensors)>& update) {
  const size_t n = (c.input_count() - 2) / groups;
  if (c.input_count() != 2 + n * groups)
    c.does_not_fit(cat(c.input_count(), " inputs do not divide into ", groups, " groups"));
  std::vector<Outputs> columns(groups - 1);
  for (size_t i = 0; i < n; ++i) {
    std::vector<Term> tensors;
    for (size_t g = 0; g < groups; ++g) tensors.push_back(c.in(2 + g * n + i));
    const Term rate = cast(reshape(c.in(0), {}), tensors[0].dtype()),
               step = cast(reshape(c.in(1), {}), tensors[0].dtype());
    const auto results = update(rate, step, tensors);
    for (size_t g = 0; g < results.size(); ++g) columns[g].push_back(results[g]);
  }
  Outputs out;
  for (auto& column : columns) out.insert(out.end(), column.begin(), column.end());
  return out;
}

Outputs momentum(Context& c) {
  const MomentumOptions options{.alpha = c.number("alpha", 0),
                                .beta = c.number("beta", 0),
                                .l2 = c.number("norm_coefficient", 0),
                                .nesterov = c.text("mode", "standard") == "nesterov"};
  return optimizer(c, 3, [&](Term rate, Term step, const std::vector<Term>& t) {
    return momentum_step(rate, step, t[0], t[1], t[2], options);
  });
}

Outputs adagrad(Context& c) {
  const AdagradOptions options{.decay = c.number("decay_factor", 0),
                               .epsilon = c.number("epsilon", 1e-6f),
                               .l2 = c.number("norm_coefficient", 0)};
  return optimizer(c, 3, [&](Term rate, Term step, const std::vector<Term>& t) {
    return adagrad_step(rate, step, t[0], t[1], t[2], options);
  });
}

Outputs adam(Context& c) {
  const AdamOptions options{.alpha = c.number("alpha", 0.9f),
                            .beta = c.number("beta", 0.999f),
                            .epsilon = c.number("epsilon", 1e-6f),
                            .l2 = c.number("norm_coefficient", 0),
                            .decay_after = c.number("norm_coefficient_post", 0)};
  return optimizer(c, 4, [&](Term rate, Term step, const std::vector<Term>& t) {
    return adam_step(rate, step, t[0], t[1], t[2], t[3], options);
  });
}

// y's derivatives with respect to the inputs, which correspond to xs, then zs: those of y as a function of
// unknowns for xs, evaluated at the inputs.
Outputs gradient(Context& c) {
  const auto xs = c.texts("xs"), zs = c.texts("zs");
  const std::string y = c.text("y", "");
  if (c.input_count() != xs.size() + zs.size())
    c.does_not_fit(cat(c.input_count(), " inputs for ", xs.size(), " xs and ", zs.size(), " zs"));
  std::vector<graph::Type> types;
  std::vector<ValueId> at;
  for (size_t i = 0; i < xs.size(); ++i) {
    at.push_back(c.in(i));
    types.push_back(c.b.type(at.back()));
  }
  std::optional<OpenRegion> region(std::in_place, c.b, types);
  const std::vector<ValueId> unknowns = c.b.parameters();
  std::vector<std::pair<std::string, Slot>> instead;
  for (size_t i = 0; i < c.input_count(); ++i) {
    const bool known = i >= xs.size();
    instead.emplace_back(known ? zs[i - xs.size()] : xs[i],
                         known ? Slot(c.in(i)) : Slot(Term(c.b, unknowns[i])));
  }
  const Slot value = c.importer().recompute(y, instead);
  if (value.kind != Slot::Kind::kTensor)
    c.does_not_fit(cat("'", y, "' is not a tensor that is computed before"));
  const std::vector<ValueId> slopes = gradients(c.b, value.tensor, unknowns);
  // The region itself is discarded.
  NodeCopier copier(c.b);
  for (size_t i = 0; i < at.size(); ++i) copier.map(unknowns[i], at[i]);
  copier.copy(region->close({}).nodes);
  Outputs out;
  for (ValueId slope : slopes) out.push_back(Term(c.b, copier.at(slope)));
  return out;
}

constexpr Row kRows[] = {
    {"Adagrad", adagrad, 1, kAnyLater, kTraining},
    {"Adam", adam, 1, kAnyLater, kTraining},
    {"Gradient", gradient, 1, kAnyLater, kTraining},
    {"Momentum", momentum, 1, kAnyLater, kTraining},
};

}  // namespace

std::span<const Row> training_rows() { return kRows; }

}  // namespace stridec::onnx
