// Numbers of every dtype as bytes in memory, little endian: how constants are made and read at compile time. Numbers as
// people read them.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/base/dtype.h"

namespace stridec {

// One element at `bytes`. Floats round to the nearest, integers wrap to the dtype's range; bool is value != 0.
void write_float(DType dtype, double value, uint8_t* bytes);
double read_float(DType dtype, const uint8_t* bytes);
void write_integer(DType dtype, int64_t value, uint8_t* bytes);
int64_t read_integer(DType dtype, const uint8_t* bytes);

std::string human_bytes(uint64_t bytes);  // "437.9 MB"

}  // namespace stridec
