#include "compiler/frontend/torchscript/inputs.h"

#include <algorithm>

#include "compiler/base/text.h"
#include "compiler/frontend/torchscript/element_type.h"
#include "compiler/ops/fixed_input.h"
#include "compiler/ops/name_size.h"

namespace stridec::torchscript {
namespace {

using EK = Expression::Kind;
using VK = Value::Kind;

std::string written(const Expression& type) {
  if (type.kind == EK::kIndex) return cat(written(type.items[0]), "[", written(type.items[1]), "]");
  if (type.kind == EK::kTuple || type.kind == EK::kList)
    return join(type.items, ", ", [](const Expression& e) { return written(e); });
  return split_name(dotted(type)).second;
}

bool is_of(const Expression& type, std::string_view name) {
  return type.kind == EK::kIndex && dotted(type.items[0]) == name;
}

}  // namespace

Inputs::Inputs(Evaluator& evaluator, const ImportOptions& options, const Archive& archive)
    : e_(evaluator), options_(options), sizes_(options.dims, options.sizes_stay_open) {
  if (!archive.traced_inputs || archive.traced_inputs->kind != Item::Kind::kDict) return;
  const auto& methods = archive.traced_inputs->items;
  for (size_t i = 0; i + 1 < methods.size(); i += 2)
    if (methods[i]->text == options.method) samples_ = methods[i + 1]->items;
}

sym::Expr Inputs::size(const std::string& text) {
  if (text[0] >= '0' && text[0] <= '9') return static_cast<int64_t>(std::stoll(text));
  const bool known = sizes_.used().contains(text);
  const sym::Expr out = sizes_.size(text);
  if (known || out.is_const()) return out;
  e_.b.facts().set_range(out, 0, std::nullopt);
  sizes_.set_ranges(e_.b.facts());
  return out;
}

bool Inputs::is_named(const std::string& name) const {
  return options_.shapes.contains(name) || options_.input_values.contains(name) || !children(name).empty();
}

// The names that --shape uses below `name`, such as "0" and "1" for "images.0" and "images.1". Sorted as
// numbers or as text.
std::vector<std::string> Inputs::children(const std::string& name) const {
  std::vector<std::string> out;
  for (const auto& [key, type] : options_.shapes) {
    if (!key.starts_with(name + ".")) continue;
    std::string child = key.substr(name.size() + 1);
    child = child.substr(0, child.find('.'));
    if (std::ranges::count(out, child) == 0) out.push_back(std::move(child));
  }
  std::ranges::sort(out, [](const std::string& a, const std::string& b) {
    return a.size() != b.size() && a.find_first_not_of("0123456789") == std::string::npos
               ? a.size() < b.size()
               : a < b;
  });
  return out;
}

std::optional<InputType> Inputs::type_of(const std::string& name, const ItemRef& sample) {
  if (const auto given = options_.shapes.find(name); given != options_.shapes.end()) {
    used_.insert(name);
    return given->second;
  }
  if (!sample || sample->kind != Item::Kind::kTensor) return std::nullopt;
  const auto type = element_type(sample->tensor.element_type);
  if (!type || type->complex) return std::nullopt;
  InputType out{.dtype = type->dtype, .sizes = {}};
  for (const int64_t n : sample->tensor.sizes) {
    if (n < 0) return std::nullopt;
    out.sizes.push_back(std::to_string(n));
  }
  return out;
}

Value Inputs::make_tensor(const std::string& name, const InputType& type) {
  graph::Type own{type.dtype.value_or(DType::kF32), {}};
  for (const std::string& text : type.sizes) own.shape.push_back(size(text));
  graph::check_size(own);
  aten::Tensor tensor = aten::fresh({e_.b, e_.b.input(name, own)});
  tensors_.push_back({name, tensor, tensor.storage->base});
  if (const auto given = options_.input_values.find(name); given != options_.input_values.end()) {
    used_.insert(name);
    tensor.storage->base = ops::fixed_input(e_.b, name, aten::read(e_.b, tensor), given->second).id();
    tensors_.back().initial = tensor.storage->base;
  }
  return Value(tensor);
}

// A Python number is a scalar input. The value of an int is a symbol.
Value Inputs::make_number(const std::string& name, const std::string& type) {
  const DType dtype = type == "int" ? DType::kI64 : type == "bool" ? DType::kBool : DType::kF64;
  ops::Term scalar(e_.b, e_.b.input(name, {dtype, {}}));
  used_.insert(name);
  if (const auto given = options_.input_values.find(name); given != options_.input_values.end())
    scalar = ops::fixed_input(e_.b, name, scalar, given->second);
  Value out(aten::fresh(scalar));
  if (type == "bool") return Value::of_bool(e_.condition_of(out));
  if (type == "int") {
    if (const auto known = e_.b.known(scalar.id()); known && known->size() == 1 && (*known)[0].is_const())
      return Value::of_integer((*known)[0]);
    return Value::of_integer(e_.b.symbol_of(scalar.id(), name, -ops::kLargestSize, ops::kLargestSize));
  }
  out.tensor.wrapped = true;
  return out;
}

Value Inputs::make_items(const std::string& name, const Expression& type, const ItemRef& sample) {
  const auto item = [&](size_t i) { return sample && i < sample->items.size() ? sample->items[i] : nullptr; };
  std::vector<Value> items;
  if (is_of(type, "Tuple")) {
    const Expression& inner = type.items[1];
    const std::vector<Expression> one{inner};
    const std::vector<Expression>& types = inner.kind == EK::kTuple ? inner.items : one;
    for (size_t i = 0; i < types.size(); ++i)
      items.push_back(make_value(cat(name, ".", i), types[i], nullptr, item(i)));
    return Value::tuple(std::move(items));
  }
  if (is_of(type, "List")) {
    size_t count = children(name).size();
    if (count == 0 && sample) count = sample->items.size();
    if (count == 0) missing_.push_back({cat(name, ".0"), written(type.items[1])});
    for (size_t i = 0; i < count; ++i)
      items.push_back(make_value(cat(name, ".", i), type.items[1], nullptr, item(i)));
    return Value::list(std::move(items));
  }
  Value out = Value::new_dict();
  const Expression& value_type =
      type.items[1].kind == EK::kTuple ? type.items[1].items.back() : type.items[1];
  std::vector<std::string> keys = children(name);
  for (size_t i = 0; keys.empty() && sample && i + 1 < sample->items.size(); i += 2)
    keys.push_back(sample->items[i]->text);
  if (keys.empty()) missing_.push_back({cat(name, ".KEY"), written(value_type)});
  for (const std::string& key : keys) {
    ItemRef own;
    for (size_t i = 0; sample && i + 1 < sample->items.size(); i += 2)
      if (sample->items[i]->text == key) own = sample->items[i + 1];
    out.dict->items.emplace_back(Value::of_string(key),
                                 make_value(cat(name, ".", key), value_type, nullptr, own));
  }
  return out;
}

Value Inputs::make_value(const std::string& name, const Expression& type, const Expression* default_value,
                         const ItemRef& sample) {
  const bool sampled = sample && sample->kind != Item::Kind::kNone;
  if (default_value && !is_named(name) && !sampled) {
    Frame frame;
    return e_.evaluate(*default_value, frame);
  }
  if (is_of(type, "Optional"))
    return is_named(name) || sampled ? make_value(name, type.items[1], nullptr, sample) : Value();
  if (is_of(type, "Tuple") || is_of(type, "List") || is_of(type, "Dict"))
    return make_items(name, type, sample);
  const std::string own = dotted(type);
  if (own == "int" || own == "float" || own == "bool") return make_number(name, own);
  if (own == "Device") {
    Value device = Value::of_kind(VK::kDevice);
    device.text = "cpu";
    return device;
  }
  if (own.empty() || own == "Tensor" || own == "NoneType") {
    if (const auto given = type_of(name, sample)) return make_tensor(name, *given);
    missing_.push_back({name, "Tensor"});
    return Value::failed();
  }
  const Class* named = e_.library.find_class(own);
  if (named && named->base == "NamedTuple") {
    std::vector<Value> items;
    for (size_t i = 0; i < named->attributes.size(); ++i)
      items.push_back(make_value(cat(name, ".", named->attributes[i].first), named->attributes[i].second,
                                 nullptr, sample && i < sample->items.size() ? sample->items[i] : nullptr));
    Value out = Value::tuple(std::move(items));
    out.type = named;
    return out;
  }
  Evaluator::unsupported(cat("argument '", name, "' of ", options_.method, "() is of type ", written(type)),
                         "give it a default value, or wrap the module in one that takes tensors");
}

void Inputs::check_options() {
  const auto lacks = [&](const char* flag, const std::string& name, const char* what,
                         const std::vector<std::string>& known) {
    if (options_.absent) {
      options_.absent->insert(cat(flag, " ", name));
      return;
    }
    fail(ErrorKind::kUsage, "unknown-input", cat(flag, ": the module has no ", what, " '", name, "'"),
         known.empty() ? cat("it has no ", what) : cat("its ", what, "s are ", join(known, ", ")));
  };
  const std::vector<std::string>& inputs = e_.b.graph().input_names;
  for (const auto& [name, type] : options_.shapes)
    if (!used_.contains(name)) lacks("--shape", name, "input", inputs);
  for (const auto& [name, value] : options_.input_values)
    if (!used_.contains(name)) lacks("--input-value", name, "input", inputs);
  sizes_.check_used(options_.absent);
}

Arguments Inputs::make(const Function& function) {
  Arguments out;
  for (size_t i = 1; i < function.parameters.size(); ++i) {
    const Parameter& p = function.parameters[i];
    const ItemRef sample = i - 1 < samples_.size() ? samples_[i - 1] : nullptr;
    out.add(make_value(p.name, p.type, p.default_value.get(), sample));
  }
  if (!missing_.empty()) {
    const Missing& first = missing_.front();
    fail(
        ErrorKind::kUsage, "missing-shape",
        cat("a TorchScript file has no shapes: ",
            join(missing_, ", ", [](const Missing& m) { return cat("'", m.name, "'"); }),
            missing_.size() == 1 ? " needs one" : " need them"),
        cat("give the shape of each, in numbers or names: --shape ", first.name, "=batch,3,224,224, --shape ",
            first.name, "=1x3x224x224 or --shape '", first.name, "=i64[batch,time]'"));
  }
  check_options();
  return out;
}

}  // namespace stridec::torchscript
