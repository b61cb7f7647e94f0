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
// A local buffer of rows that one of these loops makes and uses in each of its rounds, without an index that tells the
// rounds apart, is the thread's own: rounds are dealt out, and run at once.
//
// A long reduction of few points is done in two launches: blocks that share the range leave their results in the workspace,
// and a thread per point combines them and goes on.
#include "compiler/codegen/cuda/team_emitter.h"

#include <algorithm>
#include <set>

#include "compiler/base/check.h"
#include "compiler/codegen/cuda/frame.h"
#include "compiler/codegen/cuda/prelude.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/schedule/choose_contraction.h"
#include "compiler/schedule/effects.h"
#include "compiler/schedule/recompute_rows.h"

namespace stridec::codegen::cuda {
namespace {

constexpr int64_t kSharedBytes = 40 << 10;  // of local buffers, without asking the driver for more
constexpr int64_t kStackBytes = 1024;       // of those of a thread's rounds, in its own memory
constexpr int kSplitTeam = 512;             // of blocks that share a row
constexpr int64_t kShortChunks = 64;        // of a thread, before a larger team pays
constexpr int kKeepingThreads =
    768;  // of a multiprocessor, with registers for their part of a row of single elements
// Of a thread of columns by vectors, beside those that keep its part; left to the compiler, addresses take all that there are.
constexpr int kOtherRegisters = 40, kRegistersSm = 1 << 16;
// Where points have work in common, a block of as many threads as can be does it once for all points of a multiprocessor.
// With so much shared memory two blocks do not fit one: those of a kernel that is launched while its predecessor still runs
// would crowd on the multiprocessors that are free first.
constexpr int kMostThreads = 1024;
constexpr int64_t kAloneBytes = 115 << 10;
// What dividing by a symbol comes to, in statements: of 64-bit numbers, and of a chunk's number, which has 32.
constexpr int kDivision = 32, kDigit = 8;

using sym::Expr;

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

namespace {

// Of a number of the dims' range: those that take a division by a symbol.
int digits(const std::vector<loop::Dim>& dims) {
  return static_cast<int>(std::count_if(dims.begin() + !dims.empty(), dims.end(),
                                        [](const loop::Dim& dim) { return !dim.extent.is_const(); }));
}

}  // namespace

int TeamEmitter::statements_of(const Range& range) const {
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

namespace {

// Rows that neither registers nor shared memory keep are computed again, and so are those of columns by vectors that
// registers would keep beside narrower ones that they are made from: threads with few registers are more.
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
    return !count || *count * byte_size(program[id].dtype) > kSharedBytes;
  });
}

}  // namespace

TeamEmitter::TeamEmitter(const loop::Program& program, const loop::Nest& original, const GpuTarget& target,
                         TeamVariant variant)
    : program(program),
      target(target),
      plan(schedule::parse_plan(original.schedule)),
      nest(prepared(program, schedule::reshaped(program, original, plan), variant)),
      variant(variant),
      team(variant.team ? variant.team : plan.team),
      teams(team > 32 || variant.columns ? 1 : 256 / team),  // barriers of larger teams are the block's
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
  // A row of the grid covers 128 bytes. Single elements may begin anywhere in a sector of memory: longer rows have
  // fewer of their sectors in common with neighbours. Fewer rows where the range is short.
  lanes = variant.covered ? 32 : variant.vectors ? 8 : column.extent.is_const() ? 128 : 64;
  // Few tiles of columns leave multiprocessors idle, and their ranges are long then: 64 bytes a row will do.
  constexpr int kFewLanes = 32;
  const double all = schedule::typical(points() * column.extent, facts_);
  while (lanes > kFewLanes && !variant.vectors && all < 2.0 * target.multiprocessors * lanes) lanes /= 2;
  while (2 * lanes < team && longest() < 8 * team / lanes) lanes *= 2;
  while (lanes > 1 && facts_.holds(sym::le(column.extent, width * lanes / 2))) lanes /= 2;
  rows = team / lanes;
}

int64_t TeamEmitter::most_of(const std::function<int64_t(sym::Expr)>& elements) const {
  int64_t most = 0;
  for (const loop::Stmt& stmt : nest.body)
    if (is_range(stmt)) most = std::max(most, elements(loop::extent_of(loop::dims_of(stmt))));
  return most;
}

int64_t TeamEmitter::longest() const {
  return most_of([](sym::Expr count) { return sym::as_const(count).value_or(INT64_MAX / 1024); });
}

int64_t TeamEmitter::longest_bound() const {
  return most_of([&](sym::Expr count) {
    const sym::Interval bounds = facts_.bounds(count);
    return bounds.has_hi() ? bounds.hi : INT64_MAX;
  });
}

bool TeamEmitter::is_of_round(loop::BufferId id) const {
  const loop::Stmt* only = nullptr;
  bool in_one = true, apart = true;
  for (const loop::Stmt& top : nest.body)
    loop::for_each_stmt({top}, [&](const loop::Stmt& stmt) {
      const loop::Access* access = loop::access_of(stmt);
      if (!access || access->buffer != id) return;
      in_one = in_one && is_range(top) && (!only || only == &top);
      only = &top;
      const std::vector<Expr>& index = access->index;
      for (const loop::Dim& dim : loop::dims_of(top))
        apart = apart && std::find(index.begin(), index.end(), dim.var) != index.end();
    });
  return only && in_one && !apart;
}

std::string TeamEmitter::local_element(const loop::Access& access) {
  if (!variant.columns || program[access.buffer].storage != loop::Storage::kLocal) return "";
  const bool own = of_round_.contains(access.buffer);
  return cat(local_.at(access.buffer), "[(", body_.index(loop::offset_of(program, access)), ") * ",
             own ? cat(width) : cat(lanes * width, " + lane * ", width), width > 1 ? " + u]" : "]");
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

std::vector<TeamEmitter::Touch> TeamEmitter::touches(const loop::Stmt& top) {
  std::vector<Touch> out;
  sym::Facts inside = facts_;
  loop::for_each_stmt({top}, [&](const loop::Stmt& stmt) {
    for (const loop::Dim& dim : loop::dims_of(stmt)) inside.set_index(dim.var, dim.extent);
    if (const auto* bind = std::get_if<loop::Bind>(&stmt.node)) inside.set_index(bind->var, bind->extent);
  });
  const auto add = [&](const loop::Stmt& stmt, const std::string& place) {
    const loop::Access* access = loop::access_of(stmt);
    if (!access || passed_.contains(access->buffer) || of_round_.contains(access->buffer) ||
        same_.contains(access->buffer))
      return;
    Touch touch{access->buffer, std::holds_alternative<loop::Store>(stmt.node), place, {}, {}};
    touch.offset = inside.bounds(loop::offset_of(program, *access));
    bool within = true;
    for (size_t d = 0; d < access->index.size(); ++d) {
      const sym::Expr index = access->index[d];
      touch.box.push_back(inside.bounds(index));
      within = within && inside.holds(sym::ge(index, 0)) &&
               inside.holds(sym::lt(index, program[access->buffer].shape[d]));
    }
    if (!within) touch.box.clear();
    out.push_back(std::move(touch));
  };
  const loop::Block* block = loop::body_of(top);
  if (!is_range(top)) {
    add(top, "");
    if (block) loop::for_each_stmt(*block, [&](const loop::Stmt& stmt) { add(stmt, ""); });
    return out;
  }
  const Range range = range_of(top);
  for (const loop::Stmt& stmt : *block) {
    const loop::Access* access = loop::access_of(stmt);
    add(stmt, access ? place_of(range, *access) : "");
    if (const loop::Block* inner = loop::body_of(stmt))
      loop::for_each_stmt(*inner, [&](const loop::Stmt& s) { add(s, ""); });
  }
  return out;
}

bool TeamEmitter::apart(const Touch& a, const Touch& b) {
  const auto disjoint = [](const sym::Interval& x, const sym::Interval& y) {
    return (x.has_hi() && y.has_lo() && x.hi < y.lo) || (y.has_hi() && x.has_lo() && y.hi < x.lo);
  };
  for (size_t d = 0; d < a.box.size() && d < b.box.size(); ++d)
    if (disjoint(a.box[d], b.box[d])) return true;
  return disjoint(a.offset, b.offset);
}

// What is read behind a store may be another round's; else equal rounds are one thread's.
bool TeamEmitter::meet(const Touch& a, const Touch& b) {
  if (a.buffer != b.buffer || (!a.store && !b.store) || apart(a, b)) return false;
  return (a.store && !b.store) || a.place.empty() || a.place != b.place;
}

void TeamEmitter::synchronise_before(size_t at, size_t last) {
  if (touched_.empty())
    for (const loop::Stmt& top : nest.body) touched_.push_back(touches(top));
  const auto meets = [](const std::vector<Touch>& before, const std::vector<Touch>& after) {
    return std::any_of(before.begin(), before.end(), [&](const Touch& a) {
      return std::any_of(after.begin(), after.end(), [&](const Touch& b) { return meet(a, b); });
    });
  };
  for (size_t before = synchronised_; before < at; ++before)
    for (size_t after = at; after < last; ++after)
      if (meets(touched_[before], touched_[after])) {
        barrier();
        synchronised_ = at;
        return;
      }
}

void TeamEmitter::print_statement(size_t at) {
  const loop::Stmt& stmt = nest.body[at];
  const loop::Access* access = loop::access_of(stmt);
  if (access && same_.contains(access->buffer)) return print_top(stmt);
  synchronise_before(at, at + 1);
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
}

void TeamEmitter::print_body() {
  body_.place = top_place();
  for (const size_t at : free_.early) print_top(nest.body[at]);
  print_eager();
  for (size_t at = common_; at < nest.body.size(); ++at)
    if (!free_.contains(at)) print_statement(at);
  // The next point may write what this one still reads.
  if (uses_locals_) barrier();
}

void TeamEmitter::declare_locals() {
  int64_t used = 0;
  std::set<loop::BufferId> shared;  // by the points of a block
  std::map<loop::BufferId, int> stores;
  loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
    if (const auto* store = std::get_if<loop::Store>(&stmt.node)) ++stores[store->access.buffer];
  });
  for (size_t at = 0; at < common_; ++at) {
    loop::for_each_stmt({nest.body[at]}, [&](const loop::Stmt& stmt) {
      if (const auto* store = std::get_if<loop::Store>(&stmt.node)) shared.insert(store->access.buffer);
    });
    const auto* store = std::get_if<loop::Store>(&nest.body[at].node);
    if (store && stores[store->access.buffer] == 1 &&
        schedule::extent_in_elements(program[store->access.buffer]).is_const(1))
      same_.insert(store->access.buffer);
  }
  for (const loop::BufferId id : loop::buffers_of(nest)) {
    const loop::Buffer& buffer = program[id];
    if (buffer.storage != loop::Storage::kLocal) continue;
    const std::string type = text_.storage_type(buffer.dtype);
    if (const auto found = passed_.find(id); found != passed_.end()) {
      declared_ += cat("    ", type, " ", found->second, "[", kept_chunks(), "][", width, "];\n");
      if (start_) declared_ += cat("    ", type, " ", found->second, "_edges[", edge_chunks(), "][1];\n");
      continue;
    }
    if (same_.contains(id)) {
      local_[id] = text_.fresh("l");
      text_.line(cat(type, " ", local_[id], "[1];"));
      body_.set_buffer(id, local_[id], buffer.strides);
      continue;
    }
    const std::string name = text_.fresh("l");
    const sym::Expr elements = schedule::extent_in_elements(buffer);
    const std::optional<int64_t> count = sym::as_const(elements);
    if (is_of_round(id)) {
      of_round_.insert(id);
      const sym::Expr of_thread = variant.columns ? elements * width : elements;
      if (count && (shared.contains(id) || *count * width * byte_size(buffer.dtype) <= kStackBytes)) {
        text_.line(cat(type, " ", name, "[", std::max<int64_t>(of_thread.value(), 1), "];"));
      } else {
        STRIDEC_CHECK(!shared.contains(id), nest.name);
        scratch_ = true;
        text_.line(cat(type, "* const ", name, " = (", type, "*)",
                       text_.scratch(of_thread * team * byte_size(buffer.dtype)), " + threadIdx.x % ", team,
                       " * ", text_.size(of_thread), ";"));
      }
      local_[id] = name;
      body_.set_buffer(id, name, buffer.strides);
      continue;
    }
    const int each = variant.columns ? lanes * width : shared.contains(id) ? 1 : teams;  // of a block
    uses_locals_ = uses_locals_ || !shared.contains(id);
    const int64_t bytes = count ? *count * byte_size(buffer.dtype) * each : 0;
    const int64_t length = std::max<int64_t>(count.value_or(1), 1);
    if (count && used + bytes <= kSharedBytes) {
      used += bytes;
      shared_used_ += (bytes + 15) / 16 * 16;
      text_.line(cat("alignas(16) __shared__ ", type, " all_", name, "[", length * each, "];"));
      text_.line(
          cat(type, "* const ", name, " = all_", name,
              variant.columns || each == 1 ? ";" : cat(" + (threadIdx.x / ", team, ") * ", length, ";")));
    } else {
      STRIDEC_CHECK(!shared.contains(id), nest.name);
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
  const sym::Expr blocks =
      sym::min(sym::ceildiv(count, teams), scratch_     ? sym::Expr(8 * target.multiprocessors)
                                           : persists() ? sym::Expr(target.multiprocessors)
                                                        : sym::Expr(1 << 24));
  const std::string n = body_.index(count);
  if (variant.columns)
    text_.line(cat("const int lane = threadIdx.x % ", lanes, ", row = threadIdx.x / ", lanes, ";"));
  else
    text_.line(cat("const int row = threadIdx.x", common_ ? "" : cat(" % ", team), ";"));
  print_members();
  free_ = find_free();
  // Points go by turns to the blocks, so that each has as many, or one block takes neighbours; of a stream the blocks have
  // equal shares of neighbours, so that what one reads at a time lies together.
  // The first point of a block's share, in 32 bits where these are enough: divisions by numbers that are not known would
  // take longer than the stream's first copies.
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
  if (waits)
    text_.append(cat(
        "#ifndef STRIDEC_EMULATE\n  asm volatile(\"griddepcontrol.launch_dependents;\" ::: \"memory\");\n",
        ahead, "  asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");\n#endif\n"));
  for (const size_t at : free_.first) print_top(nest.body[at]);
  print_common();
  for (const size_t at : free_.once) print_top(nest.body[at]);
  print_rows();
  text_.open(cat("for (", number, " point = ", first, "; point < ", end, "; point += ", step, ")"));
  if (common_) text_.line(cat("const int row = threadIdx.x % ", team, ";"));
  text_.line("int64_t rest = point;");
  if (variant.columns) print_column();
  print_indices(text_, body_, grid_dims());
  if (start_) text_.line(cat("const int head = ", width - 1, " & -(int)(", body_.index(*start_), ");"));
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
  geometry.dependent_launch = target.dependent_launch;
  geometry.waits = target.dependent_launch && !waits;
  geometry.scratch_owners = blocks * teams;
  geometry.scratch_owner = stream_.empty() ? first : one_by_one;
  return finish(text_, std::move(geometry),
                cat(kTeamDeclarations, strip_declarations(), stream_.empty() ? "" : kStreamDeclarations));
}

DeviceNest emit_teams(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target) {
  DeviceNest out;
  const schedule::LoopPlan plan = schedule::parse_plan(nest.schedule);
  const bool columns = plan.columns.has_value();
  // Ranges may be too long for the team that was chosen for a typical length. Where the length is not known there are teams
  // for all lengths, and even what is read once is read as a whole.
  std::vector<int> teams = {plan.team};
  bool unknown = false;
  if (!columns) {
    const TeamEmitter probe(program, nest, target, {});
    const int64_t longest = probe.longest_bound();
    if (!probe.has_common() && longest > int64_t{kKeptElements} * plan.team)
      unknown = std::any_of(probe.nest.body.begin(), probe.nest.body.end(), [](const loop::Stmt& stmt) {
        return is_range(stmt) && !loop::extent_of(loop::dims_of(stmt)).is_const();
      });
    if (unknown) teams = {8, 32, 128, 512};
    for (const int team : {128, 512})
      if (!unknown && !probe.has_common() && team > teams.back() &&
          longest > int64_t{kKeptElements} * teams.back())
        teams.push_back(team);
  }
  bool vectors_serve = false;  // wherever the callers' tensors begin at multiples of 16 bytes
  // Whether there is such a choice; `most`: for ranges of so many chunks alone.
  auto add = [&](TeamVariant variant, std::optional<int64_t> most = std::nullopt) {
    if (out.is_complete() || (variant.vectors && !columns && vectors_serve)) return false;
    TeamEmitter probe(program, nest, target, variant);
    if (variant.vectors && !probe.any_vectors()) return false;
    if (variant.shifted && probe.has_common()) return false;
    // The longest range decides whether all fit.
    std::vector<sym::Expr> conditions;
    for (const loop::Stmt& stmt : probe.nest.body) {
      if (!is_range(stmt)) continue;
      const TeamEmitter::Range range = probe.range_of(stmt);
      if (variant.keep)
        conditions.push_back(sym::le(range.chunks, probe.kept_chunks() * probe.rows));
      else if (variant.narrow)
        conditions.push_back(sym::lt(range.chunks, kManyChunks));
      if (most) conditions.push_back(sym::le(range.chunks, *most));
    }
    probe.count_wanted();
    if (variant.keep && (!(probe.keeps_something() || unknown) || probe.has_common())) return false;
    // Single elements are kept where their copies stay few; vectors are worth more.
    if (variant.keep &&
        probe.kept_chunks() * statements(probe.nest.body) > (variant.vectors ? 4 : 2) * kUnrolled)
      return false;
    if (variant.split) {
      if (!probe.only_reduction() || probe.has_locals() || probe.has_common()) return false;
      conditions.push_back(sym::ge(probe.splits(), 2));
    }
    conditions.insert(conditions.end(), probe.conditions.begin(), probe.conditions.end());
    const sym::Expr condition = sym::simplify(sym::logical_and(conditions), program.facts);
    if (condition.is_const(0)) return false;
    vectors_serve = vectors_serve || (variant.vectors && condition.is_const(1));
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
    return true;
  };
  const auto add_walks = [&](bool vectors, bool shifted) {
    bool kept = false;
    for (const int team : teams) {
      if (shifted && unknown && team == teams.front()) continue;  // for short rows
      kept = add({.columns = columns, .keep = true, .vectors = vectors, .shifted = shifted, .team = team}) ||
             kept;
    }
    // A team that suits the length is worth having, whether or not registers hold a row.
    if (teams.size() > 1 && !kept)
      for (const int team : teams)
        if (unknown ? team != teams.back() && !(shifted && team == teams.front()) : team == plan.team)
          add({.vectors = vectors, .shifted = shifted, .narrow = true, .team = team}, kShortChunks * team);
    const bool walked = add(
        {.columns = columns, .vectors = vectors, .shifted = shifted, .narrow = true, .team = teams.back()});
    return kept || walked;
  };
  bool shifted = false;
  for (const bool vectors : {true, false}) {
    add({.columns = columns,
         .vectors = vectors,
         .split = true,
         .narrow = true,
         .team = columns ? 0 : kSplitTeam});
    if (columns && vectors)
      add({.columns = true, .vectors = true, .covered = true, .split = true, .narrow = true});
    if (!shifted) add_walks(vectors, false);
    if (vectors && !columns) shifted = add_walks(true, true);
  }
  // Rows shorter than those of which most goes by vectors.
  if (shifted && unknown) add({.keep = true, .team = teams.front()});
  add({.columns = columns, .team = teams.back()});
  return out;
}

}  // namespace stridec::codegen::cuda
