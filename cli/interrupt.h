// Handles Ctrl-C, SIGTERM and SIGHUP (the terminal is closed): removes unfinished files and exits with code
// 130.
#pragma once

#include <string>
#include <string_view>

namespace stridec::cli {

void handle_interrupts();

// Sets the file that the message names.
void name_work(std::string_view file);
std::string named_work();

}  // namespace stridec::cli
