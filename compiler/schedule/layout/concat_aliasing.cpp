#include "compiler/schedule/layout/concat_aliasing.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "compiler/base/sort.h"
#include "compiler/base/text.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/decision.h"
#include "compiler/schedule/analysis/effects.h"
#include "compiler/schedule/analysis/flow.h"
#include "compiler/schedule/memory/liveness.h"

namespace stridec::schedule {
namespace {

using loop::Access;
using loop::Block;
using loop::BufferId;
using loop::Dim;
using loop::Load;
using loop::Nest;
using loop::NestId;
using loop::Program;
using loop::Stmt;
using loop::Storage;
using loop::Store;
using loop::TiledGroup;
using sym::Expr;

// The position of one buffer's elements in another: added to the index.
using Offset = std::vector<Expr>;

struct ComponentRange {
  Expr low, high;  // both included
};

using Box = std::vector<std::optional<ComponentRange>>;  // by component of an index; nothing: unknown

struct Stored {
  const Store* store;
  Box box;
};

std::optional<ComponentRange> range_of(Expr index, const std::vector<Dim>& loops) {
  ComponentRange range = {index, index};
  for (size_t l = loops.size(); l-- > 0;)
    for (Expr* end : {&range.low, &range.high}) {
      if (!sym::depends_on(*end, loops[l].var)) continue;
      const auto linear = sym::linear_in(*end, loops[l].var);
      if (!linear || !linear->coefficient.is_const()) return std::nullopt;
      const bool top = (linear->coefficient.value() > 0) == (end == &range.high);
      *end = linear->rest + (top ? linear->coefficient * (loops[l].extent - 1) : Expr(0));
    }
  if (sym::has_index(range.low) || sym::has_index(range.high)) return std::nullopt;
  return range;
}

// The stores to a buffer, with the ranges of their indices.
std::vector<Stored> stores_in(const Nest& nest, BufferId id) {
  std::vector<Stored> uses;
  std::vector<Dim> loops = nest.dims;
  const auto visit = [&](const auto& self, const Block& block) -> void {
    for (const Stmt& stmt : block) {
      const auto* store = std::get_if<Store>(&stmt.node);
      if (store && store->access.buffer == id) {
        Stored use = {store, {}};
        for (Expr index : store->access.index) use.box.push_back(range_of(index, loops));
        uses.push_back(std::move(use));
      }
      const Block* body = loop::body_of(stmt);
      if (!body) continue;
      const size_t depth = loops.size();
      for (const Dim& dim : loop::dims_of(stmt)) loops.push_back(dim);
      self(self, *body);
      loops.resize(depth);
    }
  };
  visit(visit, nest.body);
  return uses;
}

// Two places with the same value: a store, and another place where the same block stores the value too or
// where it was loaded from.
struct Twin {
  const Store* store;
  const Access* other;
  bool loaded;  // otherwise stored as well
};

std::vector<Twin> twins_of(const Nest& nest) {
  std::map<loop::ValueId, const Access*> loaded;
  std::vector<Twin> twins;
  const auto visit = [&](const auto& self, const Block& block) -> void {
    std::vector<const Store*> stores;
    for (const Stmt& stmt : block) {
      if (const auto* load = std::get_if<Load>(&stmt.node); load && load->access.mask.is_const(1))
        loaded[load->result] = &load->access;
      if (const auto* store = std::get_if<Store>(&stmt.node)) {
        if (const auto from = loaded.find(store->value); from != loaded.end())
          twins.push_back({store, from->second, true});
        for (const Store* before : stores)
          if (before->value == store->value && before->access.mask == store->access.mask) {
            twins.push_back({store, &before->access, false});
            twins.push_back({before, &store->access, false});
          }
        stores.push_back(store);
      }
      if (const Block* body = loop::body_of(stmt)) self(self, *body);
    }
  };
  visit(visit, nest.body);
  return twins;
}

// The offset from `part` to `whole`; nothing if it is not the same for all points.
std::optional<Offset> offset_between(const Access& part, const Access& whole) {
  if (part.index.size() != whole.index.size()) return std::nullopt;
  Offset offset;
  for (size_t d = 0; d < part.index.size(); ++d) {
    offset.push_back(whole.index[d] - part.index[d]);
    if (sym::has_index(offset.back())) return std::nullopt;
  }
  return offset;
}

class Slicer {
 public:
  explicit Slicer(Program& program, int64_t piece = 1) : program_(program), piece_(piece) { look(); }

  // Arena buffers that only launches touch, larger ones first.
  std::vector<BufferId> wholes() const {
    std::vector<std::pair<int64_t, BufferId>> found;
    for (size_t b = 0; b < program_.buffers.size(); ++b) {
      const BufferId id(static_cast<int64_t>(b));
      if (may_move(id) && !users_[b].empty()) found.emplace_back(typical_elements(id), id);
    }
    sort_stable(found, [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<BufferId> ids;
    for (const auto& [elements, id] : found) ids.push_back(id);
    return ids;
  }

  // Moves buffers into `whole` as long as there are candidates other than those left out. Returns the moved
  // ones.
  std::vector<BufferId> fill(BufferId whole, const std::set<BufferId>& left_out = {}) {
    std::vector<BufferId> taken;
    for (bool changed = true; changed;) {
      changed = false;
      for (const auto& [part, offset] : candidates(whole)) {
        if (left_out.contains(part) || !may_lie_in(part, whole, offset)) continue;
        take_in(part, whole, offset);
        taken.push_back(part);
        changed = true;
        break;
      }
    }
    return taken;
  }

  int first_step(BufferId id) const {
    const auto& users = users_[id.value];
    return std::min_element(users.begin(), users.end(),
                            [](const User& a, const User& b) { return a.step < b.step; })
        ->step;
  }

  void finish() {
    std::erase_if(program_.steps, [&](const loop::Step& step) {
      const auto* launch = std::get_if<loop::Launch>(&step.node);
      return launch && program_[launch->nest].body.empty();
    });
  }

 private:
  struct User {
    NestId nest;
    int step;
    bool inside;  // launched in a tiled group or a branch
  };

  void look() {
    users_.resize(program_.buffers.size());
    fixed_.resize(program_.buffers.size(), false);
    std::set<NestId> seen;
    const auto launch = [&](NestId id, int at, bool inside) {
      const bool again = !seen.insert(id).second;
      for (BufferId buffer : loop::buffers_of(program_[id])) {
        users_[buffer.value].push_back({id, at, inside});
        if (again) fixed_[buffer.value] = true;
      }
    };
    // Either branch may run, so what both do counts, at the position of the If.
    const auto visit = [&](const auto& self, const loop::Step& step, int at, bool inside) -> void {
      if (const auto* one = std::get_if<loop::Launch>(&step.node)) return launch(one->nest, at, inside);
      if (const auto* branch = std::get_if<loop::If>(&step.node)) {
        for (const auto* steps : {&branch->then_steps, &branch->else_steps})
          for (const loop::Step& inner : *steps) self(self, inner, at, true);
        return;
      }
      if (const auto* strips = std::get_if<TiledGroup>(&step.node)) {
        for (const loop::Step& inner : strips->body) self(self, inner, at, true);
        for (BufferId id : strips->own) fixed_[id.value] = true;
        return;
      }
      loop::for_each_step(loop::Steps{step}, [&](const loop::Step& inner) {
        const Effects effects = effects_of(program_, inner);
        for (const auto* ids : {&effects.reads, &effects.writes})
          for (BufferId id : *ids) fixed_[id.value] = true;
      });
    };
    for (size_t at = 0; at < program_.steps.size(); ++at)
      visit(visit, program_.steps[at], static_cast<int>(at), false);
    for (const Nest& nest : program_.nests)
      loop::for_each_stmt(nest.body, [&](const Stmt& stmt) {
        if (const auto* store = std::get_if<Store>(&stmt.node); store && store->update)
          fixed_[store->access.buffer.value] = true;
      });
  }

  bool may_move(BufferId id) const {
    return program_[id].storage == Storage::kArena && !fixed_[id.value] && !program_[id].shape.empty() &&
           innermost_first(program_[id]);
  }

  int64_t typical_elements(BufferId id) const {
    constexpr int64_t kTypical = 32;
    const auto count =
        sym::evaluate(loop::element_count(program_[id].shape), [&](Expr var) -> std::optional<int64_t> {
          const sym::Interval range = program_.facts.bounds(var);
          const int64_t size = range.has_hi() ? std::min(kTypical, range.hi) : kTypical;
          return range.has_lo() ? std::max(size, range.lo) : size;
        });
    return count.value_or(0);
  }

  // Buffers that share values with `whole`, and their offsets in it.
  std::vector<std::pair<BufferId, Offset>> candidates(BufferId whole) const {
    std::vector<std::pair<BufferId, Offset>> found;
    for (const User& user : users_[whole.value])
      for (const Twin& twin : twins_of(program_[user.nest])) {
        const Access &stored = twin.store->access, &other = *twin.other;
        if ((stored.buffer == whole) == (other.buffer == whole)) continue;
        const Access& part = stored.buffer == whole ? other : stored;
        if (!may_move(part.buffer)) continue;
        const auto offset = offset_between(part, stored.buffer == whole ? stored : other);
        if (offset && std::find(found.begin(), found.end(), std::pair(part.buffer, *offset)) == found.end())
          found.emplace_back(part.buffer, *offset);
      }
    return found;
  }

  bool holds(Expr condition) const { return program_.facts.holds(condition); }

  bool fits(BufferId part, BufferId whole, const Offset& offset) const {
    const loop::Buffer &small = program_[part], &large = program_[whole];
    if (small.dtype != large.dtype || small.shape.size() != large.shape.size() ||
        innermost_first(small) != innermost_first(large))
      return false;
    for (size_t d = 0; d < offset.size(); ++d)
      if (!holds(sym::ge(offset[d], 0)) || !holds(sym::le(small.shape[d] + offset[d], large.shape[d])))
        return false;
    return in_pieces(small, large, offset);
  }

  bool in_pieces(const loop::Buffer& small, const loop::Buffer& large, const Offset& offset) const {
    const int64_t bytes = byte_size(small.dtype);
    const auto whole = [&](Expr elements) {
      return program_.facts.known_divisor(elements * bytes) % piece_ == 0;
    };
    Expr at = 0;
    for (size_t d = 0; d < offset.size(); ++d) {
      at += offset[d] * large.strides[d];
      if (!large.strides[d].is_const(1) && whole(small.strides[d]) && !whole(large.strides[d])) return false;
    }
    return whole(at);
  }

  // Whether two boxes of one buffer are disjoint.
  bool are_apart(const Box& a, const Box& b) const {
    for (size_t d = 0; d < a.size(); ++d)
      if (a[d] && b[d] && (holds(sym::lt(a[d]->high, b[d]->low)) || holds(sym::lt(b[d]->high, a[d]->low))))
        return true;
    return false;
  }

  bool may_lie_in(BufferId part, BufferId whole, const Offset& offset) const {
    if (!fits(part, whole, offset)) return false;
    // The first steps at which one is copied to the other, and the last steps at which each of them changes.
    constexpr int kNever = std::numeric_limits<int>::max();
    int part_read = kNever, whole_read = kNever, part_made = -1, whole_made = -1;
    // Boxes of stores, in indices of `whole`. alone: to `part` only; both: the same value to both; copied:
    // from `whole` to `part`; others: to `whole` only.
    std::vector<Box> alone, both, copied, others;
    std::set<NestId> nests;
    for (BufferId id : {part, whole})
      for (const User& user : users_[id.value]) {
        if (!nests.insert(user.nest).second) continue;
        const Nest& nest = program_[user.nest];
        const std::vector<Twin> twins = twins_of(nest);
        size_t left = 0;  // stores of the nest that remain
        loop::for_each_stmt(nest.body,
                            [&](const Stmt& stmt) { left += std::holds_alternative<Store>(stmt.node); });
        for (Stored& use : stores_in(nest, part)) {
          const Found found = find(twins, use, true, whole, offset);
          shift(use.box, offset);
          left -= found.stored || found.copied;
          part_made = std::max(part_made, user.step);
          if (found.copied) whole_read = std::min(whole_read, user.step);
          (found.copied ? copied : found.stored ? both : alone).push_back(std::move(use.box));
        }
        for (Stored& use : stores_in(nest, whole)) {
          const Found found = find(twins, use, false, part, offset);
          left -= found.copied;
          if (found.copied) part_read = std::min(part_read, user.step);
          if (found.stored || found.copied || !are_apart(use.box, slice_of(part, offset)))
            whole_made = std::max(whole_made, user.step);
          if (!found.stored && !found.copied) others.push_back(std::move(use.box));
        }
        if (user.inside && left == 0) return false;  // only top-level steps can be removed
      }
    // After a copy neither buffer changes. Before it, the two hold different elements or the same values.
    const auto apart = [&](const std::vector<Box>& a, const std::vector<Box>& b) {
      return std::all_of(a.begin(), a.end(), [&](const Box& one) {
        return std::all_of(b.begin(), b.end(), [&](const Box& other) { return are_apart(one, other); });
      });
    };
    return part_made < part_read && whole_made < whole_read && apart(alone, both) && apart(alone, copied) &&
           apart(alone, others) && apart(both, others);
  }

  Box slice_of(BufferId part, const Offset& offset) const {
    Box slice;
    for (size_t d = 0; d < offset.size(); ++d)
      slice.push_back(ComponentRange{offset[d], offset[d] + program_[part].shape[d] - 1});
    return slice;
  }

  static void shift(Box& box, const Offset& offset) {
    for (size_t d = 0; d < offset.size(); ++d)
      if (box[d]) box[d] = ComponentRange{box[d]->low + offset[d], box[d]->high + offset[d]};
  }

  // Whether the value that the store puts into one of the two is also stored in the same place of `other`, or
  // was loaded from there.
  struct Found {
    bool stored = false, copied = false;
  };
  static Found find(const std::vector<Twin>& twins, const Stored& use, bool to_part, BufferId other,
                    const Offset& offset) {
    Found found;
    for (const Twin& twin : twins) {
      if (twin.store != use.store || twin.other->buffer != other) continue;
      const Access &own = twin.store->access, &theirs = *twin.other;
      if (offset_between(to_part ? own : theirs, to_part ? theirs : own) == offset)
        (twin.loaded ? found.copied : found.stored) = true;
    }
    return found;
  }

  void take_in(BufferId part, BufferId whole, const Offset& offset) {
    for (const User& user : users_[part.value]) {
      Nest& nest = program_[user.nest];
      const sym::Facts facts = loop::facts_of(program_, nest);
      loop::for_each_stmt(nest.body, [&](Stmt& stmt) {
        Access* access = loop::access_of(stmt);
        if (!access || access->buffer != part) return;
        access->buffer = whole;
        for (size_t d = 0; d < offset.size(); ++d)
          access->index[d] = sym::simplify(access->index[d] + offset[d], facts);
      });
      drop_repeated(nest, whole);
      loop::eliminate_dead(nest);
      auto& users = users_[whole.value];
      if (std::none_of(users.begin(), users.end(), [&](const User& u) { return u.nest == user.nest; }))
        users.push_back(user);
    }
    users_[part.value].clear();
    for (auto& users : users_)
      std::erase_if(users, [&](const User& user) { return program_[user.nest].body.empty(); });
  }

  // Drops stores of values that are there already: loaded from the same place, or stored there before.
  static void drop_repeated(Nest& nest, BufferId id) {
    std::vector<const Store*> repeated;
    for (const Twin& twin : twins_of(nest)) {
      const Access& access = twin.store->access;
      if (access.buffer != id || twin.other->buffer != id || access.index != twin.other->index) continue;
      const bool first = std::any_of(repeated.begin(), repeated.end(),
                                     [&](const Store* store) { return &store->access == twin.other; });
      if (twin.loaded || !first) repeated.push_back(twin.store);
    }
    const auto drop = [&](const auto& self, Block& block) -> void {
      // Marked before anything moves, since statements are identified by their addresses.
      std::vector<bool> goes;
      for (const Stmt& stmt : block) {
        const auto* store = std::get_if<Store>(&stmt.node);
        goes.push_back(store && std::find(repeated.begin(), repeated.end(), store) != repeated.end());
      }
      for (Stmt& stmt : block)
        if (Block* body = loop::body_of(stmt)) self(self, *body);
      size_t at = 0;
      std::erase_if(block, [&](const Stmt&) { return goes[at++]; });
    };
    drop(drop, nest.body);
  }

  Program& program_;
  const int64_t piece_;
  std::vector<std::vector<User>> users_;  // by buffer
  std::vector<bool> fixed_;               // by buffer: has to stay as it is
};

std::vector<int64_t> peaks_of(const Program& program) {
  std::vector<int64_t> peaks;
  for (const auto& curve : Liveness(program, Flow(program, program.steps)).curves({}))
    peaks.push_back(curve.empty() ? 0 : *std::max_element(curve.begin(), curve.end()));
  return peaks;
}

bool is_within(const std::vector<int64_t>& peaks, const std::vector<int64_t>& limits) {
  return std::equal(peaks.begin(), peaks.end(), limits.begin(), std::less_equal<>());
}

}  // namespace

void alias_concats(Program& program, std::vector<Decision>* decisions, int64_t piece) {
  struct Trial {
    Program program;
    std::vector<std::pair<BufferId, BufferId>> taken;  // which buffer moved into which
  };
  const auto fill = [&](std::span<const BufferId> wholes, const std::set<BufferId>& left_out = {}) {
    Trial trial{program, {}};
    Slicer slicer(trial.program, piece);
    for (BufferId whole : wholes)
      for (BufferId part : slicer.fill(whole, left_out)) trial.taken.emplace_back(part, whole);
    return trial;
  };
  const auto say = [&](BufferId part, BufferId whole, bool fused, const char* reason) {
    const loop::Buffer& buffer = program[part];
    if (decisions)
      decisions->push_back({.producer = buffer.name,
                            .consumer = program[whole].name,
                            .fused = fused,
                            .reason = reason,
                            .bytes = loop::element_count(buffer.shape) * byte_size(buffer.dtype),
                            .producer_nodes = {},
                            .consumer_nodes = {},
                            .passing = {buffer.name}});
  };
  std::vector<int64_t> limits;
  const auto keep = [&](Trial& trial) {
    if (const std::vector<int64_t> peaks = peaks_of(trial.program); !is_within(peaks, limits)) return false;
    for (const auto& [part, whole] : trial.taken) say(part, whole, true, "stored in it, without a copy");
    program = std::move(trial.program);
    limits = peaks_of(program);
    return true;
  };

  const std::vector<BufferId> wholes = Slicer(program).wholes();
  Trial all = fill(wholes);
  if (all.taken.empty()) return;
  limits = peaks_of(program);
  if (!keep(all))
    for (BufferId whole : wholes) {
      const Slicer before(program);
      std::set<BufferId> left_out;
      for (Trial one = fill({&whole, 1}); !one.taken.empty() && !keep(one);
           one = fill({&whole, 1}, left_out)) {
        // The buffer that is computed first keeps the larger one live longest.
        const BufferId first =
            std::min_element(one.taken.begin(), one.taken.end(), [&](const auto& a, const auto& b) {
              return before.first_step(a.first) < before.first_step(b.first);
            })->first;
        say(first, whole, false, "not stored in it: peak memory would grow");
        left_out.insert(first);
      }
    }
  Slicer(program).finish();
}

}  // namespace stridec::schedule
