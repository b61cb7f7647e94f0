// Element types as the program names them (ONNX numbers) and as callers see them (DLPack codes).
#pragma once

#include "stridec/runtime.h"

namespace stridec::runtime {

struct DType {
  int32_t onnx;
  const char* name;
  stridec_dtype dlpack;  // of the memory: narrow types as whole bytes
};

// Null for a number that no stridec program uses.
const DType* find_dtype(int32_t onnx);

inline int64_t byte_size(const DType& type) { return type.dlpack.bits / 8; }

// Whether a tensor given as `given` holds elements of `type`: exactly, or as unsigned integers of its size
// where NumPy has no such type.
bool accepts(const DType& type, stridec_dtype given);

// "f32", "u8", or "code 3 with 128 bits" for what has no name here.
class Text;
Text& operator<<(Text& text, stridec_dtype given);

}  // namespace stridec::runtime
