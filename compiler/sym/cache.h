// Answers remembered per thread, by the version of the facts and the question.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "compiler/sym/expr.h"

namespace stridec::sym {

template <class T>
class Cache {
 public:
  const T* find(uint64_t version, Expr e) const {
    auto at = entries_.find(Key{version, e});
    return at == entries_.end() ? nullptr : &at->second;
  }
  void add(uint64_t version, Expr e, T value) {
    if (entries_.size() >= kMaxEntries) entries_.clear();
    entries_.insert_or_assign(Key{version, e}, value);
  }

 private:
  static constexpr size_t kMaxEntries = 1 << 17;
  struct Key {
    uint64_t version;
    Expr e;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& k) const { return (k.version * 0x9e3779b97f4a7c15ull) ^ k.e.hash(); }
  };
  std::unordered_map<Key, T, Hash> entries_;
};

}  // namespace stridec::sym
