// Element types: one row each in dtype.def.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace stridec {

enum class DType : uint8_t {
#define STRIDEC_DTYPE(id, ...) id,
#include "compiler/base/dtype.def"
#undef STRIDEC_DTYPE
};

enum class DTypeKind : uint8_t { kBool, kSigned, kUnsigned, kFloat };

struct DTypeInfo {
  std::string_view name;
  int bytes;  // of one element in memory
  DTypeKind kind;
  int bits;       // of the value
  int onnx_type;  // TensorProto.DataType
};

const DTypeInfo& info(DType type);
std::optional<DType> parse_dtype(std::string_view name);
std::optional<DType> dtype_from_onnx(int onnx_type);

inline std::string_view name(DType t) { return info(t).name; }
inline int byte_size(DType t) { return info(t).bytes; }
inline bool is_float(DType t) { return info(t).kind == DTypeKind::kFloat; }
inline bool is_signed(DType t) { return info(t).kind == DTypeKind::kSigned; }
inline bool is_integer(DType t) {
  return info(t).kind == DTypeKind::kSigned || info(t).kind == DTypeKind::kUnsigned;
}
inline bool is_bool(DType t) { return t == DType::kBool; }
// Types that are stored in this format and computed in f32: all floats except f32 and f64.
inline bool is_storage_float(DType t) { return is_float(t) && t != DType::kF32 && t != DType::kF64; }

}  // namespace stridec
