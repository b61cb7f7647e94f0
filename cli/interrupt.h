// Ctrl-C: unfinished files go, the exit code is 130.
#pragma once

namespace stridec::cli {

void handle_interrupts();

}  // namespace stridec::cli
