#include "compiler/base/dtype.h"

namespace stridec {
namespace {

constexpr DTypeInfo kInfos[] = {
#define STRIDEC_DTYPE(id, text, bytes, kind, bits, onnx) {text, bytes, DTypeKind::kind, bits, onnx},
#include "compiler/base/dtype.def"
#undef STRIDEC_DTYPE
};
constexpr int kCount = sizeof(kInfos) / sizeof(kInfos[0]);

}  // namespace

const DTypeInfo& info(DType type) { return kInfos[static_cast<int>(type)]; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (int i = 0; i < kCount; ++i)
    if (kInfos[i].name == name) return static_cast<DType>(i);
  return std::nullopt;
}

std::optional<DType> dtype_from_onnx(int onnx_type) {
  if (onnx_type < 0) return std::nullopt;
  for (int i = 0; i < kCount; ++i)
    if (kInfos[i].onnx_type == onnx_type) return static_cast<DType>(i);
  return std::nullopt;
}

}  // namespace stridec
