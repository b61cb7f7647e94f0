#include "compiler/codegen/precision_slack.h"

#include <algorithm>
#include <optional>

#include "compiler/loop/walk.h"

namespace stridec::codegen {
namespace {

using loop::ScalarOp;

// The slack of argument `at` of the operation, if its result has slack `result`.
Slack through(const loop::Nest& nest, const loop::Let& let, size_t at, Slack result) {
  switch (let.op) {
    case ScalarOp::kCast:
    case ScalarOp::kCastSat:
      if (is_storage_float(nest.values[let.result.value].dtype)) return Slack::kCoarse;
      return is_float(nest.values[let.result.value].dtype) ? result : Slack::kNone;
    case ScalarOp::kMul:
    case ScalarOp::kDiv:
    case ScalarOp::kRcp:
    case ScalarOp::kNeg:
    case ScalarOp::kAbs:
    case ScalarOp::kMin:
    case ScalarOp::kMax: return result;
    case ScalarOp::kSelect: return at == 0 ? Slack::kNone : result;
    case ScalarOp::kAdd:
    case ScalarOp::kSub:
    case ScalarOp::kSqrt:
    case ScalarOp::kRsqrt:
    case ScalarOp::kExp:
    case ScalarOp::kTanh:
    case ScalarOp::kSigmoid:
    case ScalarOp::kErf: return std::min(result, Slack::kFew);
    default: return Slack::kNone;
  }
}

class Analysis {
 public:
  explicit Analysis(const loop::Nest& nest) : nest_(nest), slack_(nest.values.size()) { visit(nest.body); }

  std::vector<Slack> result() && {
    std::vector<Slack> out(slack_.size());
    for (size_t i = 0; i < out.size(); ++i) out[i] = slack(static_cast<int32_t>(i));
    return out;
  }

 private:
  // Uses come after definitions: visiting statements in reverse order, all uses are known.
  void visit(const loop::Block& block) {
    for (auto stmt = block.rbegin(); stmt != block.rend(); ++stmt) {
      if (const auto* let = std::get_if<loop::Let>(&stmt->node)) {
        const Slack result = slack(let->result.value);
        for (size_t i = 0; i < let->args.size(); ++i) use(let->args[i], through(nest_, *let, i, result));
        continue;
      }
      loop::for_each_use(*stmt, [&](loop::ValueId id) { use(id, Slack::kNone); });
      if (const loop::Block* body = loop::body_of(*stmt)) visit(*body);
    }
  }

  void use(loop::ValueId id, Slack allowed) {
    std::optional<Slack>& known = slack_[static_cast<size_t>(id.value)];
    known = known ? std::min(*known, allowed) : allowed;
  }

  Slack slack(int32_t id) const {
    const auto at = static_cast<size_t>(id);
    if (is_storage_float(nest_.values[at].dtype)) return Slack::kCoarse;
    return slack_[at].value_or(Slack::kNone);
  }

  const loop::Nest& nest_;
  std::vector<std::optional<Slack>> slack_;  // by value, if it is used
};

}  // namespace

std::vector<Slack> slack_of(const loop::Nest& nest) { return std::move(Analysis(nest)).result(); }

}  // namespace stridec::codegen
