// What operators take and return: tensors, numbers that are known or symbolic, lists, and Python's other
// values.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/aten/storage.h"

namespace stridec::aten {

struct Value {
  enum class Kind : uint8_t {
    kNone,
    kFailed,  // what produces it could not be imported
    kTensor,
    kInt,      // integer: an expression
    kBool,     // integer: a condition
    kFloat,    // number
    kComplex,  // number, imaginary
    kString,
    kDType,
    kList,
    kOther,  // text: a memory format, layout or device
  };
  Kind kind = Kind::kNone;
  Tensor tensor;
  sym::Expr integer = 0;
  double number = 0, imaginary = 0;
  DType dtype = DType::kF32;
  bool complex_dtype = false;
  std::string text;
  std::vector<Value> items;

  Value() = default;
  Value(Term term) : kind(Kind::kTensor), tensor(fresh(term)) {}
  Value(Tensor t) : kind(Kind::kTensor), tensor(std::move(t)) {}
  static Value integer_of(sym::Expr e) {
    Value v;
    v.kind = Kind::kInt;
    v.integer = e;
    return v;
  }
  static Value condition(sym::Expr e) {
    Value v = integer_of(e);
    v.kind = Kind::kBool;
    return v;
  }
  static Value number_of(double n) {
    Value v;
    v.kind = Kind::kFloat;
    v.number = n;
    return v;
  }
  static Value string(std::string s) {
    Value v;
    v.kind = Kind::kString;
    v.text = std::move(s);
    return v;
  }
  static Value list(std::vector<Value> items) {
    Value v;
    v.kind = Kind::kList;
    v.items = std::move(items);
    return v;
  }
  static Value of_dtype(DType dtype) {
    Value v;
    v.kind = Kind::kDType;
    v.dtype = dtype;
    return v;
  }
  static Value failed() {
    Value v;
    v.kind = Kind::kFailed;
    return v;
  }
  bool is_tensor() const { return kind == Kind::kTensor; }
  bool is_none() const { return kind == Kind::kNone; }
  bool is_number() const {
    return kind == Kind::kInt || kind == Kind::kBool || kind == Kind::kFloat || kind == Kind::kComplex;
  }
};

using Results = std::vector<Value>;

}  // namespace stridec::aten
