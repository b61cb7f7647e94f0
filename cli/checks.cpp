#include "cli/checks.h"

#include <cmath>
#include <cstdlib>

#include "compiler/base/number.h"
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

std::string to_bytes(std::string& text) {
  const auto bytes = parse_bytes(text);
  if (!bytes) return cat("'", text, "' is not a size: write 500MB, 2GB or 2GiB");
  text = std::to_string(*bytes);
  return "";
}

}  // namespace stridec::cli
