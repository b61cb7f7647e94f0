#include "compiler/schedule/fusion/gemm_prologue.h"

#include <algorithm>
#include <optional>
#include <set>

#include "compiler/base/text.h"
#include "compiler/kernels/contraction.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/typical.h"
#include "compiler/schedule/fusion/fusion_rules.h"

namespace stridec::schedule {
namespace {

using loop::BufferId;
using loop::Load;
using loop::Nest;
using loop::Program;
using loop::Storage;
using sym::Expr;

// Packing takes as long as the separate producer does in cache; the gain is the memory traffic and a launch.
// Measured: with fewer columns than this, packing costs as much as it saves. The same holds for 16-bit
// values, which take half the memory and are multiplied at twice the speed.
constexpr double kLeastColumns = 96;
constexpr int kLeastNumber = 4;  // bytes
// Of the intermediate, at typical sizes; less stays in a cache close to the cores.
constexpr double kLeastBytes = 64 << 10;

// The factor of a GEMM by weights that is loaded directly, and the number of columns it is multiplied by.
struct Rows {
  const Load* load = nullptr;
  double columns = 1;
  double elements = 1;  // in a copy of all rows
};

bool of_weights(const Program& program, const kernels::Factor& factor) {
  return std::all_of(factor.slice.begin(), factor.slice.end(), [&](const loop::Stmt* stmt) {
    const auto* load = std::get_if<Load>(&stmt->node);
    return !load || program[load->access.buffer].storage == Storage::kParameter;
  });
}

// The only load of the factor, below conversions, which reads the result of the step before.
const Load* only_load(const kernels::Factor& factor) {
  const Load* found = nullptr;
  for (const loop::Stmt* stmt : factor.slice)
    if (const auto* load = std::get_if<Load>(&stmt->node)) {
      if (found) return nullptr;
      found = load;
    }
  return found;
}

std::optional<Rows> prologue_rows(const Program& program, const Nest& nest) {
  if (!nest.schedule.kernel.empty()) return std::nullopt;
  const auto product = kernels::match_contraction(nest);
  if (!product) return std::nullopt;
  const bool swapped = of_weights(program, product->factors[0]);
  const kernels::Factor &factor = product->factors[swapped ? 1 : 0],
                        &other = product->factors[swapped ? 0 : 1];
  if (!of_weights(program, other) || of_weights(program, factor)) return std::nullopt;
  Rows rows{.load = only_load(factor)};
  if (!rows.load) return std::nullopt;
  int dims = 0;  // dims of columns; one copy serves only one of them
  for (const loop::Dim& dim : nest.dims) {
    const double extent = typical(dim.extent, program.facts);
    if (factor.vars.contains(dim.var)) {
      rows.elements *= extent;
    } else if (!dim.extent.is_const(1)) {
      ++dims;
      rows.columns = extent;
    }
  }
  for (const loop::Dim& dim : product->reduce->dims) rows.elements *= typical(dim.extent, program.facts);
  return dims == 1 ? std::optional(rows) : std::nullopt;
}

class Prologues {
 public:
  Prologues(Program& program, std::vector<Decision>* decisions)
      : program_(program), decisions_(decisions), in_strips_(loop::launched_in_groups(program)) {}

  void steps(loop::Steps& steps) {
    Flow flow(program_, steps);
    for (int at = 0; at < static_cast<int>(steps.size());) at = absorb(steps, flow, at) ? at - 1 : at + 1;
  }

 private:
  // Fuses the producer of the rows into the GEMM at `at`.
  bool absorb(loop::Steps& steps, Flow& flow, int at) {
    const Nest* nest = nest_at(program_, steps, at);
    if (!nest || in_strips_.contains(std::get<loop::Launch>(steps[static_cast<size_t>(at)].node).nest))
      return false;
    const auto rows = prologue_rows(program_, *nest);
    if (!rows) return false;
    const BufferId passing = rows->load->access.buffer;
    const int from = writer_before(program_, steps, flow, at, passing);
    const Nest* producer = from < 0 ? nullptr : nest_at(program_, steps, from);
    if (!producer || !is_pointwise(*producer)) return false;
    Decision decision;
    if (decisions_) decision = decision_about(program_, *producer, *nest, false, "");
    std::string reason = refusal(*producer, *rows);
    if (reason.empty() && keeps_more(flow, from, passing))
      reason = "its inputs would have to be kept for longer";
    if (reason.empty()) {
      const Expr bytes =
          loop::element_count(program_[passing].shape) * (2 * byte_size(program_[passing].dtype));
      decision.bytes = sym::simplify(bytes, program_.facts);
      decision.fused = try_inline(program_, steps, flow, from, &reason, true);
    }
    decision.reason =
        decision.fused ? "computed while the GEMM packs its rows" : cat("not inlined: ", reason);
    const bool fused = decision.fused;
    if (decisions_) decisions_->push_back(std::move(decision));
    if (fused) loop::renumber(program_[std::get<loop::Launch>(steps[static_cast<size_t>(at - 1)].node).nest]);
    return fused;
  }

  // Whether the producer is the last user of buffers that together are larger than its result; they would
  // stay live until the GEMM has run.
  bool keeps_more(const Flow& flow, int producer, BufferId passing) const {
    double bytes = 0;
    for (BufferId id : flow.effects(producer).reads) {
      bool later = program_[id].storage != Storage::kArena;
      later = later || !flow.readers_between(id, producer, flow.size()).empty() ||
              !flow.writers_between(id, producer, flow.size()).empty();
      if (!later) bytes += typical_bytes(program_, id);
    }
    return bytes > typical_bytes(program_, passing);
  }

  std::string refusal(const Nest& producer, const Rows& rows) const {
    double made = 1;
    for (const loop::Dim& dim : producer.dims) made *= typical(dim.extent, program_.facts);
    if (rows.elements > made) return "the GEMM reads an element for several rows";
    const int number = byte_size(program_[rows.load->access.buffer].dtype);
    if (number < kLeastNumber) return "the intermediate has a narrow type";
    if (rows.columns < kLeastColumns) return cat("the GEMM has only ", rows.columns, " columns");
    if (made * number < kLeastBytes) return "the intermediate stays in a cache";
    return "";
  }

  Program& program_;
  std::vector<Decision>* decisions_;
  const std::set<loop::NestId> in_strips_;
};

}  // namespace

void fuse_gemm_prologues(Program& program, std::vector<Decision>* decisions) {
  Prologues prologues(program, decisions);
  loop::for_each_block(program.steps, [&](loop::Steps& steps) { prologues.steps(steps); });
}

}  // namespace stridec::schedule
