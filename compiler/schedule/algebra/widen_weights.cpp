#include "compiler/schedule/algebra/widen_weights.h"

#include <algorithm>

#include "compiler/kernels/contraction.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"

namespace stridec::schedule {
namespace {

using kernels::Factor;
using loop::Let;
using loop::Nest;
using loop::Program;
using loop::ScalarOp;
using loop::Stmt;
using loop::ValueId;

bool reads_weights_alone(const Program& program, const Factor& factor) {
  return std::all_of(factor.slice.begin(), factor.slice.end(), [&](const Stmt* stmt) {
    const auto* load = std::get_if<loop::Load>(&stmt->node);
    return !load || program[load->access.buffer].storage == loop::Storage::kParameter;
  });
}

// The value that the factor casts `value` from.
std::optional<ValueId> cast_from(const Factor& factor, ValueId value) {
  for (const Stmt* stmt : factor.slice)
    if (const auto* let = std::get_if<Let>(&stmt->node); let && let->result == value)
      return let->op == ScalarOp::kCast || let->op == ScalarOp::kCastSat ? std::optional(let->args[0])
                                                                         : std::nullopt;
  return std::nullopt;
}

// The factor's value before it is rounded.
std::optional<ValueId> unrounded(const Program& program, const Nest& nest, const Factor& factor) {
  const auto narrow = cast_from(factor, factor.value);
  if (!narrow || !is_storage_float(nest.values[narrow->value].dtype)) return std::nullopt;
  const auto wide = cast_from(factor, *narrow);
  const bool same = wide && nest.values[wide->value].dtype == nest.values[factor.value.value].dtype;
  return same && reads_weights_alone(program, factor) ? wide : std::nullopt;
}

}  // namespace

void widen_weights(Program& program) {
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    const auto* launch = std::get_if<loop::Launch>(&step.node);
    if (!launch) return;
    Nest& nest = program[launch->nest];
    const auto contraction = kernels::match_contraction(nest);
    if (!contraction) return;
    std::vector<std::pair<ValueId, ValueId>> replaced;
    for (const Factor& factor : contraction->factors)
      if (const auto wide = unrounded(program, nest, factor)) replaced.emplace_back(factor.value, *wide);
    if (replaced.empty()) return;
    loop::for_each_stmt(nest.body, [&](Stmt& stmt) {
      loop::for_each_use(stmt, [&](ValueId& use) {
        for (const auto& [from, to] : replaced)
          if (use == from) use = to;
      });
    });
    loop::clean(program, nest);
  });
}

}  // namespace stridec::schedule
