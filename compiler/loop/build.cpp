#include "compiler/loop/build.h"

#include <utility>

#include "compiler/base/check.h"
#include "compiler/base/numeric.h"
#include "compiler/base/text.h"
#include "compiler/loop/rewrite.h"

namespace stridec::loop {

using sym::Expr;

DType Value::dtype() const { return nest->nest_.values[id.value].dtype; }

NestBuilder::NestBuilder(Program& program, std::string name) : program_(program), facts_(program.facts) {
  nest_.name = std::move(name);
}

ValueId NestBuilder::fresh(DType dtype) { return add_value(nest_, dtype); }

void NestBuilder::append(Stmt stmt) {
  (open_.empty() ? nest_.body : *open_.back()).push_back(std::move(stmt));
}

Dim NestBuilder::open_dim(Expr extent, const std::string& hint) {
  Dim dim{.var = sym::var(cat("%", hint, next_index_++)), .extent = sym::simplify(extent, facts_)};
  facts_.set_index(dim.var, dim.extent);
  return dim;
}

// Runs `build` and returns the statements it appends as a block; index variables that it opens are scoped to
// that block.
template <class F>
Block NestBuilder::inside(F&& build) {
  Block block;
  sym::Facts outer = facts_;
  open_.push_back(&block);
  build();
  open_.pop_back();
  facts_ = std::move(outer);
  return block;
}

Access NestBuilder::simplified(Access access) const {
  for (Expr& e : access.index) e = sym::simplify(e, facts_);
  access.mask = sym::simplify(access.mask, facts_);
  return access;
}

// ---- dims, memory ----------------------------------------------------------------------------------------

Expr NestBuilder::dim(Expr extent, const std::string& hint) {
  STRIDEC_CHECK(open_.empty(), "parallel dims belong to the nest itself");
  nest_.dims.push_back(open_dim(extent, hint));
  return nest_.dims.back().var;
}

std::vector<Expr> NestBuilder::dims(const std::vector<Expr>& extents) {
  std::vector<Expr> out;
  for (Expr extent : extents) out.push_back(dim(extent));
  return out;
}

Value NestBuilder::load(const Access& access, Scalar fill) {
  Load load{.result = fresh(program_[access.buffer].dtype), .access = simplified(access), .fill = fill};
  STRIDEC_CHECK(load.access.index.size() == program_[access.buffer].shape.size(),
                "one index per dim of the buffer");
  STRIDEC_CHECK(fill.dtype == program_[access.buffer].dtype, "the fill has the buffer's dtype");
  ValueId result = load.result;
  append({std::move(load)});
  return {this, result};
}

Value NestBuilder::load(const View& view, const std::vector<Expr>& at) {
  Scalar fill = view.mask.is_const(1) ? int_scalar(view.dtype, 0) : view.fill;
  return load(access(view, at), fill);
}

void NestBuilder::store(const View& view, const std::vector<Expr>& at, Value value) {
  STRIDEC_CHECK(value.dtype() == program_[view.buffer].dtype,
                cat("storing ", name(value.dtype()), " to ", name(program_[view.buffer].dtype), " ",
                    program_[view.buffer].name));
  append({Store{.access = simplified(access(view, at)), .value = value.id}});
}

void NestBuilder::store_update(const View& view, const std::vector<Expr>& at, Value value, Combine combine) {
  STRIDEC_CHECK(value.dtype() == program_[view.buffer].dtype && arity(combine) == 1);
  append(
      {Store{.access = simplified(access(view, at)), .value = value.id, .update = true, .combine = combine}});
}

// ---- scalars ---------------------------------------------------------------------------------------------

Value NestBuilder::constant(Scalar value) {
  ValueId result = fresh(value.dtype);
  append({Constant{result, value}});
  return {this, result};
}

Value NestBuilder::constant(DType dtype, double value) { return constant(float_scalar(dtype, value)); }

Value NestBuilder::index_value(Expr expr, DType dtype) {
  ValueId result = fresh(dtype);
  append({IndexValue{result, sym::simplify(expr, facts_)}});
  return {this, result};
}

Value NestBuilder::op(ScalarOp op, const std::vector<Value>& args) {
  const ScalarOpInfo& i = info(op);
  STRIDEC_CHECK(static_cast<int>(args.size()) == i.arity, cat(i.name, " takes ", i.arity, " values"));
  STRIDEC_CHECK(i.result != ResultRule::kGiven, "casts have functions of their own");
  size_t first = op == ScalarOp::kSelect ? 1 : 0;
  for (size_t a = 0; a < args.size(); ++a) {
    STRIDEC_CHECK(args[a].nest == this, "a value of another nest");
    DType expected = a < first ? DType::kBool : args[first].dtype();
    STRIDEC_CHECK(args[a].dtype() == expected, cat(i.name, " of ", name(args[a].dtype()), " and ",
                                                   name(expected), " in nest ", nest_.name));
  }
  Let let{.result = fresh(i.result == ResultRule::kBool ? DType::kBool : args.back().dtype()),
          .op = op,
          .args = {}};
  for (const Value& a : args) let.args.push_back(a.id);
  ValueId result = let.result;
  append({std::move(let)});
  return {this, result};
}

Value NestBuilder::cast(Value value, DType dtype, bool saturate) {
  if (value.dtype() == dtype) return value;
  ValueId result = fresh(dtype);
  append({Let{result, saturate ? ScalarOp::kCastSat : ScalarOp::kCast, {value.id}}});
  return {this, result};
}

Value NestBuilder::bitcast(Value value, DType dtype) {
  if (value.dtype() == dtype) return value;
  STRIDEC_CHECK(stridec::info(value.dtype()).bits == stridec::info(dtype).bits, "bitcast keeps the width");
  ValueId result = fresh(dtype);
  append({Let{result, ScalarOp::kBitcast, {value.id}}});
  return {this, result};
}

Expr NestBuilder::bind(Value value, Expr extent, Bind options) {
  STRIDEC_CHECK(is_integer(value.dtype()), "an index is an integer");
  options.var = sym::var(cat("%g", next_index_++));
  options.value = value.id;
  options.extent = sym::simplify(extent, facts_);
  const Expr var = options.var;
  Stmt stmt{std::move(options)};
  add_facts(facts_, stmt);
  append(std::move(stmt));
  return var;
}

// ---- loops -----------------------------------------------------------------------------------------------

Value NestBuilder::reduce(Combine combine, const std::vector<Expr>& extents, const Body& body,
                          int64_t byte_blocks) {
  return reduce_many(
      combine, extents, [&](const std::vector<Expr>& at) { return std::vector<Value>{body(at)}; },
      byte_blocks)[0];
}

std::vector<Value> NestBuilder::reduce_many(Combine combine, const std::vector<Expr>& extents,
                                            const Bodies& body, int64_t byte_blocks) {
  Reduce reduce{
      .dims = {}, .body = {}, .combine = combine, .yields = {}, .results = {}, .byte_blocks = byte_blocks};
  std::vector<Value> results;
  reduce.body = inside([&] {
    std::vector<Expr> at;
    for (Expr extent : extents) at.push_back(reduce.dims.emplace_back(open_dim(extent, "r")).var);
    for (const Value& v : body(at)) reduce.yields.push_back(v.id);
  });
  STRIDEC_CHECK(arity(combine) == 1 || static_cast<int>(reduce.yields.size()) == arity(combine));
  for (ValueId y : reduce.yields) {
    reduce.results.push_back(fresh(nest_.values[y.value].dtype));
    results.push_back({this, reduce.results.back()});
  }
  append({std::move(reduce)});
  return results;
}

void NestBuilder::loop(const std::vector<Expr>& extents,
                       const std::function<void(const std::vector<Expr>& at)>& body) {
  For loop;
  loop.body = inside([&] {
    std::vector<Expr> at;
    for (Expr extent : extents) at.push_back(loop.dims.emplace_back(open_dim(extent, "j")).var);
    body(at);
  });
  append({std::move(loop)});
}

std::vector<Value> NestBuilder::scan(Expr extent, bool reverse, const std::vector<Value>& init,
                                     const ScanBody& body) {
  Scan scan;
  scan.reverse = reverse;
  std::vector<Value> carried, results;
  for (const Value& v : init) {
    scan.init.push_back(v.id);
    scan.carried.push_back(fresh(v.dtype()));
    carried.push_back({this, scan.carried.back()});
  }
  scan.body = inside([&] {
    scan.dim = open_dim(extent, "s");
    for (const Value& v : body(scan.dim.var, carried)) scan.yields.push_back(v.id);
  });
  STRIDEC_CHECK(scan.yields.size() == scan.init.size(), "a scan yields what it carries");
  for (const Value& v : init) {
    scan.results.push_back(fresh(v.dtype()));
    results.push_back({this, scan.results.back()});
  }
  append({std::move(scan)});
  return results;
}

NestId NestBuilder::finish(Steps* steps) {
  NestId id = add_nest(program_, std::move(nest_));
  (steps ? *steps : program_.steps).push_back({Launch{id}});
  return id;
}

// ---- operators -------------------------------------------------------------------------------------------

Value binary(ScalarOp op, Value a, Value b) { return a.nest->op(op, {a, b}); }
Value unary(ScalarOp op, Value a) { return a.nest->op(op, {a}); }
Value operator+(Value a, Value b) { return binary(ScalarOp::kAdd, a, b); }
Value operator-(Value a, Value b) { return binary(ScalarOp::kSub, a, b); }
Value operator*(Value a, Value b) { return binary(ScalarOp::kMul, a, b); }
Value operator/(Value a, Value b) { return binary(ScalarOp::kDiv, a, b); }
Value operator-(Value a) { return unary(ScalarOp::kNeg, a); }
Value min(Value a, Value b) { return binary(ScalarOp::kMin, a, b); }
Value max(Value a, Value b) { return binary(ScalarOp::kMax, a, b); }
Value eq(Value a, Value b) { return binary(ScalarOp::kEq, a, b); }
Value ne(Value a, Value b) { return binary(ScalarOp::kNe, a, b); }
Value lt(Value a, Value b) { return binary(ScalarOp::kLt, a, b); }
Value le(Value a, Value b) { return binary(ScalarOp::kLe, a, b); }
Value select(Value condition, Value then_value, Value else_value) {
  return condition.nest->op(ScalarOp::kSelect, {condition, then_value, else_value});
}

}  // namespace stridec::loop
