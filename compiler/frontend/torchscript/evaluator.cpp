#include "compiler/frontend/torchscript/evaluator.h"

#include <algorithm>
#include <stdexcept>

#include "compiler/base/at_exit.h"
#include "compiler/base/text.h"
#include "compiler/frontend/torchscript/debug.h"
#include "compiler/ops/name_size.h"

namespace stridec::torchscript {
namespace {

using EK = Expression::Kind;
using SK = Statement::Kind;
using VK = Value::Kind;

constexpr size_t kMostSteps = 500'000;
constexpr size_t kMostProblems = 1000;
constexpr size_t kDeepestCalls = 100;
constexpr int kDeepestExpression = 1500;

}  // namespace

std::string dotted(const Expression& e) {
  if (e.kind == EK::kName) return e.text;
  if (e.kind != EK::kAttribute) return "";
  const std::string of = dotted(e.items[0]);
  return of.empty() ? "" : cat(of, ".", e.text);
}

std::set<std::string> assigned_names(const std::vector<Statement>& block) {
  std::set<std::string> out;
  for (const Statement& s : block) {
    if (s.kind == SK::kAssign || s.kind == SK::kFor) out.insert(s.targets.begin(), s.targets.end());
    out.merge(assigned_names(s.body));
    out.merge(assigned_names(s.otherwise));
  }
  return out;
}

// ---- messages -------------------------------------------------------------------------------------------

void Evaluator::unsupported(std::string message, std::string help) {
  fail(ErrorKind::kUnsupported, "unsupported-op", std::move(message), std::move(help));
}

std::string Evaluator::place() const {
  if (stack_.empty()) return "";
  const Function& f = *stack_.back();
  const std::string path = paths_.empty() || paths_.back().empty() ? "" : cat(" of '", paths_.back(), "'");
  return cat("'", f.name, "'", path, " (", f.module, ", line ", line_, ")");
}

void Evaluator::record(Error error, const std::string& op) {
  Diagnostic& d = error.diagnostic;
  if (d.where.node.empty()) d.where.node = place();
  if (d.where.op.empty()) d.where.op = op;
  if (const auto source = stack_.empty() ? std::nullopt : user_source(archive_, *stack_.back(), line_))
    d.notes.push_back(*source);
  const bool known = std::ranges::any_of(problems, [&](const Diagnostic& other) {
    return other.message == d.message && other.where.node == d.where.node;
  });
  if (!known && problems.size() < kMostProblems) problems.push_back(std::move(d));
}

void Evaluator::record_unsupported(const std::string& op) {
  if (!unsupported_.insert(op).second) return;
  record(Error({.kind = ErrorKind::kUnsupported,
                .code = "unsupported-op",
                .message = cat("operator ", op, " is not supported"),
                .where = {},
                .notes = {},
                .help = "declare it by --ops FILE; 'stridec check' prints a draft"}),
         op);
}

void Evaluator::count_step() {
  if (++steps_ > kMostSteps)
    fail(ErrorKind::kOverBudget, "too-many-steps",
         cat("the program has more than ", kMostSteps, " steps with its loops unrolled"),
         "loops over known counts are unrolled: export the module with torch.export.export");
}

sym::Expr Evaluator::short_form(sym::Expr e) {
  constexpr uint32_t kLongest = 64;
  if (e.size() <= kLongest || !b.is_bound_in_run(e)) return e;
  if (e.is_condition()) return ops::named(b, e, "condition", 0, 1, kLongest);
  return ops::named(b, e, "number", -ops::kLargestSize, ops::kLargestSize, kLongest);
}

// ---- statements -----------------------------------------------------------------------------------------

Evaluator::Flow Evaluator::run(const std::vector<Statement>& block, Frame& frame) {
  for (const Statement& s : block)
    if (run_statement(s, frame) == Flow::kReturn) return Flow::kReturn;
  return Flow::kNext;
}

void Evaluator::fail_names(const std::vector<Statement>& block, Frame& frame) {
  for (const std::string& name : assigned_names(block)) frame.names[name] = Value::failed();
}

Evaluator::Flow Evaluator::run_statement(const Statement& s, Frame& frame) {
  count_step();
  line_ = s.line;
  try {
    switch (s.kind) {
      case SK::kAssign: assign(s, evaluate(s.value, frame), frame); return Flow::kNext;
      case SK::kAttribute: {
        const Value object = evaluate(s.object, frame);
        set_attribute(object, s.targets[0], evaluate(s.value, frame));
        return Flow::kNext;
      }
      case SK::kEvaluate: evaluate(s.value, frame); return Flow::kNext;
      case SK::kReturn: frame.result = evaluate(s.value, frame); return Flow::kReturn;
      case SK::kIf: return run_if(s, frame);
      case SK::kWhile: run_while(s, frame); return Flow::kNext;
      case SK::kFor: run_for(s, frame); return Flow::kNext;
      case SK::kWith: evaluate(s.value, frame); return run(s.body, frame);
      case SK::kFunction: frame.functions[s.targets[0]] = &s; return Flow::kNext;
    }
  } catch (const std::logic_error&) {
    // A row read an argument that the operator does not have here: values that PyTorch would refuse.
    line_ = s.line;
    record(Error({.kind = ErrorKind::kUnsupported,
                  .code = "unsupported-op",
                  .message = "an operator does not take these arguments",
                  .where = {},
                  .notes = {},
                  .help = {}}),
           "");
  } catch (Error& error) {
    const ErrorKind kind = error.diagnostic.kind;
    if (kind == ErrorKind::kInternal || kind == ErrorKind::kOverBudget || kind == ErrorKind::kMalformed)
      throw;
    line_ = s.line;
    record(std::move(error), "");
  }
  fail_names({s}, frame);
  return Flow::kNext;
}

void Evaluator::assign(const Statement& s, Value value, Frame& frame) {
  if (s.targets.size() == 1 && !s.unpacks) {
    frame.names[s.targets[0]] = std::move(value);
    return;
  }
  if (value.is_failed()) {
    for (const std::string& name : s.targets) frame.names[name] = Value::failed();
    return;
  }
  if (!value.sequence || value.items().size() != s.targets.size())
    unsupported(cat(kind_name(value), " is unpacked into ", s.targets.size(), " names"));
  const std::vector<Value> items = value.items();
  for (size_t i = 0; i < items.size(); ++i) frame.names[s.targets[i]] = loaded(items[i]);
}

Evaluator::Flow Evaluator::run_if(const Statement& s, Frame& frame) {
  const Value value = evaluate(s.value, frame);
  if (value.is_failed()) {
    fail_names(s.body, frame);
    fail_names(s.otherwise, frame);
    return Flow::kNext;
  }
  const sym::Expr condition = short_form(b.simplify(condition_of(value)));
  switch (b.prove(condition)) {
    case sym::Answer::kYes: return run(s.body, frame);
    case sym::Answer::kNo: return run(s.otherwise, frame);
    default: return if_on_data(s, condition, frame);
  }
}

void Evaluator::run_while(const Statement& s, Frame& frame) {
  while (true) {
    count_step();
    const Value value = evaluate(s.value, frame);
    if (value.is_failed()) return fail_names(s.body, frame);
    const sym::Expr condition = short_form(b.simplify(condition_of(value)));
    const auto answer = b.prove(condition);
    if (answer == sym::Answer::kNo) return;
    if (answer != sym::Answer::kYes) return while_on_data(s, frame);
    if (run(s.body, frame) == Flow::kReturn) unsupported("a loop that returns");
  }
}

void Evaluator::run_for(const Statement& s, Frame& frame) {
  const Value count = evaluate(s.value, frame);
  if (count.is_failed()) return fail_names({s}, frame);
  if (!count.is_whole()) unsupported(cat("a loop over ", kind_name(count)));
  const sym::Expr known = b.simplify(count.integer);
  if (!known.is_const()) return loop_on_data(s, count, frame);
  for (int64_t i = 0; i < known.value(); ++i) {
    count_step();
    frame.names[s.targets[0]] = Value::of_integer(i);
    if (run(s.body, frame) == Flow::kReturn) unsupported("a loop that returns");
  }
}

// ---- calls ----------------------------------------------------------------------------------------------

Value Evaluator::call_function(const Function& function, Arguments arguments) {
  if (stack_.size() >= kDeepestCalls)
    fail(ErrorKind::kOverBudget, "too-deep",
         cat("calls of functions are nested deeper than ", kDeepestCalls, ", at '", function.name, "'"));
  count_step();
  Frame frame{.function = &function, .names = {}, .functions = {}, .result = {}};
  const auto& parameters = function.parameters;
  size_t at = 0;
  for (size_t i = 0; i < arguments.values.size(); ++i) {
    const std::string& name = arguments.names[i];
    if (name.empty() && at < parameters.size()) {
      frame.names[parameters[at++].name] = std::move(arguments.values[i]);
      continue;
    }
    const bool has = std::ranges::any_of(parameters, [&](const Parameter& p) { return p.name == name; });
    if (name.empty() || !has)
      fail(ErrorKind::kMalformed, "bad-source", cat("'", function.name, "' takes no such argument"));
    frame.names[name] = std::move(arguments.values[i]);
  }
  const int line = line_;
  stack_.push_back(&function);
  frames_.push_back(&frame);
  const AtExit restore([&] {
    frames_.pop_back();
    stack_.pop_back();
    line_ = line;
  });
  line_ = function.line;
  for (const Parameter& p : parameters) {
    if (frame.names.contains(p.name)) continue;
    if (!p.default_value)
      fail(ErrorKind::kMalformed, "bad-source",
           cat("'", function.name, "' needs an argument '", p.name, "'"));
    Value value = evaluate(*p.default_value, frame);
    frame.names[p.name] = std::move(value);
  }
  run(function.body, frame);
  return frame.result;
}

Value Evaluator::call_method(const Value& object, const std::string& name, Arguments arguments) {
  if (!object.is(VK::kObject) || !object.object->type)
    unsupported(cat("method '", name, "' of ", kind_name(object)));
  const auto& methods = object.object->type->methods;
  const auto found = methods.find(name);
  if (found == methods.end())
    fail(ErrorKind::kMalformed, "bad-source",
         cat("class '", object.object->type->name, "' has no method '", name, "'"));
  arguments.values.insert(arguments.values.begin(), object);
  arguments.names.insert(arguments.names.begin(), "");
  paths_.push_back(object.object->path);
  const AtExit restore([&] { paths_.pop_back(); });
  return call_function(found->second, std::move(arguments));
}

Arguments Evaluator::arguments(const Expression& call, Frame& frame) {
  Arguments out;
  for (size_t i = 1; i < call.items.size(); ++i) out.add(evaluate(call.items[i], frame), call.names[i - 1]);
  return out;
}

// A function, class or enum member of the program, by its qualified name.
Value Evaluator::program_name(const std::string& name) {
  const auto [owner, own] = split_name(name);
  if (const Class* type = library.find_class(owner); type && type->base == "Enum") {
    const auto member = type->constants.find(own);
    if (member == type->constants.end())
      fail(ErrorKind::kMalformed, "bad-source", cat("there is no '", name, "'"));
    Frame frame;
    Value out = Value::of_items(VK::kEnum, {evaluate(member->second, frame)});
    out.text = name;
    return out;
  }
  Value out = Value::of_kind(VK::kFunction);
  out.text = name;
  return out;
}

Value Evaluator::call_program(const std::string& name, Arguments arguments) {
  if (const Function* f = library.find_function(name)) {
    paths_.push_back(paths_.empty() ? "" : paths_.back());
    const AtExit restore([&] { paths_.pop_back(); });
    return call_function(*f, std::move(arguments));
  }
  const auto [owner, own] = split_name(name);
  const bool makes = own == "__new__";
  const Class* type = library.find_class(makes ? owner : name);
  if (!type) {
    if (const Class* static_of = library.find_class(owner); static_of && static_of->methods.contains(own))
      return call_function(static_of->methods.at(own), std::move(arguments));
    fail(ErrorKind::kUnsupported, "unsupported-op",
         cat("the program calls '", name, "', which it does not have"));
  }
  if (!makes && type->base == "NamedTuple") {
    Value out = Value::tuple(std::move(arguments.values));
    out.type = type;
    return out;
  }
  Value out = Value::of_kind(VK::kObject);
  out.object = std::make_shared<Object>(Object{.type = type, .path = "", .saved = false, .fields = {}});
  return out;
}

Value Evaluator::special_form(const std::string& name, const Expression& e, Frame& frame, bool& known) {
  known = true;
  const auto argument = [&](size_t i) -> const Expression& {
    if (i + 1 >= e.items.size())
      fail(ErrorKind::kMalformed, "bad-source", cat(name, " has too few arguments"));
    return e.items[i + 1];
  };
  if (name == "annotate" || name == "unchecked_cast") return evaluate(argument(1), frame);
  if (name == "uninitialized") return Value::of_kind(VK::kUnset);
  if (name == "isinstance") {
    const Value value = evaluate(argument(0), frame);
    if (value.is_failed()) return value;
    return Value::of_bool(is_instance(value, argument(1)));
  }
  if (name == "getattr") {
    const Value object = evaluate(argument(0), frame);
    return object.is_failed() ? object : attribute(object, argument(1).text);
  }
  if (name == "print") return {};
  if (name == "fork") {
    const std::string task = dotted(argument(0));
    if (const auto found = frame.functions.find(task); found != frame.functions.end()) {
      Frame inner = frame;
      run(found->second->body, inner);
      return inner.result;
    }
    Arguments rest = arguments(e, frame);
    const Value callee = rest.values[0];
    rest.values.erase(rest.values.begin());
    rest.names.erase(rest.names.begin());
    if (callee.is(VK::kMethod)) {
      Value object = Value::of_kind(VK::kObject);
      object.object = callee.object;
      return call_method(object, callee.text, std::move(rest));
    }
    if (callee.is(VK::kObject)) return call_method(callee, "forward", std::move(rest));
    return call_program(callee.text, std::move(rest));
  }
  known = false;
  return {};
}

Value Evaluator::call_named(const std::string& name, const Expression& e, Frame& frame) {
  bool known = false;
  Value special = special_form(name, e, frame, known);
  if (known) return special;
  constexpr std::string_view kTorch = "torch.", kOps = "ops.";
  if (name.starts_with(kTorch))
    return call_builtin_(*this, "aten", name.substr(kTorch.size()), arguments(e, frame));
  if (name.starts_with(kOps)) {
    const std::string rest = name.substr(kOps.size());
    const size_t dot = rest.find('.');
    if (dot == std::string::npos) fail(ErrorKind::kMalformed, "bad-source", cat("there is no '", name, "'"));
    return call_builtin_(*this, rest.substr(0, dot), rest.substr(dot + 1), arguments(e, frame));
  }
  if (name.starts_with("__torch__.")) return call_program(name, arguments(e, frame));
  if (name.find('.') == std::string::npos && !frame.names.contains(name))
    return call_builtin_(*this, "", name, arguments(e, frame));
  return Value::of_kind(VK::kUnset);
}

Value Evaluator::evaluate_call(const Expression& e, Frame& frame) {
  const Expression& callee = e.items[0];
  const std::string name = dotted(callee);
  const std::string first = name.substr(0, name.find('.'));
  const bool local = !name.empty() && frame.names.contains(first);
  if (!name.empty() && !local) return call_named(name, e, frame);
  if (callee.kind == EK::kAttribute) {
    const Value object = evaluate(callee.items[0], frame);
    if (object.is_failed()) return object;
    if (object.is(VK::kObject)) return call_method(object, callee.text, arguments(e, frame));
    Arguments given = arguments(e, frame);
    given.values.insert(given.values.begin(), object);
    given.names.insert(given.names.begin(), "");
    return call_builtin_(*this, "aten", callee.text, std::move(given));
  }
  const Value function = evaluate(callee, frame);
  if (function.is_failed()) return function;
  if (!function.is(VK::kFunction)) unsupported(cat("a call of ", kind_name(function)));
  return call_program(function.text, arguments(e, frame));
}

// ---- expressions ----------------------------------------------------------------------------------------

Value Evaluator::constant(const std::string& name) {
  const auto found = constants_.find(name);
  if (found != constants_.end()) return found->second;
  size_t at = 0;
  const bool number = name.size() > 1 && name.size() < 9 && name[0] == 'c' &&
                      std::all_of(name.begin() + 1, name.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (number) at = std::stoul(name.substr(1));
  if (!number || !archive_.constants || at >= archive_.constants->items.size())
    fail(ErrorKind::kMalformed, "bad-source", cat("the archive has no constant '", name, "'"));
  const Item& item = *archive_.constants->items[at];
  if (item.kind != Item::Kind::kTensor)
    unsupported(cat("constant '", name, "' is not a tensor"),
                "torch.jit.optimize_for_inference hides weights: save the module before it");
  const Value out(weights_.load("constants", item.tensor, name));
  constants_.emplace(name, out);
  return out;
}

Value Evaluator::evaluate(const Expression& e, Frame& frame) {
  if (++depth_ > kDeepestExpression)
    fail(ErrorKind::kOverBudget, "too-deep", "the program is nested too deeply");
  const AtExit restore([&] { --depth_; });
  switch (e.kind) {
    case EK::kInteger: return Value::of_integer(e.integer);
    case EK::kFloat: return Value::of_float(e.number);
    case EK::kString: return Value::of_string(e.text);
    case EK::kTrue: return Value::of_bool(1);
    case EK::kFalse: return Value::of_bool(0);
    case EK::kNone: return {};
    case EK::kImaginary: {
      Value v = Value::of_kind(VK::kComplex);
      v.imaginary = e.number;
      return v;
    }
    case EK::kName: {
      const auto found = frame.names.find(e.text);
      if (found == frame.names.end())
        fail(ErrorKind::kMalformed, "bad-source", cat("'", e.text, "' is not defined, at ", place()));
      return found->second;
    }
    case EK::kAttribute: {
      const std::string name = dotted(e);
      const std::string first = name.substr(0, name.find('.'));
      if (first == "CONSTANTS") return constant(e.text);
      if (first == "__torch__" && !frame.names.contains(first)) return program_name(name);
      const Value object = evaluate(e.items[0], frame);
      return object.is_failed() ? object : attribute(object, e.text);
    }
    case EK::kIndex: {
      const Value of = evaluate(e.items[0], frame);
      return index(of, evaluate(e.items[1], frame));
    }
    case EK::kCall: return evaluate_call(e, frame);
    case EK::kList:
    case EK::kTuple: {
      std::vector<Value> items;
      items.reserve(e.items.size());
      for (const Expression& item : e.items) items.push_back(evaluate(item, frame));
      return Value::of_items(e.kind == EK::kList ? VK::kList : VK::kTuple, std::move(items));
    }
    case EK::kDict: {
      Value out = Value::new_dict();
      for (size_t i = 0; i + 1 < e.items.size(); i += 2) {
        Value key = evaluate(e.items[i], frame);
        out.dict->items.emplace_back(std::move(key), evaluate(e.items[i + 1], frame));
      }
      return out;
    }
    case EK::kNegative: {
      Value v = evaluate(e.items[0], frame);
      v.integer = v.is(VK::kInt) ? -v.integer : v.integer;
      v.number = -v.number;
      v.imaginary = -v.imaginary;
      return v;
    }
    case EK::kSum: {
      Value v = evaluate(e.items[0], frame);
      const Value other = evaluate(e.items[1], frame);
      if (!v.is_number() || !other.is(VK::kComplex))
        fail(ErrorKind::kMalformed, "bad-source", "a sum of no numbers");
      v.kind = VK::kComplex;
      v.number += other.number;
      v.imaginary += other.imaginary;
      return v;
    }
  }
  return {};
}

Value Evaluator::index(const Value& of, const Value& at) {
  if (of.is_failed() || at.is_failed()) return Value::failed();
  Arguments given;
  given.add(of);
  given.add(at);
  return call_builtin_(*this, "aten", "__getitem__", std::move(given));
}

bool Evaluator::is_instance(const Value& value, const Expression& type) {
  if (type.kind == EK::kTuple || type.kind == EK::kList)
    return std::ranges::any_of(type.items, [&](const Expression& t) { return is_instance(value, t); });
  if (type.kind == EK::kNone) return value.is_none();
  if (type.kind == EK::kIndex) {
    const std::string name = type.items[0].text;
    if (name == "Optional") return value.is_none() || is_instance(value, type.items[1]);
    if (name == "List") {
      if (!value.is(VK::kList)) return false;
      return std::ranges::all_of(value.items(),
                                 [&](const Value& v) { return is_instance(v, type.items[1]); });
    }
    if (name == "Dict") return value.is(VK::kDict);
    if (name == "Tuple") return value.is(VK::kTuple);
    if (name == "Union") return is_instance(value, type.items[1]);
    unsupported(cat("isinstance of ", name));
  }
  const std::string name = dotted(type);
  if (name == "Tensor") return value.is_tensor() || value.is(VK::kStored);
  if (name == "int") return value.is(VK::kInt);
  if (name == "bool") return value.is(VK::kBool);
  if (name == "float") return value.is(VK::kFloat) || value.is_run_float();
  if (name == "complex") return value.is(VK::kComplex);
  if (name == "number") return value.is_number() && !value.is(VK::kBool);
  if (name == "str") return value.is(VK::kString);
  if (name == "NoneType") return value.is_none();
  if (name == "Device") return value.is(VK::kDevice);
  if (name == "list") return value.is(VK::kList);
  if (name == "tuple") return value.is(VK::kTuple);
  if (name == "Any") return true;
  if (value.is(VK::kObject)) return value.object->type && value.object->type->name == name;
  if (value.is(VK::kTuple)) return value.type && value.type->name == name;
  if (value.is(VK::kEnum)) return split_name(value.text).first == name;
  return false;
}

// ---- conversions ----------------------------------------------------------------------------------------

sym::Expr Evaluator::condition_of(const Value& value) {
  if (value.is(VK::kBool)) return value.integer;
  if (value.is(VK::kInt)) return sym::ne(value.integer, 0);
  if (value.is(VK::kFloat)) return value.number != 0;
  if (value.is(VK::kTensor)) {
    const ops::Term x = aten::read(b, value.tensor);
    const ops::Term truth = is_bool(x.dtype()) ? x : ops::logical_not(ops::equal(x, 0));
    if (const auto known = b.known(truth.id()); known && known->size() == 1) return (*known)[0];
    const ops::Term scalar = ops::cast(ops::reshape(truth, {}), DType::kI64, false);
    return sym::ne(b.symbol_of(scalar.id(), "condition", 0, 1), 0);
  }
  unsupported(cat("the truth of ", kind_name(value)));
}

sym::Expr Evaluator::integer_of(const Value& value) {
  if (value.is_whole()) return value.integer;
  if (value.is(VK::kFloat)) return static_cast<int64_t>(value.number);
  if (value.is(VK::kTensor)) {
    const ops::Term x = aten::read(b, value.tensor);
    if (const auto known = b.known(x.id()); known && known->size() == 1 && !is_float(x.dtype()))
      return (*known)[0];
    const ops::Term whole = is_float(x.dtype()) ? ops::apply(graph::OpKind::kTrunc, x) : x;
    const ops::Term scalar = ops::cast(ops::reshape(whole, {}), DType::kI64, false);
    return b.symbol_of(scalar.id(), "item", -(int64_t{1} << 40), int64_t{1} << 40);
  }
  unsupported(cat("an integer of ", kind_name(value)));
}

}  // namespace stridec::torchscript
