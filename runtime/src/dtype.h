// Element types in the program's encoding (ONNX numbers) and in the API's encoding (DLPack codes).
#pragma once

#include "stridec/runtime.h"

namespace stridec::runtime {

struct DType {
  int32_t onnx;
  const char* name;
  stridec_dtype dlpack;  // in memory: narrow types as whole bytes
};

// Null for a number that no stridec program uses.
const DType* find_dtype(int32_t onnx);

inline int64_t byte_size(const DType& type) { return type.dlpack.bits / 8; }

// Whether a tensor of type `given` is accepted for elements of `type`: the same type, or unsigned integers of
// the same size if NumPy lacks the type.
bool accepts(const DType& type, stridec_dtype given);

// "f32", "u8", or "code 3 with 128 bits" for a type without a name here.
class Text;
Text& operator<<(Text& text, stridec_dtype given);

}  // namespace stridec::runtime
