#include "compiler/frontend/torchscript/effects.h"

namespace stridec::torchscript {

void Journal::touch(const Value& value) {
  if (value.sequence) before_.lists.try_emplace(value.sequence, *value.sequence);
  if (value.dict) before_.dicts.try_emplace(value.dict, value.dict->items);
  if (value.object) before_.objects.try_emplace(value.object, value.object->fields);
}

Contents Journal::take_back() {
  Contents after;
  for (auto& [list, before] : before_.lists) {
    after.lists[list] = std::move(*list);
    *list = before;
  }
  for (auto& [dict, items] : before_.dicts) {
    after.dicts[dict] = std::move(dict->items);
    dict->items = items;
  }
  for (auto& [object, fields] : before_.objects) {
    after.objects[object] = std::move(object->fields);
    object->fields = fields;
  }
  return after;
}

void Storages::add(const Value& value) {
  if (value.is(Value::Kind::kTensor)) {
    const auto& storage = value.tensor.storage;
    if (seen_.try_emplace(storage.get(), true).second) all_.push_back({storage, storage->base});
  }
  const void* shared = value.sequence ? static_cast<const void*>(value.sequence.get())
                       : value.dict   ? static_cast<const void*>(value.dict.get())
                                      : static_cast<const void*>(value.object.get());
  if (!shared || !seen_.try_emplace(shared, true).second) return;
  if (value.sequence)
    for (const Value& item : value.items()) add(item);
  if (value.dict)
    for (const auto& item : value.dict->items) add(item.second);
  if (value.object)
    for (const auto& field : value.object->fields) add(field.second);
}

std::shared_ptr<aten::Storage> Storages::find(const aten::Storage* storage) const {
  for (const Saved& s : all_)
    if (s.storage.get() == storage) return s.storage;
  return nullptr;
}

std::map<aten::Storage*, graph::ValueId> Storages::take_back() {
  std::map<aten::Storage*, graph::ValueId> changed;
  for (const Saved& s : all_) {
    if (s.storage->base != s.base) changed[s.storage.get()] = s.storage->base;
    s.storage->base = s.base;
    ++s.storage->version;
  }
  return changed;
}

}  // namespace stridec::torchscript
