// Work that the points of a block share, and work that no loop has to precede: done before the points, or as
// early as possible.
#include <algorithm>
#include <set>

#include "compiler/codegen/cuda/common/frame.h"
#include "compiler/codegen/cuda/reduction/cooperative_emitter.h"
#include "compiler/loop/analysis.h"
#include "compiler/schedule/analysis/effects.h"

namespace stridec::codegen::cuda {
namespace {

constexpr int kCommonChunks = 4;  // per thread, of loops that points share

}  // namespace

// Finds the leading loops, with the statements that they need, that depend on no dim of the nest and write
// only local rows.
size_t CooperativeEmitter::find_common() const {
  std::vector<bool> known(nest.values.size());
  bool loops = false;
  size_t count = 0, end = 0;
  if (nest.dims.empty()) return 0;  // a single point shares nothing
  for (const loop::Stmt& top : nest.body) {
    bool common =
        !std::holds_alternative<loop::Bind>(top.node) && !std::holds_alternative<loop::Scan>(top.node);
    const loop::Block one = {top};
    std::vector<bool> inside = known;
    loop::for_each_stmt(one, [&](const loop::Stmt& stmt) {
      loop::for_each_expr(stmt, [&](Expr e) {
        for (const loop::Dim& dim : nest.dims) common = common && !sym::depends_on(e, dim.var);
      });
      if (const auto* store = std::get_if<loop::Store>(&stmt.node))
        common = common && program[store->access.buffer].storage == loop::Storage::kLocal;
      loop::for_each_result(stmt, [&](loop::ValueId id) { inside[id.value] = true; });
    });
    loop::for_each_stmt(one, [&](const loop::Stmt& stmt) {
      loop::for_each_use(stmt, [&](loop::ValueId id) { common = common && inside[id.value]; });
    });
    if (!common) break;
    ++count;
    known = std::move(inside);
    if (!is_range(top)) continue;
    loops = true;
    end = count;
  }
  // Statements after the last loop are as cheap per point.
  return loops && count < nest.body.size() ? std::max(end, count) : 0;
}

int CooperativeEmitter::common_chunks(const Range& range) const {
  const auto chunks = sym::as_const(range.chunks);
  return chunks && *chunks > 0 && *chunks <= int64_t{kCommonChunks} * threads()
             ? static_cast<int>((*chunks - 1) / threads() + 1)
             : 0;
}

void CooperativeEmitter::print_common() {
  if (!common_) return;
  body_.place = top_place();
  const int own = team;
  team = rows = threads();
  in_common_ = true;
  // Loads weights first: they are in L2, and would otherwise wait for the results of the loops before them.
  for (size_t at = 0; at < common_; ++at) {
    if (!is_range(nest.body[at])) continue;
    const Range range = range_of(nest.body[at]);
    std::vector<const loop::Stmt*> weights = held_loads(range);
    std::erase_if(weights, [&](const loop::Stmt* stmt) {
      return program[loop::access_of(*stmt)->buffer].storage != loop::Storage::kParameter;
    });
    const int each = common_chunks(range);
    if (weights.empty() || each == 0) continue;
    chunks_ = text_.fresh("n");
    text_.line(cat("const ", chunk_type(range), " ", chunks_, " = ", body_.index(range.chunks), ";"));
    const sym::Facts outer = facts_;
    for (const loop::Dim& dim : range.dims) facts_.set_index(dim.var, dim.extent);
    print_held(range, weights, "row", each,
               range.chunks.is_const(each * rows) ? Batch::kWhole : Batch::kLoads);
    facts_ = outer;
  }
  for (size_t at = 0; at < common_; ++at) print_statement(at);
  synchronise_before(common_, nest.body.size());  // a block-wide barrier, before the thread groups diverge
  synchronised_ = common_;
  in_common_ = false;
  kept_.clear();
  team = rows = own;
}

void CooperativeEmitter::print_l2_prefetch(const loop::Access& access) {
  text_.line(cat("asm volatile(\"prefetch.global.L2 [%0];\" ::\"l\"(", text_.pointer(access.buffer), " + ",
                 body_.offset(access), "));"));
}

void CooperativeEmitter::print_prefetch(const std::string& first, const std::string& count) {
  constexpr int kLine = 128;  // bytes
  // Prefetches the weights that a loop over one dim loads; `of_point`: those that depend on the point.
  const auto prefetch = [&](const loop::Stmt& top, bool of_point, const std::string& thread, int threads) {
    const std::vector<loop::Dim> dims = is_range(top) ? loop::dims_of(top) : std::vector<loop::Dim>{};
    if (dims.size() != 1 || sym::has_index(dims[0].extent)) return;
    for (const loop::Stmt& inner : *loop::body_of(top)) {
      const auto* load = std::get_if<loop::Load>(&inner.node);
      if (!load || program[load->access.buffer].storage != loop::Storage::kParameter ||
          !load->access.mask.is_const(1))
        continue;
      const sym::Expr offset = loop::offset_of(program, load->access);
      const auto stride = loop::stride_of(program, load->access, dims[0].var, facts_);
      if (loop::depends_on_any(offset, nest.dims) != of_point || !stride || !stride->is_const(1)) continue;
      const int elements = kLine / byte_size(program[load->access.buffer].dtype);
      text_.open(cat("for (int64_t at = ", thread, " * ", elements, "; at < ", body_.index(dims[0].extent),
                     "; at += ", threads * elements, ")"));
      body_.set_index(dims[0].var, "at");
      print_l2_prefetch(load->access);
      text_.close();
    }
  };
  for (size_t at = 0; at < common_; ++at) prefetch(nest.body[at], false, "threadIdx.x", threads());
  if (!stream_.empty()) return;
  text_.open("");
  text_.line(cat("int64_t rest = ", first, ";"));
  text_.open(cat("if (rest < ", count, ")"));
  print_indices(text_, body_, grid_dims());
  for (const loop::Stmt& stmt : nest.body)
    if (std::holds_alternative<loop::Reduce>(stmt.node))
      prefetch(stmt, true, cat("threadIdx.x % ", team), team);
  text_.close();
  text_.close();
}

bool CooperativeEmitter::is_free_load(const loop::Stmt& stmt) const {
  const auto* load = std::get_if<loop::Load>(&stmt.node);
  if (!load || program[load->access.buffer].storage == loop::Storage::kLocal) return false;
  const loop::Effects effects = loop::effects_of(nest);
  if (std::count(effects.writes.begin(), effects.writes.end(), load->access.buffer)) return false;
  bool free = true;
  loop::for_each_expr(stmt, [&](sym::Expr e) {
    for (const sym::Expr& var : sym::free_vars(e))
      free = free && (!sym::is_index(var) || loop::is_var_of(var, nest.dims));
  });
  return free;
}

CooperativeEmitter::Free CooperativeEmitter::find_free() const {
  Free out;
  if (stream_.empty()) {
    if (kept_from_ == 1)
      for (size_t at = common_; at < nest.body.size(); ++at)
        if (is_free_load(nest.body[at])) out.early.insert(at);
    return out;
  }
  // Values, and variables bound to them, that are known before a point's loops, or before all points.
  struct Known {
    std::vector<bool> values;
    std::set<sym::Expr, sym::ExprLess> vars;
  };
  Known of_point{std::vector<bool>(nest.values.size()), {}}, of_all = of_point;
  const auto add = [](Known& known, const loop::Stmt& stmt) {
    loop::for_each_result(stmt, [&](loop::ValueId id) { known.values[id.value] = true; });
    if (const auto* bind = std::get_if<loop::Bind>(&stmt.node)) known.vars.insert(bind->var);
  };
  const auto knows = [](const Known& known, const loop::Stmt& stmt) {
    bool all = true;
    loop::for_each_use(stmt, [&](loop::ValueId id) { all = all && known.values[id.value]; });
    loop::for_each_expr(stmt, [&](sym::Expr e) {
      for (const sym::Expr& var : sym::free_vars(e))
        all = all && (!sym::is_index(var) || known.vars.contains(var));
    });
    return all;
  };
  for (size_t at = 0; at < common_; ++at)
    for (Known* known : {&of_point, &of_all}) add(*known, nest.body[at]);
  for (const loop::Dim& dim : nest.dims) of_point.vars.insert(dim.var);
  const loop::Effects effects = loop::effects_of(nest);
  for (size_t at = common_; at < nest.body.size(); ++at) {
    const loop::Stmt& stmt = nest.body[at];
    const auto* load = std::get_if<loop::Load>(&stmt.node);
    if (loop::body_of(stmt) || std::holds_alternative<loop::Store>(stmt.node) || !knows(of_point, stmt) ||
        (load && (program[load->access.buffer].storage == loop::Storage::kLocal ||
                  std::count(effects.writes.begin(), effects.writes.end(), load->access.buffer))))
      continue;
    add(of_point, stmt);
    const bool alone = is_free_load(stmt);
    if (!knows(of_all, stmt)) {
      out.early.insert(at);
      continue;
    }
    add(of_all, stmt);
    (alone ? out.first : out.once).insert(at);
  }
  // Arithmetic that no load depends on stays where it is.
  std::set<sym::Expr, sym::ExprLess> vars;
  std::vector<bool> values(nest.values.size());
  for (size_t at = nest.body.size(); at-- > common_;) {
    if (!out.contains(at)) continue;
    const loop::Stmt& stmt = nest.body[at];
    bool wanted = std::holds_alternative<loop::Load>(stmt.node);
    loop::for_each_result(stmt, [&](loop::ValueId id) { wanted = wanted || values[id.value]; });
    if (const auto* bind = std::get_if<loop::Bind>(&stmt.node)) wanted = wanted || vars.contains(bind->var);
    if (!wanted) {
      for (std::set<size_t>* set : {&out.first, &out.once, &out.early}) set->erase(at);
      continue;
    }
    loop::for_each_use(stmt, [&](loop::ValueId id) { values[id.value] = true; });
    loop::for_each_expr(stmt, [&](sym::Expr e) {
      for (const sym::Expr& var : sym::free_vars(e)) vars.insert(var);
    });
  }
  return out;
}

}  // namespace stridec::codegen::cuda
