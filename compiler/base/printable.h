// Escapes text of unknown origin, such as names in a model, for terminals and logs.
#pragma once

#include <string>
#include <string_view>

namespace stridec {

// Replaces control characters and bytes that are not UTF-8 by escapes such as "\x1b", so that names cannot
// move the cursor of a terminal or start a new line. `lines` keeps line ends and tabs.
std::string printable(std::string_view text, bool lines = false);

}  // namespace stridec
