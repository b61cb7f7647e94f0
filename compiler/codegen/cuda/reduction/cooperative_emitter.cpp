// Assembles the kernel: threads per point, points per block, top-level statements and the loop over points.
#include "compiler/codegen/cuda/reduction/cooperative_emitter.h"

#include <algorithm>
#include <set>

#include "compiler/codegen/cuda/common/frame.h"
#include "compiler/codegen/cuda/common/prelude.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/schedule/algebra/recompute_rows.h"
#include "compiler/schedule/analysis/effects.h"
#include "compiler/schedule/analysis/typical.h"

namespace stridec::codegen::cuda {
namespace {

// Per multiprocessor, with registers for their part of a row of single elements.
constexpr int kKeepingThreads = 768;
// Registers per thread of vectorised columns besides those that keep its part; without a limit, addresses
// would take all registers.
constexpr int kOtherRegisters = 40, kRegistersSm = 1 << 16;
// If points share work, one block with as many threads as possible does it once for all points of a
// multiprocessor. With kAloneBytes of shared memory, two blocks do not fit one multiprocessor: the blocks of
// a kernel that is launched while its predecessor still runs would otherwise crowd on the multiprocessors
// that become free first.
constexpr int kMostThreads = 1024;
constexpr int64_t kAloneBytes = 115 << 10;
// Cost of a division by a symbol, in statements: for 64-bit values, and for 32-bit chunk indices.
constexpr int kDivision = 32, kDigit = 8;

using sym::Expr;

// Number of divisions by symbols to decompose an index of the dims' range.
int digits(const std::vector<loop::Dim>& dims) {
  return static_cast<int>(std::count_if(dims.begin() + !dims.empty(), dims.end(),
                                        [](const loop::Dim& dim) { return !dim.extent.is_const(); }));
}

// Recomputes rows that neither registers nor shared memory keep. With vectorised columns it also recomputes
// rows that registers would keep although narrower ones determine them: fewer registers allow more threads.
// If shared memory keeps what is loaded, everything derived from it is recomputed.
loop::Nest prepared(const loop::Program& program, loop::Nest nest, const TeamVariant& variant) {
  nest = schedule::with_merged_loops(program, std::move(nest));
  if (variant.keep && variant.columns && variant.vectors) {
    int narrowest = 8;
    loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
      const auto* load = std::get_if<loop::Load>(&stmt.node);
      if (load && program[load->access.buffer].storage != loop::Storage::kLocal)
        narrowest = std::min(narrowest, byte_size(program[load->access.buffer].dtype));
    });
    return schedule::with_rows_recomputed(program, std::move(nest), [&](loop::BufferId id) {
      return byte_size(program[id].dtype) > narrowest;
    });
  }
  if (variant.keep) return nest;
  return schedule::with_rows_recomputed(program, std::move(nest), [&](loop::BufferId id) {
    const std::optional<int64_t> count = sym::as_const(schedule::extent_in_elements(program[id]));
    return variant.shared || !count || *count * byte_size(program[id].dtype) > kSharedBytes;
  });
}

}  // namespace

const std::string_view kTeamDeclarations =
    R"(template <class T> static inline T sd_shuffle(unsigned members, T x, int distance) {
  if constexpr (sizeof(T) == 8)
    return __builtin_bit_cast(T, __shfl_xor_sync(members, __builtin_bit_cast(unsigned long long, x), distance));
  else if constexpr (sizeof(T) == 4)
    return __builtin_bit_cast(T, __shfl_xor_sync(members, __builtin_bit_cast(unsigned, x), distance));
  else
    return (T)__shfl_xor_sync(members, (int)x, distance);
}
)";

int CooperativeEmitter::statements_of(const Range& range) const {
  const bool small = std::string_view(chunk_type(range)) == "int";
  return statements(*range.block) + digits(range.dims) * (small ? kDigit : kDivision);
}

int statements(const loop::Block& block) {
  int count = 0;
  loop::for_each_stmt(block, [&](const loop::Stmt& stmt) {
    ++count;
    count += digits(loop::dims_of(stmt)) * kDigit;
    std::set<Expr, sym::ExprLess> divisions;
    loop::for_each_expr(stmt, [&](Expr e) {
      sym::for_each_node(e, [&](Expr node) {
        const bool divides = node.op() == sym::Op::kFloorDiv || node.op() == sym::Op::kMod;
        if (divides && !node.arg(1).is_const()) divisions.insert(node);
      });
    });
    count += kDivision * static_cast<int>(divisions.size());
  });
  return count;
}

CooperativeEmitter::CooperativeEmitter(const loop::Program& program, const loop::Nest& original,
                                       const GpuTarget& target, TeamVariant variant)
    : program(program),
      target(target),
      plan(schedule::parse_plan(original.schedule)),
      nest(prepared(program, schedule::reshaped(program, original, plan), variant)),
      variant(variant),
      team(variant.team ? variant.team : plan.team),
      teams(team > 32 || variant.columns ? 1 : 256 / team),  // barriers of larger groups are block-wide
      rows(team),
      text_(program, kCudaText),
      body_(text_, nest),
      facts_(loop::facts_of(program, nest)) {
  if (variant.columns)
    column = *std::find_if(nest.dims.begin(), nest.dims.end(),
                           [&](const loop::Dim& dim) { return dim.var == *plan.columns; });
  choose_width();
  if (!variant.columns) common_ = find_common();
  if (common_ && team <= 32) teams = kMostThreads / team;
  if (!variant.shifted) plan_stream();
  if (!stream_.empty()) teams = stream_warps();
  threads_ = team * teams;
  if (!variant.columns) return;
  // A row of the grid covers 128 bytes. Single elements may begin anywhere in a memory sector, so longer rows
  // share fewer sectors with their neighbours. Short ranges use fewer rows.
  lanes = variant.covered ? 32 : variant.vectors ? 8 : column.extent.is_const() ? 128 : 64;
  // With few tiles of columns multiprocessors would idle, and ranges are long in that case: 64 bytes per row
  // suffice.
  constexpr int kFewLanes = 32;
  const double all = schedule::typical(points() * column.extent, facts_);
  while (lanes > kFewLanes && !variant.vectors && all < 2.0 * target.multiprocessors * lanes) lanes /= 2;
  while (2 * lanes < team && longest() < 8 * team / lanes) lanes *= 2;
  while (lanes > 1 && facts_.holds(sym::le(column.extent, width * lanes / 2))) lanes /= 2;
  rows = team / lanes;
  if (variant.covered && width > 1) phase_ = find_phase();
}

int64_t CooperativeEmitter::most_of(const std::function<int64_t(sym::Expr)>& elements) const {
  int64_t most = 0;
  for (const loop::Stmt& stmt : nest.body)
    if (is_range(stmt)) most = std::max(most, elements(loop::extent_of(loop::dims_of(stmt))));
  return most;
}

int64_t CooperativeEmitter::longest() const {
  return most_of([](sym::Expr count) { return sym::as_const(count).value_or(INT64_MAX / 1024); });
}

int64_t CooperativeEmitter::longest_bound() const {
  return most_of([&](sym::Expr count) {
    const sym::Interval bounds = facts_.bounds(count);
    return bounds.has_hi() ? bounds.hi : INT64_MAX;
  });
}

std::string CooperativeEmitter::of_point(const std::string& name) const {
  return variant.columns && width > 1 ? name + "[u]" : name;
}

void CooperativeEmitter::open_points() {
  if (!variant.columns || width == 1) return;
  text_.line("#pragma unroll");
  text_.open(cat("for (int u = 0; u < ", width, "; ++u)"));
  body_.set_index(column.var, "(column + u)");
}

void CooperativeEmitter::close_points() {
  if (variant.columns && width > 1) text_.close();
}

void CooperativeEmitter::print_top(const loop::Stmt& stmt) {
  if (array().empty() || std::holds_alternative<loop::Constant>(stmt.node)) {
    if (variant.columns && width == 1) body_.set_index(column.var, "column");
    return body_.print(stmt);
  }
  std::vector<loop::ValueId> results;
  loop::for_each_result(stmt, [&](loop::ValueId id) { results.push_back(id); });
  std::vector<std::string> names;
  for (loop::ValueId id : results) {
    names.push_back(text_.fresh("v"));
    text_.line(cat(text_.value_type(nest.values[id.value].dtype), " ", names.back(), array(), ";"));
  }
  open_points();
  body_.print(stmt);
  for (size_t i = 0; i < results.size(); ++i) {
    const CValue value = body_.value(results[i]);
    text_.line(cat(names[i], "[u] = ", value.text, ";"));
    body_.set_value(results[i], {names[i] + "[u]", value.dtype, 1});
  }
  close_points();
}

void CooperativeEmitter::print_statement(size_t at) {
  const loop::Stmt& stmt = nest.body[at];
  const loop::Access* access = loop::access_of(stmt);
  if (access && same_.contains(access->buffer)) return print_top(stmt);
  synchronise_before(at, at + 1);
  if (const auto* reduce = std::get_if<loop::Reduce>(&stmt.node)) {
    print_reduce(*reduce, stmt);
  } else if (std::holds_alternative<loop::For>(stmt.node)) {
    print_range(range_of(stmt), [] {});
  } else if (std::holds_alternative<loop::Store>(stmt.node)) {
    text_.open(variant.columns || variant.parts ? "if (row == 0 && live)" : "if (row == 0)");
    print_top(stmt);
    text_.close();
  } else {
    print_top(stmt);
  }
}

void CooperativeEmitter::print_body() {
  body_.place = top_place();
  for (const size_t at : free_.early) print_top(nest.body[at]);
  print_eager();
  for (size_t at = common_; at < nest.body.size(); ++at)
    if (!free_.contains(at)) print_statement(at);
  // The next point may overwrite what this one still reads.
  if (uses_locals_) barrier();
}

std::vector<loop::Dim> CooperativeEmitter::grid_dims() const {
  std::vector<loop::Dim> out;
  for (const loop::Dim& dim : nest.dims)
    if (!variant.columns || dim.var != column.var) out.push_back(dim);
  return out;
}

sym::Expr CooperativeEmitter::points() const {
  sym::Expr out = 1;
  for (const loop::Dim& dim : grid_dims()) out *= dim.extent;
  return out;
}

void CooperativeEmitter::print_column() {
  if (phase_) {
    text_.line(cat("const int64_t own = rest % ", body_.index(tiles()), " * ", body_.index(tile_columns()),
                   " + lane * ", width, ";"));
    text_.line(cat("rest /= ", body_.index(tiles()), ";"));
    return;
  }
  text_.line(cat("const int64_t column_ = rest % ", body_.index(tiles()), " * ", lanes * width, " + lane * ",
                 width, ";"));
  text_.line(cat("rest /= ", body_.index(tiles()), ";"));
  text_.line(cat("const bool live = column_ < ", body_.index(column.extent), ";"));
  // An existing point, for what all threads execute.
  text_.line("const int64_t column = live ? column_ : 0;");
  body_.set_index(column.var, "column");
}

// For threads whose vectors begin `phase` columns before their own columns. The neighbouring tile also
// computes the columns that the tile's last vector has beyond the tile.
void CooperativeEmitter::print_phase() {
  body_.set_index(loop::dims_of(*only_reduction())[0].var, "row");
  text_.line(cat("const int phase = (int)((", body_.index(*phase_), ") & ", width - 1, ");"));
  text_.line(cat("const bool live = lane * ", width, " - phase < ", body_.index(tile_columns()),
                 " && own - phase < ", body_.index(column.extent), ";"));
  text_.line(cat("const int64_t column = own - phase - (live ? 0 : lane * ", width, ");"));
  body_.set_index(column.var, "column");
}

std::string members_text(int team) {
  return cat("const unsigned members = ",
             team < 32 ? cat((1 << team) - 1, "u << (threadIdx.x & ", 32 - team, ");") : "~0u;");
}

void open_points_together(KernelText& text, int team, int teams, const std::string& count) {
  text.open(cat("for (int64_t all = blockIdx.x * (int64_t)", teams, " + threadIdx.x / 32 * ", 32 / team,
                "; all < ", count, "; all += gridDim.x * (int64_t)", teams, ")"));
  text.line(cat("const int64_t own = all + threadIdx.x % 32 / ", team, ";"));
  text.line(cat("const bool live = own < ", count, ";"));
  text.line(cat("const int64_t point = live ? own : ", count, " - 1;"));
}

DeviceKernel CooperativeEmitter::emit() {
  count_wanted();
  plan_locals();
  declare_locals();
  const sym::Expr count = points() * tiles(), scratch = scratch_of_locals();
  const sym::Expr blocks =
      sym::min(sym::ceildiv(count, teams), !scratch.is_const(0) ? sym::Expr(8 * target.multiprocessors)
                                           : persists()         ? sym::Expr(target.multiprocessors)
                                                                : sym::Expr(1 << 24));
  const std::string n = body_.index(count);
  if (variant.columns)
    text_.line(cat("const int lane = threadIdx.x % ", lanes, ", row = threadIdx.x / ", lanes, ";"));
  else
    text_.line(cat("const int row = threadIdx.x", common_ ? "" : cat(" % ", team), ";"));
  text_.line(members_text(variant.parts ? std::max(32, team) : team));
  free_ = find_free();
  // Points are assigned to blocks in turn, so that blocks have equal numbers of points, or to one block as
  // neighbours. With a stream, blocks get equal runs of neighbouring points, so that the memory that a block
  // reads at a time is contiguous. The first point of such a run is computed in 32 bits where these suffice:
  // 64-bit divisions by unknown values would take longer than the stream's first copies.
  const auto all = sym::as_const(sym::simplify(count * (blocks + 1), program.facts));
  const bool few = !stream_.empty() && all && *all <= INT32_MAX;
  const std::string number = few ? "int" : "int64_t";
  const auto share = [&](const std::string& block) {
    return few ? cat("(int)(", n, "u * ", block, " / ", sym::as_const(blocks).value(), "u)")
               : cat("(int64_t)", n, " * ", block, " / gridDim.x");
  };
  const std::string one_by_one = cat("blockIdx.x * (int64_t)", teams, " + threadIdx.x / ", team);
  const std::string first = !stream_.empty() ? cat(share("blockIdx.x"), " + threadIdx.x / ", team)
                            : teams == 1     ? std::string("blockIdx.x")
                            : common_ ? cat("blockIdx.x + (int64_t)gridDim.x * (threadIdx.x / ", team, ")")
                                      : one_by_one;
  if (!stream_.empty()) text_.line(cat("const ", number, " points_end = ", share("(blockIdx.x + 1)"), ";"));
  const std::string ahead =
      variant.columns || !target.dependent_launch ? "" : text_.capture([&] { print_prefetch(first, n); });
  const bool waits = !stream_.empty() || ahead.find("prefetch") != std::string::npos;
  const std::string end = stream_.empty() ? n : "points_end",
                    step = cat(stream_.empty() ? "gridDim.x * (int64_t)" : "", teams);
  if (!stream_.empty()) print_stream(number, first, end);
  if (waits) text_.append(wait_text(ahead));
  for (const size_t at : free_.first) print_top(nest.body[at]);
  print_common();
  for (const size_t at : free_.once) print_top(nest.body[at]);
  print_rows();
  if (variant.parts) {
    open_points_together(text_, team, teams, end);
  } else {
    text_.open(cat("for (", number, " point = ", first, "; point < ", end, "; point += ", step, ")"));
  }
  if (common_) text_.line(cat("const int row = threadIdx.x % ", team, ";"));
  text_.line("int64_t rest = point;");
  if (variant.columns) print_column();
  print_indices(text_, body_, grid_dims());
  if (start_)
    text_.line(cat("const int ", variant.parts ? "phase = " : "head = ", width - 1, " & ",
                   variant.parts ? "" : "-", "(int)(", body_.index(*start_), ");"));
  if (variant.shared) declared_ += dynamic_shared("kept", target.shared_bytes, 16);
  const std::string statements = text_.capture([&] { print_body(); });
  text_.append(declared_ + statements);
  text_.close();
  Geometry geometry{.grid = {blocks, 1, 1}, .threads = threads()};
  if (variant.keep && width == 1 && !variant.columns)
    geometry.blocks_sm = std::max(1, kKeepingThreads / threads());
  if (variant.keep && width > 1 && variant.columns && passed_.empty())
    geometry.blocks_sm = std::max(1, kRegistersSm / (threads() * (kOtherRegisters + kept_words_)));
  if (common_ && teams > 1 && target.dependent_launch)
    geometry.shared_bytes = kAloneBytes, geometry.blocks_sm = 1;
  if (!stream_.empty()) {
    geometry.shared_bytes = std::max(kAloneBytes - shared_used_, stream_bytes());
    geometry.blocks_sm = 2;
  }
  if (variant.shared) geometry.shared_bytes = shared_bytes_;
  geometry.dependent_launch = target.dependent_launch;
  geometry.waits = target.dependent_launch && !waits;
  geometry.scratch_bytes = scratch;
  geometry.scratch_owners = blocks * teams;
  geometry.scratch_owner = stream_.empty() ? first : one_by_one;
  return finish(text_, std::move(geometry),
                cat(kTeamDeclarations, strip_declarations(), stream_.empty() ? "" : kStreamDeclarations));
}

}  // namespace stridec::codegen::cuda
