// Merges two nests over their common dims:
//
//   for r: m[r] = reduce k x[r,k]        for r: m = reduce k x[r,k]
//   for r, k: y[r,k] = x[r,k] - m[r]  ->        for k: y[r,k] = x[r,k] - m
#include <algorithm>
#include <set>

#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/typical.h"
#include "compiler/schedule/fusion/fusion_join.h"

namespace stridec::schedule {
namespace {

using loop::BufferId;
using loop::Dim;
using loop::Launch;
using loop::Nest;
using loop::Program;
using loop::Stmt;
using sym::Expr;

// With fewer rows than kFewRows and rows longer than kLongRow, one point per row would leave cores idle.
constexpr int64_t kFewRows = 8;
constexpr int64_t kLongRow = 1 << 16;
// With fewer groups than this, each longer than kLongRow, a GPU would be idle.
constexpr double kBusyRows = 128;
// kManyColumns: least number of columns for merging nests whose intermediate is a column. kFewPoints,
// kManyMore: a producer with fewer points, each used by at least kManyMore points, saves nothing; merging
// would only reduce the consumer's parallelism.
constexpr int64_t kManyColumns = 4096;
constexpr int64_t kFewPoints = 1024, kManyMore = 256;

// States of more elements than this are large. The optimizer's update of a weight is one kernel that streams
// the gradient, the weight and its moments once; as epilogues, parts of it would run at the occupancy of the
// GEMM's tiles, and pass the new moments to the rest through memory.
constexpr int64_t kLargeState = 1 << 12;

Expr points(const std::vector<Dim>& dims) {
  Expr product = 1;
  for (const Dim& dim : dims) product = product * dim.extent;
  return product;
}

bool has_loops(const Nest& nest) {
  return std::any_of(nest.body.begin(), nest.body.end(), [](const Stmt& stmt) {
    return std::holds_alternative<loop::Reduce>(stmt.node) || std::holds_alternative<loop::For>(stmt.node) ||
           std::holds_alternative<loop::Scan>(stmt.node);
  });
}

// The exchanges as seen from the second nest.
std::vector<Exchange> turned(std::vector<Exchange> exchanges) {
  for (Exchange& exchange : exchanges) std::swap(exchange.first, exchange.second);
  return exchanges;
}

int refuse(Refusal* refusal, FusionRule rule, bool lasts = true) {
  *refusal = {std::string(info(rule).why), lasts};
  return -1;
}

// Whether a single value is exchanged per point of the first nest, not a row.
bool passes_numbers(const Nest& first, const std::vector<Exchange>& passing) {
  for (const Exchange& exchange : passing)
    for (const loop::Access* store : exchange.first)
      for (Expr at : store->index)
        for (Expr var : sym::free_vars(at))
          if (sym::is_index(var) && std::none_of(first.dims.begin(), first.dims.end(),
                                                 [&](const Dim& dim) { return dim.var == var; }))
            return false;
  return true;
}

bool read_in_common(const Effects& first, const Effects& second) {
  return std::any_of(first.reads.begin(), first.reads.end(), [&](BufferId id) { return reads(second, id); });
}

// Whether each index of a split dim's inner part (the dim of `rest` that is not in `whole`) covers whole
// vectors of elements, as the loops of a thread group require. The dims after it are the contiguous ones.
bool rows_of_vectors(const Program& program, const std::vector<Dim>& rest, const std::vector<Dim>& whole) {
  constexpr int64_t kVector = 8;
  const auto part = std::find_if(rest.begin(), rest.end(), [&](const Dim& dim) {
    return std::none_of(whole.begin(), whole.end(), [&](const Dim& other) { return other.var == dim.var; });
  });
  if (part == rest.end()) return false;
  const int64_t divisor = program.facts.known_divisor(points(std::vector<Dim>(part + 1, rest.end())));
  return divisor > 0 && divisor % kVector == 0;
}

// Whether the step reads a large state, as large as its domain, which the program updates.
bool updates_large_state(const Program& program, const Flow& flow, int at, const Nest& nest) {
  const auto& read = flow.effects(at).reads;
  return std::any_of(read.begin(), read.end(), [&](BufferId id) {
    const Expr elements = loop::element_count(program[id].shape);
    return program[id].storage == loop::Storage::kState && flow.writer_count(id) > 0 &&
           typical(elements, program.facts) > double(kLargeState) &&
           sym::simplify(elements - points(nest.dims), program.facts).is_const(0);
  });
}

// Whether another input of the consumer is computed row by row, over at least as many of the consumer's dims.
bool has_other_rows(const Program& program, const loop::Steps& steps, const Flow& flow, int producer_at,
                    int consumer_at, size_t common) {
  const Nest& consumer = program[std::get<Launch>(steps[consumer_at].node).nest];
  std::set<int> writers;
  for (const BufferId id : flow.effects(consumer_at).reads)
    for (const int at : flow.writers_between(id, -1, consumer_at)) writers.insert(at);
  for (const int at : writers) {
    if (at == producer_at || !std::holds_alternative<Launch>(steps[at].node)) continue;
    const Nest& other = program[std::get<Launch>(steps[at].node).nest];
    if (!has_loops(other) || is_contraction(other)) continue;
    const Matching matching =
        match_dims(program, other, consumer, exchanges_between(other, consumer).ordered);
    if (matching.size() >= common && matching.size() == other.dims.size()) return true;
  }
  return false;
}

}  // namespace

int try_merge(Program& program, loop::Steps& steps, Flow& flow, int producer_at, int consumer_at,
              Refusal* refusal, bool columns) {
  const loop::NestId producer_id = std::get<Launch>(steps[producer_at].node).nest;
  const loop::NestId consumer_id = std::get<Launch>(steps[consumer_at].node).nest;
  if (flow.effects(producer_at).updates || flow.effects(consumer_at).updates)
    return refuse(refusal, FusionRule::kMergeUpdates);
  for (BufferId id : flow.effects(producer_at).writes)
    if (reads(flow.effects(consumer_at), id) && flow.writer_count(id) != 1)
      return refuse(refusal, FusionRule::kMergeWrittenOnce, false);
  const Effects &before = flow.effects(producer_at), &after = flow.effects(consumer_at);
  Exchanges exchanges = exchanges_between(program[producer_id], program[consumer_id], before, after);
  const auto split = split_like(program, program[producer_id], program[consumer_id], exchanges.passing);
  const Nest& producer = split ? *split : program[producer_id];
  if (split) exchanges = exchanges_between(producer, program[consumer_id], before, after);
  const bool contraction = is_contraction(producer), pointwise = is_pointwise(program[consumer_id]);
  // The epilogue of a grouped contraction runs over all channels, so its dim is split.
  const auto epilogue = contraction && pointwise
                            ? split_like(program, program[consumer_id], producer, turned(exchanges.passing))
                            : std::nullopt;
  const auto groups = columns && !contraction && has_loops(producer) && pointwise
                          ? split_groups(program, producer, program[consumer_id], exchanges.passing)
                          : std::nullopt;
  const Nest& consumer = epilogue ? *epilogue : groups ? *groups : program[consumer_id];
  if (epilogue || groups) exchanges = exchanges_between(producer, consumer, before, after);
  const auto& [passing, ordered] = exchanges;
  const Matching matching = match_dims(program, producer, consumer, ordered);
  const std::vector<Dim> producer_rest = unmatched(producer.dims, matching, true);
  const std::vector<Dim> consumer_rest = unmatched(consumer.dims, matching, false);
  if (!producer_rest.empty() && !consumer_rest.empty()) return refuse(refusal, FusionRule::kMergeRest);
  if (matching.empty() && !(producer_rest.empty() && consumer_rest.empty()))
    return refuse(refusal, FusionRule::kMergeShared);

  const bool same_domain = producer_rest.empty() && consumer_rest.empty();
  const bool weighs_rows = is_weighted_sum(consumer) && has_loops(producer) &&
                           read_in_common(flow.effects(producer_at), flow.effects(consumer_at));
  if (is_contraction(consumer) && !weighs_rows) return refuse(refusal, FusionRule::kMergeConsumer);
  if (contraction && (!same_domain || has_loops(consumer)))
    return refuse(refusal, FusionRule::kMergeEpilogue);
  if (contraction && updates_large_state(program, flow, consumer_at, consumer))
    return refuse(refusal, FusionRule::kMergeState, false);
  if (!same_domain) {
    std::vector<Dim> rows;
    for (auto [p, c] : matching) rows.push_back(producer.dims[p]);
    if (!passes_rows(producer, matching, passing) &&
        !(columns && has_loops(producer) && typical(points(rows), program.facts) >= kManyColumns))
      return refuse(refusal, FusionRule::kMergeRows);
    const auto row_count = program.facts.bounds(points(rows));
    const auto length = program.facts.bounds(points(producer_rest.empty() ? consumer_rest : producer_rest));
    if (row_count.hi < kFewRows && length.lo > kLongRow) return refuse(refusal, FusionRule::kMergeFewRows);
    if (groups && !rows_of_vectors(program, consumer_rest, program[consumer_id].dims))
      return refuse(refusal, FusionRule::kColumnsVectors);
    if (groups && typical(points(rows), program.facts) < kBusyRows &&
        typical(points(consumer_rest), program.facts) > static_cast<double>(kLongRow))
      return refuse(refusal, FusionRule::kColumnsFewGroups);
    const auto least = [&](const std::vector<Dim>& dims) {
      return static_cast<double>(program.facts.bounds(points(dims)).lo);
    };
    const double uses =
        static_cast<double>(length.lo) * (producer_rest.empty() ? longest_loops(consumer.body, least) : 1.0);
    if (!has_loops(producer) && row_count.hi < kFewPoints && uses >= kManyMore)
      return refuse(refusal, FusionRule::kMergeSaving);
    // Example: whether a mask hides a whole row, which all heads share. Merging would make the rows of all
    // heads a single point of the nest.
    if (producer_rest.empty() && has_loops(producer) && passes_numbers(producer, passing) &&
        !read_in_common(flow.effects(producer_at), flow.effects(consumer_at)) &&
        (has_loops(consumer) ||
         has_other_rows(program, steps, flow, producer_at, consumer_at, matching.size())))
      return refuse(refusal, FusionRule::kMergeNumbers, false);
  }
  if (statement_count(producer.body) + statement_count(consumer.body) > kMostStatements)
    return refuse(refusal, FusionRule::kMergeStatements);
  const bool down = may_move(program, steps, flow, producer_at, consumer_at);
  if (!down && !may_move(program, steps, flow, consumer_at, producer_at))
    return refuse(refusal, FusionRule::kMergeOrder, false);

  return replace_steps(program, steps, flow, down ? consumer_at : producer_at,
                       {down ? producer_at : consumer_at}, merged_nest(producer, consumer, matching));
}

}  // namespace stridec::schedule
