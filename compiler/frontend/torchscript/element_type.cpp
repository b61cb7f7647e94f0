#include "compiler/frontend/torchscript/element_type.h"

#include "compiler/base/text.h"

namespace stridec::torchscript {
namespace {

struct Row {
  int64_t number;
  const char* name;
  const char* storage;  // null: written as an untyped storage alone
  std::optional<ElementType> type;
};
const Row kRows[] = {
    {0, "uint8", "ByteStorage", ElementType{DType::kU8}},
    {1, "int8", "CharStorage", ElementType{DType::kI8}},
    {2, "int16", "ShortStorage", ElementType{DType::kI16}},
    {3, "int32", "IntStorage", ElementType{DType::kI32}},
    {4, "int64", "LongStorage", ElementType{DType::kI64}},
    {5, "float16", "HalfStorage", ElementType{DType::kF16}},
    {6, "float32", "FloatStorage", ElementType{DType::kF32}},
    {7, "float64", "DoubleStorage", ElementType{DType::kF64}},
    {8, "complex32", nullptr, std::nullopt},
    {9, "complex64", "ComplexFloatStorage", ElementType{DType::kF32, true}},
    {10, "complex128", "ComplexDoubleStorage", ElementType{DType::kF64, true}},
    {11, "bool", "BoolStorage", ElementType{DType::kBool}},
    {12, "qint8", "QInt8Storage", std::nullopt},
    {13, "quint8", "QUInt8Storage", std::nullopt},
    {14, "qint32", "QInt32Storage", std::nullopt},
    {15, "bfloat16", "BFloat16Storage", ElementType{DType::kBF16}},
    {23, "float8_e5m2", nullptr, ElementType{DType::kF8E5M2}},
    {24, "float8_e4m3fn", nullptr, ElementType{DType::kF8E4M3}},
    {25, "float8_e5m2fnuz", nullptr, ElementType{DType::kF8E5M2Fnuz}},
    {26, "float8_e4m3fnuz", nullptr, ElementType{DType::kF8E4M3Fnuz}},
    {27, "uint16", nullptr, ElementType{DType::kU16}},
    {28, "uint32", nullptr, ElementType{DType::kU32}},
    {29, "uint64", nullptr, ElementType{DType::kU64}},
};

const Row* row(int64_t number) {
  for (const Row& r : kRows)
    if (r.number == number) return &r;
  return nullptr;
}

}  // namespace

std::optional<ElementType> element_type(int64_t number) {
  const Row* r = row(number);
  return r ? r->type : std::nullopt;
}

std::string element_type_name(int64_t number) {
  const Row* r = row(number);
  return r ? r->name : cat("scalar type ", number);
}

int64_t element_type_number(DType dtype, bool complex) {
  for (const Row& r : kRows)
    if (r.type && r.type->dtype == dtype && r.type->complex == complex) return r.number;
  return -1;
}

std::optional<int64_t> storage_element_type(std::string_view storage) {
  for (const Row& r : kRows)
    if (r.storage && storage == r.storage) return r.number;
  return std::nullopt;
}

}  // namespace stridec::torchscript
