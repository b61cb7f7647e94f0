#include "compiler/schedule/fusion/recompute_operands.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <ranges>

#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/add_buffer_like.h"
#include "compiler/schedule/analysis/flow.h"
#include "compiler/schedule/analysis/live_bytes.h"
#include "compiler/schedule/analysis/nest_traits.h"
#include "compiler/schedule/analysis/typical.h"
#include "compiler/schedule/fusion/fusion_rules.h"
#include "compiler/schedule/fusion/pointwise_slice.h"

namespace stridec::schedule {
namespace {

using loop::Access;
using loop::Block;
using loop::BufferId;
using loop::Dim;
using loop::Launch;
using loop::Load;
using loop::Nest;
using loop::Program;
using loop::Step;
using loop::Steps;
using loop::Stmt;
using loop::Store;

// Memory counts as near its peak above this share of it.
constexpr double kNearPeak = 0.8;
// Rows such as a mean per channel, as a share of the tensor, may live longer, or be read in addition.
constexpr double kSmallShare = 1.0 / 32;
// Cost of an element, in the unit of scalar_cost(), that the store of a kernel bound by memory hides.
constexpr int kMostCost = 48;
// Launches that a reader is delayed by; until then its other operands stay in memory.
constexpr int kMostDelay = 24;

// Computes elements of a tensor where a nest loads the elements `source` that they are computed from.
class Insertion {
 public:
  // `producer`: the pointwise nest that computes the tensor.
  Insertion(const Program& program, const Nest& producer, BufferId source, BufferId again)
      : program_(program), producer_(producer), again_(again) {
    loop::for_each_stmt(producer.body, [&](const Stmt& stmt) {
      if (const auto* load = std::get_if<Load>(&stmt.node); load && load->access.buffer == source)
        source_ = &load->access;
      if (const auto* store = std::get_if<Store>(&stmt.node)) stored_ = &store->access;
    });
  }

  // The nest with a store of all elements to `again`; nothing if no load in it passes all of them once.
  std::optional<Nest> into(const Nest& nest) const {
    Nest out = nest;
    if (!source_ || !stored_->mask.is_const(1)) return std::nullopt;
    if (!insert(out, out.body, nest.dims, is_contraction(nest))) return std::nullopt;
    if (!inline_producer(program_, producer_, out)) return std::nullopt;
    join_nodes(out, producer_.nodes);
    loop::clean(program_, out);
    return out;
  }

 private:
  // Contractions only gain statements on their own domain.
  bool insert(Nest& nest, Block& block, const std::vector<Dim>& around, bool contraction) const {
    for (size_t at = 0; at < block.size(); ++at) {
      const auto* load = std::get_if<Load>(&block[at].node);
      if (const auto access = load ? element_at(load->access, around) : std::nullopt) {
        const loop::ValueId value = loop::add_value(nest, program_[again_].dtype);
        Access to = *access;
        to.buffer = again_;
        const auto after = block.begin() + static_cast<std::ptrdiff_t>(at) + 1;
        block.insert(after, {{Load{value, *access, {.dtype = program_[again_].dtype}}}, {Store{to, value}}});
        return true;
      }
      auto* loop = std::get_if<loop::For>(&block[at].node);
      if (!loop || contraction) continue;
      std::vector<Dim> inside = around;
      inside.insert(inside.end(), loop->dims.begin(), loop->dims.end());
      if (insert(nest, loop->body, inside, contraction)) return true;
    }
    return false;
  }

  // The element that is computed from the loaded one, if the loops pass each element of the tensor once.
  std::optional<Access> element_at(const Access& loaded, const std::vector<Dim>& around) const {
    if (loaded.buffer != source_->buffer || !loaded.mask.is_const(1) || !source_->mask.is_const(1))
      return std::nullopt;
    sym::Facts facts = program_.facts;
    for (const Dim& dim : around) facts.set_index(dim.var, dim.extent);
    const auto point = loop::invert(producer_, *source_, loaded.index, facts);
    if (!point) return std::nullopt;
    Access out = *stored_;
    std::vector<sym::Expr> passed;
    for (size_t k = 0; k < out.index.size(); ++k) {
      out.index[k] = sym::simplify(sym::substitute(out.index[k], *point), facts);
      const sym::Expr size = program_[out.buffer].shape[k];
      if (size.is_const(1)) continue;
      const auto dim =
          std::ranges::find_if(around, [&](const Dim& each) { return each.var == out.index[k]; });
      if (dim == around.end() || !sym::simplify(dim->extent - size, facts).is_const(0)) return std::nullopt;
      passed.push_back(dim->var);
    }
    const bool once = std::ranges::all_of(around, [&](const Dim& dim) {
      return dim.extent.is_const(1) || std::ranges::count(passed, dim.var) == 1;
    });
    return once ? std::optional(out) : std::nullopt;
  }

  const Program& program_;
  const Nest& producer_;
  const BufferId again_;
  const Access *source_ = nullptr, *stored_ = nullptr;  // in the producer
};

class Recomputation {
 public:
  Recomputation(Program& program, std::vector<Decision>* decisions)
      : program_(program),
        steps_(program.steps),
        decisions_(decisions),
        flow_(program, steps_),
        live_(live_bytes(program, flow_)) {}

  void run() {
    for (int at = 0; at < flow_.size(); ++at) {
      if (!nest_at(program_, steps_, at)) continue;
      const std::vector<BufferId> written = flow_.effects(at).writes;
      for (BufferId id : written)
        if (made_once(program_, flow_, id) && typical_bytes(program_, id) >= kCachedBytes) try_buffer(at, id);
    }
  }

 private:
  Nest& nest(int at) { return program_[std::get<Launch>(steps_[static_cast<size_t>(at)].node).nest]; }

  // Steps that read the tensor before and after a time near the peak of memory.
  struct Gap {
    int before;              // the last of the early ones, or the writer
    std::vector<int> after;  // the late ones
  };

  std::optional<Gap> gap_of(int at, BufferId id) const {
    const std::vector<int> readers = flow_.readers_between(id, at, flow_.size());
    const int own = reads(flow_.effects(at), id) ? 1 : 0;
    if (static_cast<int>(readers.size()) + own != flow_.reader_count(id)) return std::nullopt;
    const double near = kNearPeak * *std::ranges::max_element(live_);
    std::optional<Gap> longest;
    int length = 0, before = at;
    for (size_t k = 0; k < readers.size(); before = readers[k++]) {
      if (readers[k] - before <= length) continue;
      const auto between = std::ranges::subrange(live_.begin() + before + 1, live_.begin() + readers[k]);
      if (std::ranges::none_of(between, [&](double bytes) { return bytes >= near; })) continue;
      length = readers[k] - before;
      longest = {before, {readers.begin() + static_cast<std::ptrdiff_t>(k), readers.end()}};
    }
    if (longest && !std::ranges::all_of(longest->after, [&](int reader) {
          return nest_at(program_, steps_, reader) != nullptr;
        }))
      return std::nullopt;
    return longest;
  }

  void try_buffer(int at, BufferId id) {
    const auto gap = gap_of(at, id);
    if (!gap) return;
    const auto producer = pointwise_slice(program_, nest(at), id);
    if (!producer) return;
    const std::vector<BufferId> sources = sources_of(*producer, id);
    if (sources.empty()) return;
    // A step that computes no sums of products has time to spare.
    for (const bool contraction : {false, true})
      for (int reader : flow_.readers_between(sources.front(), gap->before, flow_.size())) {
        if (reader > gap->after.front() + kMostDelay) break;
        const Nest* host = nest_at(program_, steps_, reader);
        const bool reads_all = std::ranges::all_of(
            sources, [&](BufferId source) { return reads(flow_.effects(reader), source); });
        if (host && reads_all && is_contraction(*host) == contraction &&
            try_host(at, id, *producer, sources.front(), *gap, reader))
          return;
      }
  }

  // What the producer reads, but for small tensors.
  std::vector<BufferId> sources_of(const Nest& producer, BufferId id) const {
    std::vector<BufferId> sources = loop::effects_of(producer).reads;
    std::erase_if(sources, [&](BufferId read) {
      return typical_bytes(program_, read) <= kSmallShare * typical_bytes(program_, id);
    });
    return sources;
  }

  // Lets the step at `host` compute the tensor for the late readers.
  bool try_host(int at, BufferId id, const Nest& producer, BufferId source, const Gap& gap, int host) {
    for (BufferId read : loop::effects_of(producer).reads)
      if (!flow_.writers_between(read, at, host + 1).empty()) return false;
    // The tensor is live at the host already if a later step reads it.
    const double added = gap.after.back() < host ? typical_bytes(program_, id) : 0;
    if (live_[static_cast<size_t>(host)] + added > *std::ranges::max_element(live_)) return false;
    for (int reader : gap.after)
      if (reader < host && !may_follow(reader, host, gap.after)) return false;

    const BufferId again = add_buffer_like(program_, id);
    const auto changed = Insertion(program_, producer, source, again).into(nest(host));
    if (!changed || statement_count(changed->body) > kMostStatements / 2 ||
        scalar_cost(changed->body) - scalar_cost(nest(host).body) > kMostCost) {
      program_.buffers.pop_back();
      return false;
    }
    if (decisions_)
      decisions_->push_back(decision_about(program_, nest(at), nest(host), true,
                                           "computed again: keeping the result would take memory"));
    for (int step = gap.before + 1; step < host; ++step)
      live_[static_cast<size_t>(step)] -= typical_bytes(program_, id);
    replace(host, *changed);
    for (int reader : gap.after)
      if (reader != host) read_again(reader, id, again);
    for (int reader : std::views::reverse(gap.after))
      if (reader < host) move_after(reader, host--);
    return true;
  }

  // Whether the reader may run just after the host. Other readers before the host move along.
  bool may_follow(int reader, int host, const std::vector<int>& readers) const {
    for (int at = reader; at < host; ++at)
      if (!nest_at(program_, steps_, at)) return false;
    std::vector<int> moved;
    std::ranges::copy_if(readers, std::back_inserter(moved), [&](int at) { return at < host; });
    return may_move(program_, steps_, flow_, reader, host + 1, moved);
  }

  void read_again(int reader, BufferId id, BufferId again) {
    Nest changed = nest(reader);
    loop::for_each_stmt(changed.body, [&](Stmt& stmt) {
      if (Access* access = loop::access_of(stmt); access && access->buffer == id) access->buffer = again;
    });
    replace(reader, std::move(changed));
  }

  void move_after(int reader, int host) {
    std::rotate(steps_.begin() + reader, steps_.begin() + reader + 1, steps_.begin() + host + 1);
    flow_.move(reader, host);
  }

  void replace(int at, Nest changed) {
    nest(at) = std::move(changed);
    flow_.replace(at, effects_of(program_, steps_[static_cast<size_t>(at)]));
  }

  Program& program_;
  Steps& steps_;
  std::vector<Decision>* decisions_;
  Flow flow_;
  std::vector<double> live_;
};

}  // namespace

void recompute_operands(Program& program, std::vector<Decision>* decisions) {
  if (!program.steps.empty()) Recomputation(program, decisions).run();
}

}  // namespace stridec::schedule
