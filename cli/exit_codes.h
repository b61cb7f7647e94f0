// The documented table of exit codes.
#pragma once

#include <string_view>
#include <vector>

namespace stridec::cli {

struct ExitCode {
  int code;
  std::string_view name, meaning;
};
const std::vector<ExitCode>& exit_codes();

}  // namespace stridec::cli
