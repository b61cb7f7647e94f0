// Who ends the process: main with its results or its error, the budget, or an interruption. The first that asks does, and
// the others are without effect.
#pragma once

namespace stridec::cli {

enum class ExitOwner { kNobody, kMain, kBudget, kInterruption };

// Whose it was before: kNobody gives it to the caller. Safe in a signal handler. Signals of the caller's thread are held
// off from then on: a handler may not wait for the thread that it stopped.
ExitOwner claim_exit(ExitOwner wanted);

[[noreturn]] void await_end();

// main's, before finished files take their names and before results or an error are printed: what an interruption would
// leave half done. Does not return if another was first.
void own_exit();

}  // namespace stridec::cli
