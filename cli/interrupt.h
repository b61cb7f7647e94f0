// Handles Ctrl-C, SIGTERM and SIGHUP (closed terminal): removes unfinished files and exits with code 130.
#pragma once

#include <string>
#include <string_view>

namespace stridec::cli {

void handle_interrupts();

// Sets the input file that the message of an interruption names.
void name_work(std::string_view file);
std::string named_work();

}  // namespace stridec::cli
