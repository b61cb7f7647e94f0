#include "compiler/frontend/pt2/scalar_type.h"

#include "compiler/base/text.h"

namespace stridec::pt2 {
namespace {

struct Row {
  int number;
  const char* name;
  std::optional<ElementType> type;
};
const Row kRows[] = {
    {1, "uint8", ElementType{DType::kU8}},
    {2, "int8", ElementType{DType::kI8}},
    {3, "int16", ElementType{DType::kI16}},
    {4, "int32", ElementType{DType::kI32}},
    {5, "int64", ElementType{DType::kI64}},
    {6, "float16", ElementType{DType::kF16}},
    {7, "float32", ElementType{DType::kF32}},
    {8, "float64", ElementType{DType::kF64}},
    {9, "complex32", std::nullopt},
    {10, "complex64", ElementType{DType::kF32, true}},
    {11, "complex128", ElementType{DType::kF64, true}},
    {12, "bool", ElementType{DType::kBool}},
    {13, "bfloat16", ElementType{DType::kBF16}},
    {28, "uint16", ElementType{DType::kU16}},
    {29, "float8_e4m3fn", ElementType{DType::kF8E4M3}},
    {30, "float8_e5m2", ElementType{DType::kF8E5M2}},
    {31, "float8_e4m3fnuz", ElementType{DType::kF8E4M3Fnuz}},
    {32, "float8_e5m2fnuz", ElementType{DType::kF8E5M2Fnuz}},
    {33, "float8_e8m0fnu", ElementType{DType::kF8E8M0}},
    {34, "uint32", ElementType{DType::kU32}},
    {35, "uint64", ElementType{DType::kU64}},
};

const Row* row(int number) {
  for (const Row& r : kRows)
    if (r.number == number) return &r;
  return nullptr;
}

}  // namespace

std::optional<ElementType> element_type(int scalar_type) {
  const Row* r = row(scalar_type);
  return r ? r->type : std::nullopt;
}

std::string scalar_type_name(int scalar_type) {
  const Row* r = row(scalar_type);
  return r ? r->name : cat("scalar type ", scalar_type);
}

int scalar_type_of(std::string_view name) {
  for (const Row& r : kRows)
    if (r.name == name) return r.number;
  return 0;
}

}  // namespace stridec::pt2
