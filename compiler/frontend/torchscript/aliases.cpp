#include "compiler/frontend/torchscript/aliases.h"

#include <algorithm>

namespace stridec::torchscript {
namespace {

bool meet(const StorageSet& a, const StorageSet& b) {
  return std::ranges::any_of(a, [&](const StorageRef& s) { return b.contains(s); });
}

}  // namespace

StorageSet with_aliases(const StorageRef& storage) {
  StorageSet out;
  if (!storage) return out;
  out.insert(storage);
  for (const auto& alias : storage->aliases)
    if (const StorageRef other = alias.lock()) out.insert(other);
  return out;
}

void add_aliases(const std::vector<JoinedStorage>& joined) {
  // Before the first of them is recorded: two results are related through one branch, not through two.
  std::vector<StorageSet> sides[2];
  for (const size_t side : {0u, 1u})
    for (const JoinedStorage& j : joined) sides[side].push_back(with_aliases(j.sides[side]));
  for (size_t i = 0; i < joined.size(); ++i) {
    StorageSet all = sides[0][i];
    all.insert(sides[1][i].begin(), sides[1][i].end());
    for (const StorageRef& other : all) aten::add_alias(joined[i].result, other);
    for (size_t j = 0; j < i; ++j)
      if (sides[0][i].contains(joined[j].sides[0]) || sides[1][i].contains(joined[j].sides[1]))
        aten::add_alias(joined[i].result, joined[j].result);
  }
}

void add_list_aliases(const ListRef& result, const ListRef& then, const ListRef& otherwise) {
  std::set<ListRef> all = {then, otherwise};
  for (const ListRef& side : {then, otherwise})
    for (const auto& alias : side->aliases)
      if (const ListRef other = alias.lock()) all.insert(other);
  for (const ListRef& other : all) {
    result->aliases.push_back(other);
    other->aliases.push_back(result);
  }
}

LoopAliases::LoopAliases(const std::vector<StorageRef>& starts) {
  grow(starts.size());
  for (size_t i = 0; i < starts.size(); ++i) {
    outer_[i] = with_aliases(starts[i]);
    for (size_t j = 0; j < i; ++j) related_[i][j] = related_[j][i] = outer_[i].contains(starts[j]);
  }
}

void LoopAliases::grow(size_t count) {
  outer_.resize(count);
  related_.resize(count);
  for (auto& row : related_) row.resize(count);
}

std::vector<LoopAliases::Next> LoopAliases::nexts(
    const std::vector<StorageRef>& carried, const std::vector<StorageRef>& next,
    const std::function<bool(const aten::Storage*)>& is_outer) const {
  std::vector<Next> out(next.size());
  for (size_t i = 0; i < next.size(); ++i) {
    // An item of a list stays what it was.
    if (i >= carried.size()) out[i].carried.insert(i);
    // One that is a carried tensor, or older than the loop, is no other; what it may share is known.
    const bool exact =
        next[i] && (is_outer(next[i].get()) || std::ranges::find(carried, next[i]) != carried.end());
    for (const StorageRef& s : exact ? StorageSet{next[i]} : with_aliases(next[i])) {
      const auto found = std::ranges::find(carried, s);
      if (found != carried.end())
        out[i].carried.insert(static_cast<size_t>(found - carried.begin()));
      else if (is_outer(s.get()))
        out[i].outer.insert(s);
    }
  }
  return out;
}

bool LoopAliases::may_meet(const Next& a, const Next& b) const {
  for (const size_t k : a.carried) {
    if (meet(outer_[k], b.outer)) return true;
    for (const size_t l : b.carried)
      if (related_[k][l]) return true;
  }
  return std::ranges::any_of(b.carried, [&](size_t l) { return meet(outer_[l], a.outer); });
}

void LoopAliases::close(const std::vector<StorageRef>& carried, const std::vector<StorageRef>& next,
                        const std::function<bool(const aten::Storage*)>& is_outer) {
  grow(next.size());
  const std::vector<Next> after = nexts(carried, next, is_outer);
  for (size_t i = 0; i < next.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (with_aliases(next[i]).contains(next[j])) related_[i][j] = related_[j][i] = true;
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < next.size(); ++i) {
      StorageSet& own = outer_[i];
      const size_t before = own.size();
      for (const StorageRef& s : after[i].outer)
        for (const StorageRef& other : with_aliases(s))
          if (is_outer(other.get())) own.insert(other);
      for (const size_t k : after[i].carried)
        if (k != i) own.insert(outer_[k].begin(), outer_[k].end());
      changed = changed || own.size() != before;
      for (size_t j = 0; j < i; ++j) {
        if (related_[i][j] || !may_meet(after[i], after[j])) continue;
        related_[i][j] = related_[j][i] = changed = true;
      }
    }
  }
}

void LoopAliases::link(const std::vector<StorageRef>& carried) const {
  for (size_t i = 0; i < carried.size(); ++i) {
    if (!carried[i]) continue;
    for (const StorageRef& other : outer_[i]) aten::add_alias(carried[i], other);
    for (size_t j = 0; j < i; ++j)
      if (carried[j] && related_[i][j]) aten::add_alias(carried[i], carried[j]);
  }
}

}  // namespace stridec::torchscript
