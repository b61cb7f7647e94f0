// --max-seconds and --max-memory: work that takes more ends with a sentence and the exit code for it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cli/command.h"

namespace stridec::cli {

struct Budget {
  double seconds = 0;   // of wall time from now; 0: any
  uint64_t memory = 0;  // bytes that the process itself holds (files that it maps are not counted); 0: any
};

// Watches until main has the last word, whatever the process does: a timer looks every 10 ms, in every thread's work
// alike. What is over budget ends the process with exit code 6, a message, and no unfinished files. Memory that is asked
// for beyond the budget, but not used yet, fails like memory that ran out.
// The message names `file`.
void enforce(const Budget& budget, const std::string& file, const Globals& globals);

// The most memory that the process has had at once, mapped files included. (The kernel's ru_maxrss counts what the
// parent had before it started this program.)
uint64_t peak_bytes();

// What the message says the process was doing.
void name_stage(std::string_view stage);

}  // namespace stridec::cli
