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
  static Value integer_of(sym::Expr e) { return make(Kind::kInt, &Value::integer, e); }
  static Value condition(sym::Expr e) { return make(Kind::kBool, &Value::integer, e); }
  static Value number_of(double n) { return make(Kind::kFloat, &Value::number, n); }
  static Value string(std::string s) { return make(Kind::kString, &Value::text, std::move(s)); }
  static Value list(std::vector<Value> items) { return make(Kind::kList, &Value::items, std::move(items)); }
  static Value of_dtype(DType dtype) { return make(Kind::kDType, &Value::dtype, dtype); }
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

 private:
  template <class Field>
  static Value make(Kind kind, Field Value::* field, Field content) {
    Value v;
    v.kind = kind;
    v.*field = std::move(content);
    return v;
  }
};

using Results = std::vector<Value>;

}  // namespace stridec::aten
