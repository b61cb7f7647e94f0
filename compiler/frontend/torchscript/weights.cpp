#include "compiler/frontend/torchscript/weights.h"

#include <algorithm>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/frontend/torchscript/element_type.h"
#include "compiler/graph/builder.h"

namespace stridec::torchscript {

aten::Tensor Weights::make(const std::string& folder, const StoredTensor& stored, const std::string& name,
                           bool state) {
  const auto type = element_type(stored.element_type);
  if (!type || stored.quantized)
    fail(ErrorKind::kUnsupported, "unsupported-dtype",
         cat("'", name, "' has elements of type ", element_type_name(stored.element_type)));
  const aten::Layout layout{.offset = stored.offset, .sizes = stored.sizes, .strides = stored.strides};
  graph::Type own{type->dtype, {}};
  for (const int64_t size : stored.sizes) own.shape.emplace_back(size);
  aten::element_count(name, layout);
  if (type->complex) own.shape.emplace_back(2);
  graph::check_size(own);
  const size_t width = static_cast<size_t>(byte_size(type->dtype)) * (type->complex ? 2 : 1);
  graph::Data data = aten::row_major(name, read_storage(archive_, folder, stored.storage), width, layout);
  bytes_ += data.size;
  aten::Tensor tensor = aten::fresh(
      {b_, state ? b_.state(name, own, std::move(data)) : b_.constant(name, own, std::move(data))});
  tensor.complex = type->complex;
  std::vector<sym::Expr> strides(stored.strides.begin(), stored.strides.end());
  tensor.strides = tensor.storage->strides = std::move(strides);
  return tensor;
}

aten::Tensor Weights::load_state(const std::string& folder, const StoredTensor& stored,
                                 const std::string& name) {
  return make(folder, stored, name, true);
}

aten::Tensor Weights::load(const std::string& folder, const StoredTensor& stored, const std::string& name) {
  const std::string storage = cat(folder, "/", stored.storage);
  const aten::Layout layout{.offset = stored.offset, .sizes = stored.sizes, .strides = stored.strides};
  std::vector<size_t>& sharing = by_storage_[storage];
  for (const size_t i : sharing)
    if (loaded_[i].layout == layout && loaded_[i].element_type == stored.element_type)
      return loaded_[i].tensor;
  const bool state = states_.contains(storage);
  if (state && !sharing.empty())
    fail(ErrorKind::kUnsupported, "written-storage",
         cat("the program writes '", name, "', whose storage '", loaded_[sharing[0]].name,
             "' shares in another layout"));
  const aten::Tensor tensor = make(folder, stored, name, state);
  sharing.push_back(loaded_.size());
  loaded_.push_back({name, storage, stored.element_type, layout, tensor, tensor.storage->base});
  return tensor;
}

std::set<std::string> Weights::written() const {
  std::set<std::string> out;
  for (const Loaded& l : loaded_)
    if ((l.tensor.storage->base != l.initial || l.tensor.storage->stale) && !states_.contains(l.storage))
      out.insert(l.storage);
  return out;
}

std::vector<Value> Weights::tensors() const {
  std::vector<Value> out;
  for (const Loaded& l : loaded_) out.emplace_back(l.tensor);
  return out;
}

void Weights::update_states() {
  for (const Loaded& l : loaded_) {
    if (!states_.contains(l.storage)) continue;
    const auto& states = b_.graph().states;
    const auto own = std::ranges::find_if(states, [&](const graph::State& s) { return s.name == l.name; });
    if (own == states.end()) continue;
    b_.add(graph::OpKind::kUpdateState, {own->value, aten::read(b_, l.tensor).id()});
  }
}

}  // namespace stridec::torchscript
