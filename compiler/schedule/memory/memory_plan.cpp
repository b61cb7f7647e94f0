#include "compiler/schedule/memory/memory_plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/loop/capacity.h"
#include "compiler/loop/provenance.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/effects.h"
#include "compiler/schedule/memory/arena.h"

namespace stridec::schedule {
namespace {

using loop::Buffer;
using loop::BufferId;
using loop::Program;
using loop::Storage;
using sym::Expr;

constexpr int64_t kAlignment = 64;
// Cap on a buffer's bytes where plans are evaluated, so that sums stay within 64 bits.
constexpr int64_t kTooMany = int64_t{1} << 45;

struct Timeline {
  std::vector<Lifetime> lifetimes;  // by buffer
  // By step: the nests that it runs; none if it is not a launch.
  std::vector<std::vector<const loop::Nest*>> nests;
  std::map<LaunchKey, Lifetime> launches;
};

class TimelineMaker {
 public:
  explicit TimelineMaker(const Program& program) : program_(program) {
    timeline_.lifetimes.resize(program.buffers.size());
    block(program.steps);
    // A buffer that is written in a loop and read after it keeps values of earlier iterations, so it is live
    // from the loop's start.
    for (const auto& [begin, end] : loops_)
      for (auto& life : timeline_.lifetimes)
        if (life.used() && life.first > begin && life.first < end && life.last > end) life.touch(begin);
  }
  Timeline take() { return std::move(timeline_); }

 private:
  int tick() {
    timeline_.nests.emplace_back();
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
      if (const auto* strips = std::get_if<loop::TiledGroup>(&step.node)) {
        all_at_once(*strips);
        continue;
      }
      const auto* launch = std::get_if<loop::Launch>(&step.node);
      if (!launch || !launch->concurrent) tick();  // a concurrent launch has the time of the one before it
      const int at = static_cast<int>(timeline_.nests.size()) - 1;
      if (launch) timeline_.nests.back().push_back(&program_[launch->nest]);
      if (launch) timeline_.launches[launch->nest].touch(at);
      if (const auto* call = std::get_if<loop::Call>(&step.node)) timeline_.launches[call].touch(at);
      const Effects effects = effects_of(program_, step);
      for (BufferId id : effects.reads) timeline_.lifetimes[id.value].touch(at);
      for (BufferId id : effects.writes) timeline_.lifetimes[id.value].touch(at);
    }
  }

  // One tile reads its inputs while another one writes, so all buffers of the group are live at the same
  // step.
  void all_at_once(const loop::TiledGroup& strips) {
    const int at = tick();
    timeline_.launches[&strips].touch(at);
    loop::for_each_step(strips.body, [&](const loop::Step& step) {
      timeline_.nests.back().push_back(&program_[std::get<loop::Launch>(step.node).nest]);
      const Effects effects = effects_of(program_, step);
      for (const auto* ids : {&effects.reads, &effects.writes})
        for (BufferId id : *ids)
          if (std::find(strips.own.begin(), strips.own.end(), id) == strips.own.end())
            timeline_.lifetimes[id.value].touch(at);
    });
  }

  // A buffer that is live at the loop's start and used in its body is live until the loop's end, since the
  // next iteration reads it.
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

// Upper bounds on sizes, by interval arithmetic with expressions as ends. The arena is sized before the run,
// so symbols that the run binds are replaced by their ranges.
class Ranges {
 public:
  explicit Ranges(const Program& program) : facts_(program.facts) {
    loop::for_each_step(program.steps, [&](const loop::Step& step) {
      if (const auto* bind = std::get_if<loop::BindSymbol>(&step.node))
        given_[bind->symbol] = {bind->lower, bind->upper};
      if (const auto* loop = std::get_if<loop::While>(&step.node)) {
        given_[loop->counter] = {0, sym::max(loop->trip_count - 1, 0)};
        given_[loop->iterations] = {0, loop->trip_count};
        if (const auto capacity = loop::capacity_of(program, *loop))
          given_[*capacity] = {0, std::numeric_limits<int64_t>::max()};
      }
    });
  }

  // Returns nothing if no bound is known before the run.
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
    done_[e] = std::nullopt;  // a bound that depends on its own symbol is none
    try {
      return done_[e] = compute(e);
    } catch (const Error&) {  // a bound that exceeds 64 bits is none
      return std::nullopt;
    }
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

int64_t value_at_medium_sizes(Expr e, const sym::Facts& facts) {
  auto value = sym::evaluate(e, [&](Expr v) -> std::optional<int64_t> {
    const auto range = facts.bounds(v);
    int64_t size = kTypicalSize;
    if (range.has_hi()) size = std::min(size, range.hi);
    if (range.has_lo()) size = std::max(size, range.lo);
    return size;
  });
  return value.value_or(std::numeric_limits<int64_t>::max() / 2);
}

// Sizes at which plans are evaluated: each symbol at four sizes from small to large, in all combinations
// unless these are too many.
using SymbolSizes = std::unordered_map<Expr, int64_t, sym::ExprHash>;
std::vector<SymbolSizes> sizes_to_plan_for(std::span<const Expr> bytes, Expr threads,
                                           const sym::Facts& facts) {
  constexpr size_t kMost = 128, kManyItems = 512;
  std::vector<Expr> symbols;
  for (Expr e : bytes)
    for (Expr var : sym::free_vars(e))
      if (std::find(symbols.begin(), symbols.end(), var) == symbols.end()) symbols.push_back(var);
  std::vector<std::vector<int64_t>> choices;
  size_t all = 1;
  for (Expr var : symbols) {
    const auto range = facts.bounds(var);
    std::vector<int64_t>& own = choices.emplace_back();
    for (int64_t size : {kLargeSize, kTypicalSize, kModestSize, kSmallSize}) {
      if (var == threads) size = size >= kTypicalSize ? kManyThreads : kFewThreads;
      if (range.has_hi()) size = std::min(size, range.hi);
      if (range.has_lo()) size = std::max(size, range.lo);
      own.push_back(size);
    }
    const std::set<int64_t> distinct(own.begin(), own.end());
    all *= distinct.size();
  }
  std::vector<SymbolSizes> sizes;
  if (all > kMost || bytes.size() > kManyItems) {
    for (size_t c = 0; c < 4; ++c)
      for (size_t i = 0; i < symbols.size(); ++i) {
        if (i == 0) sizes.emplace_back();
        sizes.back()[symbols[i]] = choices[i][c];
      }
  } else {
    sizes.emplace_back();
    for (size_t i = 0; i < symbols.size(); ++i) {
      std::vector<SymbolSizes> longer;
      for (const SymbolSizes& given : sizes)
        for (const int64_t size : std::set<int64_t, std::greater<>>(choices[i].begin(), choices[i].end())) {
          longer.push_back(given);
          longer.back()[symbols[i]] = size;
        }
      sizes = std::move(longer);
    }
  }
  if (sizes.empty()) sizes.emplace_back();
  return sizes;
}

std::optional<Expr> reserved(Ranges& ranges, Expr bytes, const sym::Facts& facts) {
  const auto most = ranges.most(bytes);
  return most && (*most == bytes || value_at_medium_sizes(*most, facts) <= kMostReserved) ? most
                                                                                          : std::nullopt;
}

// Whether the elements have the same addresses, if both buffers begin at the same address.
bool same_place(const Program& program, const loop::Access& a, const loop::Access& b) {
  if (a.mask != b.mask) return false;
  if (a.index == b.index && program[a.buffer].strides == program[b.buffer].strides) return true;
  return sym::simplify(loop::offset_of(program, a) - loop::offset_of(program, b), program.facts).is_const(0);
}

// An access, the block that it is in and its position there, the loops around, and the position of the
// statement of the nest's body.
struct AccessPlace {
  const loop::Access* access;
  const loop::Block* block;
  size_t in_block;
  std::vector<loop::Dim> loops;
  size_t at;
};

struct Places {
  std::vector<AccessPlace> loads, stores;  // of the operand, to the output; in order
  bool parallel = true;                    // the stores are in parallel loops, and none updates
};

void collect(const loop::Block& block, BufferId operand, BufferId output, bool parallel, AccessPlace& here,
             Places& found) {
  for (size_t i = 0; i < block.size(); ++i) {
    const loop::Stmt& stmt = block[i];
    if (here.loops.empty()) here.at = i;
    here.block = &block, here.in_block = i;
    if (const auto* load = std::get_if<loop::Load>(&stmt.node); load && load->access.buffer == operand) {
      here.access = &load->access;
      found.loads.push_back(here);
    }
    if (const auto* store = std::get_if<loop::Store>(&stmt.node); store && store->access.buffer == output) {
      here.access = &store->access;
      found.stores.push_back(here);
      found.parallel = found.parallel && parallel && !store->update;
    }
    const loop::Block* body = loop::body_of(stmt);
    if (!body) continue;
    const size_t outer = here.loops.size();
    for (const loop::Dim& dim : loop::dims_of(stmt)) here.loops.push_back(dim);
    collect(*body, operand, output, parallel && std::holds_alternative<loop::For>(stmt.node), here, found);
    here.loops.resize(outer);
  }
}

// Whether the loops around `load` visit the places that those around `store` write, for the same point.
bool same_row(const Program& program, const AccessPlace& load, const AccessPlace& store) {
  if (load.loops.size() != store.loops.size()) return false;
  sym::Substitution renamed;
  for (size_t i = 0; i < load.loops.size(); ++i) {
    if (load.loops[i].extent != store.loops[i].extent) return false;
    renamed[load.loops[i].var] = store.loops[i].var;
  }
  loop::Access access = *load.access;
  loop::substitute(access, renamed);
  return same_place(program, access, *store.access);
}

// Whether each iteration around the store, and each point, writes elements of its own.
bool writes_apart(const loop::Nest& nest, const AccessPlace& store) {
  const auto moves = [&](const loop::Dim& dim) {
    return dim.extent.is_const(1) ||
           std::ranges::any_of(store.access->index, [&](Expr at) { return sym::depends_on(at, dim.var); });
  };
  return std::ranges::all_of(nest.dims, moves) && std::ranges::all_of(store.loops, moves);
}

// Whether each element of `operand` is read only by the point that writes the element of `output` at its
// place, and before that: in the iteration that writes it or, with kSums, by an earlier statement over the
// same row. With kPointwise, threads may share the loops of a point: each of them has its own iterations, and
// all of them run the statements outside.
bool dies_by_point(const Program& program, const loop::Nest& nest, BufferId operand, BufferId output,
                   InPlace in_place) {
  Places places;
  AccessPlace here{};
  collect(nest.body, operand, output, true, here, places);
  if (places.stores.empty() || !places.parallel) return false;
  const AccessPlace& store = places.stores.front();
  for (const AccessPlace& other : places.stores)
    if (other.block != store.block || !writes_apart(nest, other)) return false;
  const bool shared = in_place == InPlace::kPointwise;
  const bool loops =
      std::ranges::any_of(nest.body, [](const loop::Stmt& stmt) { return loop::body_of(stmt) != nullptr; });
  // Code for shared loops may load again what a local row was computed from.
  const bool rows = std::ranges::any_of(loop::effects_of(nest).writes,
                                        [&](BufferId id) { return program[id].storage == Storage::kLocal; });
  if (shared && loops && (store.loops.empty() || rows)) return false;
  return std::ranges::all_of(places.loads, [&](const AccessPlace& load) {
    if (load.block == store.block) {
      const AccessPlace* first = nullptr;
      for (const AccessPlace& written : places.stores)
        if (!first && same_place(program, *load.access, *written.access)) first = &written;
      return first && load.in_block < first->in_block;
    }
    return !shared && load.at < store.at && same_row(program, load, store);
  });
}

std::optional<BufferId> operand_of(const Program& program, const loop::Nest& nest, BufferId output,
                                   InPlace in_place) {
  bool refused = false;
  loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
    refused = refused || std::holds_alternative<loop::Scan>(stmt.node) ||
              std::holds_alternative<loop::Bind>(stmt.node) ||
              (in_place == InPlace::kPointwise && std::holds_alternative<loop::Reduce>(stmt.node));
  });
  if (refused) return std::nullopt;
  const Buffer& out = program[output];
  for (BufferId operand : loop::effects_of(nest).reads) {
    const Buffer& in = program[operand];
    if (operand != output && in.storage == Storage::kArena && byte_size(in.dtype) == byte_size(out.dtype) &&
        extent_in_elements(in) == extent_in_elements(out) &&
        dies_by_point(program, nest, operand, output, in_place))
      return operand;
  }
  return std::nullopt;
}

}  // namespace

std::optional<BufferId> in_place_operand(const Program& program, std::span<const loop::Nest* const> nests,
                                         BufferId output, InPlace in_place) {
  std::optional<BufferId> operand;
  for (const loop::Nest* nest : nests)
    if (writes(loop::effects_of(*nest), output)) operand = operand_of(program, *nest, output, in_place);
  if (!operand) return std::nullopt;
  // What other nests do before or after the one that writes is not at the same point.
  for (const loop::Nest* nest : nests) {
    const Effects effects = loop::effects_of(*nest);
    if (!writes(effects, output) && touches(effects, *operand)) return std::nullopt;
  }
  return operand;
}

namespace {

// Plans the arena: an item for each buffer, and after these one for each launch whose threads have private
// memory.
class ArenaPlanner {
 public:
  ArenaPlanner(Program& program, InPlace in_place)
      : program_(program), in_place_(in_place), timeline_(TimelineMaker(program).take()), ranges_(program) {}

  void plan(std::span<Scratch> scratch) {
    add_buffers();
    join_operands();
    threads_ = loop::threads_of(program_);
    add_scratch(scratch);
    place();
  }

 private:
  void add_buffers() {
    for (const loop::TiledGroup* strips : loop::tiled_groups_of(program_))
      for (BufferId id : strips->own) program_[id].offset = -1;
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      Buffer& buffer = program_.buffers[i];
      const Lifetime& life = timeline_.lifetimes[i];
      if (buffer.storage != Storage::kArena || !life.used()) continue;
      std::optional<Expr> bytes;
      const auto measure = [&] { bytes = bytes_of(buffer); };
      if (const auto& makers = timeline_.nests[life.first]; !makers.empty())
        loop::with_provenance(*makers.front(), measure);
      else
        measure();
      if (!bytes) {
        buffer.offset = -1;
        continue;
      }
      items_.push_back({life, *bytes, {}});
      ids_.push_back(BufferId(i));
    }
  }

  // Returns nothing if the bytes are not reserved before the run.
  std::optional<Expr> bytes_of(const Buffer& buffer) {
    const auto bytes =
        reserved(ranges_, extent_in_elements(buffer) * byte_size(buffer.dtype), program_.facts);
    if (!bytes) return std::nullopt;
    return sym::simplify(sym::align_up(*bytes, kAlignment), program_.facts);
  }

  // A buffer that is written over an operand has the operand's place.
  void join_operands() {
    std::vector<Lifetime> lives;
    std::vector<size_t> order(items_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::map<BufferId, size_t> item_of;
    for (size_t i = 0; i < items_.size(); ++i) {
      lives.push_back(items_[i].life);
      item_of[ids_[i]] = i;
    }
    leader_ = join_in_place(lives, order, [&](size_t i) -> std::optional<size_t> {
      const auto operand = in_place_operand(program_, timeline_.nests[lives[i].first], ids_[i], in_place_);
      const auto item = operand ? item_of.find(*operand) : item_of.end();
      return item == item_of.end() ? std::nullopt : std::optional(item->second);
    });
    for (size_t i = 0; i < items_.size(); ++i) items_[i].life = lives[i];
  }

  void add_scratch(std::span<Scratch> scratch) {
    if (!scratch.empty()) program_.facts.set_range(threads_, 1, std::nullopt);
    for (Scratch& each : scratch) {
      each.reserved = each.bytes;
      each.offset = -1;
      const auto most = reserved(ranges_, each.bytes, program_.facts);
      if (!most) continue;
      each.reserved = sym::simplify(*most, program_.facts);
      if (each.reserved.is_const(0)) {
        each.offset = 0;
        continue;
      }
      const Expr one = sym::simplify(each.stride(), program_.facts);
      leader_.push_back(items_.size());
      items_.push_back(
          {timeline_.launches.at(each.launch), sym::simplify(one * threads_, program_.facts), {}});
      scratch_.push_back(&each);
    }
  }

  void place() {
    std::vector<ArenaItem> placed;
    std::vector<int> place_of(items_.size());
    for (size_t i = 0; i < items_.size(); ++i) {
      if (leader_[i] != i) continue;
      place_of[i] = static_cast<int>(placed.size());
      placed.push_back(items_[i]);
    }
    evaluate_bytes(placed);
    const ArenaPlan plan = plan_arena(placed, program_.facts);
    for (size_t i = 0; i < items_.size(); ++i) {
      const Expr offset = plan.offsets[place_of[leader_[i]]];
      if (i < ids_.size())
        program_[ids_[i]].offset = offset;
      else
        scratch_[i - ids_.size()]->offset = offset;
    }
    program_.arena_bytes = plan.bytes;
  }

  // Sets the items' bytes at the sizes to plan for.
  void evaluate_bytes(std::vector<ArenaItem>& placed) const {
    std::vector<Expr> bytes;
    for (const ArenaItem& item : placed) bytes.push_back(item.bytes);
    for (const SymbolSizes& sizes : sizes_to_plan_for(bytes, threads_, program_.facts)) {
      const auto size_of = [&](Expr var) -> std::optional<int64_t> { return sizes.at(var); };
      for (ArenaItem& item : placed)
        item.typical_bytes.push_back(
            std::min(kTooMany, sym::evaluate(item.bytes, size_of).value_or(kTooMany)));
    }
  }

  Program& program_;
  const InPlace in_place_;
  const Timeline timeline_;
  Ranges ranges_;
  Expr threads_;  // how many run
  std::vector<ArenaItem> items_;
  std::vector<BufferId> ids_;      // of the first items
  std::vector<Scratch*> scratch_;  // of the other items
  std::vector<size_t> leader_;     // by item: the item whose place it has, often itself
};

}  // namespace

void plan_memory(Program& program, InPlace in_place, std::span<Scratch> scratch) {
  ArenaPlanner(program, in_place).plan(scratch);
}

}  // namespace stridec::schedule
