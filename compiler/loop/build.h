// Define-by-run construction of nests: C++ callables receive index variables and use Value like a number.
//
//   NestBuilder n(program, "gelu_bias", facts);
//   auto i = n.dims(x.shape);
//   n.store(y, i, gelu(n.load(x, i) + n.load(b, {i[1]})));
//   n.finish();
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/loop/view.h"

namespace stridec::loop {

class NestBuilder;

// A scalar of a nest under construction. Operators require equal dtypes; nothing is promoted silently.
struct Value {
  NestBuilder* nest = nullptr;
  ValueId id;
  DType dtype() const;
};

class NestBuilder {
 public:
  NestBuilder(Program& program, std::string name);

  // Adds parallel dims to the nest, in the order of the calls, and returns their index variables.
  sym::Expr dim(sym::Expr extent, const std::string& hint = "i");
  std::vector<sym::Expr> dims(const std::vector<sym::Expr>& extents);

  Value load(const View& view, const std::vector<sym::Expr>& at);
  Value load(const Access& access, Scalar fill);
  void store(const View& view, const std::vector<sym::Expr>& at, Value value);
  void store_update(const View& view, const std::vector<sym::Expr>& at, Value value, Combine combine);

  Value constant(Scalar value);
  Value constant(DType dtype, double value);  // rounded or converted to dtype
  Value index_value(sym::Expr expr, DType dtype = DType::kI64);
  Value op(ScalarOp op, const std::vector<Value>& args);
  Value cast(Value value, DType dtype, bool saturate = false);  // no-op if the dtype is the same
  Value bitcast(Value value, DType dtype);

  // Defines an index variable by a value; see Bind.
  sym::Expr bind(Value value, sym::Expr extent, Bind options = {});

  using Body = std::function<Value(const std::vector<sym::Expr>& at)>;
  using Bodies = std::function<std::vector<Value>(const std::vector<sym::Expr>& at)>;
  Value reduce(Combine combine, const std::vector<sym::Expr>& extents, const Body& body,
               int64_t byte_blocks = 0);
  std::vector<Value> reduce_many(Combine combine, const std::vector<sym::Expr>& extents, const Bodies& body,
                                 int64_t byte_blocks = 0);
  void loop(const std::vector<sym::Expr>& extents,
            const std::function<void(const std::vector<sym::Expr>& at)>& body);
  using ScanBody = std::function<std::vector<Value>(sym::Expr at, const std::vector<Value>& carried)>;
  std::vector<Value> scan(sym::Expr extent, bool reverse, const std::vector<Value>& init,
                          const ScanBody& body);

  // Adds the nest to the program and a Launch to `steps` (default: Program::steps). The builder must not be
  // used afterwards.
  NestId finish(Steps* steps = nullptr);

  Program& program() { return program_; }
  Nest& nest() { return nest_; }  // to set its name and nodes
  // The program's facts and the ranges of the open index variables.
  const sym::Facts& facts() const { return facts_; }

 private:
  friend struct Value;
  ValueId fresh(DType dtype);
  void append(Stmt stmt);
  Access simplified(Access access) const;
  Dim open_dim(sym::Expr extent, const std::string& hint);
  template <class F>
  Block inside(F&& build);

  Program& program_;
  Nest nest_;
  sym::Facts facts_;
  std::vector<Block*> open_;  // innermost last; empty: the nest's body
  int next_index_ = 0;
};

Value operator+(Value a, Value b);
Value operator-(Value a, Value b);
Value operator*(Value a, Value b);
Value operator/(Value a, Value b);
Value operator-(Value a);
Value min(Value a, Value b);
Value max(Value a, Value b);
Value eq(Value a, Value b);
Value ne(Value a, Value b);
Value lt(Value a, Value b);
Value le(Value a, Value b);
Value select(Value condition, Value then_value, Value else_value);
Value unary(ScalarOp op, Value a);
Value binary(ScalarOp op, Value a, Value b);

}  // namespace stridec::loop
