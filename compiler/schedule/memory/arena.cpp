#include "compiler/schedule/memory/arena.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "compiler/base/sort.h"

namespace stridec::schedule {
namespace {

using sym::Expr;

// Deeper nesting makes expressions longer and saves less and less memory.
constexpr int kDeepest = 4;
// Number of orders that are tried while the arena exceeds the peak of live memory.
constexpr int kAttempts = 64;
// Number of plans that a run can choose from. Each has to save this share of the arena, averaged over the
// sizes.
constexpr size_t kPlans = 3;
constexpr double kWorth = 0.01;

// An item at one of the sizes.
struct Sized {
  Lifetime life;
  int64_t typical_bytes;
};

struct Slot;

struct Room {
  Lifetime window;
  int item = -1;            // the item it holds; -1: a row of slots
  std::vector<Slot> slots;  // adjacent
  int64_t typical_bytes = 0;
};

struct Slot {
  std::vector<Room> rooms;  // in no order; their windows are disjoint
  int64_t typical_bytes = 0;
};

Lifetime hull(const Lifetime& a, const Lifetime& b) {
  return {std::min(a.first, b.first), std::max(a.last, b.last)};
}

Room room_of(const Sized& item, int number) {
  return {.window = item.life, .item = number, .slots = {}, .typical_bytes = item.typical_bytes};
}

// A place in a row of slots.
struct SlotPlace {
  int64_t growth;     // of the row, bytes
  int64_t slot_size;  // before the item is placed; for equal growth a new slot is best, then the smallest one
  int slot = -1;      // -1: a new one
  int room = -1;      // of the slot; -1: a new one
  bool better_than(const SlotPlace& other) const {
    return std::pair(growth, slot_size) < std::pair(other.growth, other.slot_size);
  }
};

// The room whose window overlaps `life`; -1 if there is none; -2 if there are several, or if the room's
// window cannot be extended to include `life`.
int room_met(const Slot& slot, const Lifetime& life) {
  int met = -1;
  for (size_t r = 0; r < slot.rooms.size(); ++r)
    if (slot.rooms[r].window.overlaps(life)) {
      if (met >= 0) return -2;
      met = static_cast<int>(r);
    }
  if (met < 0) return met;
  const Lifetime window = hull(slot.rooms[static_cast<size_t>(met)].window, life);
  for (size_t r = 0; r < slot.rooms.size(); ++r)
    if (static_cast<int>(r) != met && slot.rooms[r].window.overlaps(window)) return -2;
  return met;
}

SlotPlace best_place(const std::vector<Slot>& row, const Sized& item, int depth) {
  SlotPlace best{.growth = item.typical_bytes, .slot_size = 0};
  for (size_t s = 0; s < row.size(); ++s) {
    const Slot& slot = row[s];
    SlotPlace place{.growth = 0, .slot_size = slot.typical_bytes, .slot = static_cast<int>(s)};
    place.room = room_met(slot, item.life);
    int64_t room_bytes = item.typical_bytes;
    if (place.room == -2 || (place.room >= 0 && depth == kDeepest)) continue;
    if (place.room >= 0) {
      const Room& room = slot.rooms[static_cast<size_t>(place.room)];
      room_bytes = room.typical_bytes +
                   (room.item >= 0 ? item.typical_bytes : best_place(room.slots, item, depth + 1).growth);
    }
    place.growth = std::max<int64_t>(0, room_bytes - slot.typical_bytes);
    if (place.better_than(best)) best = place;
  }
  return best;
}

// Places the item and returns how many bytes the row grows.
int64_t put(std::vector<Slot>& row, const Sized& item, int number, int depth) {
  const SlotPlace place = best_place(row, item, depth);
  if (place.slot < 0) {
    row.push_back({{room_of(item, number)}, item.typical_bytes});
    return place.growth;
  }
  Slot& slot = row[static_cast<size_t>(place.slot)];
  if (place.room < 0) {
    slot.rooms.push_back(room_of(item, number));
    slot.typical_bytes = std::max(slot.typical_bytes, item.typical_bytes);
    return place.growth;
  }
  Room& room = slot.rooms[static_cast<size_t>(place.room)];
  if (room.item >= 0) {  // the only item becomes the first of a row
    Room row_of_one{.window = room.window, .item = -1, .slots = {}, .typical_bytes = room.typical_bytes};
    row_of_one.slots.push_back({{room}, room.typical_bytes});
    room = std::move(row_of_one);
  }
  put(room.slots, item, number, depth + 1);
  room.window = hull(room.window, item.life);
  room.typical_bytes = 0;
  for (const Slot& inner : room.slots) room.typical_bytes += inner.typical_bytes;
  slot.typical_bytes = std::max(slot.typical_bytes, room.typical_bytes);
  return place.growth;
}

// The peak of live memory: no plan is smaller.
int64_t most_alive(std::span<const Sized> items) {
  std::vector<std::pair<int, int64_t>> changes;
  for (const Sized& item : items) {
    changes.emplace_back(item.life.first, item.typical_bytes);
    changes.emplace_back(item.life.last + 1, -item.typical_bytes);
  }
  std::sort(changes.begin(), changes.end());  // at one step, ends come before begins
  int64_t alive = 0, most = 0;
  for (const auto& [step, bytes] : changes) most = std::max(most, alive += bytes);
  return most;
}

std::vector<Slot> row_for(std::span<const Sized> items, int64_t least) {
  std::vector<int> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  auto item = [&](int i) -> const Sized& { return items[static_cast<size_t>(i)]; };
  sort_stable(order, [&](int a, int b) { return item(a).typical_bytes > item(b).typical_bytes; });
  std::vector<Slot> best;
  int64_t best_bytes = std::numeric_limits<int64_t>::max();
  for (int attempt = 0; attempt < kAttempts && best_bytes > least; ++attempt) {
    std::vector<Slot> row;
    int64_t bytes = 0;
    size_t culprit = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      const int64_t growth = put(row, item(order[i]), order[i], 0);
      if (growth > 0) culprit = i;
      bytes += growth;
    }
    if (bytes < best_bytes) {
      best_bytes = bytes;
      best = std::move(row);
    }
    const auto at = order.begin() + static_cast<std::ptrdiff_t>(culprit);
    std::rotate(order.begin(), at, at + 1);
  }
  return best;
}

int64_t bytes_of(const std::vector<Slot>& row, std::span<const Sized> items) {
  int64_t bytes = 0;
  for (const Slot& slot : row) {
    int64_t size = 0;
    for (const Room& room : slot.rooms)
      size = std::max(size, room.item < 0 ? bytes_of(room.slots, items)
                                          : items[static_cast<size_t>(room.item)].typical_bytes);
    bytes += size;
  }
  return bytes;
}

// The rows that a run can choose from.
std::vector<std::vector<Slot>> rows_for(std::span<const ArenaItem> items) {
  const size_t sizes = items[0].typical_bytes.size();
  std::vector<std::vector<Sized>> sized(sizes);
  std::vector<int64_t> least(sizes);
  for (size_t s = 0; s < sizes; ++s) {
    for (const ArenaItem& item : items) sized[s].push_back({item.life, item.typical_bytes[s]});
    least[s] = most_alive(sized[s]);
  }
  // The size relative to the peak of live memory, at each of the sizes.
  const auto excess = [&](const std::vector<Slot>& row) {
    std::vector<double> over;
    for (size_t s = 0; s < sizes; ++s)
      over.push_back(static_cast<double>(bytes_of(row, sized[s])) /
                     static_cast<double>(std::max<int64_t>(least[s], 1)));
    return over;
  };
  std::vector<std::vector<Slot>> rows, chosen;
  std::vector<std::vector<double>> over;
  std::vector<double> reached(sizes, std::numeric_limits<double>::max());
  for (size_t s = 0; s < sizes; ++s) {
    rows.push_back(row_for(sized[s], least[s]));
    over.push_back(excess(rows.back()));
    const bool tight = std::all_of(over.back().begin(), over.back().end(), [](double x) { return x <= 1; });
    if (tight) return {rows.back()};
  }
  while (chosen.size() < kPlans) {
    const auto total = [&](size_t r) {
      double sum = 0;
      for (size_t s = 0; s < sizes; ++s) sum += std::min(reached[s], over[r][s]);
      return sum;
    };
    size_t best = 0;
    for (size_t r = 1; r < rows.size(); ++r)
      if (total(r) < total(best)) best = r;
    const double before = std::accumulate(reached.begin(), reached.end(), 0.0);
    if (!chosen.empty() && before - total(best) < kWorth * static_cast<double>(sizes)) break;
    for (size_t s = 0; s < sizes; ++s) reached[s] = std::min(reached[s], over[best][s]);
    chosen.push_back(rows[best]);
  }
  return chosen;
}

class Offsets {
 public:
  Offsets(std::span<const ArenaItem> items, const sym::Facts& facts) : items_(items), facts_(facts) {
    plan_.offsets.resize(items.size());
  }

  ArenaPlan of(const std::vector<Slot>& row) {
    plan_.bytes = place(row, 0);
    return std::move(plan_);
  }

 private:
  // Places a row that begins at `begin` and returns its bytes.
  Expr place(const std::vector<Slot>& row, Expr begin) {
    Expr bytes = 0;
    for (const Slot& slot : row) {
      Expr size = 0;
      const Expr at = sym::simplify(begin + bytes, facts_);
      for (const Room& room : slot.rooms) {
        if (room.item < 0) {
          size = sym::max(size, place(room.slots, at));
        } else {
          plan_.offsets[static_cast<size_t>(room.item)] = at;
          size = sym::max(size, items_[static_cast<size_t>(room.item)].bytes);
        }
      }
      bytes = sym::simplify(bytes + sym::simplify(size, facts_), facts_);
    }
    return bytes;
  }

  std::span<const ArenaItem> items_;
  const sym::Facts& facts_;
  ArenaPlan plan_;
};

}  // namespace

std::vector<size_t> join_in_place(std::span<Lifetime> lives, std::span<const size_t> order,
                                  const std::function<std::optional<size_t>(size_t)>& operand) {
  std::vector<size_t> leader(lives.size());
  std::iota(leader.begin(), leader.end(), size_t{0});
  const auto leader_of = [&](size_t i) {
    while (leader[i] != i) i = leader[i];
    return i;
  };
  std::vector<int> written(lives.size(), -1);  // the last step that wrote over the item
  for (const size_t i : order) {
    const std::optional<size_t> from = operand(i);
    if (!from) continue;
    const size_t other = leader_of(*from);
    if (other == i || lives[other].last != lives[i].first || written[other] == lives[i].first) continue;
    written[other] = lives[i].first;
    lives[other].touch(lives[i].last);
    leader[i] = other;
  }
  for (size_t& i : leader) i = leader_of(i);
  return leader;
}

ArenaPlan plan_arena(std::span<const ArenaItem> items, const sym::Facts& facts) {
  if (items.empty()) return {};
  ArenaPlan all;
  const std::vector<std::vector<Slot>> rows = rows_for(items);
  for (size_t r = rows.size(); r-- > 0;) {
    ArenaPlan plan = Offsets(items, facts).of(rows[r]);
    if (r + 1 == rows.size()) {
      all = std::move(plan);
      continue;
    }
    const Expr better = sym::simplify(sym::le(plan.bytes, all.bytes), facts);
    for (size_t i = 0; i < items.size(); ++i)
      all.offsets[i] = sym::select(better, plan.offsets[i], all.offsets[i]);
    all.bytes = sym::min(plan.bytes, all.bytes);
  }
  return all;
}

}  // namespace stridec::schedule
