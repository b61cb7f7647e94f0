// Finds the statements that define the values of a block.
#pragma once

#include <map>
#include <optional>

#include "compiler/loop/program.h"
#include "compiler/loop/walk.h"

namespace stridec::kernels {

using Definitions = std::map<loop::ValueId, const loop::Stmt*>;

inline Definitions definitions_of(const loop::Block& block) {
  Definitions out;
  loop::for_each_stmt(block, [&](const loop::Stmt& stmt) {
    loop::for_each_result(stmt, [&](loop::ValueId id) { out[id] = &stmt; });
  });
  return out;
}

inline const loop::Let* let_of(const Definitions& definitions, loop::ValueId id) {
  const auto found = definitions.find(id);
  return found == definitions.end() ? nullptr : std::get_if<loop::Let>(&found->second->node);
}

inline std::optional<loop::Scalar> constant_of(const Definitions& definitions, loop::ValueId id) {
  const auto found = definitions.find(id);
  if (found == definitions.end()) return std::nullopt;
  if (const auto* constant = std::get_if<loop::Constant>(&found->second->node)) return constant->value;
  return std::nullopt;
}

inline bool is_cast(const loop::Let* let) {
  return let && (let->op == loop::ScalarOp::kCast || let->op == loop::ScalarOp::kCastSat);
}

// The value that the casts at its end convert.
inline loop::ValueId skip_casts(const Definitions& definitions, loop::ValueId id) {
  while (is_cast(let_of(definitions, id))) id = let_of(definitions, id)->args[0];
  return id;
}

}  // namespace stridec::kernels
