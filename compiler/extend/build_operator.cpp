// Builds a call of a user's operator: binds its arguments, types and dims, and evaluates its body.
#include <algorithm>
#include <cmath>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/extend/evaluate.h"
#include "compiler/extend/requirement.h"
#include "compiler/extend/run_reference.h"
#include "compiler/extend/user_operator.h"
#include "compiler/ops/shapes.h"
#include "compiler/ops/term.h"
#include "compiler/sym/guard.h"
#include "compiler/sym/text.h"

namespace stridec::extend {
namespace {

using graph::Builder;
using graph::OperatorCall;
using graph::ValueId;
using Argument = OperatorCall::Argument;

// The value of an attribute in the kind that the file declares, if it has one.
std::optional<Attr> as_kind(DeclaredAttribute::Kind kind, const Attr& value) {
  using Kind = DeclaredAttribute::Kind;
  const auto* e = std::get_if<sym::Expr>(&value);
  const auto* list = std::get_if<std::vector<sym::Expr>>(&value);
  switch (kind) {
    case Kind::kInt:
      if (e) return value;
      break;
    case Kind::kFloat:
      if (std::holds_alternative<double>(value)) return value;
      if (e && e->is_const()) return static_cast<double>(e->value());
      break;
    case Kind::kString:
      if (std::holds_alternative<std::string>(value)) return value;
      break;
    case Kind::kType:
      if (std::holds_alternative<DType>(value)) return value;
      if (e && e->is_const())  // ONNX writes the number of a type
        if (const auto dtype = dtype_from_onnx(static_cast<int>(e->value()))) return *dtype;
      break;
    case Kind::kInts:
      if (list) return value;
      if (e) return std::vector<sym::Expr>{*e};
      break;
    case Kind::kFloats:
      if (std::holds_alternative<std::vector<double>>(value)) return value;
      if (const auto* d = std::get_if<double>(&value)) return std::vector<double>{*d};
      if (list && std::ranges::all_of(*list, [](sym::Expr item) { return item.is_const(); })) {
        std::vector<double> out;
        for (const sym::Expr item : *list) out.push_back(static_cast<double>(item.value()));
        return out;
      }
      break;
  }
  return std::nullopt;
}

class CallBuilder {
 public:
  CallBuilder(Builder& builder, const UserOperator& op, const OperatorBody& body, const OperatorCall& call,
              const KernelHost& host)
      : b_(builder), op_(op), body_(body), call_(call), host_(host), inputs_(op.inputs.size()) {}

  std::vector<ValueId> build() {
    bind_arguments();
    bind_types();
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (!inputs_[i]) {
        const DType dtype = std::get<DType>(bindings_.attributes.at(cat("@type ", i)));
        inputs_[i] = b_.scalar(dtype, *op_.inputs[i].otherwise);
        left_out_.push_back(i);
      }
    for (size_t i = 0; i < inputs_.size(); ++i) bindings_.values.emplace(op_.inputs[i].name, *inputs_[i]);
    bind_dims();
    for (const Requirement& each : op_.require) require(each);
    if (body_.kernel)
      kernel();
    else if (body_.point)
      point();
    else
      Evaluator(b_, bindings_).side({.results = body_.formula, .locals = {}});
    std::vector<ValueId> outputs;
    for (const DeclaredTensor& output : op_.outputs) outputs.push_back(result(output));
    if (op_.gradient.empty()) return outputs;
    std::vector<ValueId> inputs;
    for (const auto& input : inputs_) inputs.push_back(*input);
    return with_declared_gradient(b_, op_, bindings_, inputs, outputs);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    fail(ErrorKind::kDoesNotFit, "does-not-fit", cat(op_.name, ": ", what));
  }

  void bind_arguments() {
    if (call_.outputs > op_.outputs.size())
      refuse(
          cat("the model's node has ", call_.outputs, " outputs, but the operator has ", op_.outputs.size()));
    for (const Argument& each : call_.arguments) {
      if (each.name.empty())
        positional(each);
      else
        named(each);
    }
    for (const DeclaredAttribute& each : op_.attributes)
      if (!bindings_.attributes.contains(each.name)) {
        if (!each.otherwise) refuse(cat("attribute '", each.name, "' is missing and has no default"));
        bindings_.attributes.emplace(each.name, *each.otherwise);
      }
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (!inputs_[i] && !op_.inputs[i].otherwise)
        refuse(cat("input '", op_.inputs[i].name, "' is missing and has no default"));
  }

  void positional(const Argument& each) {
    if (!each.value) {
      if (next_input_ < inputs_.size())
        inputs_[next_input_++] = each.tensor;
      else if (each.tensor)
        refuse(cat("the model's node has more inputs than the operator, which has ", inputs_.size()));
      return;
    }
    for (const DeclaredAttribute& attribute : op_.attributes)
      if (!bindings_.attributes.contains(attribute.name)) return set(attribute, *each.value);
    refuse(cat("the model's node has more attributes than the operator, which has ", op_.attributes.size()));
  }

  void named(const Argument& each) {
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (op_.inputs[i].name == each.name) {
        if (each.value) refuse(cat("input '", each.name, "' is not a tensor in the model"));
        inputs_[i] = each.tensor;
        return;
      }
    const auto attribute = std::ranges::find(op_.attributes, each.name, &DeclaredAttribute::name);
    if (attribute == op_.attributes.end()) {
      if (!each.value && !each.tensor) return;
      refuse(cat("the model's node has ", each.value ? "attribute '" : "input '", each.name,
                 "', which the operator does not declare"));
    }
    if (each.tensor) refuse(cat("attribute '", each.name, "' is a tensor in the model"));
    if (each.value) set(*attribute, *each.value);
  }

  void set(const DeclaredAttribute& attribute, const graph::AttributeValue& given) {
    const Attr value = from_graph(given);
    const auto fits = as_kind(attribute.kind, value);
    if (!fits)
      refuse(cat("attribute '", attribute.name, "' is ", extend::to_string(value),
                 ", which is not of the declared type"));
    bindings_.attributes.insert_or_assign(attribute.name, *fits);
  }

  // Of an input's declaration; one type variable is one type in a call.
  std::vector<DType> allowed(const std::string& type) const { return types_of(op_, type); }
  bool is_variable(const std::string& type) const {
    return std::ranges::count(op_.types, type, &TypeVariable::name) > 0;
  }

  void bind_types() {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const DeclaredTensor& declared = op_.inputs[i];
      if (!inputs_[i]) continue;
      const DType dtype = b_.dtype(*inputs_[i]);
      if (std::ranges::count(allowed(declared.type), dtype) == 0)
        refuse(
            cat("input '", declared.name, "' is ", stridec::name(dtype), ", but the operator takes ",
                join(allowed(declared.type), ", ", [](DType t) { return std::string(stridec::name(t)); })));
      if (!is_variable(declared.type)) continue;
      const auto [bound, fresh] = bindings_.attributes.emplace(declared.type, dtype);
      if (!fresh && bound->second != Attr(dtype))
        refuse(cat("input '", declared.name, "' is ", stridec::name(dtype), ", and type ", declared.type,
                   " is ", extend::to_string(bound->second), " at another input"));
    }
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const std::string& type = op_.inputs[i].type;
      const auto bound = bindings_.attributes.find(type);
      if (inputs_[i]) continue;
      bindings_.attributes.insert_or_assign(cat("@type ", i),
                                            is_variable(type) && bound != bindings_.attributes.end()
                                                ? bound->second
                                                : Attr(allowed(type).front()));
    }
  }

  // Names first, so that terms may use names of later inputs.
  void bind_dims() {
    for (const bool terms : {false, true})
      for (size_t i = 0; i < inputs_.size(); ++i)
        if (op_.inputs[i].has_shape && std::ranges::count(left_out_, i) == 0) {
          const std::string what = cat("input '", op_.inputs[i].name, "'");
          match_shape(op_.inputs[i], b_.shape(*inputs_[i]), what, terms, true);
        }
  }

  void match_shape(const DeclaredTensor& declared, const graph::Shape& shape, const std::string& what,
                   bool terms, bool binds) {
    const auto rest = std::ranges::find(declared.shape, true, &DeclaredDim::rest);
    const size_t fixed = declared.shape.size() - (rest == declared.shape.end() ? 0 : 1);
    if (shape.size() < fixed || (rest == declared.shape.end() && shape.size() != fixed))
      refuse(cat(what, " has ", shape.size(), " dims, but the operator declares ", fixed,
                 rest == declared.shape.end() ? "" : " or more"));
    size_t at = 0;
    for (const DeclaredDim& each : declared.shape) {
      if (each.rest) {
        const std::vector<sym::Expr> dims(
            shape.begin() + static_cast<std::ptrdiff_t>(at),
            shape.begin() + static_cast<std::ptrdiff_t>(at + shape.size() - fixed));
        at += dims.size();
        if (!terms) match_rest(each, dims, what, binds);
        continue;
      }
      const sym::Expr dim = shape[at++];
      if (each.size.kind == Term::Kind::kName && binds) {
        if (terms) continue;
        const auto [bound, fresh] = bindings_.attributes.emplace(each.size.name, dim);
        if (!fresh) equal(dim, bound->second, at - 1, each.size.name, what);
      } else if (terms) {
        equal(dim, Evaluator(b_, bindings_).attribute(each.size), at - 1, extend::to_string(each.size), what);
      }
    }
  }

  void match_rest(const DeclaredDim& each, const std::vector<sym::Expr>& dims, const std::string& what,
                  bool binds) {
    const std::string name = each.rest_name.empty() ? "..." : each.rest_name;
    if (binds && each.rest_name.empty()) return;
    if (binds && bindings_.attributes.emplace(name, dims).second) return;
    if (each.rest_name.empty()) return;
    const auto found = bindings_.attributes.find(name);
    if (found == bindings_.attributes.end())
      refuse(cat("'...", name, "' is not bound: the model leaves out the input that binds it"));
    const auto* bound = std::get_if<std::vector<sym::Expr>>(&found->second);
    if (!bound || bound->size() != dims.size())
      refuse(cat(what, " has another number of dims in '...", name, "'"));
    for (size_t i = 0; i < dims.size(); ++i) equal(dims[i], (*bound)[i], i, cat("...", name), what);
  }

  void equal(sym::Expr dim, const Attr& expected, size_t at, const std::string& name,
             const std::string& what) {
    const auto* e = std::get_if<sym::Expr>(&expected);
    if (!e) refuse(cat("'", name, "' is ", extend::to_string(expected), ", not a size"));
    b_.require(sym::eq(dim, *e),
               cat(sym::escaped(op_.name), ": dim ", at, " of ", sym::escaped(what), " is {0}, and ",
                   sym::escaped(name), " is {1}"),
               {dim, *e});
  }

  void require(const Requirement& each) {
    const sym::Expr condition = Evaluator(b_, bindings_).condition(each.condition);
    const std::vector<sym::Expr> values = compared(each.condition, condition);
    const bool whole = is_sentence(each.sentence, values.size());
    b_.require(condition,
               cat(sym::escaped(op_.name), ": ", whole ? each.sentence : sym::escaped(each.sentence)),
               whole ? values : std::vector<sym::Expr>());
  }

  // The sides of a comparison, but numbers of the text, also where this call's sizes decide it.
  std::vector<sym::Expr> compared(const Term& term, sym::Expr condition) {
    if (!is_comparison(term.name)) return compared_by(condition);
    std::vector<sym::Expr> values;
    for (const Term& side : term.args) {
      if (side.kind == Term::Kind::kNumber) continue;
      const Attr value = Evaluator(b_, bindings_).attribute(side);
      const auto* e = std::get_if<sym::Expr>(&value);
      if (!e) return compared_by(condition);
      values.push_back(*e);
    }
    return values;
  }

  // Every output has the shape that the inputs broadcast to, whether or not it depends on all of them.
  void point() {
    CPlace place{.shape = {}, .indices = body_.indices};
    if (body_.nest)
      place.shape = declared_shape(op_.outputs[0]);
    else if (!inputs_.empty())
      place.shape = broadcast_shape();
    const auto made = build_c_function(b_, *body_.point, bindings_.values, bindings_.attributes, place);
    for (const DeclaredTensor& output : op_.outputs) {
      ValueId value = made.at(body_.point->result == "void" ? output.name : "");
      const auto bound =
          is_variable(output.type) ? bindings_.attributes.find(output.type) : bindings_.attributes.end();
      const std::vector<DType> types = allowed(output.type);
      if (bound != bindings_.attributes.end())
        value = ops::cast({b_, value}, std::get<DType>(bound->second), false);
      else if (types.size() == 1)
        value = ops::cast({b_, value}, types[0], false);
      bindings_.values.insert_or_assign(output.name, ops::broadcast_to(b_, value, place.shape));
    }
  }

  void kernel() {
    std::vector<graph::Type> results;
    for (const DeclaredTensor& output : op_.outputs) {
      const auto bound =
          is_variable(output.type) ? bindings_.attributes.find(output.type) : bindings_.attributes.end();
      const std::vector<DType> types = allowed(output.type);
      if (bound == bindings_.attributes.end() && types.size() != 1)
        refuse(
            cat("output '", output.name, "' is declared as ", output.type, ", which is not a single type"));
      results.push_back({bound == bindings_.attributes.end() ? types[0] : std::get<DType>(bound->second),
                         declared_shape(output)});
    }
    std::vector<ValueId> inputs;
    for (const auto& input : inputs_) inputs.push_back(*input);
    const auto made = build_kernel(b_, op_, *body_.kernel, inputs, bindings_, results, host_);
    for (size_t i = 0; i < made.size(); ++i) bindings_.values.insert_or_assign(op_.outputs[i].name, made[i]);
  }

  graph::Shape broadcast_shape() {
    std::vector<graph::Shape> shapes;
    for (const auto& input : inputs_) shapes.push_back(b_.shape(*input));
    return ops::broadcast(b_, shapes, op_.name);
  }

  graph::Shape declared_shape(const DeclaredTensor& declared) {
    graph::Shape shape;
    for (const DeclaredDim& each : declared.shape) {
      if (each.rest) {
        const auto rest = bindings_.attributes.find(each.rest_name);
        if (rest == bindings_.attributes.end())
          refuse(cat("'...", each.rest_name, "' is not bound: the model leaves out the input that binds it"));
        const auto& dims = std::get<std::vector<sym::Expr>>(rest->second);
        shape.insert(shape.end(), dims.begin(), dims.end());
        continue;
      }
      const Attr size = Evaluator(b_, bindings_).attribute(each.size);
      const auto* e = std::get_if<sym::Expr>(&size);
      if (!e)
        refuse(cat("'", extend::to_string(each.size), "' is ", extend::to_string(size), ", not a size"));
      b_.require(
          sym::ge(*e, 0),
          cat(sym::escaped(op_.name), ": the size ", sym::escaped(extend::to_string(each.size)), " is {0}"),
          {*e});
      shape.push_back(*e);
    }
    return shape;
  }

  ValueId result(const DeclaredTensor& declared) {
    const ValueId value = bindings_.values.at(declared.name);
    const std::string what = cat("output '", declared.name, "'");
    const DType dtype = b_.dtype(value);
    const auto bound =
        is_variable(declared.type) ? bindings_.attributes.find(declared.type) : bindings_.attributes.end();
    const bool fits = bound != bindings_.attributes.end()
                          ? bound->second == Attr(dtype)
                          : std::ranges::count(allowed(declared.type), dtype) > 0;
    if (!fits)
      refuse(cat(what, " is declared as ", declared.type,
                 bound == bindings_.attributes.end() ? "" : cat(" = ", extend::to_string(bound->second)),
                 ", and the body makes ", stridec::name(dtype)));
    if (declared.has_shape)
      for (const bool terms : {false, true}) match_shape(declared, b_.shape(value), what, terms, false);
    return value;
  }

  Builder& b_;
  const UserOperator& op_;
  const OperatorBody& body_;
  const OperatorCall& call_;
  const KernelHost& host_;
  std::vector<std::optional<ValueId>> inputs_;
  std::vector<size_t> left_out_;
  size_t next_input_ = 0;
  Bindings bindings_;
};

}  // namespace

Operators::Operators(const std::vector<std::shared_ptr<const OperatorFile>>& files, KernelHost host)
    : host_(std::move(host)) {
  for (const auto& file : files) {
    hash_ += file->sha256;
    for (const UserOperator& op : file->operators) {
      if (has(op.name))
        fail(ErrorKind::kUsage, "usage", cat("two files of --ops declare ", op.name),
             "leave out one of them");
      all_.push_back(&op);
    }
  }
}

const UserOperator* Operators::find(std::string_view name) const {
  const auto found =
      std::ranges::find(all_, name, [](const UserOperator* op) -> std::string_view { return op->name; });
  return found == all_.end() ? nullptr : *found;
}

std::vector<ValueId> Operators::build(Builder& builder, const OperatorCall& call) const {
  const UserOperator& declared = *find(call.name);
  const auto tensors =
      std::ranges::count_if(call.arguments, [](const Argument& each) { return !each.value; });
  const UserOperator op = instance_of(declared, static_cast<size_t>(tensors), call.outputs);
  return build_operator(builder, op, op.body, call, host_);
}

std::vector<ValueId> Operators::build(Builder& builder, const std::string& name,
                                      const std::vector<ValueId>& inputs, const Arguments& attributes,
                                      size_t outputs) const {
  OperatorCall call{.name = name, .arguments = {}, .outputs = outputs};
  for (const ValueId input : inputs) call.arguments.push_back({.name = "", .tensor = input, .value = {}});
  for (const auto& [key, value] : attributes)
    call.arguments.push_back({.name = key, .tensor = {}, .value = to_graph(key, value)});
  return build(builder, call);
}

bool is_own_operator(std::string_view name) { return name.find('.') != std::string_view::npos; }

std::string declared_name(std::string_view name) {
  const size_t dot = name.rfind('.');
  return cat(name.substr(0, dot), "::", name.substr(dot + 1));
}

std::vector<ValueId> build_operator(Builder& builder, const UserOperator& op, const OperatorBody& body,
                                    const OperatorCall& call, const KernelHost& host) {
  return CallBuilder(builder, op, body, call, host).build();
}

}  // namespace stridec::extend
