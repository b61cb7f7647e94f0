// A team of threads per point, or per several neighbouring points.
//
// Statements at the top of the body are done by every thread of the team alike; stores there by its first. A reduce or
// for at the top is dealt out. Rows: its dims are one range, cut into chunks of neighbours, and thread t of T does chunks
// t, t + T, ... Columns (the schedule's `columns %j`): a team does neighbouring points along %j, its threads are a grid of
// `lanes` along them times `rows` along the range, and a chunk is one element of the range for each of a lane's points.
// The threads' partial results of a reduce meet in a fixed tree, so results do not depend on timing.
//
// What is loaded at the same place by several of these loops (a row that is summed and then scaled) is loaded once: the
// same thread does the same chunks of equal ranges, so that its part stays in its registers, and so do local buffers
// that loops pass on in this way. That takes ranges of a few chunks a thread; longer ones are read again.
//
// A reduction of few columns and many rows is done in two launches: blocks that share the range leave their results in
// the workspace, and a thread per point combines them and goes on.
#include "compiler/codegen/cuda/team_emitter.h"

#include <algorithm>

#include "compiler/codegen/cuda/frame.h"
#include "compiler/codegen/cuda/prelude.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/schedule/effects.h"

namespace stridec::codegen::cuda {
namespace {

constexpr int64_t kSharedBytes = 40 << 10;  // of local buffers, without asking the driver for more

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

int statements(const loop::Block& block) {
  int count = 0;
  loop::for_each_stmt(block, [&](const loop::Stmt&) { ++count; });
  return count;
}

TeamEmitter::TeamEmitter(const loop::Program& program, const loop::Nest& original, const GpuTarget& target,
                         TeamVariant variant)
    : program(program),
      target(target),
      plan(schedule::parse_plan(original.schedule)),
      nest(schedule::reshaped(program, original, plan)),
      variant(variant),
      team(plan.team),
      teams(team > 32 || variant.columns ? 1 : 256 / team),  // barriers of larger teams are the block's
      rows(team),
      text_(program, kCudaText),
      body_(text_, nest),
      facts_(loop::facts_of(program, nest)) {
  if (variant.columns)
    column = *std::find_if(nest.dims.begin(), nest.dims.end(),
                           [&](const loop::Dim& dim) { return dim.var == *plan.columns; });
  choose_width();
  if (!variant.columns) return;
  // A row of the grid covers 128 bytes. Single elements may begin anywhere in a sector of memory: longer rows have
  // fewer of their sectors in common with neighbours. Fewer rows where the range is short.
  lanes = variant.vectors ? 8 : column.extent.is_const() ? 128 : 64;
  while (2 * lanes < team && longest() < 8 * team / lanes) lanes *= 2;
  while (lanes > 1 && facts_.holds(sym::le(column.extent, width * lanes / 2))) lanes /= 2;
  rows = team / lanes;
}

int64_t TeamEmitter::longest() const {
  int64_t most = 0;
  for (const loop::Stmt& stmt : nest.body) {
    if (!is_range(stmt)) continue;
    sym::Expr count = 1;
    for (const loop::Dim& dim : loop::dims_of(stmt)) count *= dim.extent;
    most = std::max(most, sym::as_const(count).value_or(INT64_MAX / 1024));
  }
  return most;
}

std::string TeamEmitter::local_element(const loop::Access& access) {
  if (!variant.columns || program[access.buffer].storage != loop::Storage::kLocal) return "";
  return cat(local_.at(access.buffer), "[(", body_.index(loop::offset_of(program, access)), ") * ",
             lanes * width, " + lane * ", width, width > 1 ? " + u]" : "]");
}

std::function<std::string(const loop::Access&)> TeamEmitter::top_place() {
  return [this](const loop::Access& access) { return local_element(access); };
}

std::string TeamEmitter::of_point(const std::string& name) const {
  return variant.columns && width > 1 ? name + "[u]" : name;
}

void TeamEmitter::open_points() {
  if (!variant.columns || width == 1) return;
  text_.line("#pragma unroll");
  text_.open(cat("for (int u = 0; u < ", width, "; ++u)"));
  body_.set_index(column.var, "(column + u)");
}

void TeamEmitter::close_points() {
  if (variant.columns && width > 1) text_.close();
}

void TeamEmitter::print_top(const loop::Stmt& stmt) {
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

bool TeamEmitter::passes_on(const loop::Stmt& stmt) {
  const loop::Effects effects = loop::effects_of(nest);
  const loop::Block one = {stmt};
  bool found = false;
  loop::for_each_stmt(one, [&](const loop::Stmt& s) {
    const auto* store = std::get_if<loop::Store>(&s.node);
    found = found || (store && !passed_.count(store->access.buffer) &&
                      std::count(effects.reads.begin(), effects.reads.end(), store->access.buffer));
  });
  return found;
}

void TeamEmitter::print_body() {
  body_.place = top_place();
  for (const loop::Stmt& stmt : nest.body) {
    if (const auto* reduce = std::get_if<loop::Reduce>(&stmt.node)) {
      print_reduce(*reduce, stmt);
    } else if (std::holds_alternative<loop::For>(stmt.node)) {
      print_range(range_of(stmt), [] {});
    } else if (std::holds_alternative<loop::Store>(stmt.node)) {
      text_.open(variant.columns ? "if (row == 0 && live)" : "if (row == 0)");
      print_top(stmt);
      text_.close();
    } else {
      print_top(stmt);
    }
    if (passes_on(stmt) && &stmt != &nest.body.back()) barrier();
  }
  // The next point may write what this one still reads.
  if (uses_locals_) barrier();
}

void TeamEmitter::declare_locals() {
  int64_t used = 0;
  const int each = variant.columns ? lanes * width : teams;  // points of a block
  for (const loop::BufferId id : loop::buffers_of(nest)) {
    const loop::Buffer& buffer = program[id];
    if (buffer.storage != loop::Storage::kLocal) continue;
    const std::string type = text_.storage_type(buffer.dtype);
    if (const auto found = passed_.find(id); found != passed_.end()) {
      declared_ += cat("    ", type, " ", found->second, "[", kept_chunks(), "][", width, "];\n");
      continue;
    }
    uses_locals_ = true;
    const std::string name = text_.fresh("l");
    const sym::Expr elements = schedule::extent_in_elements(buffer);
    const std::optional<int64_t> count = sym::as_const(elements);
    const int64_t bytes = count ? *count * byte_size(buffer.dtype) * each : 0;
    const int64_t length = std::max<int64_t>(count.value_or(1), 1);
    if (count && used + bytes <= kSharedBytes) {
      used += bytes;
      text_.line(cat("__shared__ ", type, " all_", name, "[", length * each, "];"));
      text_.line(cat(type, "* const ", name, " = all_", name,
                     variant.columns ? ";" : cat(" + (threadIdx.x / ", team, ") * ", length, ";")));
    } else {
      scratch_ = true;
      const sym::Expr of_team = variant.columns ? elements * each : elements;
      text_.line(cat(type, "* const ", name, " = (", type, "*)",
                     text_.scratch(of_team * byte_size(buffer.dtype)), ";"));
    }
    local_[id] = name;
    body_.set_buffer(id, name, buffer.strides);
  }
}

std::vector<loop::Dim> TeamEmitter::grid_dims() const {
  std::vector<loop::Dim> out;
  for (const loop::Dim& dim : nest.dims)
    if (!variant.columns || dim.var != column.var) out.push_back(dim);
  return out;
}

sym::Expr TeamEmitter::points() const {
  sym::Expr out = 1;
  for (const loop::Dim& dim : grid_dims()) out *= dim.extent;
  return out;
}

void TeamEmitter::print_indices(const std::vector<loop::Dim>& dims) {
  for (size_t d = dims.size(); d-- > 0;) {
    if (d == 0) return body_.set_index(dims[0].var, "rest");
    const std::string extent = body_.index(dims[d].extent), name = text_.fresh("t");
    text_.line(cat("const int64_t ", name, " = rest % ", extent, ";"));
    text_.line(cat("rest /= ", extent, ";"));
    body_.set_index(dims[d].var, name);
  }
}

void TeamEmitter::print_column() {
  text_.line(cat("const int64_t column_ = rest % ", body_.index(tiles()), " * ", lanes * width, " + lane * ",
                 width, ";"));
  text_.line(cat("rest /= ", body_.index(tiles()), ";"));
  text_.line(cat("const bool live = column_ < ", body_.index(column.extent), ";"));
  text_.line("const int64_t column = live ? column_ : 0;");  // a point that is there, for what all threads do
  body_.set_index(column.var, "column");
}

// The threads of the warp that meet in shuffles: teams have points of their own, and the last ones may have none.
void TeamEmitter::print_members() {
  text_.line(cat("const unsigned members = ",
                 team < 32 ? cat((1 << team) - 1, "u << (threadIdx.x & ", 32 - team, ");") : "~0u;"));
}

DeviceKernel TeamEmitter::emit() {
  count_wanted();
  declare_locals();
  const sym::Expr count = points() * tiles();
  const sym::Expr blocks = sym::min(sym::ceildiv(count, teams),
                                    scratch_ ? sym::Expr(8 * target.multiprocessors) : sym::Expr(1 << 24));
  const std::string n = body_.index(count);
  if (variant.columns)
    text_.line(cat("const int lane = threadIdx.x % ", lanes, ", row = threadIdx.x / ", lanes, ";"));
  else
    text_.line(cat("const int row = threadIdx.x % ", team, ";"));
  print_members();
  const std::string first =
      teams > 1 ? cat("blockIdx.x * (int64_t)", teams, " + threadIdx.x / ", team) : std::string("blockIdx.x");
  text_.open(
      cat("for (int64_t point = ", first, "; point < ", n, "; point += gridDim.x * (int64_t)", teams, ")"));
  text_.line("int64_t rest = point;");
  if (variant.columns) print_column();
  print_indices(grid_dims());
  const std::string statements = text_.capture([&] { print_body(); });
  text_.append(declared_ + statements);
  text_.close();
  Geometry geometry{.grid = {blocks, 1, 1}, .threads = threads(), .waits = target.dependent_launch};
  geometry.scratch_owners = blocks * teams;
  geometry.scratch_owner = first;
  return finish(text_, std::move(geometry), cat(kTeamDeclarations, strip_declarations()));
}

DeviceNest emit_teams(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target) {
  DeviceNest out;
  auto add = [&](TeamVariant variant) {
    if (out.is_complete()) return;
    TeamEmitter probe(program, nest, target, variant);
    if (variant.vectors && !probe.any_vectors()) return;
    // The longest range decides whether all fit.
    std::vector<sym::Expr> conditions;
    for (const loop::Stmt& stmt : probe.nest.body) {
      if (!is_range(stmt)) continue;
      const TeamEmitter::Range range = probe.range_of(stmt);
      if (variant.keep)
        conditions.push_back(sym::le(range.chunks, probe.kept_chunks() * probe.rows));
      else if (variant.narrow)
        conditions.push_back(sym::lt(range.chunks, kManyChunks));
    }
    probe.count_wanted();
    if (variant.keep && !probe.keeps_something()) return;
    // Single elements are kept where their copies stay few; vectors are worth more.
    if (variant.keep &&
        probe.kept_chunks() * statements(probe.nest.body) > (variant.vectors ? 4 : 2) * kUnrolled)
      return;
    if (variant.split) {
      if (!probe.only_reduction() || probe.has_locals()) return;
      conditions.push_back(sym::ge(probe.splits(), 2));
    }
    conditions.insert(conditions.end(), probe.conditions.begin(), probe.conditions.end());
    const sym::Expr condition = sym::simplify(sym::logical_and(conditions), program.facts);
    if (condition.is_const(0)) return;
    DeviceChoice choice{condition, probe.aligned, {}};
    TeamEmitter emitter(program, nest, target, variant);
    if (variant.split) {
      choice.launches.push_back(emitter.emit_split());
      TeamEmitter second(program, nest, target, variant);
      choice.launches.push_back(second.emit_combination(probe.splits(), choice.launches[0].workspace_bytes));
    } else {
      choice.launches.push_back(emitter.emit());
    }
    out.choices.push_back(std::move(choice));
  };
  const bool columns = schedule::parse_plan(nest.schedule).columns.has_value();
  for (const bool vectors : {true, false}) {
    if (columns) add({.columns = true, .vectors = vectors, .split = true, .narrow = true});
    add({.columns = columns, .keep = true, .vectors = vectors});
    add({.columns = columns, .vectors = vectors, .narrow = true});
  }
  add({.columns = columns});
  return out;
}

}  // namespace stridec::codegen::cuda
