#include "dtype.h"

#include "text.h"

namespace stridec::runtime {
namespace {

constexpr DType kTypes[] = {
    {1, "f32", {2, 32, 1}},     {2, "u8", {1, 8, 1}},           {3, "i8", {0, 8, 1}},
    {4, "u16", {1, 16, 1}},     {5, "i16", {0, 16, 1}},         {6, "i32", {0, 32, 1}},
    {7, "i64", {0, 64, 1}},     {9, "bool", {6, 8, 1}},         {10, "f16", {2, 16, 1}},
    {11, "f64", {2, 64, 1}},    {12, "u32", {1, 32, 1}},        {13, "u64", {1, 64, 1}},
    {16, "bf16", {4, 16, 1}},   {17, "f8e4m3fn", {10, 8, 1}},   {18, "f8e4m3fnuz", {11, 8, 1}},
    {19, "f8e5m2", {12, 8, 1}}, {20, "f8e5m2fnuz", {13, 8, 1}}, {24, "f8e8m0", {14, 8, 1}},
    {21, "u4", {1, 8, 1}},      {22, "i4", {0, 8, 1}},          {23, "f4e2m1", {1, 8, 1}},
    {25, "u2", {1, 8, 1}},      {26, "i2", {0, 8, 1}},          {27, "f6e2m3", {1, 8, 1}},
    {28, "f6e3m2", {1, 8, 1}},
};

bool equal(stridec_dtype a, stridec_dtype b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

}  // namespace

const DType* find_dtype(int32_t onnx) {
  for (const DType& type : kTypes)
    if (type.onnx == onnx) return &type;
  return nullptr;
}

bool accepts(const DType& type, stridec_dtype given) {
  if (equal(type.dlpack, given)) return true;
  bool foreign = type.dlpack.code >= STRIDEC_DTYPE_BFLOAT;  // bf16, bool, 8-bit floats
  return foreign && given.code == STRIDEC_DTYPE_UINT && given.bits == type.dlpack.bits && given.lanes == 1;
}

Text& operator<<(Text& text, stridec_dtype given) {
  for (const DType& type : kTypes)
    if (equal(type.dlpack, given)) return text << type.name;
  text << "DLPack code " << int32_t{given.code} << " with " << int32_t{given.bits} << " bits";
  if (given.lanes != 1) text << " and " << int32_t{given.lanes} << " lanes";
  return text;
}

}  // namespace stridec::runtime
