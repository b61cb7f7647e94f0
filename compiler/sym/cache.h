// A per-thread cache of answers, keyed by the version of the facts and the expression asked about.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/sym/expr.h"

namespace stridec::sym {

// A table of fixed size; a newer answer evicts an older one. Only for answers that depend on nothing but the
// key, so that hits and misses differ in time only.
template <class T>
class Cache {
 public:
  const T* find(uint64_t version, Expr e) const {
    const Entry& at = entries_[slot(version, e)];
    return at.node == e.node() && at.version == version ? &at.value : nullptr;
  }
  void add(uint64_t version, Expr e, T value) { entries_[slot(version, e)] = {version, e.node(), value}; }

 private:
  static constexpr size_t kEntries = size_t{1} << 14;
  struct Entry {
    uint64_t version = 0;
    const Node* node = nullptr;
    T value = {};
  };
  static size_t slot(uint64_t version, Expr e) { return (e.hash() + version * 0x9e3779b97f4a7c15ull) >> 50; }

  std::vector<Entry> entries_ = std::vector<Entry>(kEntries);
};

}  // namespace stridec::sym
