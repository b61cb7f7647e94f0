#include "compiler/kernels/streamed_chain.h"

#include <algorithm>

#include "compiler/kernels/definitions.h"
#include "compiler/kernels/flash_backward.h"
#include "compiler/loop/walk.h"

namespace stridec::kernels {
namespace {

using loop::BufferId;
using loop::Load;
using loop::Store;
using sym::Expr;

class Matcher {
 public:
  Matcher(const loop::Program& program, Chain chain) : program_(program) { out_.chain = std::move(chain); }

  std::string reason = "its parts are not those of a chain that streams over columns";

  std::optional<StreamedChain> match() {
    for (const Chain::Part& part : out_.chain.parts)
      if (!(part.link ? add_link(part) : add_rows(part))) return std::nullopt;
    if (out_.fills.empty() || out_.sums.empty()) return std::nullopt;
    out_.range = chain_range(program_, out_.chain);
    return std::move(out_);
  }

 private:
  bool fail(const char* why) {
    reason = why;
    return false;
  }
  bool is_local(const loop::Access& access) const {
    return program_[access.buffer].storage == loop::Storage::kLocal;
  }
  static bool is_at(const loop::Access& access, Expr var) {
    return access.index == std::vector<Expr>{var} && access.mask.is_const(1);
  }

  bool add_link(const Chain::Part& part) {
    const Chain::Link& link = *part.link;
    const Load* row = plain_load(link.row_factor());
    const Load* column = plain_load(link.column_factor());
    if (!row || !column) return fail("a factor is computed or masked");
    if (link.columns.size() != 1 || link.contraction.reduce->dims.size() != 1 ||
        link.contraction.dtype != DType::kF32)
      return fail("a product has several columns or depths, or is not summed in f32");
    return is_local(row->access) ? add_sum(part, *row, *column) : add_fill(part, *row, *column);
  }

  bool add_fill(const Chain::Part& part, const Load& row, const Load& column) {
    const loop::Dim& dim = part.link->columns[0];
    if (!out_.between.empty() || !out_.sums.empty()) return false;
    if (out_.fills.empty()) {
      out_.columns = dim.extent;
      out_.dtype = program_[row.access.buffer].dtype;
    }
    if (dim.extent != out_.columns) return false;
    for (const Load* load : {&row, &column})
      if (program_[load->access.buffer].dtype != out_.dtype) return fail("its factors have several types");
    const loop::Dim& deep = part.link->contraction.reduce->dims[0];
    const auto depth = sym::as_const(deep.extent);
    if (!depth || *depth < 1) return fail("its head size is not fixed");
    const auto first = flash_operand(program_, row, out_.chain.row.var, deep.var, program_.facts);
    const auto second = flash_operand(program_, column, dim.var, deep.var, program_.facts);
    if (!first || !second) return fail("a factor is not contiguous along the head");
    int stores = 0;
    bool ok = true;
    loop::for_each_stmt(part.nest.body, [&](const loop::Stmt& stmt) {
      const loop::Access* access = loop::access_of(stmt);
      if (!access) return;
      if (const auto* store = std::get_if<Store>(&stmt.node)) {
        ++stores;
        ok = ok && is_local(*access) && is_at(*access, dim.var) && !store->update;
      } else {
        ok = ok && !is_local(*access);
      }
    });
    if (!ok || stores != 1) return false;
    out_.fills.push_back({&part, *first, *second, *depth});
    return true;
  }

  bool add_sum(const Chain::Part& part, const Load& row, const Load& column) {
    const loop::Dim& deep = part.link->contraction.reduce->dims[0];
    const loop::Dim& dim = part.link->columns[0];
    if (!is_at(row.access, deep.var) || deep.extent != out_.columns) return false;
    if (program_[row.access.buffer].dtype != out_.dtype) return fail("its factors have several types");
    const auto operand = flash_operand(program_, column, deep.var, dim.var, program_.facts);
    if (!operand) return false;
    bool ok = true;
    loop::for_each_stmt(part.nest.body, [&](const loop::Stmt& stmt) {
      const loop::Access* access = loop::access_of(stmt);
      ok = ok && !(access && std::get_if<Store>(&stmt.node) && is_local(*access));
    });
    if (!ok) return false;
    for (size_t i = 0; i < out_.fills.size(); ++i) {
      const StreamedChain::Fill& fill = out_.fills[i];
      if (column.access.buffer != fill.column.load->access.buffer || operand->base != fill.column.base ||
          operand->line != fill.column.line || !dim.extent.is_const(fill.depth))
        continue;
      out_.sums.push_back({&part, row.access.buffer, i});
      return true;
    }
    return fail("a summed factor is not one that scores are computed from");
  }

  bool add_rows(const Chain::Part& part) {
    if (out_.fills.empty() || !out_.sums.empty()) return false;
    for (const loop::Stmt& stmt : part.nest.body) {
      const auto* loop = std::get_if<loop::For>(&stmt.node);
      const loop::Access* access = loop::access_of(stmt);
      if (!loop &&
          (loop::body_of(stmt) || (access && is_local(*access)) || std::holds_alternative<Store>(stmt.node)))
        return fail("its rows are combined before they are summed");
      if (!loop) continue;
      if (loop->dims.size() != 1 || loop->dims[0].extent != out_.columns) return false;
      for (const loop::Stmt& inner : loop->body) {
        if (loop::body_of(inner)) return false;
        const loop::Access* at = loop::access_of(inner);
        const auto* store = std::get_if<Store>(&inner.node);
        if (!at) continue;
        if (is_local(*at) ? !is_at(*at, loop->dims[0].var) || (store && store->update) : store != nullptr)
          return false;
      }
    }
    out_.between.push_back(&part);
    return true;
  }

  const loop::Program& program_;
  StreamedChain out_;
};

// Elements of a line in shared memory: instructions multiply 16 at a time.
int64_t line_of(const StreamedChain::Fill& fill) { return padded(fill.depth); }

}  // namespace

std::optional<StreamedChain> match_streamed_chain(const loop::Program& program, const loop::Nest& nest,
                                                  std::string* reason) {
  const auto is_loop = [](const loop::Stmt& stmt) { return std::holds_alternative<loop::For>(stmt.node); };
  if (std::ranges::count_if(nest.body, is_loop) < 3) {  // one that fills, one of rows, one that sums
    if (reason) *reason = "it is not a chain";
    return std::nullopt;
  }
  auto chain = match_chain(nest, reason);
  if (!chain) return std::nullopt;
  Matcher matcher(program, *std::move(chain));
  auto out = matcher.match();
  if (!out && reason) *reason = matcher.reason;
  return out;
}

loop::Schedule to_schedule(const StreamedChainPlan& plan) {
  return {std::string(kStreamedChain), {{"tile", {std::to_string(plan.rows), std::to_string(plan.columns)}}}};
}

StreamedChainPlan to_streamed_chain_plan(const loop::Schedule& schedule) {
  StreamedChainPlan plan;
  for (const loop::Directive& directive : schedule.directives)
    if (directive.name == "tile") plan = {std::stoi(directive.args.at(0)), std::stoi(directive.args.at(1))};
  return plan;
}

int64_t shared_bytes(const StreamedChainPlan& plan, const StreamedChain& chain) {
  constexpr int kStages = 2;
  int64_t bytes = 0;
  for (const StreamedChain::Fill& fill : chain.fills)
    bytes += (plan.rows + kStages * plan.columns) * line_of(fill) * byte_size(chain.dtype);
  return bytes;
}

int registers(const StreamedChainPlan& plan, const StreamedChain& chain) {
  int64_t count = 0;
  for (const StreamedChain::Sum& sum : chain.sums) count += line_of(chain.fills[sum.fill]) / 2;
  const auto step = static_cast<int64_t>(chain.fills.size()) * plan.columns / 2;  // f32
  // Fragments of weights, which f32 has twice: the tf32 part and the rest.
  const int64_t words = chain.dtype == DType::kF32 ? 4 : chain.dtype == DType::kTF32 ? 2 : 1;
  const auto weights = static_cast<int64_t>(chain.sums.size()) * words * plan.columns / 4;
  return static_cast<int>(count + step + weights);
}

}  // namespace stridec::kernels
