// Attributes that the entry point sets, as states of the graph.
//
// Where a run leaves another type than the file has (nothing, or an empty tensor), the first run differs from
// the others: the graph has the method twice, once from the file's values and once from what a run leaves,
// and a state that says whether there was a run.
#include <algorithm>
#include <cstring>

#include "compiler/base/at_exit.h"
#include "compiler/base/text.h"
#include "compiler/frontend/aten/context.h"
#include "compiler/frontend/torchscript/convert.h"
#include "compiler/frontend/torchscript/evaluator.h"
#include "compiler/graph/text.h"

namespace stridec::torchscript {
namespace {

using VK = Value::Kind;

}  // namespace

// A state that starts with the file's value.
Value Evaluator::attribute_state(const std::string& path, const Value& initial,
                                 const std::shared_ptr<Object>& object, const std::string& name) {
  if (starts_differently()) {
    states_.push_back({object, name, path, {}, initial});
    return initial;
  }
  graph::ValueId id;
  Value out;
  if (initial.is(VK::kStored)) {
    out = Value(weights_.load_state("data", initial.stored->tensor, path));
    id = out.tensor.storage->base;
  } else if (initial.is_whole() || initial.is(VK::kFloat)) {
    const DType dtype = initial.is(VK::kInt)    ? DType::kI64
                        : initial.is(VK::kBool) ? DType::kBool
                                                : DType::kF64;
    std::vector<uint8_t> bytes(static_cast<size_t>(byte_size(dtype)));
    const int64_t whole = initial.integer.is_const() ? initial.integer.value() : 0;
    std::memcpy(bytes.data(), dtype == DType::kF64 ? static_cast<const void*>(&initial.number) : &whole,
                bytes.size());
    id = b.state(path, {dtype, {}}, graph::own(std::move(bytes)));
    out = Value(aten::fresh({b, id}));
    if (initial.is(VK::kInt))
      out = Value::of_integer(integer_of(out));
    else if (initial.is(VK::kBool))
      out = Value::of_bool(condition_of(out));
    else
      out.tensor.wrapped = true;
  } else {
    unsupported(cat("the program sets attribute '", path, "', which starts as ", kind_name(initial)),
                "give it a tensor or a number before saving");
  }
  states_.push_back({object, name, path, id, initial});
  return out;
}

bool Evaluator::is_changed(const SetAttribute& set) const {
  if (!set.read) return false;
  const Value& now = set.object->fields.at(set.name);
  const Value& before = set.before;
  if (now.kind != before.kind) return !now.is_failed();
  if (now.is(VK::kTensor))
    return now.tensor.storage != before.tensor.storage || now.tensor.view != before.tensor.view;
  if (now.sequence) return now.sequence != before.sequence;
  if (now.dict) return now.dict != before.dict;
  if (now.object) return now.object != before.object;
  return !(now.integer == before.integer) || now.number != before.number || now.text != before.text;
}

void Evaluator::update_attribute_states() {
  if (starts_differently()) b.add(graph::OpKind::kUpdateState, {started_, b.elements({1}, {}, DType::kBool)});
  for (const AttributeState& state : states_) {
    const Value& now = state.object->fields.at(state.name);
    const Left& left = attribute_states.at(state.path);
    if (starts_differently() && !left.type) {
      const auto same = equal(now, left.known);
      if (!same || !b.holds(*same))
        unsupported(cat("attribute '", state.path, "' is ", printed(left.known), " after the first run and ",
                        printed(now), " after others"));
      continue;
    }
    update_state(state, now);
  }
}

void Evaluator::update_state(const AttributeState& state, const Value& now) {
  const graph::Type type = b.type(state.value);
  if (!now.is(VK::kTensor) && !now.is_number())
    unsupported(cat("attribute '", state.path, "' becomes ", kind_name(now)));
  const ops::Term value = ops::cast(
      now.is(VK::kTensor) ? aten::read(b, now.tensor) : aten::scalar_of(b, to_aten(b, now), type.dtype),
      type.dtype, false);
  if (value.rank() != static_cast<int64_t>(type.shape.size()))
    unsupported(cat("attribute '", state.path, "' starts with ", type.shape.size(),
                    " dims and becomes a tensor with ", value.rank()));
  for (size_t d = 0; d < type.shape.size(); ++d)
    b.require(
        sym::eq(value.shape()[d], type.shape[d]),
        cat("attribute '", state.path, "' starts with a size of {1} in dim ", d, " and becomes one of {0}"),
        {value.shape()[d], type.shape[d]});
  b.add(graph::OpKind::kUpdateState, {state.value, value.id()});
}

bool Evaluator::starts_differently() const {
  return std::ranges::any_of(attribute_states, [](const auto& state) { return state.second.differs; });
}

std::map<std::string, Evaluator::Left> Evaluator::changed_attributes() {
  std::map<std::string, Left> out;
  for (const auto& [path, set] : set_attributes) {
    if (attribute_states.contains(path) || !is_changed(set)) continue;
    const Value now = loaded(set.object->fields.at(set.name)), before = loaded(set.before);
    Left left{.type = {}, .known = now, .differs = now.kind != before.kind};
    if (now.is(VK::kTensor)) {
      left.type = b.type(aten::read(b, now.tensor).id());
      for (sym::Expr& size : left.type->shape) size = b.simplify(size);
      if (before.is(VK::kTensor)) {
        const graph::Type old = b.type(aten::read(b, before.tensor).id());
        const auto fixed = [](const graph::Shape& shape) {
          return std::ranges::all_of(shape, [](sym::Expr e) { return e.is_const(); });
        };
        left.differs = old.dtype != left.type->dtype || old.shape.size() != left.type->shape.size() ||
                       (fixed(left.type->shape) && old.shape != left.type->shape);
      }
      if (left.differs)
        for (const sym::Expr size : left.type->shape)
          if (!size.is_const())
            unsupported(cat("attribute '", path, "' starts as ", kind_name(before), " and becomes ",
                            graph::to_string(*left.type), ", whose sizes only the run knows"),
                        "fix its sizes: --dim NAME=SIZE");
    }
    if (left.type) left.known = Value();
    out.emplace(path, std::move(left));
  }
  return out;
}

Value Evaluator::call_from_states(const Value& module, const std::string& method,
                                  const Arguments& arguments) {
  if (!starts_differently()) return call_method(module, method, arguments);
  Frame frame;
  for (size_t i = 0; i < arguments.values.size(); ++i) frame.names[cat("argument", i)] = arguments.values[i];
  frames_.push_back(&frame);
  const AtExit restore([&] { frames_.pop_back(); });
  const auto zeros = [](const graph::Type& type) {
    size_t bytes = static_cast<size_t>(byte_size(type.dtype));
    for (const sym::Expr size : type.shape) bytes *= static_cast<size_t>(size.value());
    return graph::own(std::vector<uint8_t>(bytes));
  };
  const graph::Type flag{DType::kBool, {}};
  started_ = b.state("started", flag, zeros(flag));
  std::vector<Value> later;
  for (AttributeState& state : states_) {
    const Left& left = attribute_states.at(state.path);
    later.push_back(left.known);
    if (!left.type) continue;
    state.value = b.state(state.path, *left.type, zeros(*left.type));
    later.back() = Value(aten::fresh({b, state.value}));
  }
  const auto run_from = [&](bool first) {
    for (size_t i = 0; i < states_.size(); ++i) {
      Value object = Value::of_kind(VK::kObject);
      object.object = states_[i].object;
      set_attribute(object, states_[i].name, first ? states_[i].initial : later[i]);
    }
    frame.names["result"] = call_method(module, method, arguments);
    return Flow::kNext;
  };
  const Value started(aten::fresh({b, started_}));
  either(
      condition_of(started), frame, {"result"}, [&] { return run_from(false); },
      [&] { return run_from(true); });
  return frame.names["result"];
}

}  // namespace stridec::torchscript
