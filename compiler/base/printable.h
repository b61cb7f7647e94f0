// Text that others wrote, such as names in a model, made fit for a terminal and a log.
#pragma once

#include <string>
#include <string_view>

namespace stridec {

// Control characters, and bytes that are not UTF-8, become "\x1b": names can neither move a terminal's cursor nor begin a line
// of their own. `lines` keeps line ends and tabs.
std::string printable(std::string_view text, bool lines = false);

}  // namespace stridec
