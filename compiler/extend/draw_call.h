// Draws calls of a declared operator: sizes, types, attributes and values that meet its conditions.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/extend/draw_values.h"
#include "compiler/extend/draws.h"
#include "compiler/extend/user_operator.h"
#include "compiler/loop/interpret.h"

namespace stridec::extend {

struct DrawnCall {
  std::vector<graph::Type> types;                       // by input
  std::vector<loop::HostTensor> inputs;                 // likewise
  std::map<std::string, Attr, std::less<>> attributes;  // that the call gives
};

// The code of the error of check_extents().
inline constexpr std::string_view kTooLarge = "too-large";
// Throws Error (kDoesNotFit, kTooLarge) if a value of the type is too large to be compared.
void check_extents(const graph::Type& type);

struct CallKind {
  int round = 0;                   // small sizes first
  Values values = Values::kPlain;  // of inputs that are floats
  bool large = false;              // tensors of some ten thousand elements, where the sizes are free
};

// Draws a size for each name, more often a size that a condition compares with. Dims that are terms are
// computed from the names. Returns nullopt if a condition is not met; `why` says which.
std::optional<DrawnCall> draw_call(Draws& draws, const UserOperator& op, const CallConditions& conditions,
                                   const CallKind& kind, std::string& why);

}  // namespace stridec::extend
