#include "compiler/schedule/fusion/norm_prologue.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "compiler/base/text.h"
#include "compiler/kernels/dual_gemm.h"
#include "compiler/kernels/norm_prologue.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/cost/cuda_contraction_cost.h"
#include "compiler/schedule/fusion/fusion_rules.h"
#include "compiler/schedule/heuristics/cuda_contraction.h"

namespace stridec::schedule {
namespace {

using loop::BufferId;
using loop::Launch;
using loop::Nest;
using loop::Program;
using loop::Step;
using loop::Steps;
using loop::Stmt;
using sym::Expr;

// The row loop of a nest without a schedule, over a constant number of elements; otherwise null.
const loop::For* row_loop(const Nest& nest) {
  const loop::For* loop = nest.schedule == loop::Schedule{} ? kernels::prologue_loop(nest) : nullptr;
  return loop && loop->dims[0].extent.is_const() ? loop : nullptr;
}

const loop::Store* store_of(const loop::For& loop, BufferId buffer) {
  for (const Stmt& stmt : loop.body)
    if (const auto* store = std::get_if<loop::Store>(&stmt.node))
      if (store->access.buffer == buffer) return store;
  return nullptr;
}

std::vector<const loop::Load*> loads_of(const Nest& nest, BufferId buffer) {
  std::vector<const loop::Load*> out;
  loop::for_each_stmt(nest.body, [&](const Stmt& stmt) {
    const auto* load = std::get_if<loop::Load>(&stmt.node);
    if (load && load->access.buffer == buffer) out.push_back(load);
  });
  return out;
}

// Whether the nest is a GEMM that multiplies rows of the buffer and does not use them in any other way.
bool multiplies(const Nest& nest, BufferId rows) {
  const bool outside = std::any_of(nest.body.begin(), nest.body.end(), [&](const Stmt& stmt) {
    const loop::Access* access = loop::access_of(stmt);
    return access && access->buffer == rows;
  });
  return !outside && nest.schedule == loop::Schedule{} &&
         kernels::match_contraction(kernels::product_of(nest)).has_value();
}

// Returns the GEMM with the computation of its rows in front. `keep`: it also stores the rows. Returns
// nothing if the GEMM does not read them row by row.
std::optional<Nest> with_rows(Program& program, const Nest& rows, const Nest& product, BufferId passing,
                              bool keep) {
  const loop::For& loop = std::get<loop::For>(rows.body.back().node);
  const std::vector<Expr> stored = store_of(loop, passing)->access.index;
  Nest out = product;
  loop::Cloner names(out);
  std::map<Expr, Expr, sym::ExprLess> at;
  for (const loop::Load* load : loads_of(product, passing)) {
    const std::vector<Expr>& index = load->access.index;
    if (!load->access.mask.is_const(1) || index.size() != stored.size()) return std::nullopt;
    for (size_t d = 0; d < index.size(); ++d) {
      if (d + 1 == index.size() || (stored[d].is_const() && stored[d] == index[d])) continue;
      if (!loop::is_var_of(stored[d], rows.dims)) return std::nullopt;
      const auto [found, fresh] = at.emplace(stored[d], index[d]);
      if (!(found->second == index[d])) return std::nullopt;
      for (Expr var : sym::free_vars(index[d]))
        if (sym::is_index(var) && !loop::is_var_of(var, product.dims)) return std::nullopt;
    }
  }
  for (const loop::Dim& dim : rows.dims) {
    const auto found = at.find(dim.var);
    if (found == at.end()) return std::nullopt;
    names.map(dim.var, found->second);
  }
  loop::Buffer local = program[passing];
  local.storage = loop::Storage::kLocal;
  local.strides = loop::row_major(local.shape);
  const BufferId row = loop::add_buffer(program, std::move(local));
  loop::Block body = names.clone(rows, rows.body);
  auto& made = std::get<loop::For>(body.back().node);
  const auto place = std::find_if(made.body.begin(), made.body.end(), [&](const Stmt& stmt) {
    const auto* store = std::get_if<loop::Store>(&stmt.node);
    return store && store->access.buffer == passing;
  });
  loop::Store local_store = std::get<loop::Store>(place->node);
  local_store.access.buffer = row;
  if (keep)
    made.body.push_back({local_store});
  else
    place->node = local_store;
  loop::for_each_stmt(out.body, [&](Stmt& stmt) {
    auto* load = std::get_if<loop::Load>(&stmt.node);
    if (load && load->access.buffer == passing) load->access.buffer = row;
  });
  body.insert(body.end(), out.body.begin(), out.body.end());
  out.body = std::move(body);
  out.name = fused_name(rows, product);
  join_nodes(out, rows.nodes);
  return out;
}

class RowPrologues {
 public:
  RowPrologues(Program& program, const GpuTarget& target, std::vector<Decision>* decisions)
      : program_(program), target_(target), decisions_(decisions) {}

  void steps(Steps& steps) {
    for (size_t at = 0; at < steps.size(); ++at) absorb(steps, at);
  }

 private:
  struct Reader {
    size_t at;
    std::vector<ExpectedAt> own, fused;  // expected cycles of the GEMM alone, and with the rows fused
  };

  // Fuses the computation of the step's rows into the GEMMs that read them.
  void absorb(Steps& steps, size_t at) {
    const Nest* rows = nest_at(program_, steps, static_cast<int>(at));
    const loop::For* loop = rows ? row_loop(*rows) : nullptr;
    if (!loop) return;
    const Flow flow(program_, steps);
    for (const Stmt& stmt : loop->body) {
      const auto* store = std::get_if<loop::Store>(&stmt.node);
      if (!store) continue;
      const BufferId passing = store->access.buffer;
      std::vector<size_t> products, others;
      for (size_t i = at + 1; i < steps.size(); ++i) {
        if (!reads(flow.effects(i), passing)) continue;
        const Nest* nest = nest_at(program_, steps, static_cast<int>(i));
        (nest && multiplies(*nest, passing) ? products : others).push_back(i);
      }
      if (products.empty()) continue;
      const int in_block = static_cast<int>(products.size() + others.size());
      const bool elsewhere =
          program_[passing].storage != loop::Storage::kArena || flow.reader_count(passing) != in_block;
      std::string reason = refusal(steps, flow, at, products, others, passing, elsewhere);
      std::optional<int64_t> limit;
      if (reason.empty()) limit = pays(steps, at, products, passing, &reason);
      if (decisions_)
        decisions_->push_back(decision_about(
            program_, *rows, program_[std::get<Launch>(steps[products[0]].node).nest], limit.has_value(),
            limit ? cat("computed by the blocks of the GEMM, of at most ", *limit, " rows")
                  : cat("not computed by the blocks of the GEMM: ", reason)));
      if (limit) fuse(steps, at, products, passing, elsewhere || !others.empty(), *limit);
      return;
    }
  }

  std::string refusal(const Steps& steps, const Flow& flow, size_t at, const std::vector<size_t>& products,
                      const std::vector<size_t>& others, BufferId passing, bool elsewhere) const {
    if (!target_.wgmma) return "the target has no tiles that hold rows";
    const Effects& effects = flow.effects(at);
    if (effects.updates || flow.writer_count(passing) != 1) return "others write its rows too";
    if (effects.writes.size() != 1) return "it stores more than its rows";
    if (byte_size(program_[passing].dtype) != 2) return "rows are not of 16 bits";
    const Nest& rows = program_[std::get<Launch>(steps[at].node).nest];
    for (Expr index : store_of(*row_loop(rows), passing)->access.index)
      if (!loop::is_var_of(index, rows.dims) && !(index == row_loop(rows)->dims[0].var) && !index.is_const())
        return "the rows are not in order in memory";
    if (elsewhere && program_[passing].storage != loop::Storage::kArena &&
        program_[passing].storage != loop::Storage::kOutput)
      return "its rows are kept";
    if (!others.empty() && others[0] < products[0]) return "others read its rows before";
    for (size_t i = at + 1; i < products.back(); ++i)
      for (BufferId id : effects.reads)
        if (writes(flow.effects(i), id)) return "its operands are overwritten in between";
    return "";
  }

  // The number of rows up to which the fused GEMMs are expected to take less time than with a separate kernel
  // for the rows. Nothing, with the reason, if there is no such number.
  std::optional<int64_t> pays(const Steps& steps, size_t at, const std::vector<size_t>& products,
                              BufferId passing, std::string* reason) {
    const Nest rows = program_[std::get<Launch>(steps[at].node).nest];
    const Expr count = loop::extent_of(rows.dims);
    const double elements = static_cast<double>(row_loop(rows)->dims[0].extent.value());
    std::vector<Reader> readers;
    for (size_t i : products) {
      const Nest product = program_[std::get<Launch>(steps[i].node).nest];
      const auto fused = with_rows(program_, rows, product, passing, false);
      Reader& reader = readers.emplace_back(Reader{i, {}, {}});
      if (fused && kernels::match_row_prologue(*fused)) {
        reader.fused = expected_of_product(program_, *fused, target_);
        reader.own = expected_of_product(program_, product, target_);
      }
      if (reader.fused.empty()) {
        *reason = "no tile of the GEMM has room for them";
        return std::nullopt;
      }
    }
    std::optional<int64_t> limit;
    for (size_t size = 0; size < readers[0].fused.size(); ++size) {
      const int64_t here = sym::evaluate(count, readers[0].fused[size].sizes).value_or(1);
      double before = row_kernel_cycles(static_cast<double>(here), elements, target_), after = 0;
      for (const Reader& reader : readers) {
        if (size >= reader.fused.size() || size >= reader.own.size()) return limit;
        before += reader.own[size].cycles;
        after += reader.fused[size].cycles;
      }
      if (after >= before) {
        if (!limit)
          *reason = cat("of ", here, here == 1 ? " row" : " rows", " GEMMs with them are expected to take ",
                        static_cast<int64_t>(after), " cycles instead of ", static_cast<int64_t>(before));
        return limit;
      }
      limit = here;
    }
    return limit;
  }

  void fuse(Steps& steps, size_t at, const std::vector<size_t>& products, BufferId passing, bool keep,
            int64_t limit) {
    const Nest rows = program_[std::get<Launch>(steps[at].node).nest];
    const Expr count = loop::extent_of(rows.dims), few = sym::le(count, limit);
    const sym::Interval range = program_.facts.bounds(count);
    const bool always = range.has_hi() && range.hi <= limit;
    for (size_t i : products) {
      const Nest product = program_[std::get<Launch>(steps[i].node).nest];
      Nest fused = *with_rows(program_, rows, product, passing, keep && i == products[0]);
      const Step launch{Launch{loop::add_nest(program_, std::move(fused))}};
      steps[i] = always ? launch
                        : Step{loop::If{.condition = few, .then_steps = {launch}, .else_steps = {steps[i]}}};
    }
    if (always)
      steps[at] = Step{loop::If{.condition = 0, .then_steps = {}, .else_steps = {}}};
    else
      steps[at] =
          Step{loop::If{.condition = sym::gt(count, limit), .then_steps = {steps[at]}, .else_steps = {}}};
  }

  Program& program_;
  const GpuTarget& target_;
  std::vector<Decision>* decisions_;
};

}  // namespace

void fuse_norm_prologues(Program& program, const GpuTarget& target, std::vector<Decision>* decisions) {
  RowPrologues prologues(program, target, decisions);
  loop::for_each_block(program.steps, [&](Steps& steps) { prologues.steps(steps); });
  loop::for_each_block(program.steps, [&](Steps& steps) {
    std::erase_if(steps, [](const Step& step) {
      const auto* branch = std::get_if<loop::If>(&step.node);
      return branch && branch->condition.is_const(0) && branch->else_steps.empty();
    });
  });
}

}  // namespace stridec::schedule
