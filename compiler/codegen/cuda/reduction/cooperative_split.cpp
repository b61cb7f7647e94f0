// Split reductions, for long reductions with few outputs: the launch in which blocks split the range and
// store one result each in the workspace, and the launch that combines these.
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

constexpr int kCombineRows = 8;   // rows of a combining block, 32 points wide
constexpr int kBatchesAhead = 2;  // batches that a thread prefetches while the preceding kernel still runs

// Threads per multiprocessor that have registers for all loads that they issue at a time.
int threads_together(bool covered) { return covered ? 768 : 1024; }

int value_bytes(DType dtype) { return is_storage_float(dtype) ? 4 : byte_size(dtype); }

}  // namespace

const loop::Stmt* CooperativeEmitter::only_reduction() const {
  const loop::Stmt* found = nullptr;
  for (const loop::Stmt& stmt : nest.body) {
    if (!loop::body_of(stmt)) continue;
    if (found || !std::holds_alternative<loop::Reduce>(stmt.node)) return nullptr;
    found = &stmt;
  }
  return found;
}

sym::Expr CooperativeEmitter::splits() {
  const Range range = range_of(*only_reduction());
  // All of them run at once, with equal numbers of batches.
  const sym::Expr room = sym::max(
                      1, sym::floordiv(threads_together(covers_columns()) / team * target.multiprocessors,
                                       sym::max(1, points() * tiles()))),
                  batches = sym::ceildiv(range.chunks, batch_of(range, held_loads(range)) * rows);
  return sym::simplify(sym::max(1, sym::ceildiv(batches, sym::max(1, sym::ceildiv(batches, room)))),
                       program.facts);
}

sym::Expr CooperativeEmitter::part_offset(const std::vector<DType>& dtypes, size_t part) {
  sym::Expr out = 0;
  for (size_t p = 0; p < part; ++p) out += sym::align_up(part_elements() * value_bytes(dtypes[p]), 64);
  return out;
}

void CooperativeEmitter::print_ahead(const Range& range, const std::string& blocks) {
  if (!range.strip || !variant.columns || phase_) return;
  std::vector<const loop::Access*> accesses;
  const std::vector<const loop::Stmt*> loads = held_loads(range);
  for (const loop::Stmt* stmt : loads) {
    const loop::Access& access = *loop::access_of(*stmt);
    const loop::Storage storage = program[access.buffer].storage;
    if ((storage == loop::Storage::kInput || storage == loop::Storage::kParameter) && access.mask.is_const(1))
      accesses.push_back(&access);
  }
  if (accesses.empty()) return;
  const int together = batch_of(range, loads);
  const sym::Facts outer = facts_;
  for (const loop::Dim& dim : range.dims) facts_.set_index(dim.var, dim.extent);
  text_.open("");
  print_count(range);
  text_.line("#pragma unroll 1");
  text_.open(cat("for (int ahead = 0; ahead < ", kBatchesAhead, "; ++ahead)"));
  text_.line(cat("const ", chunk_type(range), " from = (split + ahead * ", blocks, ") * ", together * rows,
                 " + row;"));
  text_.line(cat("if (from >= ", chunks_, ") break;"));
  body_.set_index(range.strip->var, "column");
  print_chunks(range, "from", together, Batch::kLoads, [&](const std::string&, const std::string&) {
    for (const loop::Access* access : accesses) print_l2_prefetch(*access);
  });
  text_.close();
  text_.close();
  facts_ = outer;
}

DeviceKernel CooperativeEmitter::emit_split() {
  const loop::Stmt& stmt = *only_reduction();
  const auto& reduce = std::get<loop::Reduce>(stmt.node);
  const std::vector<DType> dtypes = dtypes_of(reduce);
  const Range range = range_of(stmt);
  const std::string n = text_.size(splits());
  text_.line(variant.columns
                 ? cat("const int lane = threadIdx.x % ", lanes, ", row = threadIdx.x / ", lanes, ";")
                 : "const int row = threadIdx.x;");
  text_.line(members_text(team));
  text_.line("int64_t rest = blockIdx.x;");
  if (variant.columns) print_column();
  text_.line(cat("const int64_t split = rest % ", n, ", point = rest / ", n, ";"));
  text_.line("rest = point;");
  print_indices(text_, body_, grid_dims());
  if (phase_) print_phase();
  const std::string ahead =
      target.dependent_launch ? text_.capture([&] { print_ahead(range, n); }) : std::string();
  if (!ahead.empty()) text_.append(wait_text(ahead));
  for (const loop::Stmt& before : nest.body) {
    if (&before == &stmt) break;
    if (!std::holds_alternative<loop::Store>(before.node)) print_top(before);
  }
  const std::vector<std::string> parts = print_partial(reduce, stmt);
  const std::string own = phase_ ? "own" : "column";
  text_.open(!variant.columns ? "if (row == 0)"
             : phase_         ? cat("if (row == 0 && lane * ", width, " < ", body_.index(tile_columns()), ")")
                              : "if (row == 0 && live)");
  open_points();
  for (size_t p = 0; p < parts.size(); ++p) {
    const std::string type = text_.value_type(dtypes[p]);
    if (variant.covered) text_.open(cat("if (", own, " + u < ", body_.index(column.extent), ")"));
    text_.line(
        cat("((", type, "*)(workspace + ", text_.size(part_offset(dtypes, p)), "))[(split * ",
            text_.size(points()), " + point)",
            variant.columns ? cat(" * ", text_.size(column.extent), " + ", own, width > 1 ? " + u" : "") : "",
            "] = ", parts[p], ";"));
    if (variant.covered) text_.close();
  }
  close_points();
  text_.close();
  Geometry geometry{.grid = {points() * tiles() * splits(), 1, 1},
                    .threads = threads(),
                    .blocks_sm = threads_together(covers_columns()) / team,
                    .waits = target.dependent_launch && ahead.empty()};
  geometry.dependent_launch = target.dependent_launch;
  geometry.workspace_bytes = part_offset(dtypes, parts.size());
  return finish(text_, std::move(geometry), cat(kTeamDeclarations, strip_declarations()));
}

DeviceKernel CooperativeEmitter::emit_combination(sym::Expr shares, sym::Expr workspace) {
  const auto& reduce = std::get<loop::Reduce>(only_reduction()->node);
  const std::vector<DType> dtypes = dtypes_of(reduce);
  const sym::Expr elements = shares * points() * columns();
  text_.line(cat("const int64_t point = blockIdx.x * (int64_t)32 + threadIdx.x % 32, all = ",
                 body_.index(points() * columns()), ";"));
  text_.line("const int64_t at = point < all ? point : all - 1;");
  text_.line("const int row = threadIdx.x / 32;");
  // Combines the partial results of every eighth split, in order, and then those of the rows.
  std::vector<std::string> into;
  sym::Expr offset = 0;
  for (size_t p = 0; p < dtypes.size(); ++p) {
    const std::string type = text_.value_type(dtypes[p]);
    into.push_back(text_.fresh("a"));
    text_.line(cat(type, " ", into[p], " = ", body_.identity(reduce.combine, dtypes[p], p), ";"));
    text_.line(cat("const ", type, "* const from_", into[p], " = (const ", type, "*)(workspace + ",
                   text_.size(offset), ") + at;"));
    text_.line(cat("__shared__ ", type, " part_", into[p], "[", kCombineRows, "][32];"));
    offset += sym::align_up(elements * value_bytes(dtypes[p]), 64);
  }
  auto combine = [&](const std::function<std::string(const std::string&)>& element) {
    std::vector<std::string> from;
    for (size_t p = 0; p < dtypes.size(); ++p) {
      from.push_back(text_.fresh("v"));
      text_.line(cat("const ", text_.value_type(dtypes[p]), " ", from[p], " = ", element(into[p]), ";"));
    }
    body_.print_combine(reduce.combine, into, from, dtypes, 1);
  };
  text_.line("#pragma unroll 8");
  text_.open(cat("for (int64_t s = row; s < ", text_.size(shares), "; s += ", kCombineRows, ")"));
  combine([](const std::string& a) { return cat("from_", a, "[s * all]"); });
  text_.close();
  for (const std::string& a : into) text_.line(cat("part_", a, "[row][threadIdx.x % 32] = ", a, ";"));
  text_.line("__syncthreads();");
  text_.line("if (row > 0 || point >= all) return;");
  text_.line("#pragma unroll");
  text_.open(cat("for (int r = 1; r < ", kCombineRows, "; ++r)"));
  combine([](const std::string& a) { return cat("part_", a, "[r][threadIdx.x % 32]"); });
  text_.close();
  if (variant.columns) {
    text_.line(cat("int64_t rest = at / ", body_.index(column.extent), ";"));
    text_.line(cat("const int64_t column = at % ", body_.index(column.extent), ";"));
    body_.set_index(column.var, "column");
  } else {
    text_.line("int64_t rest = at;");
  }
  print_indices(text_, body_, grid_dims());
  for (const loop::Stmt& stmt : nest.body) {
    if (&stmt != only_reduction()) {
      body_.print(stmt);
      continue;
    }
    for (size_t p = 0; p < dtypes.size(); ++p) {
      const std::string result = text_.fresh("v");
      text_.line(cat("const ", text_.value_type(dtypes[p]), " ", result, " = ",
                     body_.rounded(into[p], dtypes[p], 1), ";"));
      body_.set_value(reduce.results[p], {result, dtypes[p], 1});
    }
  }
  Geometry geometry{.grid = {sym::ceildiv(points() * columns(), 32), 1, 1},
                    .threads = 32 * kCombineRows,
                    .waits = target.dependent_launch};
  geometry.workspace_bytes = workspace;
  return finish(text_, std::move(geometry));
}

}  // namespace stridec::codegen::cuda
