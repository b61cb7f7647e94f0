#include "compiler/schedule/fusion/rematerialize.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>

#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/typical.h"
#include "compiler/schedule/fusion/fusion_rules.h"
#include "compiler/schedule/fusion/pointwise_slice.h"

namespace stridec::schedule {
namespace {

using loop::Block;
using loop::BufferId;
using loop::Launch;
using loop::Load;
using loop::Nest;
using loop::Program;
using loop::Steps;
using loop::Stmt;

// What a byte of memory traffic takes, in the unit of scalar_cost(): five multiply-adds, on two cores as on a
// GPU. If traffic stays the same, as with g and x in place of g * (x - m), fewer tensors take memory, which
// pays for a few operations.
constexpr double kCostPerByte = 5, kCheap = 4;
// Loads of an element, on average, by a reader that counts as loading it once. Windows that overlap load it
// several times.
constexpr double kMostLoads = 1.25;
// Traffic that does not count, as a share of the buffer's: of rows such as a mean per channel.
constexpr double kSmallShare = 0.01;

class Rematerializer {
 public:
  Rematerializer(Program& program, Steps& steps, std::vector<Decision>* decisions)
      : program_(program), steps_(steps), decisions_(decisions), flow_(program, steps) {}

  void run() {
    for (int at = 0; at < static_cast<int>(steps_.size()); ++at) {
      if (!nest_at(program_, steps_, at)) continue;
      const std::vector<BufferId> written = flow_.effects(at).writes;
      for (BufferId id : written)
        if (program_[id].storage == loop::Storage::kArena && made_once(program_, flow_, id) &&
            typical_bytes(program_, id) >= kCachedBytes)
          try_buffer(at, id);
    }
  }

 private:
  Nest& nest(int at) { return program_[std::get<Launch>(steps_[static_cast<size_t>(at)].node).nest]; }

  void try_buffer(int at, BufferId id) {
    const auto producer = pointwise_slice(program_, nest(at), id);
    if (!producer) return;
    const auto readers = readers_of(at, id);
    if (!readers) return;
    double saved = typical_bytes(program_, id);  // of memory traffic
    std::vector<Nest> rewritten;
    for (int reader : *readers) {
      Nest& consumer = rewritten.emplace_back(nest(reader));
      if (!still_there(*producer, at, reader) || !inline_producer(program_, *producer, consumer)) return;
      join_nodes(consumer, producer->nodes);
      loop::clean(program_, consumer);
      saved += bytes_read(nest(reader)) - bytes_read(consumer);
    }
    const double cost = static_cast<double>(readers->size()) * scalar_cost(producer->body);
    if (saved < -kSmallShare * typical_bytes(program_, id) ||
        cost > std::max(kCheap, kCostPerByte * saved / elements_of(id)))
      return;
    for (size_t i = 0; i < readers->size(); ++i) {
      if (decisions_)
        decisions_->push_back(decision_about(program_, nest(at), nest((*readers)[i]), true,
                                             "recomputed: that costs less than storing it"));
      replace((*readers)[i], std::move(rewritten[i]));
    }
    Nest rest = nest(at);
    localise(program_, rest, flow_.counts());
    replace(at, std::move(rest));
  }

  // Of all tensors that the nest reads; one that it reads in several places stays in a cache.
  double bytes_read(const Nest& reader) const {
    double bytes = 0;
    for (const BufferId id : loop::effects_of(reader).reads) bytes += typical_bytes(program_, id);
    return bytes;
  }

  double elements_of(BufferId id) const {
    return typical_bytes(program_, id) / byte_size(program_[id].dtype);
  }

  // The other steps that read the buffer, if all of them load each element once.
  std::optional<std::vector<int>> readers_of(int at, BufferId id) const {
    const std::vector<int> found = flow_.readers_between(id, at, flow_.size());
    const int all = flow_.reader_count(id) - (reads(flow_.effects(at), id) ? 1 : 0);
    for (const int reader : found) {
      const Nest* consumer = nest_at(program_, steps_, reader);
      if (!consumer || !loads_once(*consumer, consumer->dims, consumer->body, id)) return std::nullopt;
    }
    return static_cast<int>(found.size()) == all && all > 0 ? std::optional(found) : std::nullopt;
  }

  // Whether one statement loads from the buffer, in loops that all move the element. Of a contraction, only
  // the epilogue may: its factors are loaded many times.
  bool loads_once(const Nest& consumer, const std::vector<loop::Dim>& dims, const Block& block,
                  BufferId id) const {
    int loads = 0;
    bool once = true;
    const bool contraction = is_contraction(consumer);
    const double elements = elements_of(id);
    const std::function<void(const Block&, const std::vector<loop::Dim>&)> visit =
        [&](const Block& body, const std::vector<loop::Dim>& around) {
          for (const Stmt& stmt : body) {
            if (const auto* load = std::get_if<Load>(&stmt.node); load && load->access.buffer == id) {
              ++loads;
              once = once && runs_through(load->access, around) &&
                     typical_points(around, program_.facts) <= kMostLoads * elements &&
                     (!contraction || around.size() == consumer.dims.size());
            }
            const Block* inner = loop::body_of(stmt);
            if (!inner) continue;
            std::vector<loop::Dim> more = around;
            for (const loop::Dim& dim : loop::dims_of(stmt)) more.push_back(dim);
            visit(*inner, more);
          }
        };
    visit(block, dims);
    return loads == 1 && once && statement_count(consumer.body) < kMostStatements / 2;
  }

  // Whether nothing between the two steps, nor the later one, writes what the producer reads.
  bool still_there(const Nest& producer, int at, int reader) const {
    const Effects effects = loop::effects_of(producer);
    return std::ranges::all_of(
        effects.reads, [&](BufferId id) { return flow_.writers_between(id, at, reader + 1).empty(); });
  }

  void replace(int at, Nest changed) {
    nest(at) = std::move(changed);
    flow_.replace(at, effects_of(program_, steps_[static_cast<size_t>(at)]));
  }

  Program& program_;
  Steps& steps_;
  std::vector<Decision>* decisions_;
  Flow flow_;
};

}  // namespace

void rematerialize(Program& program, std::vector<Decision>* decisions) {
  loop::for_each_block(program.steps, [&](Steps& steps) { Rematerializer(program, steps, decisions).run(); });
}

}  // namespace stridec::schedule
