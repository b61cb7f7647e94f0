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
    if (seen_.try_emplace(storage.get(), all_.size()).second)
      all_.push_back({storage, storage->base, storage->stale});
  }
  const void* shared = value.sequence ? static_cast<const void*>(value.sequence.get())
                       : value.dict   ? static_cast<const void*>(value.dict.get())
                                      : static_cast<const void*>(value.object.get());
  if (!shared || !seen_.try_emplace(shared, 0).second) return;
  if (value.sequence)
    for (const Value& item : value.items()) add_held(item);
  if (value.sequence && value.sequence->rows) add_held(Value(*value.sequence->rows));
  if (value.dict)
    for (const auto& item : value.dict->items) add_held(item.second);
  if (value.object)
    for (const auto& field : value.object->fields) add_held(field.second);
}

void Storages::add_held(const Value& value) {
  add(value);
  if (value.is(Value::Kind::kTensor)) held_.push_back(value.tensor);
}

std::shared_ptr<aten::Storage> Storages::find(const aten::Storage* storage) const {
  const auto found = seen_.find(storage);
  return found == seen_.end() ? nullptr : all_[found->second].storage;
}

bool Storages::is_changed(const aten::Storage* storage) const {
  const auto found = seen_.find(storage);
  return found != seen_.end() && all_[found->second].base != storage->base;
}

Writes Storages::take_back() {
  Writes out;
  for (const Saved& s : all_) {
    if (s.storage->base != s.base) out.bases[s.storage.get()] = s.storage->base;
    if (s.storage->stale && !s.stale) out.stale.insert(s.storage.get());
    s.storage->base = s.base;
    s.storage->stale = s.stale;
    ++s.storage->version;
  }
  return out;
}

}  // namespace stridec::torchscript
