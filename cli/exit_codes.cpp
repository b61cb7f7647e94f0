#include "cli/exit_codes.h"

namespace stridec::cli {

const std::vector<ExitCode>& exit_codes() {
  static const std::vector<ExitCode> kCodes = {
      {0, "ok", "done"},
      {1, "usage", "the command line is wrong"},
      {2, "unreadable", "a file is missing or may not be read or written"},
      {3, "malformed",
       "a file is malformed: truncated, of another format, or against the rules of its format"},
      {4, "does-not-fit", "shapes, guards or types contradict each other"},
      {5, "unsupported", "a valid model with something that this build cannot compile"},
      {6, "over-budget", "time, memory or disk ran out, or a stated budget did"},
      {7, "toolchain", "code generation, the linker or a driver failed"},
      {8, "mismatch", "verify found a difference, or --frozen a missing entry"},
      {9, "internal", "a defect of stridec"},
      {130, "interrupted", "Ctrl-C, SIGTERM or SIGHUP"},
  };
  return kCodes;
}

}  // namespace stridec::cli
