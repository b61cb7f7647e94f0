// Pointwise ops: NumPy broadcasting, one dtype for all operands (casts are explicit), one scalar op each.
#include <numbers>

#include "compiler/base/check.h"
#include "compiler/base/number.h"
#include "compiler/base/numeric.h"
#include "compiler/base/text.h"
#include "compiler/ops/gradient.h"
#include "compiler/ops/lowering.h"
#include "compiler/ops/op_table.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

namespace {

using loop::ScalarOp;

enum class Domain { kFloat, kNumber, kInteger, kBool, kAny };

struct Row {
  ScalarOp op;
  Domain domain;
};

Row row(OpKind kind) {
  switch (kind) {
#define STRIDEC_FLAT(id, domain, ...) \
  case OpKind::id: return {ScalarOp::id, Domain::domain};
#define STRIDEC_UNARY STRIDEC_FLAT
#define STRIDEC_BINARY STRIDEC_FLAT
#include "compiler/ops/pointwise.def"
#undef STRIDEC_FLAT
#undef STRIDEC_UNARY
#undef STRIDEC_BINARY
    case OpKind::kFma: return {ScalarOp::kFma, Domain::kFloat};
    default: STRIDEC_CHECK(false, cat(graph::name(kind), " is not pointwise"));
  }
}

bool belongs(DType dtype, Domain domain) {
  switch (domain) {
    case Domain::kFloat: return is_float(dtype);
    case Domain::kNumber: return !is_bool(dtype);
    case Domain::kInteger: return is_integer(dtype);
    case Domain::kBool: return is_bool(dtype);
    case Domain::kAny: return true;
  }
  return false;
}

std::string_view describe(Domain domain) {
  switch (domain) {
    case Domain::kFloat: return "floats";
    case Domain::kNumber: return "numbers";
    case Domain::kInteger: return "integers";
    case Domain::kBool: return "bools";
    case Domain::kAny: return "anything";
  }
  return "";
}

bool is_comparison(ScalarOp op) {
  return op == ScalarOp::kEq || op == ScalarOp::kNe || op == ScalarOp::kLt || op == ScalarOp::kLe;
}

// ---- arithmetic on known elements ------------------------------------------------------------------------

// Integer arithmetic that wraps as in the dtype.
std::optional<int64_t> fold(ScalarOp op, DType dtype, int64_t a, int64_t b) {
  const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  const bool is_unsigned = !is_signed(dtype);
  switch (op) {
    case ScalarOp::kNeg: return static_cast<int64_t>(-ua);
    case ScalarOp::kAbs: return a < 0 && !is_unsigned ? static_cast<int64_t>(-ua) : a;
    case ScalarOp::kSign: return a == 0 ? 0 : a < 0 && !is_unsigned ? -1 : 1;
    case ScalarOp::kAdd: return static_cast<int64_t>(ua + ub);
    case ScalarOp::kSub: return static_cast<int64_t>(ua - ub);
    case ScalarOp::kMul: return static_cast<int64_t>(ua * ub);
    case ScalarOp::kDiv:
      if (b == 0) return 0;
      if (is_unsigned) return static_cast<int64_t>(ua / ub);
      return b == -1 ? static_cast<int64_t>(-ua) : a / b;
    case ScalarOp::kRem:
    case ScalarOp::kMod: {
      if (b == 0 || (b == -1 && !is_unsigned)) return 0;
      if (is_unsigned) return static_cast<int64_t>(ua % ub);
      const int64_t r = a % b;
      return op == ScalarOp::kMod && r != 0 && (r < 0) != (b < 0) ? r + b : r;
    }
    case ScalarOp::kMin: return (is_unsigned ? ua < ub : a < b) ? a : b;
    case ScalarOp::kMax: return (is_unsigned ? ua < ub : a < b) ? b : a;
    case ScalarOp::kEq: return a == b;
    case ScalarOp::kNe: return a != b;
    case ScalarOp::kLt: return is_unsigned ? ua < ub : a < b;
    case ScalarOp::kLe: return is_unsigned ? ua <= ub : a <= b;
    case ScalarOp::kNot: return a == 0;
    case ScalarOp::kAnd: return a != 0 && b != 0;
    case ScalarOp::kOr: return a != 0 || b != 0;
    case ScalarOp::kXor: return (a != 0) != (b != 0);
    case ScalarOp::kBitAnd: return a & b;
    case ScalarOp::kBitOr: return a | b;
    case ScalarOp::kBitXor: return a ^ b;
    case ScalarOp::kBitNot: return ~a;
    default: return std::nullopt;
  }
}

// Arithmetic on sizes. Assumes that they fit in 32 and 64 bits, as every source format does.
std::optional<sym::Expr> fold(const Builder& builder, ScalarOp op, DType dtype, sym::Expr a, sym::Expr b) {
  if (a.is_const() && b.is_const()) {
    auto value = fold(op, dtype, a.value(), b.value());
    if (!value) return std::nullopt;
    return wrap_integer(is_comparison(op) ? DType::kBool : dtype, *value);
  }
  if (!is_bool(dtype) && info(dtype).bits < 32) return std::nullopt;
  switch (op) {
    case ScalarOp::kNeg: return -a;
    case ScalarOp::kAbs: return sym::abs(a);
    case ScalarOp::kSign: return sym::select(sym::eq(a, 0), 0, sym::select(sym::lt(a, 0), -1, 1));
    case ScalarOp::kAdd: return a + b;
    case ScalarOp::kSub: return a - b;
    case ScalarOp::kMul: return a * b;
    case ScalarOp::kDiv:
      if (!builder.holds(sym::gt(b, 0))) return std::nullopt;
      if (builder.holds(sym::ge(a, 0))) return sym::floordiv(a, b);
      return sym::select(sym::lt(a, 0), -sym::floordiv(-a, b), sym::floordiv(a, b));
    case ScalarOp::kMod:
      if (!builder.holds(sym::gt(b, 0))) return std::nullopt;
      return sym::mod(a, b);
    case ScalarOp::kRem:
      if (!builder.holds(sym::gt(b, 0)) || !builder.holds(sym::ge(a, 0))) return std::nullopt;
      return sym::mod(a, b);
    case ScalarOp::kMin: return sym::min(a, b);
    case ScalarOp::kMax: return sym::max(a, b);
    case ScalarOp::kEq: return sym::eq(a, b);
    case ScalarOp::kNe: return sym::ne(a, b);
    case ScalarOp::kLt: return sym::lt(a, b);
    case ScalarOp::kLe: return sym::le(a, b);
    case ScalarOp::kNot: return sym::logical_not(a);
    case ScalarOp::kAnd: return sym::logical_and(a, b);
    case ScalarOp::kOr: return sym::logical_or(a, b);
    case ScalarOp::kXor: return sym::ne(a, b);
    default: return std::nullopt;
  }
}

// Combines the operands' elements at each coordinate, with broadcasting.
std::optional<Elements> fold_elements(
    const Builder& builder, const Node& node, const Shape& shape,
    const std::function<std::optional<sym::Expr>(const Elements&)>& combine) {
  std::vector<Elements> operands;
  std::vector<std::vector<int64_t>> shapes;
  for (ValueId input : node.inputs) {
    auto known = builder.known(input);
    auto sizes = constant_shape(builder.shape(input));
    if (!known || !sizes) return std::nullopt;
    operands.push_back(std::move(*known));
    shapes.push_back(std::move(*sizes));
  }
  return map_elements(shape, [&](const Coordinates& at) -> std::optional<sym::Expr> {
    Elements args;
    for (size_t i = 0; i < operands.size(); ++i) {
      Coordinates mine(at.end() - static_cast<std::ptrdiff_t>(shapes[i].size()), at.end());
      for (size_t d = 0; d < mine.size(); ++d)
        if (shapes[i][d] == 1) mine[d] = 0;
      const auto element = element_at(operands[i], mine, shapes[i]);
      if (!element) return std::nullopt;
      args.push_back(*element);
    }
    return combine(args);
  });
}

// ---- shape and lowering ----------------------------------------------------------------------------------

Inferred pointwise_shape(Builder& b, const Node& node) {
  const Row row = ops::row(node.kind);
  const int arity = loop::info(row.op).arity;
  expect_inputs(node, static_cast<size_t>(arity), static_cast<size_t>(arity));
  const DType dtype = b.dtype(node.inputs[0]);
  if (!belongs(dtype, row.domain))
    does_not_fit(cat(graph::name(node.kind), " takes ", describe(row.domain), ", not ", name(dtype)));
  std::vector<Shape> shapes;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (i > 0) expect_same_dtype(b, node, 0, i);
    shapes.push_back(b.shape(node.inputs[i]));
  }
  Type type{loop::info(row.op).result == loop::ResultRule::kBool ? DType::kBool : dtype,
            broadcast(b, shapes, std::string(graph::name(node.kind)))};
  std::optional<Elements> elements;
  if (!is_float(dtype))
    elements = fold_elements(b, node, type.shape, [&](const Elements& args) {
      return fold(b, row.op, dtype, args[0], args.size() > 1 ? args[1] : sym::Expr(0));
    });
  return {{type}, {std::move(elements)}};
}

void pointwise_lower(Lowering& l, const Node& node) {
  const loop::View to = l.define(node.outputs[0]);
  loop::NestBuilder n = l.nest(std::string(graph::name(node.kind)));
  const auto at = n.dims(to.shape);
  std::vector<loop::Value> args;
  for (ValueId input : node.inputs) args.push_back(l.read(n, input, to.shape, at));
  n.store(to, at, n.op(row(node.kind).op, args));
  n.finish(&l.steps());
}

// ---- gradients -------------------------------------------------------------------------------------------

#define STRIDEC_TIES \
  "equal operands get half of g each; the bound gets it in relu, hardtanh and a clamp to numbers"

// The part of g that one operand of min or max gets: 1 if it wins, 0 if the other one does. With `ties`, one
// operand gets all of g where the two are equal, and the other one gets g only where the result differs from
// the first. That compares the result in place of the operand: the result is in memory more often, such as a
// relu's that a convolution reads.
Term share(const Node& node, Term self, Term other, Term result, bool is_first) {
  const std::string ties = node.attributes.text_or("ties", "");
  const bool takes_ties = is_first == (ties == "first");
  const Term mine = ties.empty() || takes_ties ? self : result;
  const bool max = node.kind == OpKind::kMax;
  const Term low = max ? other : mine, high = max ? mine : other;
  if (ties.empty()) return cast(less(low, high), self.dtype()) + cast(equal(low, high), self.dtype()) * 0.5;
  return cast(takes_ties ? less_equal(low, high) : less(low, high), self.dtype());
}

#define STRIDEC_UNARY(id, domain, formula, note, gradient)                               \
  Ids gradient_##id(Builder& builder, const Node& node, const Ids& outputs) {            \
    const Term g(builder, outputs[0]);                                                   \
    [[maybe_unused]] const Term x(builder, node.inputs[0]), y(builder, node.outputs[0]); \
    return {gradient};                                                                   \
  }
#define STRIDEC_BINARY(id, domain, formula, note, first, second)              \
  Ids gradient_##id(Builder& builder, const Node& node, const Ids& outputs) { \
    const Term g(builder, outputs[0]);                                        \
    const Term a(builder, node.inputs[0]), b(builder, node.inputs[1]);        \
    [[maybe_unused]] const Term y(builder, node.outputs[0]);                  \
    return {sum_to(first, a.shape()), sum_to(second, b.shape())};             \
  }
#define STRIDEC_FLAT(...)
#include "compiler/ops/pointwise.def"
#undef STRIDEC_UNARY
#undef STRIDEC_BINARY
#undef STRIDEC_FLAT

Ids fma_gradient(Builder& builder, const Node& node, const Ids& outputs) {
  const Term g(builder, outputs[0]), a(builder, node.inputs[0]), b(builder, node.inputs[1]);
  return {sum_to(g * b, a.shape()), sum_to(g * a, b.shape()), sum_to(g, builder.shape(node.inputs[2]))};
}

Inferred select_shape(Builder& b, const Node& node) {
  expect_inputs(node, 3, 3);
  if (!is_bool(b.dtype(node.inputs[0])))
    does_not_fit(cat("select takes a bool condition, not ", name(b.dtype(node.inputs[0]))));
  expect_same_dtype(b, node, 1, 2);
  Type type{
      b.dtype(node.inputs[1]),
      broadcast(b, {b.shape(node.inputs[0]), b.shape(node.inputs[1]), b.shape(node.inputs[2])}, "select")};
  std::optional<Elements> elements;
  if (!is_float(type.dtype))
    elements = fold_elements(b, node, type.shape, [](const Elements& args) -> std::optional<sym::Expr> {
      return sym::select(args[0], args[1], args[2]);
    });
  return {{type}, {std::move(elements)}};
}

void select_lower(Lowering& l, const Node& node) {
  const loop::View to = l.define(node.outputs[0]);
  loop::NestBuilder n = l.nest("select");
  const auto at = n.dims(to.shape);
  const loop::Value c = l.read(n, node.inputs[0], to.shape, at), x = l.read(n, node.inputs[1], to.shape, at),
                    y = l.read(n, node.inputs[2], to.shape, at);
  n.store(to, at, loop::select(c, x, y));
  n.finish(&l.steps());
}

Ids select_gradient(Builder& b, const Node& node, const Ids& outputs) {
  const Term g(b, outputs[0]), c(b, node.inputs[0]);
  return {
      {}, sum_to(select(c, g, 0), b.shape(node.inputs[1])), sum_to(select(c, 0, g), b.shape(node.inputs[2]))};
}

// The integers that the floats of a small constant are.
std::optional<Elements> integers_of(const Builder& b, graph::ValueId id, DType to, bool saturate) {
  const graph::Data* const data = b.graph()[id].known_data();
  const DType from = b.dtype(id);
  const auto width = static_cast<size_t>(byte_size(from));
  if (!data || data->size > static_cast<size_t>(graph::kMaxElements) * width) return std::nullopt;
  Elements out;
  for (size_t at = 0; at < data->size; at += width) {
    const double value = read_float(from, data->bytes + at);
    out.push_back(is_bool(to) ? static_cast<int64_t>(value != 0) : float_to_integer(to, value, saturate));
  }
  return out;
}

Inferred cast_shape(Builder& b, const Node& node) {
  expect_inputs(node, 1, 1);
  const DType from = b.dtype(node.inputs[0]), to = node.attributes.dtype("to");
  const bool saturate = node.attributes.integer_or("saturate", 0) != 0;
  std::optional<Elements> elements;
  if (is_float(from) && !is_float(to)) elements = integers_of(b, node.inputs[0], to, saturate);
  if (!is_float(from) && !is_float(to))
    elements = fold_elements(b, node, b.shape(node.inputs[0]),
                             [&](const Elements& args) -> std::optional<sym::Expr> {
                               if (args[0].is_const())
                                 return integer_to_integer(from, to, args[0].value(), saturate);
                               if (is_bool(to)) return sym::ne(args[0], 0);
                               if (info(to).bits < 32) return std::nullopt;
                               return args[0];
                             });
  return {{{to, b.shape(node.inputs[0])}}, {std::move(elements)}};
}

void cast_lower(Lowering& l, const Node& node) {
  const loop::View to = l.define(node.outputs[0]);
  loop::NestBuilder n = l.nest("cast");
  const auto at = n.dims(to.shape);
  const loop::Value x = l.read(n, node.inputs[0], to.shape, at);
  n.store(to, at,
          is_bool(to.dtype) ? loop::ne(x, n.constant(x.dtype(), 0))
                            : n.cast(x, to.dtype, node.attributes.integer_or("saturate", 0) != 0));
  n.finish(&l.steps());
}

Ids cast_gradient(Builder& b, const Node& node, const Ids& outputs) {
  return {cast(Term(b, outputs[0]), b.dtype(node.inputs[0]), false)};
}

Inferred bitcast_shape(Builder& b, const Node& node) {
  expect_inputs(node, 1, 1);
  const DType from = b.dtype(node.inputs[0]), to = node.attributes.dtype("to");
  // A bool is stored as a byte of value 0 or 1.
  auto bits = [](DType dtype) { return is_bool(dtype) ? 8 : info(dtype).bits; };
  if (bits(from) != bits(to))
    does_not_fit(cat("bitcast from ", name(from), " to ", name(to), ": the widths differ"));
  return {{{to, b.shape(node.inputs[0])}}, {}};
}

void bitcast_lower(Lowering& l, const Node& node) {
  const loop::View to = l.define(node.outputs[0]);
  loop::NestBuilder n = l.nest("bitcast");
  const auto at = n.dims(to.shape);
  loop::Value x = l.read(n, node.inputs[0], to.shape, at);
  if (is_bool(x.dtype()) && !is_bool(to.dtype)) x = n.cast(x, DType::kU8);
  if (is_bool(to.dtype) && !is_bool(x.dtype())) {
    x = n.bitcast(x, DType::kU8);
    x = loop::ne(x, n.constant(loop::int_scalar(DType::kU8, 0)));
  }
  n.store(to, at, n.bitcast(x, to.dtype));
  n.finish(&l.steps());
}

}  // namespace

#define STRIDEC_UNARY(id, domain, formula, note, ...) \
  const OpDef def_##id{pointwise_shape, pointwise_lower, Gradient::by(gradient_##id, formula, note)};
#define STRIDEC_BINARY STRIDEC_UNARY
#define STRIDEC_FLAT(id, domain, why) \
  const OpDef def_##id{pointwise_shape, pointwise_lower, Gradient::flat(why)};
#include "compiler/ops/pointwise.def"
#undef STRIDEC_UNARY
#undef STRIDEC_BINARY
#undef STRIDEC_FLAT
const OpDef def_kFma{pointwise_shape, pointwise_lower, Gradient::by(fma_gradient, "a: g b; b: g a; c: g")};
const OpDef def_kSelect{
    select_shape, select_lower,
    Gradient::by(select_gradient, "a: select(condition, g, 0); b: select(condition, 0, g)",
                 "NaN in the operand not chosen does not spread; its own gradient may")};
const OpDef def_kCast{cast_shape, cast_lower,
                      Gradient::by(cast_gradient, "x: cast(g)", "zero through integers and bools")};
const OpDef def_kBitcast{bitcast_shape, bitcast_lower, Gradient::flat("bits have no derivative")};

}  // namespace stridec::ops
