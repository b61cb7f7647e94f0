#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace stridec::cli {

size_t columns() {
  constexpr size_t kDefault = 100, kLeast = 40;
  winsize size = {};
  if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return std::max<size_t>(size.ws_col, kLeast);
  const char* given = std::getenv("COLUMNS");
  const long number = given ? std::strtol(given, nullptr, 10) : 0;
  return number > 0 ? std::clamp<size_t>(static_cast<size_t>(number), kLeast, 10'000) : kDefault;
}

bool can_redraw(int descriptor) {
  const char* term = std::getenv("TERM");
  return isatty(descriptor) && term && *term && std::strcmp(term, "dumb") != 0;
}

bool has_colour(int descriptor) {
  const char* no = std::getenv("NO_COLOR");
  return can_redraw(descriptor) && !(no && *no);
}

}  // namespace stridec::cli
