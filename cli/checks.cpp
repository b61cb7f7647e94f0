#include "cli/checks.h"

#include <cmath>
#include <cstdlib>

#include "compiler/base/text.h"

namespace stridec::cli {
namespace {

double number_of(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return end == text.c_str() || *end ? NAN : value;
}

}  // namespace

std::string above_zero(const std::string& text) {
  return number_of(text) > 0 ? "" : cat("'", text, "' is not a positive number");
}

std::string zero_or_more(const std::string& text) {
  return number_of(text) >= 0 ? "" : cat("'", text, "' is not zero or a positive number");
}

}  // namespace stridec::cli
