#include "compiler/codegen/device_kernel.h"

namespace stridec::codegen {

int driver_dtype(const TensorMap& map) {
  switch (map.dtype) {
    case DType::kU16:
    case DType::kI16: return 1;
    case DType::kU32: return 2;
    case DType::kI32: return 3;
    case DType::kU64: return 4;
    case DType::kI64: return 5;
    case DType::kF16: return 6;
    case DType::kTF32:
    case DType::kF32: return 7;
    case DType::kF64: return 8;
    case DType::kBF16: return 9;
    default: return 0;  // bytes
  }
}

int driver_swizzle(const TensorMap& map) {
  return map.swizzle == 0 ? 0 : map.swizzle == 32 ? 1 : map.swizzle == 64 ? 2 : 3;
}

int driver_promotion(const TensorMap& map) { return map.l2_promotion / 64 - (map.l2_promotion == 256); }

}  // namespace stridec::codegen
