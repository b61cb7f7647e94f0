#include "compiler/base/printable.h"

#include <algorithm>
#include <cstdint>

namespace stridec {
namespace {

// The length in bytes of the printable character at the start; 0: none. Unicode 16, table 3-7.
size_t character(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  const uint8_t first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return 0;
  for (size_t i = 1; i < size; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  const bool overlong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xf0 && byte(1) < 0x90);
  const bool surrogate = first == 0xed && byte(1) >= 0xa0, beyond = first == 0xf4 && byte(1) >= 0x90;
  const bool control = first == 0xc2 && byte(1) < 0xa0;
  return overlong || surrogate || beyond || control ? 0 : size;
}

}  // namespace

std::string printable(std::string_view text, bool lines) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    const size_t size = lines && (c == '\n' || c == '\t') ? 1 : character(text.substr(at));
    if (size > 0) {
      out += text.substr(at, size);
    } else {
      constexpr char kDigits[] = "0123456789abcdef";
      const auto byte = static_cast<uint8_t>(c);
      out += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    }
    at += std::max<size_t>(size, 1);
  }
  return out;
}

}  // namespace stridec
