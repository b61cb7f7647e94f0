// Reductions of a thread group: one partial result per thread, combined by shuffles and then in shared
// memory.
#include "compiler/codegen/cuda/reduction/cooperative_emitter.h"

#include <algorithm>
#include <bit>
#include <set>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cuda/common/frame.h"
#include "compiler/codegen/cuda/common/prelude.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/effects.h"
#include "compiler/sym/text.h"

namespace stridec::codegen::cuda {
namespace {

bool takes_last(loop::Combine combine) {
  return combine == loop::Combine::kArgMaxLast || combine == loop::Combine::kArgMinLast;
}

}  // namespace

std::vector<DType> CooperativeEmitter::dtypes_of(const loop::Reduce& reduce) const {
  std::vector<DType> out;
  for (loop::ValueId id : reduce.results) out.push_back(nest.values[id.value].dtype);
  return out;
}

std::optional<sym::Expr> CooperativeEmitter::growing_index(const loop::Reduce& reduce,
                                                           const Range& range) const {
  if (loop::arity(reduce.combine) != 2 || range.dims.size() != 1 || run_of(*range.block) ||
      is_bool(dtypes_of(reduce)[0]) || std::string_view(chunk_type(range)) != "int")
    return std::nullopt;
  for (const loop::Stmt& stmt : *range.block) {
    const auto* index = std::get_if<loop::IndexValue>(&stmt.node);
    if (!index || index->result != reduce.yields[1]) continue;
    const auto linear = sym::linear_in(index->expr, range.dims[0].var);
    if (!linear || !linear->coefficient.is_const() || linear->coefficient.value() <= 0) return std::nullopt;
    for (const Expr& var : sym::free_vars(linear->rest))
      if (sym::is_index(var) && !loop::is_var_of(var, nest.dims)) return std::nullopt;
    return index->expr;
  }
  return std::nullopt;
}

void CooperativeEmitter::print_take(loop::Combine combine, const std::vector<std::string>& into,
                                    const std::vector<std::string>& from, DType dtype) {
  const bool max = combine == loop::Combine::kArgMax || combine == loop::Combine::kArgMaxLast;
  const bool last = takes_last(combine);
  const std::string &a = into[0], &b = from[0], take = text_.fresh("take");
  // A NaN wins against every number. The comparison is therefore written so that it is false for a NaN in
  // `b`, and then `b` is taken.
  const char* keeps = max ? (last ? " < " : " <= ") : (last ? " > " : " >= ");
  std::string more = is_float(dtype) ? cat(" & (", a, " == ", a, ")") : "";
  if (last && is_float(dtype)) more = cat(" & ((", a, " == ", a, ") | (", b, " != ", b, "))");
  text_.line(cat("const bool ", take, " = !(", b, keeps, a, ")", more, ";"));
  for (size_t i = 0; i < 2; ++i) text_.line(cat(into[i], " = ", take, " ? ", from[i], " : ", into[i], ";"));
}

std::vector<std::string> CooperativeEmitter::print_partial(const loop::Reduce& reduce,
                                                           const loop::Stmt& stmt) {
  const std::vector<DType> dtypes = dtypes_of(reduce);
  const Range range = range_of(stmt);
  // A thread holds the range's variable, in 32 bits, instead of the index computed from it; all bits set:
  // none.
  const std::optional<Expr> index = growing_index(reduce, range);
  std::vector<DType> held = dtypes;
  if (index) held[1] = takes_last(reduce.combine) ? DType::kI32 : DType::kU32;
  std::vector<std::string> into, points;
  for (DType dtype : held) {
    into.push_back(text_.fresh("a"));
    points.push_back(of_point(into.back()));
    text_.line(cat(text_.value_type(dtype), " ", into.back(), array(), ";"));
  }
  std::string first;
  if (index) {
    // A thread's first element is taken even if it equals the identity of the reduction.
    const std::string chunk = text_.fresh("first");
    print_count(range);
    text_.line(cat("const ", chunk_type(range), " ", chunk, " = ", first_chunk(range), ";"));
    std::string element = chunk;
    if (range.strip && !variant.columns) element += cat(" * ", width);
    if (variant.parts)
      element = cat(chunk, " > 0 ? ", element, " - phase : 0");
    else if (start_)
      element += " + head";
    first = cat(chunk, " < ", chunks_, " ? (unsigned)(", element, ") : ~0u");
  }
  open_points();
  for (size_t p = 0; p < into.size(); ++p)
    text_.line(
        cat(points[p], " = ", index && p == 1 ? first : body_.identity(reduce.combine, dtypes[p], p), ";"));
  close_points();
  // A streamed reduction uses several independent sums, since a warp has few other warps to overlap with.
  const int ways = is_streamed(stmt) ? kWays : 1;
  std::vector<std::string> sums = points;
  for (size_t p = 0; ways > 1 && p < into.size(); ++p) {
    const std::string name = text_.fresh("a");
    sums[p] = cat(name, "[way]");
    text_.line(cat(text_.value_type(dtypes[p]), " ", name, "[", ways, "];"));
    text_.line("#pragma unroll");
    text_.line(cat("for (int way = 0; way < ", ways, "; ++way) ", sums[p], " = ", into[p], ";"));
  }
  print_range(range, [&] {
    std::vector<std::string> from;
    for (loop::ValueId id : reduce.yields) from.push_back(body_.value(id).text);
    if (index) from[1] = cat("(", text_.value_type(held[1]), ")", body_.index(range.dims[0].var));
    if (!there_.empty()) text_.open(cat("if (", there_, ")"));
    // The single elements at a row's ends are visited after those in between.
    if (index && !in_edges_)
      print_take(reduce.combine, sums, from, dtypes[0]);
    else
      body_.print_combine(reduce.combine, sums, from, held, 1);
    if (!there_.empty()) text_.close();
  });
  if (index) {
    const std::string name = text_.fresh("a"), type = text_.value_type(dtypes[1]), place = points[1];
    text_.line(cat(type, " ", name, array(), ";"));
    open_points();
    body_.set_index(range.dims[0].var, cat("((int64_t)", place, ")"));
    text_.line(cat(of_point(name), " = ", place, " == ~0u ? ", body_.identity(reduce.combine, dtypes[1], 1),
                   " : (", type, ")", body_.index(*index), ";"));
    close_points();
    into[1] = name;
    points[1] = of_point(name);
  }
  if (ways > 1) {
    text_.line("#pragma unroll");
    text_.open(cat("for (int way = 0; way < ", ways, "; ++way)"));
    body_.print_combine(reduce.combine, points, sums, dtypes, 1);
    text_.close();
  }
  print_meeting(reduce, into, points, dtypes);
  return points;
}

void CooperativeEmitter::print_shuffles(const loop::Reduce& reduce, const std::vector<std::string>& points,
                                        const std::vector<DType>& dtypes, int from, int to) {
  if (from < to) return;
  const std::string d = text_.fresh("d");
  text_.line("#pragma unroll");
  text_.open(cat("for (int ", d, " = ", from, "; ", d, " >= ", to, "; ", d, " >>= 1)"));
  open_points();
  std::vector<std::string> others;
  for (size_t p = 0; p < points.size(); ++p) {
    others.push_back(text_.fresh("v"));
    text_.line(cat("const ", text_.value_type(dtypes[p]), " ", others.back(), " = sd_shuffle(members, ",
                   points[p], ", ", d, ");"));
  }
  // Both threads of a pair combine in the same order, so that all threads hold the same bits.
  body_.print_combine(reduce.combine, points, others, dtypes, 1);
  close_points();
  text_.close();
}

void CooperativeEmitter::print_meeting(const loop::Reduce& reduce, const std::vector<std::string>& into,
                                       const std::vector<std::string>& points,
                                       const std::vector<DType>& dtypes) {
  const int side = variant.columns ? lanes : 1;  // adjacent threads of a warp that do not combine
  print_shuffles(reduce, points, dtypes, std::min(team, 32) / 2, side);
  if (team <= 32) return;
  const int warps = team / std::max(32, side),
            all = variant.columns ? (phase_ ? lanes + 1 : lanes) * width : 1;
  if (warps == 1) return;
  const std::string warp = cat("threadIdx.x / ", std::max(32, side));
  // For columns that begin before the tile, space begins one vector earlier.
  const auto place = [&](const char* before) {
    return variant.columns ? cat("[lane * ", width, before, width > 1 ? " + u]" : "]") : std::string("[0]");
  };
  const std::string ahead = cat(" + ", width), at = place(phase_ ? ahead.c_str() : ""),
                    mine = phase_ ? place((ahead + " - phase").c_str()) : at;
  for (size_t p = 0; p < into.size(); ++p)
    text_.line(
        cat("__shared__ ", text_.value_type(dtypes[p]), " part_", into[p], "[", warps, "][", all, "];"));
  text_.open(cat("if (threadIdx.x % ", std::max(32, side), " < ", side, ")"));
  open_points();
  for (size_t p = 0; p < into.size(); ++p)
    text_.line(cat("part_", into[p], "[", warp, "]", mine, " = ", points[p], ";"));
  close_points();
  text_.close();
  text_.line("__syncthreads();");
  if (!variant.columns) {
    for (size_t p = 0; p < into.size(); ++p)
      text_.line(cat(into[p], " = part_", into[p], "[threadIdx.x % ", warps, "][0];"));
    print_shuffles(reduce, points, dtypes, warps / 2, 1);
  } else {
    // One thread combines a column for all that need it.
    const std::string t = text_.fresh("t"), w = text_.fresh("w");
    text_.open(cat("for (int ", t, " = threadIdx.x; ", t, " < ", all, "; ", t, " += ", team, ")"));
    std::vector<std::string> sums, others;
    for (size_t p = 0; p < into.size(); ++p) {
      sums.push_back(text_.fresh("a"));
      text_.line(cat(text_.value_type(dtypes[p]), " ", sums[p], " = part_", into[p], "[0][", t, "];"));
    }
    text_.line("#pragma unroll");
    text_.open(cat("for (int ", w, " = 1; ", w, " < ", warps, "; ++", w, ")"));
    for (size_t p = 0; p < into.size(); ++p) {
      others.push_back(text_.fresh("v"));
      text_.line(cat("const ", text_.value_type(dtypes[p]), " ", others[p], " = part_", into[p], "[", w, "][",
                     t, "];"));
    }
    body_.print_combine(reduce.combine, sums, others, dtypes, 1);
    text_.close();
    for (size_t p = 0; p < into.size(); ++p)
      text_.line(cat("part_", into[p], "[0][", t, "] = ", sums[p], ";"));
    text_.close();
    text_.line("__syncthreads();");
    open_points();
    for (size_t p = 0; p < into.size(); ++p) text_.line(cat(points[p], " = part_", into[p], "[0]", at, ";"));
    close_points();
  }
  text_.line("__syncthreads();");  // before the next point writes them
}

void CooperativeEmitter::print_reduce(const loop::Reduce& reduce, const loop::Stmt& stmt) {
  const std::vector<DType> dtypes = dtypes_of(reduce);
  const std::vector<std::string> points = print_partial(reduce, stmt);
  for (size_t p = 0; p < points.size(); ++p) {
    const std::string result = text_.fresh("v");
    text_.line(cat(array().empty() ? "const " : "", text_.value_type(dtypes[p]), " ", result, array(),
                   array().empty() ? cat(" = ", body_.rounded(points[p], dtypes[p], 1)) : "", ";"));
    if (!array().empty()) {
      open_points();
      text_.line(cat(result, "[u] = ", body_.rounded(points[p], dtypes[p], 1), ";"));
      close_points();
    }
    body_.set_value(reduce.results[p], {of_point(result), dtypes[p], 1});
  }
}

}  // namespace stridec::codegen::cuda
