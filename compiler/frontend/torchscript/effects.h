// What a branch or an iteration changes: storages, lists, dicts and attributes. Control flow on data runs
// each branch from the same state and joins what they leave.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "compiler/frontend/torchscript/value.h"

namespace stridec::torchscript {

// The contents that containers and objects had, or have.
struct Contents {
  std::map<std::shared_ptr<Sequence>, Sequence> lists;
  std::map<std::shared_ptr<Dict>, std::vector<std::pair<Value, Value>>> dicts;
  std::map<std::shared_ptr<Object>, std::map<std::string, Value>> objects;
};

// Records the first contents of what changes while it is in force.
class Journal {
 public:
  void touch(const Value& value);
  // What the changed ones hold at this point, in exchange for what they held before.
  Contents take_back();

 private:
  Contents before_;
};

// What storages became.
struct Writes {
  std::map<aten::Storage*, graph::ValueId> bases;  // of those that were written
  std::set<aten::Storage*> stale;                  // those that became so
};

// All storages that can be reached from the values.
class Storages {
 public:
  void add(const Value& value);
  std::shared_ptr<aten::Storage> find(const aten::Storage* storage) const;
  bool is_changed(const aten::Storage* storage) const;
  // The tensors that containers and objects held when they were added.
  const std::vector<aten::Tensor>& held() const { return held_; }
  // What changed since they were added, in exchange for what was there then. The versions of all count on,
  // since a view may have been read inside the region that ends.
  Writes take_back();

 private:
  struct Saved {
    std::shared_ptr<aten::Storage> storage;
    graph::ValueId base;
    bool stale = false;
  };
  void add_held(const Value& value);

  std::vector<Saved> all_;
  std::vector<aten::Tensor> held_;
  std::map<const void*, size_t> seen_;  // places of storages in all_; 0 for containers
};

}  // namespace stridec::torchscript
