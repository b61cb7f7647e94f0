// Reads and writes values of every dtype as little-endian bytes, for constants at compile time. Formats and
// parses byte counts of people.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "compiler/base/dtype.h"

namespace stridec {

// One element at `bytes`. Floats round to nearest, integers wrap to the range of the dtype; bool is value !=
// 0.
void write_float(DType dtype, double value, uint8_t* bytes);
double read_float(DType dtype, const uint8_t* bytes);
void write_integer(DType dtype, int64_t value, uint8_t* bytes);
int64_t read_integer(DType dtype, const uint8_t* bytes);

std::string human_bytes(uint64_t bytes);  // "437.9 MB"

// "800MB", "1.5GiB", "2g", "4096": k is 1000 and ki is 1024, in either case. nullopt for anything else, and
// for more than 2^62 bytes.
std::optional<uint64_t> parse_bytes(std::string_view text);

}  // namespace stridec
