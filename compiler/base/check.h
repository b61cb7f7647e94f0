// Checks of the compiler's own invariants. A user's mistake is an Error (diagnostic.h), never a check.
#pragma once

#include <string>

namespace stridec {

// STRIDEC_CHECK calls it. The command line prints the exception as an internal error (exit code 9).
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& detail);

}  // namespace stridec

// The detail is evaluated only on failure; print the IR there.
#define STRIDEC_CHECK(condition, ...)                                                          \
  do {                                                                                         \
    if (!(condition)) ::stridec::check_failed(__FILE__, __LINE__, #condition, std::string(__VA_ARGS__)); \
  } while (false)
