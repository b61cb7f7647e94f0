// Decides which of main, the budget timer and the signal handler ends the process. The first caller wins;
// later calls have no effect.
#pragma once

namespace stridec::cli {

enum class ExitOwner { kNobody, kMain, kBudget, kInterruption };

// Returns the previous owner; kNobody means that the caller is now the owner. Safe in a signal handler.
// Blocks signals on the caller's thread from then on, because a handler must not wait for the thread that it
// interrupted.
ExitOwner claim_exit(ExitOwner wanted);

[[noreturn]] void await_end();

// For main, before it renames finished files and before it prints results or an error, which an interruption
// would leave half done. Does not return if another caller was first.
void own_exit();

}  // namespace stridec::cli
