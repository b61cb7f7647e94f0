#include "compiler/extend/vocabulary.h"

#include <algorithm>
#include <charconv>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/ops/composite/activations.h"
#include "compiler/ops/composite/normalization.h"
#include "compiler/ops/helpers.h"
#include "compiler/ops/term.h"
#include "compiler/sym/text.h"

namespace stridec::extend {
namespace {

using graph::Builder;
using graph::OpKind;
using graph::Type;
using graph::ValueId;
using Inputs = std::vector<ValueId>;

constexpr std::string_view kExprAttributes[] = {"shape",  "starts", "extents",      "steps",
                                                "before", "after",  "window",       "k",
                                                "sizes",  "extra",  "output_extra", "in_sizes"};

const Attr& need(const Arguments& arguments, std::string_view name) {
  const auto found = arguments.find(name);
  if (found == arguments.end())
    fail(ErrorKind::kDoesNotFit, "does-not-fit", cat("argument '", name, "' is missing"));
  return found->second;
}

[[noreturn]] void wrong(std::string_view name, std::string_view what) {
  fail(ErrorKind::kDoesNotFit, "does-not-fit", cat("argument '", name, "' is not ", what));
}

double number_of(const Arguments& arguments, std::string_view name) {
  const Attr& value = need(arguments, name);
  if (const auto* d = std::get_if<double>(&value)) return *d;
  if (const auto* e = std::get_if<sym::Expr>(&value); e && e->is_const())
    return static_cast<double>(e->value());
  wrong(name, "a number");
}

std::vector<int64_t> integers_of(const Arguments& arguments, std::string_view name) {
  const Attr& value = need(arguments, name);
  std::vector<sym::Expr> list;
  if (const auto* e = std::get_if<sym::Expr>(&value))
    list = {*e};
  else if (const auto* l = std::get_if<std::vector<sym::Expr>>(&value))
    list = *l;
  else
    wrong(name, "a list of integers");
  std::vector<int64_t> out;
  for (const sym::Expr e : list) {
    if (!e.is_const()) wrong(name, "a list of integers");
    out.push_back(e.value());
  }
  return out;
}

// Not negative, inside the rank.
ops::Dims dims_of(Builder& b, ValueId x, const Arguments& arguments, std::string_view name = "dims") {
  ops::Dims dims = integers_of(arguments, name);
  for (int64_t& dim : dims) dim = ops::normal_dim(b, x, dim);
  std::ranges::sort(dims);
  return dims;
}

std::optional<Type> same(const Type& result) { return result; }
std::optional<Type> swapped(const Type& result) {
  if (result.shape.size() < 2) return std::nullopt;
  Type type = result;
  std::swap(type.shape[type.shape.size() - 1], type.shape[type.shape.size() - 2]);
  return type;
}

ValueId transpose(Builder& b, const Inputs& in, const Arguments& arguments) {
  const bool given = arguments.contains("first");
  const int64_t first = given ? integers_of(arguments, "first").at(0) : -1;
  const int64_t second = given ? integers_of(arguments, "second").at(0) : -2;
  if (!given && b.rank(in[0]) < 2)
    fail(ErrorKind::kDoesNotFit, "does-not-fit", "transpose: the operand has fewer than two dims");
  return ops::swap_dims(b, in[0], ops::normal_dim(b, in[0], first), ops::normal_dim(b, in[0], second));
}

ValueId gelu(Builder& b, const Inputs& in, const Arguments& arguments) {
  const auto* form = std::get_if<std::string>(&need(arguments, "form"));
  if (!form || (*form != "erf" && *form != "tanh")) wrong("form", "erf or tanh");
  return ops::gelu({b, in[0]}, *form == "tanh");
}

#define STRIDEC_UNARY(name) \
  [](Builder& b, const Inputs& in, const Arguments&) { return ops::name(ops::Term(b, in[0])).id(); }

const std::vector<Composite>& table() {
  using Args = Arguments;
  static const std::vector<Composite> kRows = {
      {"relu", 1, {}, STRIDEC_UNARY(relu), same},
      {"silu",
       1,
       {},
       [](Builder& b, const Inputs& in, const Args&) { return ops::silu({b, in[0]}).id(); },
       same},
      {"softplus", 1, {}, STRIDEC_UNARY(softplus), same},
      {"mish", 1, {}, STRIDEC_UNARY(mish), same},
      {"softsign", 1, {}, STRIDEC_UNARY(softsign), same},
      {"hard_swish", 1, {}, STRIDEC_UNARY(hard_swish), same},
      {"square", 1, {}, STRIDEC_UNARY(square), same},
      {"gelu", 1, {"form"}, gelu, same},
      {"leaky_relu",
       1,
       {"slope"},
       [](Builder& b, const Inputs& in, const Args& a) {
         return ops::leaky_relu({b, in[0]}, number_of(a, "slope")).id();
       },
       same},
      {"elu",
       1,
       {"alpha"},
       [](Builder& b, const Inputs& in, const Args& a) {
         return ops::elu({b, in[0]}, number_of(a, "alpha")).id();
       },
       same},
      {"softmax",
       1,
       {"dims"},
       [](Builder& b, const Inputs& in, const Args& a) {
         return ops::softmax({b, in[0]}, dims_of(b, in[0], a)).id();
       },
       same},
      {"log_softmax",
       1,
       {"dims"},
       [](Builder& b, const Inputs& in, const Args& a) {
         return ops::log_softmax({b, in[0]}, dims_of(b, in[0], a)).id();
       },
       same},
      {"rms_norm",
       1,
       {"dims", "eps"},
       [](Builder& b, const Inputs& in, const Args& a) {
         return ops::rms_norm({b, in[0]}, dims_of(b, in[0], a), number_of(a, "eps")).id();
       },
       same},
      {"layer_norm",
       1,
       {"dims", "eps"},
       [](Builder& b, const Inputs& in, const Args& a) {
         return ops::standardize({b, in[0]}, dims_of(b, in[0], a), number_of(a, "eps")).value.id();
       },
       same},
      {"transpose", 1, {"first", "second"}, transpose, [](const Type& result) { return swapped(result); }},
      {"matmul",
       2,
       {},
       [](Builder& b, const Inputs& in, const Args&) { return ops::matmul(b, in[0], in[1]); }},
      {"clip",
       3,
       {},
       [](Builder& b, const Inputs& in, const Args&) {
         return ops::clip({b, in[0]}, ops::Term(b, in[1]), ops::Term(b, in[2])).id();
       }},
      {"reduce_mean",
       1,
       {"dims", "keep"},
       [](Builder& b, const Inputs& in, const Args& a) {
         return ops::reduce_mean(b, in[0], dims_of(b, in[0], a), a.contains("keep"));
       }},
      {"squeeze",
       1,
       {"dims"},
       [](Builder& b, const Inputs& in, const Args& a) {
         return ops::squeeze(b, in[0], integers_of(a, "dims"));
       }},
      {"unsqueeze",
       1,
       {"dims"},
       [](Builder& b, const Inputs& in, const Args& a) {
         return ops::unsqueeze(b, in[0], integers_of(a, "dims"));
       }},
      {"full_like",
       1,
       {"value"},
       [](Builder& b, const Inputs& in, const Args& a) {
         return ops::full(b, b.shape(in[0]), b.dtype(in[0]), number_of(a, "value"));
       }},
  };
  return kRows;
}
#undef STRIDEC_UNARY

struct TypeClass {
  std::string_view name;
  std::vector<DType> dtypes;
};

const std::vector<TypeClass>& type_classes() {
  using enum DType;
  static const std::vector<TypeClass> kClasses = {
      {"float", {kF32, kF64, kF16, kBF16}},
      {"int", {kI64, kI32, kI16, kI8, kU8, kU16, kU32, kU64}},
      {"number", {kF32, kF64, kF16, kBF16, kI64, kI32, kI16, kI8, kU8, kU16, kU32, kU64}},
      {"any", {kF32, kF64, kF16, kBF16, kI64, kI32, kI16, kI8, kU8, kU16, kU32, kU64, kBool}},
  };
  return kClasses;
}

std::string numbers(const std::vector<double>& list) {
  return cat("[", join(list, ", ", [](double d) { return cat(d); }), "]");
}

}  // namespace

std::string to_string(const Attr& value) {
  if (const auto* e = std::get_if<sym::Expr>(&value)) return sym::to_string(*e);
  if (const auto* list = std::get_if<std::vector<sym::Expr>>(&value))
    return cat("[", join(*list, ", ", [](sym::Expr e) { return sym::to_string(e); }), "]");
  if (const auto* d = std::get_if<double>(&value)) return cat(*d);
  if (const auto* list = std::get_if<std::vector<double>>(&value)) return numbers(*list);
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  return std::string(stridec::name(std::get<DType>(value)));
}

Attr from_graph(const graph::AttributeValue& value) {
  if (const auto* i = std::get_if<int64_t>(&value)) return sym::Expr(*i);
  if (const auto* d = std::get_if<double>(&value)) return *d;
  if (const auto* s = std::get_if<std::string>(&value)) return *s;
  if (const auto* t = std::get_if<DType>(&value)) return *t;
  if (const auto* v = std::get_if<std::vector<int64_t>>(&value))
    return std::vector<sym::Expr>(v->begin(), v->end());
  if (const auto* v = std::get_if<std::vector<double>>(&value)) return *v;
  if (const auto* e = std::get_if<sym::Expr>(&value)) return *e;
  return std::get<std::vector<sym::Expr>>(value);
}

graph::AttributeValue to_graph(std::string_view name, const Attr& value) {
  const bool exprs = std::ranges::count(kExprAttributes, name) > 0;
  if (const auto* e = std::get_if<sym::Expr>(&value)) {
    if (e->is_const() && !exprs) return e->value();
    return *e;
  }
  if (const auto* list = std::get_if<std::vector<sym::Expr>>(&value)) {
    const bool constant = std::ranges::all_of(*list, [](sym::Expr e) { return e.is_const(); });
    if (exprs || !constant) return *list;
    std::vector<int64_t> integers;
    for (const sym::Expr e : *list) integers.push_back(e.value());
    return integers;
  }
  if (const auto* d = std::get_if<double>(&value)) return *d;
  if (const auto* v = std::get_if<std::vector<double>>(&value)) return *v;
  if (const auto* s = std::get_if<std::string>(&value)) return *s;
  return std::get<DType>(value);
}

const std::vector<Composite>& composites() { return table(); }

const Composite* find_composite(std::string_view name) {
  const auto found = std::ranges::find(table(), name, &Composite::name);
  return found == table().end() ? nullptr : &*found;
}

std::vector<std::string_view> positional(OpKind kind) {
  switch (kind) {
    case OpKind::kCast:
    case OpKind::kBitcast: return {"to"};
    case OpKind::kReshape:
    case OpKind::kExpand: return {"shape"};
    case OpKind::kPermute: return {"order"};
    case OpKind::kCumSum:
    case OpKind::kCumProd:
    case OpKind::kArgMax:
    case OpKind::kArgMin: return {"dim"};
    case OpKind::kReduceSum:
    case OpKind::kReduceProd:
    case OpKind::kReduceMax:
    case OpKind::kReduceMin:
    case OpKind::kReduceAnd:
    case OpKind::kReduceOr: return {"dims", "keep"};
    default: return {};
  }
}

Split split(const Term& call) {
  Split out;
  std::vector<std::string_view> names;
  size_t tensors = call.args.size();
  if (const Composite* composite = find_composite(call.name)) {
    names = composite->parameters;
    tensors = static_cast<size_t>(composite->tensors);
  } else if (const auto kind = graph::parse_op(call.name)) {
    names = positional(*kind);
    if (!names.empty()) tensors = 1;
  }
  for (size_t i = 0; i < call.args.size(); ++i) {
    if (i < tensors)
      out.tensors.push_back(&call.args[i]);
    else if (i - tensors < names.size())
      out.attributes.emplace_back(std::string(names[i - tensors]), &call.args[i]);
  }
  for (const auto& [name, value] : call.attributes) out.attributes.emplace_back(name, &value);
  return out;
}

graph::Attributes defaults(OpKind kind, const std::vector<DType>& inputs) {
  const DType dtype = inputs.empty() ? DType::kF32 : inputs[0];
  const std::vector<int64_t> none;
  switch (kind) {
    case OpKind::kDotGeneral: {
      DType accumulate = ops::compute_dtype(dtype);
      if (is_integer(dtype) && info(dtype).bits <= 8) accumulate = DType::kI32;
      return {{"batch_a", none},
              {"batch_b", none},
              {"accumulate", accumulate},
              {"to", is_integer(dtype) ? accumulate : dtype}};
    }
    case OpKind::kConv:
    case OpKind::kConvTranspose: {
      DType accumulate = ops::compute_dtype(dtype);
      if (is_integer(dtype) && info(dtype).bits <= 8) accumulate = DType::kI32;
      return {
          {"groups", int64_t{1}}, {"accumulate", accumulate}, {"to", is_integer(dtype) ? accumulate : dtype}};
    }
    case OpKind::kPad: return {{"mode", std::string("constant")}};
    case OpKind::kGather:
    case OpKind::kGatherNd: return {{"batch_dims", int64_t{0}}};
    case OpKind::kScatterElements:
    case OpKind::kScatterNd: return {{"reduction", std::string("none")}};
    case OpKind::kCumSum:
    case OpKind::kCumProd: return {{"exclusive", int64_t{0}}, {"reverse", int64_t{0}}};
    case OpKind::kArgMax:
    case OpKind::kArgMin: return {{"last", int64_t{0}}};
    case OpKind::kSort: return {{"descending", int64_t{0}}};
    case OpKind::kTopK: return {{"largest", int64_t{1}}, {"sorted", int64_t{1}}};
    case OpKind::kLinearScan: return {{"reverse", int64_t{0}}};
    default: return {};
  }
}

bool is_immaterial(OpKind kind, std::string_view attribute, const graph::Node& node) {
  if (attribute == "ties") return kind == OpKind::kMin || kind == OpKind::kMax;
  if (kind != OpKind::kCast || attribute != "saturate") return false;
  const DType to = node.attributes.dtype("to");
  return is_float(to) && info(to).bits > 8;
}

bool is_commutative(OpKind kind) {
  switch (kind) {
    case OpKind::kAdd:
    case OpKind::kMul:
    case OpKind::kMin:
    case OpKind::kMax:
    case OpKind::kAnd:
    case OpKind::kOr:
    case OpKind::kXor:
    case OpKind::kBitAnd:
    case OpKind::kBitOr:
    case OpKind::kBitXor:
    case OpKind::kEq:
    case OpKind::kNe: return true;
    default: return false;
  }
}

Attr normalized(std::string_view attribute, Attr value, int rank) {
  const auto one = [&](sym::Expr e) { return e.is_const() && e.value() < 0 ? e + rank : e; };
  if (attribute == "dim")
    if (const auto* e = std::get_if<sym::Expr>(&value)) return one(*e);
  if (attribute == "dims") {
    if (const auto* e = std::get_if<sym::Expr>(&value)) return std::vector<sym::Expr>{one(*e)};
    if (auto* list = std::get_if<std::vector<sym::Expr>>(&value))
      std::ranges::transform(*list, list->begin(), one);
  }
  return value;
}

std::vector<DType> dtypes_named(std::string_view name) {
  const auto known = std::ranges::find(type_classes(), name, &TypeClass::name);
  if (known != type_classes().end()) return known->dtypes;
  if (const auto dtype = parse_dtype(name)) return {*dtype};
  return {};
}

bool is_word(std::string_view name) {
  static constexpr std::string_view kWords[] = {"erf", "tanh", "constant", "edge", "reflect", "wrap", "none",
                                                "add", "mul",  "max",      "min",  "sum",     "prod"};
  return parse_dtype(name) || std::ranges::count(kWords, name) > 0;
}

}  // namespace stridec::extend
