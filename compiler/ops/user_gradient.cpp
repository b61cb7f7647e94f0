#include "compiler/ops/user_gradient.h"

#include <map>
#include <memory>
#include <mutex>

#include "compiler/base/text.h"
#include "compiler/ops/gradient.h"
#include "compiler/ops/lowering.h"
#include "compiler/ops/op_table.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

namespace {

struct Table {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<const UserGradient>, std::less<>> gradients;
};

Table& table() {
  static Table one;
  return one;
}

size_t result_count(const Node& node) { return static_cast<size_t>(node.attributes.integer("results")); }

Inferred mark_shape(Builder& b, const Node& node) {
  const size_t results = result_count(node);
  if (results == 0 || results > node.inputs.size())
    does_not_fit(cat("user_gradient: ", results, " results of ", node.inputs.size(), " inputs"));
  Inferred out;
  for (size_t i = 0; i < results; ++i) {
    out.types.push_back(b.type(node.inputs[i]));
    out.elements.push_back(b.known(node.inputs[i]));
  }
  return out;
}

void mark_lower(Lowering& l, const Node& node) {
  for (size_t i = 0; i < node.outputs.size(); ++i) l.alias(node.outputs[i], l.view(node.inputs[i]));
}

Ids mark_gradient(Builder& b, const Node& node, const Ids& gs) {
  std::shared_ptr<const UserGradient> gradient;
  {
    Table& known = table();
    const std::lock_guard lock(known.mutex);
    const auto found = known.gradients.find(node.attributes.text("gradient"));
    if (found != known.gradients.end()) gradient = found->second;
  }
  if (!gradient) no_gradient(node, cat("no file of --ops declares '", node.attributes.text("gradient"), "'"));
  const auto middle = node.inputs.begin() + static_cast<std::ptrdiff_t>(result_count(node));
  const Ids xs(middle, node.inputs.end());
  Ids out(result_count(node));
  for (const ValueId each : (*gradient)(b, xs, node.outputs, gs)) out.push_back(each);
  return out;
}

}  // namespace

const OpDef def_kUserGradient{mark_shape, mark_lower,
                              Gradient::by(mark_gradient, "x: the formula that the user declares")};

std::vector<ValueId> with_gradient(Builder& b, const Ids& ys, const Ids& xs, const std::string& key,
                                   UserGradient gradient) {
  Table& known = table();
  {
    const std::lock_guard lock(known.mutex);
    known.gradients.try_emplace(key, std::make_shared<const UserGradient>(std::move(gradient)));
  }
  Ids inputs = ys;
  inputs.insert(inputs.end(), xs.begin(), xs.end());
  return b.add(OpKind::kUserGradient, std::move(inputs),
               {{"gradient", key}, {"results", static_cast<int64_t>(ys.size())}});
}

}  // namespace stridec::ops
