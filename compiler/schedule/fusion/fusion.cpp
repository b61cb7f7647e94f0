#include "compiler/schedule/fusion/fusion.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "compiler/loop/provenance.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/fusion/fusion_rules.h"

namespace stridec::schedule {
namespace {

using loop::Launch;
using loop::Program;
using loop::Steps;

// Phase order: epilogue fusion first, since it is free. Then pointwise work moves to its uses, including the
// pieces of concatenations that were split by then, which leaves fewer and simpler nests to merge.
enum class Phase { kEpilogues, kInline, kInlinePieces, kMerge };

constexpr size_t kScoreNests = 8;  // at most, between the GEMM of the scores and the one with the values

class Fuser {
 public:
  Fuser(Program& program, const FusionOptions& options, bool columns = false)
      : program_(program), decisions_(options.decisions), epilogues_(options.epilogues), columns_(columns) {}

  void block(Steps& steps, std::initializer_list<Phase> phases) {
    Flow flow(program_, steps, Flow::Erased::kPlace);
    for (Phase phase : phases) {
      refused_.clear();
      for (int at = 0; at < static_cast<int>(steps.size());) {
        const int next = flow.is_gap(at) ? -1 : absorb_blamed(steps, flow, at, phase);
        at = next < 0 ? at + 1 : next;
      }
      flow.close_gaps(steps);
    }
  }

 private:
  const loop::Nest& nest_at(const Steps& steps, int at) const {
    return program_[std::get<Launch>(steps[at].node).nest];
  }

  int absorb_blamed(Steps& steps, Flow& flow, int consumer, Phase phase) {
    try {
      return absorb_producers(steps, flow, consumer, phase);
    } catch (Error& error) {
      if (const auto* launch = std::get_if<Launch>(&steps[consumer].node))
        loop::add_provenance(error, program_[launch->nest]);
      throw;
    }
  }

  // Fuses one producer into the step at `consumer`. Returns the position to continue from, or -1 if nothing
  // fuses.
  int absorb_producers(Steps& steps, Flow& flow, int consumer, Phase phase) {
    if (!std::holds_alternative<Launch>(steps[consumer].node)) return -1;
    // An epilogue whose result is larger than its input waits: its readers may inline it.
    if (phase == Phase::kEpilogues && widens(program_, nest_at(steps, consumer))) return -1;
    std::map<int, std::vector<loop::BufferId>, std::greater<>> producers;  // what each passes
    for (const loop::BufferId id : flow.effects(consumer).reads)
      for (const int at : flow.writers_between(id, -1, consumer)) producers[at].push_back(id);
    for (const auto& [p, passing] : producers) {
      if (!std::holds_alternative<Launch>(steps[p].node)) continue;
      if (phase == Phase::kEpilogues && !is_contraction(nest_at(steps, p))) continue;
      const bool inlines = phase == Phase::kInline || phase == Phase::kInlinePieces;
      const std::pair pair(flow.stamp(p), flow.stamp(consumer));
      if (!inlines && refused_.contains(pair)) continue;
      Decision decision;
      if (decisions_)
        decision = decision_about(program_, nest_at(steps, p), nest_at(steps, consumer), passing, true,
                                  inlines ? "inlined" : "merged", bytes_of(flow, passing));
      std::string reason;
      Refusal refusal;
      int at = -1;
      if (phase == Phase::kEpilogues && stays(flow, p, consumer) && is_pointwise(nest_at(steps, consumer)) &&
          is_cheap_again(program_, nest_at(steps, consumer))) {
        Decision again{nest_at(steps, consumer).name, "its consumer", true,
                       "inlined: it costs no more than loading it"};
        if (try_inline(program_, steps, flow, consumer, &reason)) {
          record(std::move(again));
          return consumer;  // now a gap
        }
      }
      if (!inlines && !epilogues_ && is_contraction(nest_at(steps, p)) &&
          !is_contraction(nest_at(steps, consumer)) && !is_attention(steps, flow, consumer)) {
        decision.fused = false;
        decision.reason = "not fused: epilogue_fusion=false";
        if (phase == Phase::kMerge) record(std::move(decision));
        continue;
      }
      if (!inlines)
        at = try_merge(program_, steps, flow, p, consumer, &refusal, columns_);
      else if (try_inline(program_, steps, flow, p, &reason))
        at = consumer;
      if (at >= 0) {
        record(std::move(decision));
        return at;
      }
      if (!inlines && refusal.lasts) refused_.insert(pair);
      if (phase == Phase::kEpilogues || phase == Phase::kInlinePieces) continue;
      decision.fused = false;
      decision.reason = inlines ? "not inlined: " + reason : "not merged: " + refusal.reason;
      record(std::move(decision));
    }
    return -1;
  }

  // Whether the result flows through a softmax to a GEMM with values (attention). Chains make all of it one
  // template.
  bool is_attention(const Steps& steps, const Flow& flow, int from) const {
    std::vector<int> way = {from};
    bool sums = false;
    for (size_t i = 0; i < way.size() && i < kScoreNests; ++i)
      for (const int at : readers_of(flow, way[i])) {
        if (std::ranges::count(way, at) || !std::holds_alternative<Launch>(steps[at].node)) continue;
        const loop::Nest& nest = nest_at(steps, at);
        if (!is_contraction(nest)) {
          sums = sums || !is_pointwise(nest);
          way.push_back(at);
          continue;
        }
        const auto& read = flow.effects(at).reads;
        if (sums && std::none_of(read.begin(), read.end(),
                                 [&](auto id) { return program_[id].storage == loop::Storage::kParameter; }))
          return true;
      }
    return false;
  }

  // The later steps that read what the step writes.
  static std::set<int> readers_of(const Flow& flow, int at) {
    std::set<int> out;
    for (const loop::BufferId id : flow.effects(at).writes)
      for (const int reader : flow.readers_between(id, at, flow.size())) out.insert(reader);
    return out;
  }

  // Whether everything the consumer reads comes from the producer and stays in memory for other readers too.
  // The consumer's readers can then compute its result while they load its input.
  bool stays(const Flow& flow, int producer, int consumer) const {
    const auto& read = flow.effects(consumer).reads;
    return std::all_of(read.begin(), read.end(), [&](auto id) {
      return writes(flow.effects(producer), id) &&
             (program_[id].storage != loop::Storage::kArena || flow.reader_count(id) > 1);
    });
  }

  sym::Expr bytes_of(const Flow& flow, const std::vector<loop::BufferId>& passing) const {
    sym::Expr bytes = 0;
    for (const loop::BufferId id : passing) {
      const loop::Buffer& buffer = program_[id];
      const bool goes = buffer.storage == loop::Storage::kArena && flow.reader_count(id) == 1;
      bytes += loop::element_count(buffer.shape) * (byte_size(buffer.dtype) * (goes ? 2 : 1));
    }
    return sym::simplify(bytes, program_.facts);
  }

  void record(Decision decision) {
    if (decisions_) decisions_->push_back(std::move(decision));
  }

  Program& program_;
  std::vector<Decision>* decisions_;
  bool epilogues_, columns_;
  // Pairs of steps, by their stamps, that no change of other steps makes mergeable.
  std::set<std::pair<int64_t, int64_t>> refused_;
};

}  // namespace

void fuse(Program& program, const FusionOptions& options) {
  // Drops dims of extent 1, so that nests of a batch of one share the dims of nests without a batch.
  for (loop::Nest& nest : program.nests)
    if (std::any_of(nest.dims.begin(), nest.dims.end(),
                    [](const loop::Dim& d) { return d.extent.is_const(1); }))
      loop::simplify(program, nest);
  Fuser fuser(program, options);
  loop::for_each_block(program.steps,
                       [&](Steps& steps) { fuser.block(steps, {Phase::kEpilogues, Phase::kInline}); });
  split_concats(program);
  loop::for_each_block(program.steps,
                       [&](Steps& steps) { fuser.block(steps, {Phase::kInlinePieces, Phase::kMerge}); });
  loop::eliminate_dead_code(program);  // sink_weights follows in the same pass
}

void fuse_columns(Program& program, const FusionOptions& options) {
  Fuser fuser(program, options, true);
  loop::for_each_block(program.steps, [&](Steps& steps) { fuser.block(steps, {Phase::kMerge}); });
}

}  // namespace stridec::schedule
