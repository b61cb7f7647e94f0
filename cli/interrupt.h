// Ctrl-C and SIGTERM: unfinished files go, the exit code is 130.
#pragma once

#include <string>
#include <string_view>

namespace stridec::cli {

void handle_interrupts();

// The file that the message names from now on.
void name_work(std::string_view file);
std::string named_work();

}  // namespace stridec::cli
