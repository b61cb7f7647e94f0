#include "compiler/schedule/memory_plan.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <vector>

#include "compiler/base/check.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/loop/blame.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/effects.h"

namespace stridec::schedule {
namespace {

using loop::Buffer;
using loop::BufferId;
using loop::Program;
using loop::Storage;
using sym::Expr;

constexpr int64_t kAlignment = 64;

// First and last step, in the order of the text, at which a buffer holds something.
struct Lifetime {
  int first = std::numeric_limits<int>::max();
  int last = -1;
  void touch(int at) {
    first = std::min(first, at);
    last = std::max(last, at);
  }
  bool used() const { return last >= 0; }
  bool overlaps(const Lifetime& other) const { return first <= other.last && other.first <= last; }
};

struct Timeline {
  std::vector<Lifetime> lifetimes;       // by buffer
  std::vector<const loop::Nest*> nests;  // by step; null where the step is no launch
};

class TimelineMaker {
 public:
  explicit TimelineMaker(const Program& program) : program_(program) {
    timeline_.lifetimes.resize(program.buffers.size());
    block(program.steps);
    // What is written in a loop and read after it holds the rows of earlier iterations all the while.
    for (const auto& [begin, end] : loops_)
      for (auto& life : timeline_.lifetimes)
        if (life.used() && life.first > begin && life.first < end && life.last > end) life.touch(begin);
  }
  Timeline take() { return std::move(timeline_); }

 private:
  int tick(const loop::Nest* nest = nullptr) {
    timeline_.nests.push_back(nest);
    return static_cast<int>(timeline_.nests.size()) - 1;
  }

  void block(const loop::Steps& steps) {
    for (const auto& step : steps) {
      if (const auto* loop = std::get_if<loop::While>(&step.node)) {
        body_of(*loop);
        continue;
      }
      if (const auto* branch = std::get_if<loop::If>(&step.node)) {
        block(branch->then_steps);
        block(branch->else_steps);
        continue;
      }
      const auto* launch = std::get_if<loop::Launch>(&step.node);
      const int at = tick(launch ? &program_[launch->nest] : nullptr);
      const Effects effects = effects_of(program_, step);
      for (BufferId id : effects.reads) timeline_.lifetimes[id.value].touch(at);
      for (BufferId id : effects.writes) timeline_.lifetimes[id.value].touch(at);
    }
  }

  // What lives at the loop's start and is used in its body lives until the loop's end: the next iteration
  // reads it.
  void body_of(const loop::While& loop) {
    const int begin = tick();
    if (loop.condition.valid()) timeline_.lifetimes[loop.condition.value].touch(begin);
    block(loop.body);
    const int end = tick();
    for (auto& life : timeline_.lifetimes)
      if (life.used() && life.first <= begin && life.last > begin) life.touch(end);
    if (loop.condition.valid()) timeline_.lifetimes[loop.condition.value].touch(end);
    loops_.emplace_back(begin, end);
  }

  const Program& program_;
  Timeline timeline_;
  std::vector<std::pair<int, int>> loops_;  // first and last step, inner loops first
};

// What the sizes are at most: symbols that the run itself binds are known by their ranges, and the arena is
// sized before the run. By interval arithmetic whose ends are expressions.
class Ranges {
 public:
  explicit Ranges(const Program& program) : facts_(program.facts) {
    loop::for_each_step(program.steps, [&](const loop::Step& step) {
      if (const auto* bind = std::get_if<loop::BindSymbol>(&step.node))
        given_[bind->symbol] = {bind->lower, bind->upper};
      if (const auto* loop = std::get_if<loop::While>(&step.node)) {
        given_[loop->counter] = {0, sym::max(loop->trip_count - 1, 0)};
        given_[loop->iterations] = {0, loop->trip_count};
      }
    });
  }

  // Nothing where there is no bound that is known before the run.
  std::optional<Expr> most(Expr e) {
    const auto range = of(e);
    return range ? std::optional(range->high) : std::nullopt;
  }

 private:
  struct Range {
    Expr low, high;
    bool fixed() const { return low == high; }
  };
  static constexpr int64_t kUnbounded = int64_t{1} << 48;

  bool is_nonnegative(Expr e) const { return facts_.holds(sym::ge(e, 0)); }

  std::optional<Range> of(Expr e) {
    if (const auto known = done_.find(e); known != done_.end()) return known->second;
    done_[e] = std::nullopt;  // a bound that names its own symbol is none
    return done_[e] = compute(e);
  }

  std::optional<Range> compute(Expr e) {
    if (e.is_const()) return Range{e, e};
    if (e.is_var()) {
      const auto given = given_.find(e);
      if (given == given_.end()) return Range{e, e};
      const auto low = of(given->second.low), high = of(given->second.high);
      if (!low || !high || (high->high.is_const() && high->high.value() > kUnbounded)) return std::nullopt;
      return Range{low->low, high->high};
    }
    std::vector<Range> args;
    bool fixed = true;
    for (Expr arg : e.args()) {
      const auto range = of(arg);
      if (!range) return std::nullopt;
      args.push_back(*range);
      fixed = fixed && range->fixed() && range->low == arg;
    }
    if (fixed) return Range{e, e};
    const auto ends = [&](auto&& combine) {
      std::vector<Expr> lows, highs;
      for (const Range& arg : args) lows.push_back(arg.low), highs.push_back(arg.high);
      return Range{combine(std::span<const Expr>(lows)), combine(std::span<const Expr>(highs))};
    };
    switch (e.op()) {
      case sym::Op::kAdd: return ends([](std::span<const Expr> terms) { return sym::sum(terms); });
      case sym::Op::kMin: return ends([](std::span<const Expr> terms) { return sym::min(terms); });
      case sym::Op::kMax: return ends([](std::span<const Expr> terms) { return sym::max(terms); });
      case sym::Op::kMul: {
        const bool negative = e.arg(0).is_const() && e.arg(0).value() < 0;
        for (size_t i = negative ? 1 : 0; i < args.size(); ++i)
          if (!is_nonnegative(args[i].low)) return std::nullopt;
        Range out = ends([&](std::span<const Expr> factors) { return sym::product(factors); });
        if (negative) std::swap(out.low, out.high);
        return out;
      }
      case sym::Op::kFloorDiv:
        if (!args[1].fixed() || !facts_.holds(sym::gt(args[1].low, 0))) return std::nullopt;
        return Range{sym::floordiv(args[0].low, args[1].low), sym::floordiv(args[0].high, args[1].low)};
      case sym::Op::kMod:
        if (!facts_.holds(sym::gt(args[1].low, 0))) return std::nullopt;
        return Range{0, args[1].high - 1};
      case sym::Op::kSelect:
        return Range{sym::min(args[1].low, args[2].low), sym::max(args[1].high, args[2].high)};
      default: return e.is_condition() ? std::optional(Range{0, 1}) : std::nullopt;
    }
  }

  const sym::Facts& facts_;
  std::unordered_map<Expr, Range, sym::ExprHash> given_;
  std::unordered_map<Expr, std::optional<Range>, sym::ExprHash> done_;
};

int64_t typical(Expr e, const sym::Facts& facts) {
  auto value = sym::evaluate(e, [&](Expr v) -> std::optional<int64_t> {
    const auto range = facts.bounds(v);
    int64_t size = kTypicalSize;
    if (range.has_hi()) size = std::min(size, range.hi);
    if (range.has_lo()) size = std::max(size, range.lo);
    return size;
  });
  return value.value_or(std::numeric_limits<int64_t>::max() / 2);
}

// The buffer that `nest` may overwrite with `output`: read only where the same point writes, in the same
// layout.
std::optional<BufferId> in_place_operand(const Program& program, const loop::Nest& nest, BufferId output) {
  const loop::Store* store = nullptr;
  for (const auto& stmt : nest.body) {
    if (std::holds_alternative<loop::Reduce>(stmt.node) || std::holds_alternative<loop::For>(stmt.node) ||
        std::holds_alternative<loop::Scan>(stmt.node) || std::holds_alternative<loop::Bind>(stmt.node))
      return std::nullopt;
    if (const auto* s = std::get_if<loop::Store>(&stmt.node)) {
      if (store || s->update || s->access.buffer != output || !s->access.mask.is_const(1))
        return std::nullopt;
      store = s;
    }
  }
  if (!store) return std::nullopt;
  const Buffer& out = program[output];
  for (const auto& stmt : nest.body) {
    const auto* load = std::get_if<loop::Load>(&stmt.node);
    if (!load) continue;
    const Buffer& in = program[load->access.buffer];
    if (in.storage != Storage::kArena || byte_size(in.dtype) != byte_size(out.dtype) ||
        in.shape != out.shape || in.strides != out.strides || load->access.index != store->access.index ||
        !load->access.mask.is_const(1))
      continue;
    const bool once =
        std::count_if(nest.body.begin(), nest.body.end(), [&](const loop::Stmt& other) {
          const auto* l = std::get_if<loop::Load>(&other.node);
          return l && l->access.buffer == load->access.buffer && l->access.index != store->access.index;
        }) == 0;
    if (once) return load->access.buffer;
  }
  return std::nullopt;
}

// Of a few samples: equal contents have equal fingerprints.
uint64_t fingerprint(const loop::WeightData& data) {
  uint64_t hash = data.size;
  const size_t step = std::max<size_t>(1, data.size / 64);
  for (size_t i = 0; i < data.size; i += step) hash = hash * 0x9e3779b97f4a7c15u + data.bytes[i];
  return hash;
}

struct Slot {
  Expr bytes;
  int64_t typical_bytes = 0;
  std::vector<Lifetime> occupied;
  bool free_during(const Lifetime& life) const {
    return std::none_of(occupied.begin(), occupied.end(),
                        [&](const Lifetime& o) { return o.overlaps(life); });
  }
};

}  // namespace

void plan_memory(Program& program) {
  const Timeline timeline = TimelineMaker(program).take();
  Ranges ranges(program);

  struct Item {
    BufferId id;
    Lifetime life;
    Expr bytes;
    int64_t typical_bytes;
  };
  std::vector<Item> items;
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    Buffer& buffer = program.buffers[i];
    const Lifetime& life = timeline.lifetimes[i];
    if (buffer.storage != Storage::kArena || !life.used()) continue;
    Expr size, bytes;
    std::optional<Expr> most;
    const auto measure = [&] {
      size = extent_in_elements(buffer) * byte_size(buffer.dtype);
      most = ranges.most(size);
      bytes = sym::simplify(sym::align_up(most.value_or(0), kAlignment), program.facts);
    };
    if (const loop::Nest* maker = timeline.nests[life.first])
      loop::blaming(*maker, measure);
    else
      measure();
    const int64_t typical_bytes = typical(bytes, program.facts);
    if (!most || (*most != size && typical_bytes > kMostReserved)) {
      buffer.offset = -1;
      continue;
    }
    items.push_back({BufferId(i), life, bytes, typical_bytes});
  }

  // An operand and the result written over it count as one buffer that lives through both.
  std::map<BufferId, BufferId> shares;  // result -> operand's leader
  std::vector<int> item_of(program.buffers.size(), -1);
  for (size_t i = 0; i < items.size(); ++i) item_of[items[i].id.value] = static_cast<int>(i);
  std::vector<char> merged(items.size(), 0);
  for (size_t i = 0; i < items.size(); ++i) {
    Item& item = items[i];
    const loop::Nest* nest = timeline.nests[item.life.first];
    if (!nest) continue;
    const auto operand = in_place_operand(program, *nest, item.id);
    if (!operand) continue;
    BufferId leader = *operand;
    while (shares.count(leader)) leader = shares[leader];
    const int other = item_of[leader.value];
    if (other < 0 || other == static_cast<int>(i) || items[other].life.last != item.life.first) continue;
    items[other].life.touch(item.life.last);
    shares[item.id] = leader;
    merged[i] = 1;
  }

  std::vector<int> order;
  for (size_t i = 0; i < items.size(); ++i)
    if (!merged[i]) order.push_back(static_cast<int>(i));
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    return std::pair(-items[a].typical_bytes, a) < std::pair(-items[b].typical_bytes, b);
  });

  std::vector<Slot> slots;
  std::vector<int> slot_of(program.buffers.size(), -1);
  for (int i : order) {
    const Item& item = items[i];
    int best = -1;  // the slot that grows least; then the smallest
    for (size_t s = 0; s < slots.size(); ++s) {
      if (!slots[s].free_during(item.life)) continue;
      auto growth = [&](const Slot& slot) {
        return std::max<int64_t>(0, item.typical_bytes - slot.typical_bytes);
      };
      if (best < 0 || std::pair(growth(slots[s]), slots[s].typical_bytes) <
                          std::pair(growth(slots[best]), slots[best].typical_bytes))
        best = static_cast<int>(s);
    }
    if (best < 0) {
      best = static_cast<int>(slots.size());
      slots.push_back({.bytes = item.bytes, .typical_bytes = item.typical_bytes});
    }
    Slot& slot = slots[best];
    slot.bytes = sym::simplify(sym::max(slot.bytes, item.bytes), program.facts);
    slot.typical_bytes = std::max(slot.typical_bytes, item.typical_bytes);
    slot.occupied.push_back(item.life);
    slot_of[item.id.value] = best;
  }

  std::vector<Expr> offsets;
  Expr total = 0;
  for (const Slot& slot : slots) {
    offsets.push_back(total);
    total = sym::simplify(total + slot.bytes, program.facts);
  }
  for (const Item& item : items) {
    BufferId leader = item.id;
    while (shares.count(leader)) leader = shares[leader];
    STRIDEC_CHECK(slot_of[leader.value] >= 0, program[item.id].name);
    program[item.id].offset = offsets[slot_of[leader.value]];
  }
  program.arena_bytes = total;
}

void plan_weights(std::span<Program* const> variants) {
  int64_t total = 0;
  // Same bytes: the same memory, or packed alike for two variants.
  std::map<const uint8_t*, int64_t> by_address;
  std::multimap<std::pair<size_t, uint64_t>, const Buffer*> by_contents;
  auto same = [&](const Buffer& buffer) -> std::optional<int64_t> {
    const auto& data = buffer.weight;
    if (const auto found = by_address.find(data.bytes); found != by_address.end() && data.size > 0)
      return found->second;
    if (!buffer.prepacked || data.size == 0) return std::nullopt;
    const auto [first, last] = by_contents.equal_range({data.size, fingerprint(data)});
    for (auto it = first; it != last; ++it)
      if (std::memcmp(it->second->weight.bytes, data.bytes, data.size) == 0)
        return sym::as_const(it->second->offset);
    return std::nullopt;
  };
  for (Program* program : variants) {
    for (Buffer& buffer : program->buffers)
      if (buffer.storage == Storage::kWeight || buffer.storage == Storage::kState) buffer.offset = -1;
    auto place = [&](BufferId id) {
      Buffer& buffer = (*program)[id];
      if (buffer.offset != Expr(-1)) return;
      const auto count = sym::as_const(extent_in_elements(buffer));
      STRIDEC_CHECK(count.has_value(), buffer.name);
      if (const auto shared = same(buffer)) {
        buffer.offset = *shared;
        return;
      }
      buffer.offset = total;
      by_address[buffer.weight.bytes] = total;
      if (buffer.prepacked)
        by_contents.emplace(std::pair(buffer.weight.size, fingerprint(buffer.weight)), &buffer);
      total += (*count * byte_size(buffer.dtype) + kAlignment - 1) / kAlignment * kAlignment;
    };
    loop::for_each_step(program->steps, [&](const loop::Step& step) {
      for (BufferId id : effects_of(*program, step).reads)
        if ((*program)[id].storage == Storage::kWeight) place(id);
    });
    for (BufferId id : program->states)
      if ((*program)[id].weight.size > 0) place(id);
  }
  for (Program* program : variants) program->weight_bytes = total;
}

std::optional<Expr> most_before_run(const Program& program, Expr size) { return Ranges(program).most(size); }

}  // namespace stridec::schedule
