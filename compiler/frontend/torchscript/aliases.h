// Which storages may be the same memory where data decide what a name stands for: after an `if`, and in and
// after a loop. Storage::aliases records it; a write then leaves the others stale.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "compiler/frontend/aten/storage.h"
#include "compiler/frontend/torchscript/value.h"

namespace stridec::torchscript {

using StorageRef = std::shared_ptr<aten::Storage>;
using StorageSet = std::set<StorageRef>;

// The storage and those that may be the same memory.
StorageSet with_aliases(const StorageRef& storage);

// A result of an `if`: the storage of each branch's tensor, and the new storage.
struct JoinedStorage {
  StorageRef sides[2], result;
};
void add_aliases(const std::vector<JoinedStorage>& joined);
// Of a list that an `if` leaves.
using ListRef = std::shared_ptr<Sequence>;
void add_list_aliases(const ListRef& result, const ListRef& then, const ListRef& otherwise);

// The tensors that a loop carries, by number. What an iteration leaves under a number is what the next one
// starts with, so what they may share is a fixed point over the iterations.
class LoopAliases {
 public:
  LoopAliases() = default;
  // `starts`: what the loop starts with. Null: of no tensor.
  explicit LoopAliases(const std::vector<StorageRef>& starts);
  // `carried` and `next`: at the start and the end of an iteration. `next` may have more at its end: the
  // items that the iteration appends to lists, which stay. `is_outer`: whether a storage is older than the
  // loop.
  void close(const std::vector<StorageRef>& carried, const std::vector<StorageRef>& next,
             const std::function<bool(const aten::Storage*)>& is_outer);
  // Records for these storages, one of each number, what is known.
  void link(const std::vector<StorageRef>& carried) const;
  // Those older than the loop that the carried one may be.
  const StorageSet& outer(size_t i) const { return outer_[i]; }

 private:
  // What an iteration leaves under a number, in terms of what it starts with.
  struct Next {
    std::set<size_t> carried;
    StorageSet outer;
  };
  std::vector<Next> nexts(const std::vector<StorageRef>& carried, const std::vector<StorageRef>& next,
                          const std::function<bool(const aten::Storage*)>& is_outer) const;
  bool may_meet(const Next& a, const Next& b) const;
  void grow(size_t count);

  std::vector<StorageSet> outer_;
  std::vector<std::vector<bool>> related_;
};

}  // namespace stridec::torchscript
