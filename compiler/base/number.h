// Reads and writes values of every dtype as little-endian bytes, for constants at compile time. Formats byte
// counts for people.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/base/dtype.h"

namespace stridec {

// One element at `bytes`. Floats round to nearest, integers wrap to the range of the dtype; bool is value !=
// 0.
void write_float(DType dtype, double value, uint8_t* bytes);
double read_float(DType dtype, const uint8_t* bytes);
void write_integer(DType dtype, int64_t value, uint8_t* bytes);
int64_t read_integer(DType dtype, const uint8_t* bytes);

std::string human_bytes(uint64_t bytes);  // "437.9 MB"

}  // namespace stridec
