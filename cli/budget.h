// Enforces --max-seconds and --max-memory: a command that exceeds them ends with a message and exit code 6.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cli/command.h"

namespace stridec::cli {

struct Budget {
  double seconds = 0;  // wall time from now; 0: unlimited
  // Memory of the process itself, in bytes, without mapped files; 0: unlimited.
  uint64_t memory = 0;
};

// Watches the process until main claims the exit (exit_owner.h). A timer checks every 10 ms. If the budget is
// exceeded, the process ends with exit code 6, a message that names `file`, and no unfinished
// files. An allocation beyond the budget fails as if memory were exhausted, even if it is not used yet.
void enforce(const Budget& budget, const std::string& file, const Globals& globals);

// The largest memory size that the process has had, including mapped files. (The kernel's ru_maxrss includes
// what the parent had before it started this program.)
uint64_t peak_bytes();

// Sets the current stage for the message.
void name_stage(std::string_view stage);

}  // namespace stridec::cli
