// What TorchScript's expressions evaluate to: what is known at compile time, tensors of the graph, and sizes.
//
// Lists, dicts and objects are shared, as in Python: a change through one name is seen through all. A float
// that only the run knows is a tensor without dims whose `wrapped` is set; an integer or bool of the run is
// an expression over symbols.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/aten/value.h"
#include "compiler/frontend/torchscript/pickle.h"
#include "compiler/frontend/torchscript/syntax.h"

namespace stridec::torchscript {

struct Value;

struct Sequence {
  std::vector<Value> items;
  // After them come the rows of a tensor, along dim 0: what a loop appended whose end only the run knows.
  std::optional<aten::Tensor> rows = {};
  bool growing = false;  // such a loop is under way, so the contents are not known
  // Lists that are this one if data decide so. A change of one leaves the others stale: what they hold is not
  // known.
  std::vector<std::weak_ptr<Sequence>> aliases = {};
  bool stale = false;
};
// In order of insertion. Keys are strings, numbers or bools.
struct Dict {
  std::vector<std::pair<Value, Value>> items;
};
struct Object {
  const Class* type = nullptr;
  std::string path;  // in the saved module: "layer1.0"; of an object that the program makes: ""
  bool saved = false;
  std::map<std::string, Value> fields;
};

struct Value {
  enum class Kind : uint8_t {
    kNone,
    kFailed,  // what gives it could not be imported
    kUnset,   // uninitialized(T): no correct program reads it
    kTensor,
    kInt,       // integer
    kBool,      // integer: a condition
    kFloat,     // number
    kComplex,   // number, imaginary
    kString,    // text
    kDevice,    // text
    kList,      // sequence
    kTuple,     // sequence; type: of a NamedTuple, else null
    kDict,      // dict
    kObject,    // object
    kEnum,      // text: its qualified name; sequence: its value
    kFunction,  // text: a qualified name
    kMethod,    // object, text
    kStored,    // stored: a tensor of the file that nothing has read yet; text: its name
  };
  Kind kind = Kind::kNone;
  aten::Tensor tensor;
  sym::Expr integer = 0;
  double number = 0, imaginary = 0;
  std::string text;
  std::shared_ptr<Sequence> sequence;
  std::shared_ptr<Dict> dict;
  std::shared_ptr<Object> object;
  const Class* type = nullptr;
  ItemRef stored;

  Value() = default;
  explicit Value(aten::Tensor t) : kind(Kind::kTensor), tensor(std::move(t)) {}
  static Value of_kind(Kind kind) {
    Value v;
    v.kind = kind;
    return v;
  }
  static Value of_integer(sym::Expr e) { return with(Kind::kInt, &Value::integer, e); }
  static Value of_bool(sym::Expr e) { return with(Kind::kBool, &Value::integer, e); }
  static Value of_float(double n) { return with(Kind::kFloat, &Value::number, n); }
  static Value of_string(std::string s) { return with(Kind::kString, &Value::text, std::move(s)); }
  static Value of_items(Kind kind, std::vector<Value> items) {
    Value v = of_kind(kind);
    v.sequence = std::make_shared<Sequence>(Sequence{std::move(items)});
    return v;
  }
  static Value list(std::vector<Value> items) { return of_items(Kind::kList, std::move(items)); }
  static Value tuple(std::vector<Value> items) { return of_items(Kind::kTuple, std::move(items)); }
  static Value new_dict() {
    Value v = of_kind(Kind::kDict);
    v.dict = std::make_shared<Dict>();
    return v;
  }
  static Value failed() { return of_kind(Kind::kFailed); }

  bool is(Kind k) const { return kind == k; }
  bool is_none() const { return kind == Kind::kNone; }
  bool is_failed() const { return kind == Kind::kFailed; }
  // A tensor of the program, not a float of the run.
  bool is_tensor() const { return kind == Kind::kTensor && !tensor.wrapped; }
  bool is_run_float() const { return kind == Kind::kTensor && tensor.wrapped; }
  bool is_whole() const { return kind == Kind::kInt || kind == Kind::kBool; }
  bool is_number() const {
    return is_whole() || kind == Kind::kFloat || kind == Kind::kComplex || is_run_float();
  }
  std::vector<Value>& items() { return sequence->items; }
  const std::vector<Value>& items() const { return sequence->items; }

 private:
  template <class Field>
  static Value with(Kind kind, Field Value::* field, Field content) {
    Value v;
    v.kind = kind;
    v.*field = std::move(content);
    return v;
  }
};

// "a list", "an integer": for messages.
std::string kind_name(const Value& value);
// Throws Error for a stale list.
void expect_known(const Value& value);
// Whether it, or an item of it, is failed.
bool has_failed(const Value& value);
// As Python prints it, with sizes by their names.
std::string printed(const Value& value);
// The same as a string of the program: an expression that only the run knows stands between two marks.
std::string marked(const Value& value);
// A string of the program without the marks, for a reader.
std::string unmarked(const std::string& text);
// As the sentence of a guard: expressions that are `known` become placeholders of `values`.
std::string guard_sentence(const std::string& text, const std::function<bool(sym::Expr)>& known,
                           std::vector<sym::Expr>& values);
// Python's ==, of values without tensors: a condition. None where it is not decided by numbers.
std::optional<sym::Expr> equal(const Value& a, const Value& b);

}  // namespace stridec::torchscript
