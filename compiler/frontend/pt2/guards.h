// The conditions that a trace assumed of its inputs, as Python expressions:
// "(L['x'].size()[1] % 2) == 0 and L['n'] <= 8".
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/sym/expr.h"

namespace stridec::pt2 {

// The size of a dim of the input at this path, or the value of an integer input if `dim` is none.
using GuardLookup =
    std::function<std::optional<sym::Expr>(const std::vector<std::string>& path, std::optional<int64_t> dim)>;

// None for text that has another form.
std::optional<sym::Expr> parse_guard(std::string_view text, const GuardLookup& lookup);

// Whether the condition only says that something is not 1. The trace asks this of strides; nothing is
// specialised on the answer.
bool is_layout_guard(std::string_view text);

}  // namespace stridec::pt2
