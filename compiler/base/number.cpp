#include "compiler/base/number.h"

#include <charconv>
#include <cstdio>
#include <cstring>

#include "compiler/base/numeric.h"

namespace stridec {

void write_float(DType dtype, double value, uint8_t* bytes) {
  const uint64_t bits = encode_float(dtype, value);
  std::memcpy(bytes, &bits, static_cast<size_t>(byte_size(dtype)));
}

double read_float(DType dtype, const uint8_t* bytes) {
  uint64_t bits = 0;
  std::memcpy(&bits, bytes, static_cast<size_t>(byte_size(dtype)));
  return decode_float(dtype, bits);
}

void write_integer(DType dtype, int64_t value, uint8_t* bytes) {
  const int64_t wrapped = wrap_integer(dtype, value);
  std::memcpy(bytes, &wrapped, static_cast<size_t>(byte_size(dtype)));
}

int64_t read_integer(DType dtype, const uint8_t* bytes) {
  int64_t value = 0;
  std::memcpy(&value, bytes, static_cast<size_t>(byte_size(dtype)));
  return wrap_integer(dtype, value);
}

std::string human_bytes(uint64_t bytes) {
  char text[32];
  if (bytes < 1000) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes);
  const char* units[] = {"B", "KB", "MB", "GB", "TB"};
  int unit = 0;
  while (value >= 999.95 && unit < 4) value /= 1000, ++unit;
  std::snprintf(text, sizeof(text), "%.1f %s", value, units[unit]);
  return text;
}

std::optional<uint64_t> parse_bytes(std::string_view text) {
  constexpr std::string_view kPrefixes = "kmgtpe";
  constexpr double kMost = 0x1p62;
  double number = 0;
  if (text.empty() || text[0] < '0' || text[0] > '9') return std::nullopt;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc()) return std::nullopt;
  std::string unit(at, end);
  for (char& c : unit) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (const size_t power = unit.empty() ? std::string::npos : kPrefixes.find(unit[0]);
      power != std::string::npos) {
    const bool binary = unit.size() > 1 && unit[1] == 'i';
    for (size_t i = 0; i <= power; ++i) number *= binary ? 1024 : 1000;
    unit.erase(0, binary ? 2 : 1);
  }
  if (!(unit.empty() || unit == "b") || number > kMost) return std::nullopt;
  return static_cast<uint64_t>(number);
}

}  // namespace stridec
