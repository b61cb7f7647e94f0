// Saved objects: from the pickle, and their attributes.
#include <algorithm>

#include "compiler/base/text.h"
#include "compiler/frontend/torchscript/evaluator.h"

namespace stridec::torchscript {
namespace {

using VK = Value::Kind;
using IK = Item::Kind;

std::string joined(const std::string& path, const std::string& name) {
  return path.empty() ? name : cat(path, ".", name);
}

}  // namespace

Value Evaluator::from_pickle(const ItemRef& item, const std::string& path) {
  if (const auto found = from_items_.find(item.get()); found != from_items_.end()) return found->second;
  Value out;
  switch (item->kind) {
    case IK::kNone: return {};
    case IK::kBool: return Value::of_bool(item->integer);
    case IK::kInt: return Value::of_integer(item->integer);
    case IK::kFloat: return Value::of_float(item->number);
    case IK::kString: return Value::of_string(item->text);
    case IK::kDevice:
      out.kind = VK::kDevice;
      out.text = "cpu";
      return out;
    case IK::kTensor:
      out.kind = VK::kStored;
      out.stored = item;
      out.text = path;
      break;
    case IK::kList: out = Value::list(saved_items(*item, path)); break;
    case IK::kTuple: out = Value::tuple(saved_items(*item, path)); break;
    case IK::kDict: out = saved_dict(*item, path); break;
    case IK::kObject: out = saved_object(*item, path); break;
    case IK::kCall: out = saved_call(*item, path); break;
    case IK::kName:
    case IK::kStorage:
      fail(ErrorKind::kUnsupported, "pickled-object", cat("attribute '", path, "' is ", item->text));
  }
  from_items_.emplace(item.get(), out);
  return out;
}

std::vector<Value> Evaluator::saved_items(const Item& item, const std::string& path) {
  std::vector<Value> values;
  for (size_t i = 0; i < item.items.size(); ++i)
    values.push_back(from_pickle(item.items[i], joined(path, std::to_string(i))));
  return values;
}

Value Evaluator::saved_dict(const Item& item, const std::string& path) {
  Value out = Value::new_dict();
  for (size_t i = 0; i + 1 < item.items.size(); i += 2)
    out.dict->items.emplace_back(from_pickle(item.items[i], path),
                                 from_pickle(item.items[i + 1], joined(path, item.items[i]->text)));
  return out;
}

Value Evaluator::saved_object(const Item& item, const std::string& path) {
  Value out = Value::of_kind(VK::kObject);
  out.object = std::make_shared<Object>(
      Object{.type = library.find_class(item.text), .path = path, .saved = true, .fields = {}});
  if (item.items.empty()) return out;
  Object& object = *out.object;
  const Item& state = *item.items[0];
  if (state.kind == IK::kDict) {
    for (size_t i = 0; i + 1 < state.items.size(); i += 2) {
      const std::string& name = state.items[i]->text;
      const std::string own = joined(path, name);
      Value value = from_pickle(state.items[i + 1], own);
      if (attribute_states.contains(own)) value = attribute_state(own, value, out.object, name);
      object.fields[name] = std::move(value);
    }
  } else if (!object.type && state.kind == IK::kTuple) {
    // An object of a C++ class: its state is a tuple.
    for (size_t i = 0; i < state.items.size(); ++i)
      object.fields[std::to_string(i)] = from_pickle(state.items[i], joined(path, std::to_string(i)));
  } else if (object.type && object.type->methods.contains("__setstate__")) {
    Arguments arguments;
    arguments.add(from_pickle(item.items[0], path));
    call_method(out, "__setstate__", std::move(arguments));
  }
  return out;
}

// A member of an enumeration, or a named tuple.
Value Evaluator::saved_call(const Item& item, const std::string& path) {
  const Class* type = library.find_class(item.text);
  if (!type || type->base != "Enum") {
    Value out = Value::tuple(saved_items(item, path));
    out.type = type;
    return out;
  }
  Value out = Value::of_items(VK::kEnum, saved_items(item, path));
  const Value value = out.items().empty() ? Value() : out.items()[0];
  const auto member = std::ranges::find_if(type->constants, [&](const auto& constant) {
    Frame frame;
    const auto same = equal(evaluate(constant.second, frame), value);
    return same && same->is_const(1);
  });
  if (member != type->constants.end()) out.text = cat(type->name, ".", member->first);
  return out;
}

Value Evaluator::loaded(Value value) {
  if (value.is(VK::kStored))
    return Value(weights_.load("data", value.stored->tensor, value.text.empty() ? "tensor" : value.text));
  if (value.sequence)
    for (Value& item : value.items()) item = loaded(item);
  if (value.dict)
    for (auto& item : value.dict->items) item.second = loaded(item.second);
  return value;
}

Value Evaluator::attribute(const Value& object, const std::string& name) {
  if (object.is(VK::kTuple) && object.type) {
    const auto& fields = object.type->attributes;
    const auto found = std::ranges::find_if(fields, [&](const auto& field) { return field.first == name; });
    const size_t at = static_cast<size_t>(found - fields.begin());
    if (at < object.items().size()) return object.items()[at];
  }
  if (object.is(VK::kEnum)) {
    if (name == "value") return object.items().at(0);
    if (name == "name") return Value::of_string(split_name(object.text).second);
  }
  if (!object.is(VK::kObject)) unsupported(cat("attribute '", name, "' of ", kind_name(object)));
  Object& o = *object.object;
  if (const auto found = o.fields.find(name); found != o.fields.end()) {
    if (o.saved) read_attributes_.insert(joined(o.path, name));
    return found->second = loaded(found->second);
  }
  if (o.type) {
    if (const auto constant = o.type->constants.find(name); constant != o.type->constants.end()) {
      Frame frame;
      return evaluate(constant->second, frame);
    }
    if (o.type->methods.contains(name)) {
      Value out = Value::of_kind(VK::kMethod);
      out.object = object.object;
      out.text = name;
      return out;
    }
  }
  unsupported(cat("'", o.path, "' has no attribute '", name, "'"));
}

void Evaluator::set_attribute(const Value& object, const std::string& name, Value value) {
  if (object.is_failed()) return;
  if (!object.is(VK::kObject)) unsupported(cat("an attribute of ", kind_name(object), " is set"));
  Object& o = *object.object;
  touch(object);
  if (o.saved) {
    const std::string path = joined(o.path, name);
    set_attributes.try_emplace(
        path, SetAttribute{object.object, name, o.fields[name], read_attributes_.contains(path)});
  }
  o.fields[name] = std::move(value);
}

}  // namespace stridec::torchscript
