#include "compiler/kernels/chain.h"

#include <algorithm>
#include <set>

#include "compiler/base/check.h"
#include "compiler/loop/walk.h"
#include "compiler/sym/text.h"

namespace stridec::kernels {
namespace {

using loop::Nest;
using loop::Stmt;
using loop::ValueId;

// Whether the statement may be recomputed at every use: it reads nothing that the nest writes.
bool is_pure(const Stmt& stmt, const std::set<loop::BufferId>& written) {
  if (const auto* load = std::get_if<loop::Load>(&stmt.node)) return !written.contains(load->access.buffer);
  return std::holds_alternative<loop::Let>(stmt.node) || std::holds_alternative<loop::Constant>(stmt.node) ||
         std::holds_alternative<loop::IndexValue>(stmt.node);
}

std::set<ValueId> uses_of(const Stmt& stmt) {
  std::set<ValueId> used;
  auto visit = [&](const Stmt& s) { loop::for_each_use(s, [&](ValueId id) { used.insert(id); }); };
  visit(stmt);
  if (const loop::Block* body = loop::body_of(stmt)) loop::for_each_stmt(*body, visit);
  return used;
}

// Splits the body of a nest into parts.
class Splitter {
 public:
  explicit Splitter(const Nest& nest) : nest_(nest) {
    loop::for_each_stmt(nest.body, [&](const Stmt& stmt) {
      if (const auto* store = std::get_if<loop::Store>(&stmt.node)) written_.insert(store->access.buffer);
    });
  }

  std::string reason;
  std::vector<Chain::Part> parts;

  bool run() {
    std::vector<const Stmt*> rows;
    for (const Stmt& stmt : nest_.body) {
      if (std::holds_alternative<loop::Bind>(stmt.node)) return fail("it gathers rows");
      bool pure = is_pure(stmt, written_);
      for (ValueId used : uses_of(stmt)) pure = pure && !of_row_.contains(used);
      if (pure) {
        shared_.push_back(&stmt);
        continue;
      }
      if (std::optional<Chain::Part> link = as_link(stmt)) {
        if (!flush(rows)) return false;
        parts.push_back(*std::move(link));
        continue;
      }
      loop::for_each_result(stmt, [&](ValueId id) { of_row_.insert(id); });
      rows.push_back(&stmt);
    }
    return flush(rows);
  }

 private:
  bool fail(const char* why) {
    reason = why;
    return false;
  }

  // Prefixes `body` with the shared statements that it needs; nothing if it needs a value of earlier row
  // statements.
  std::optional<loop::Block> with_shared(const std::vector<const Stmt*>& body) const {
    std::set<ValueId> wanted, made;
    for (const Stmt* stmt : body) {
      for (ValueId used : uses_of(*stmt)) wanted.insert(used);
      loop::for_each_result(*stmt, [&](ValueId id) { made.insert(id); });
    }
    for (ValueId id : wanted)
      if (of_row_.contains(id) && !made.contains(id)) return std::nullopt;
    std::vector<const Stmt*> needed;
    for (size_t i = shared_.size(); i-- > 0;) {
      bool need = false;
      loop::for_each_result(*shared_[i], [&](ValueId id) { need = need || wanted.contains(id); });
      if (!need) continue;
      for (ValueId used : uses_of(*shared_[i])) wanted.insert(used);
      needed.push_back(shared_[i]);
    }
    loop::Block block;
    for (size_t i = needed.size(); i-- > 0;) block.push_back(*needed[i]);
    for (const Stmt* stmt : body) block.push_back(*stmt);
    return block;
  }

  Nest part_nest(loop::Block body) const {
    Nest part;
    part.name = nest_.name;
    part.dims = nest_.dims;
    part.body = std::move(body);
    part.values = nest_.values;
    return part;
  }

  std::optional<Chain::Part> as_link(const Stmt& stmt) const {
    const auto* loop = std::get_if<loop::For>(&stmt.node);
    if (!loop) return std::nullopt;
    std::vector<const Stmt*> body;
    for (const Stmt& inner : loop->body) body.push_back(&inner);
    auto block = with_shared(body);
    if (!block) return std::nullopt;
    Chain::Part part{.nest = part_nest(*std::move(block)), .link = nullptr};
    for (const loop::Dim& dim : loop->dims) part.nest.dims.push_back(dim);
    part.link = match_link(part.nest, loop->dims);
    // Intermediates are per row, so rows cannot share them as their columns.
    if (!part.link || reads_written(part.link->column_factor())) return std::nullopt;
    return part;
  }

  bool reads_written(const Factor& factor) const {
    return std::any_of(factor.slice.begin(), factor.slice.end(), [&](const Stmt* stmt) {
      const auto* load = std::get_if<loop::Load>(&stmt->node);
      return load && written_.contains(load->access.buffer);
    });
  }

  bool flush(std::vector<const Stmt*>& rows) {
    if (rows.empty()) return true;
    auto block = with_shared(rows);
    if (!block) return fail("a value of a row passes through a contraction");
    parts.push_back({.nest = part_nest(*std::move(block)), .link = nullptr});
    rows.clear();
    return true;
  }

  const Nest& nest_;
  std::set<loop::BufferId> written_;
  std::set<ValueId> of_row_;  // defined by row statements so far
  std::vector<const Stmt*> shared_;
};

int64_t number(const std::string& text) {
  int64_t value = 0;
  for (char c : text) {
    STRIDEC_CHECK(c >= '0' && c <= '9', text);
    value = value * 10 + (c - '0');
  }
  return value;
}

std::optional<LinkFactors> link_factors(const Contraction& contraction,
                                        const std::vector<loop::Dim>& columns) {
  auto depends = [&](int side) {
    return std::any_of(columns.begin(), columns.end(), [&](const loop::Dim& dim) {
      return contraction.factors[side].vars.contains(dim.var);
    });
  };
  const bool first = depends(0), second = depends(1);
  if (first == second) return std::nullopt;
  return first ? LinkFactors{1, 0} : LinkFactors{0, 1};
}

}  // namespace

std::unique_ptr<const Chain::Link> match_link(const Nest& nest, std::vector<loop::Dim> columns) {
  auto contraction = match_contraction(nest);
  if (!contraction || !is_float(contraction->dtype)) return nullptr;
  const auto sides = link_factors(*contraction, columns);
  if (!sides) return nullptr;
  return std::make_unique<Chain::Link>(Chain::Link{std::move(columns), *std::move(contraction), *sides});
}

std::optional<Chain> match_chain(const Nest& nest, std::string* reason, bool single) {
  auto refuse = [&](std::string why) -> std::optional<Chain> {
    if (reason) *reason = std::move(why);
    return std::nullopt;
  };
  for (const loop::Dim& dim : nest.dims)
    if (sym::has_index(dim.extent)) return refuse("its dims depend on each other");
  Splitter splitter(nest);
  if (!splitter.run()) return refuse(splitter.reason);
  Vars shared_columns;
  bool any = false;
  for (const Chain::Part& part : splitter.parts) {
    if (!part.link) continue;
    any = true;
    for (sym::Expr var : part.link->column_factor().vars) shared_columns.insert(var);
  }
  if (!any) return refuse("it has no contraction");
  Chain chain;
  bool found = false;
  for (size_t d = nest.dims.size(); d-- > 0;) {
    if (found || shared_columns.contains(nest.dims[d].var)) {
      chain.batch.insert(chain.batch.begin(), nest.dims[d]);
    } else {
      chain.row = nest.dims[d];
      found = true;
    }
  }
  if (!found && !single) return refuse("its rows share no factor");
  if (!found) chain.row = {sym::var("%one_row"), 1};
  chain.parts = std::move(splitter.parts);
  return chain;
}

bool is_chain(const loop::Schedule& schedule) { return schedule.kernel == "chain"; }

loop::Schedule to_schedule(const ChainPlan& plan) {
  loop::Schedule schedule{.kernel = "chain", .directives = {}};
  schedule.directives.push_back({"rows", {sym::to_string(plan.row)}});
  schedule.directives.push_back({"tile", {std::to_string(plan.tile), std::to_string(plan.bytes)}});
  for (const ChainPlan::Link& link : plan.links)
    schedule.directives.push_back({"gemm",
                                   {sym::to_string(link.column), std::string(link.kernel->name),
                                    link.a == GemmPlan::A::kDirect ? "direct" : "pack"}});
  schedule.directives.insert(schedule.directives.end(), plan.inner.begin(), plan.inner.end());
  return schedule;
}

ChainPlan to_chain_plan(const loop::Schedule& schedule) {
  ChainPlan plan;
  for (const loop::Directive& directive : schedule.directives) {
    const std::vector<std::string>& args = directive.args;
    if (directive.name == "rows") {
      plan.row = sym::parse(args.at(0));
    } else if (directive.name == "tile") {
      plan.tile = number(args.at(0));
      plan.bytes = number(args.at(1));
    } else if (directive.name == "gemm") {
      const GemmKernel* kernel = find_gemm_kernel(args.at(1));
      STRIDEC_CHECK(kernel, args.at(1));
      plan.links.push_back({sym::parse(args.at(0)), kernel,
                            args.at(2) == "direct" ? GemmPlan::A::kDirect : GemmPlan::A::kPack});
    } else {
      plan.inner.push_back(directive);
    }
  }
  return plan;
}

GemmPlan link_plan(const Chain& chain, const Chain::Part& part, const ChainPlan::Link& link) {
  GemmPlan plan;
  plan.kernel = link.kernel;
  for (const loop::Dim& dim : chain.batch) plan.batch.push_back(dim.var);
  const std::vector<loop::Dim>& columns = part.link->columns;
  for (size_t d = 0; d + 1 < columns.size(); ++d) plan.batch.push_back(columns[d].var);
  plan.rows = {chain.row.var};
  plan.columns = {columns.back().var};
  for (const loop::Dim& dim : part.link->contraction.reduce->dims) plan.run.push_back(dim.var);
  plan.a = link.a;
  plan.b = GemmPlan::B::kStage;
  return plan;
}

}  // namespace stridec::kernels
