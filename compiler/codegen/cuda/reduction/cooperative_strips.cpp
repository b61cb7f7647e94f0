// Decides which accesses of a thread group's ranges are vectorised, and with how many elements. Rows that
// begin at multiples of 16 bytes use aligned vectors. Columns that begin anywhere use the aligned vectors
// that cover them. Rows that begin anywhere use the aligned vectors within them, or also those that they
// share with their neighbours.
#include <algorithm>

#include "compiler/codegen/cuda/common/frame.h"
#include "compiler/codegen/cuda/reduction/cooperative_emitter.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/effects.h"

namespace stridec::codegen::cuda {
namespace {

constexpr int kCoverBytes = 16;
constexpr int kWarp = 32;
constexpr int kShiftedBytes = 2;     // larger elements are about as fast one by one
constexpr int kShiftedVectors = 32;  // fewest vectors of a row; in shorter rows the ends are too large a part

}  // namespace

std::optional<Strip> CooperativeEmitter::strip_of(const loop::Stmt& stmt, int wide) const {
  const std::vector<loop::Dim> dims = loop::dims_of(stmt);
  sym::Facts inside = facts_;
  for (const loop::Dim& dim : dims) inside.set_index(dim.var, dim.extent);
  if (!variant.columns && dims.empty()) return std::nullopt;
  const loop::Dim& along = variant.columns ? column : dims.back();
  if (variant.covered) return cover_of(stmt, inside);
  if (variant.shifted) return shifted_strip_of(stmt, inside);
  return plan_strip(program, nest, *loop::body_of(stmt), along.var, along.extent, inside, wide);
}

// Points beyond the last column are computed needlessly: what depends on the column has to be loaded by
// vectors.
std::optional<Strip> CooperativeEmitter::cover_of(const loop::Stmt& stmt, const sym::Facts& inside) const {
  const loop::Effects effects = loop::effects_of(nest);
  Strip strip{.var = column.var};
  int least = kCoverBytes;
  for (const loop::Stmt& top : nest.body)
    if (const auto* load = std::get_if<loop::Load>(&top.node);
        load && std::any_of(load->access.index.begin(), load->access.index.end(),
                            [&](const sym::Expr& index) { return sym::depends_on(index, column.var); }))
      return std::nullopt;
  for (const loop::Stmt& inner : *loop::body_of(stmt)) {
    if (loop::body_of(inner) || std::holds_alternative<loop::Bind>(inner.node)) return std::nullopt;
    const loop::Access* access = loop::access_of(inner);
    if (!access) continue;
    if (!std::holds_alternative<loop::Load>(inner.node)) return std::nullopt;
    const auto stride = loop::stride_of(program, *access, column.var, inside);
    if (!stride || sym::depends_on(access->mask, column.var)) return std::nullopt;
    if (stride->is_const(0)) continue;
    const loop::Buffer& buffer = program[access->buffer];
    if (!stride->is_const(1) || !access->mask.is_const(1) || buffer.storage == loop::Storage::kLocal ||
        std::count(effects.writes.begin(), effects.writes.end(), access->buffer))
      return std::nullopt;
    strip.vectors.push_back(&inner);
    least = std::min(least, byte_size(buffer.dtype));
    strip.conditions.push_back(
        sym::ge(schedule::extent_in_elements(buffer), kCoverBytes / byte_size(buffer.dtype)));
    if (is_callers(program, access->buffer)) strip.aligned.push_back(access->buffer);
  }
  strip.width = kCoverBytes / least;
  const bool equal = std::all_of(strip.vectors.begin(), strip.vectors.end(), [&](const loop::Stmt* load) {
    return byte_size(program[loop::access_of(*load)->buffer].dtype) == least;
  });
  return equal && strip.width > 1 ? std::optional(strip) : std::nullopt;
}

std::optional<sym::Expr> CooperativeEmitter::find_phase() {
  const loop::Stmt* stmt = only_reduction();
  if (!stmt || lanes < kWarp || rows % width != 0) return std::nullopt;
  const std::vector<loop::Dim> dims = loop::dims_of(*stmt);
  const std::optional<Strip> strip = strip_of(*stmt, width);
  if (dims.size() != 1 || !strip) return std::nullopt;
  std::optional<Expr> phase;
  std::vector<Expr> steps;
  for (const loop::Stmt* load : strip->vectors) {
    const Expr start = sym::simplify(
        sym::substitute(loop::offset_of(program, *loop::access_of(*load)), column.var, 0), facts_);
    const auto linear = sym::linear_in(start, dims[0].var);
    if (!linear || sym::has_index(linear->coefficient) || (phase && *phase != start)) return std::nullopt;
    for (const Expr& var : sym::free_vars(linear->rest))
      if (sym::is_index(var) && !loop::is_var_of(var, nest.dims)) return std::nullopt;
    phase = start;
    // Except for the range's last element, a vector ends no later than the next element's columns do.
    steps.push_back(sym::simplify(sym::ge(linear->coefficient, width - 1), facts_));
    if (steps.back().is_const(0)) return std::nullopt;
  }
  conditions.insert(conditions.end(), steps.begin(), steps.end());
  return phase;
}

std::optional<sym::Expr> CooperativeEmitter::start_of(const loop::Access& access, const loop::Dim& along,
                                                      const sym::Facts& inside) const {
  const auto stride = loop::stride_of(program, access, along.var, inside);
  if (!stride || !stride->is_const(1) || !access.mask.is_const(1) ||
      program[access.buffer].storage == loop::Storage::kLocal)
    return std::nullopt;
  const Expr start = sym::simplify(sym::substitute(loop::offset_of(program, access), along.var, 0), facts_);
  for (const Expr& var : sym::free_vars(start))
    if (sym::is_index(var) && !loop::is_var_of(var, nest.dims)) return std::nullopt;
  return start;
}

std::optional<sym::Expr> CooperativeEmitter::find_start() {
  std::optional<Expr> loaded, stored;
  int bytes = 0;
  for (const loop::Stmt& stmt : nest.body) {
    if (!is_range(stmt)) continue;
    const std::vector<loop::Dim> dims = loop::dims_of(stmt);
    if (dims.size() != 1) return std::nullopt;
    for (const loop::Stmt& inner : *loop::body_of(stmt)) {
      if (loop::body_of(inner) || std::holds_alternative<loop::Bind>(inner.node)) return std::nullopt;
      const loop::Access* access = loop::access_of(inner);
      if (access && variant.parts && !access->mask.is_const(1)) return std::nullopt;
      const auto start = access ? start_of(*access, dims[0], facts_) : std::nullopt;
      if (!start || !loop::depends_on_any(*start, nest.dims)) continue;
      std::optional<Expr>& first = std::holds_alternative<loop::Store>(inner.node) ? stored : loaded;
      if (first || (stored && &first == &loaded)) continue;
      first = start;
      bytes = byte_size(program[access->buffer].dtype);
    }
  }
  if (bytes == 0 || bytes > kShiftedBytes) return std::nullopt;
  width = kCoverBytes / bytes;
  return stored ? stored : loaded;
}

bool CooperativeEmitter::is_along(const loop::Access& access, const Range& range) {
  return std::any_of(access.index.begin(), access.index.end(),
                     [&](const Expr& index) { return sym::depends_on(index, range.dims[0].var); });
}

bool CooperativeEmitter::in_step(const loop::Access& access, Expr var) const {
  return start_ &&
         *start_ == sym::simplify(sym::substitute(loop::offset_of(program, access), var, 0), facts_);
}

// All loads use vectors, and so do stores that begin where the chunks do. Loads that begin elsewhere are
// extracted from two vectors. In short rows one of the two would usually extend beyond the elements, so these
// loads use single elements.
std::optional<Strip> CooperativeEmitter::shifted_strip_of(const loop::Stmt& stmt,
                                                          const sym::Facts& inside) const {
  const loop::Effects effects = loop::effects_of(nest);
  const loop::Dim along = loop::dims_of(stmt)[0];
  Strip strip{.var = along.var, .width = width};
  if (!variant.parts) strip.conditions.push_back(sym::ge(along.extent, kShiftedVectors * width));
  for (const loop::Stmt& inner : *loop::body_of(stmt)) {
    const loop::Access* access = loop::access_of(inner);
    const auto start = access ? start_of(*access, along, inside) : std::nullopt;
    if (!start) continue;
    const loop::Buffer& buffer = program[access->buffer];
    const auto* store = std::get_if<loop::Store>(&inner.node);
    const bool alone = store ? !store->update && !schedule::reads(effects, access->buffer)
                             : !schedule::writes(effects, access->buffer);
    const bool step = start == start_;
    if (!alone || byte_size(buffer.dtype) * width != kCoverBytes || ((store || variant.parts) && !step))
      continue;
    strip.vectors.push_back(&inner);
    if (!step || (variant.parts && !store))
      strip.conditions.push_back(sym::ge(schedule::extent_in_elements(buffer), width));
    if (is_callers(program, access->buffer)) strip.aligned.push_back(access->buffer);
  }
  return strip;
}

bool CooperativeEmitter::covers(const Range& range, const loop::Access& access) const {
  return covers_columns() || (start_ && !in_step(access, range.strip->var));
}

void CooperativeEmitter::choose_width() {
  if (!variant.vectors) return;
  if (variant.shifted) {
    start_ = find_start();
    return;
  }
  for (const loop::Stmt& stmt : nest.body)
    if (is_range(stmt))
      if (const auto strip = strip_of(stmt, 0)) width = std::max(width, strip->width);
  if (width == 1) return;
  for (const loop::Stmt& stmt : nest.body) {
    if (!is_range(stmt) || (!variant.columns && loop::dims_of(stmt).empty())) continue;
    const auto strip = strip_of(stmt, width);
    if (!strip) {
      width = 1;
      return;
    }
  }
}

}  // namespace stridec::codegen::cuda
