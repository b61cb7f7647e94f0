// Reads and writes NumPy's .npy files, format 1.0 to 3.0:
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/base/dtype.h"

namespace stridec::cli {

struct Array {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;  // row-major
  int64_t count() const;
};

// Little-endian numbers and bools, C or Fortran order (converted to row-major). bf16 and the 8-bit floats are
// read from the names of ml_dtypes, and from raw 'V2'/'V1' bytes if `expected` is such a type. Throws Error:
// unreadable, malformed, unsupported.
Array read_npy(const std::string& path, DType expected);
// The same from the contents of a file; `path` is for messages.
Array parse_npy(const std::string& file, const std::string& path, DType expected);
std::string npy_text(const Array& array);  // the contents of a file
void write_npy(const std::string& path, const Array& array);

}  // namespace stridec::cli
