// Emits scans (running sums, products and extrema): a thread group processes a point's row tile by tile.
//
// Each thread has a few neighbouring elements of a tile and combines their terms. The group's threads obtain
// the combination of everything before their own elements by shuffles and through shared memory; then each
// executes its steps in order. The order of combination does not depend on timing. If points are adjacent in
// memory and rows run across them, a warp's lanes are 32 points, and the warps of a block form the group.
//
// Long rows of few points are linked: each tile is a separate block, which stores the total of its terms in
// the workspace, waits for the blocks of all earlier tiles and combines their totals, in a fixed order in two
// levels. Blocks draw their tiles as they start, so that every block that one waits for is already running.
// With columns a block has a tile of several rounds, which it loads once, into shared memory, so that the
// cost of waiting is relatively small.
//
// Neighbouring elements are accessed as vectors if rows begin at multiples of them. If rows begin anywhere,
// all loads and stores have to begin at the same distance from an aligned vector; the first and the last
// vector of a row then belong in part to other rows.
#include <algorithm>
#include <optional>

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/common/frame.h"
#include "compiler/codegen/cuda/common/prelude.h"
#include "compiler/codegen/cuda/common/vector_access.h"
#include "compiler/codegen/cuda/reduction/cooperative_emitter.h"
#include "compiler/codegen/cuda/reduction/reduction.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/schedule/analysis/effects.h"
#include "compiler/schedule/directives/schedule.h"

namespace stridec::codegen::cuda {
namespace {

constexpr int kWidth = 8;         // neighbouring elements per thread
constexpr int kColumnWidth = 16;  // the same if lanes are points
constexpr int64_t kLeastColumns = 16;
constexpr int kThreads = 512;     // per block
constexpr int64_t kShort = 4096;  // longest row that a warp processes
// Bytes of columns that a linked block loads; three such blocks fit a multiprocessor.
constexpr int64_t kTileBytes = 64 << 10;
constexpr int kMostRounds = 4;
// Tiles per row; with more, blocks would mostly read the totals of others.
constexpr int64_t kMostLinks = 2048;
// Threads per point if the row is one tile with vectors that begin where it does.
constexpr int kShortTeams[] = {4, 16};

// Flags between blocks. One thread of a block sets a flag, after a barrier of the block; threads of other
// blocks wait for it.
constexpr std::string_view kLinkDeclarations = R"(#ifdef STRIDEC_EMULATE
static inline void sd_tell(unsigned* flag) { atomicInc(flag, ~0u); }
static inline void sd_await(unsigned* flag) { while (atomicInc(flag, ~0u) == 0); }
#else
static inline void sd_tell(unsigned* flag) { asm volatile("st.release.gpu.global.u32 [%0], 1;" :: "l"(flag) : "memory"); }
static inline void sd_await(unsigned* flag) {
  unsigned told;
  do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(told) : "l"(flag) : "memory");
  while (!told);
}
#endif
)";

struct ScanVariant {
  bool columns = false;  // lanes are points
  bool vectors = false;  // rows begin at multiples of vectors
  bool shifted = false;  // vectors of rows that begin anywhere
  bool linked = false;   // one block per tile
  int team = kThreads;
};

struct ScanEmitter {
  const loop::Program& program;
  const GpuTarget& target;
  const schedule::LoopPlan plan;
  const loop::Nest nest;
  const ScanVariant variant;
  const int team, width;
  const loop::Scan* scan = nullptr;
  std::optional<loop::Accumulation> sum;
  KernelText text;
  Body body;
  std::optional<Strip> in, out;    // for the terms and for the other statements, if both are vectorised
  std::optional<sym::Expr> start;  // for shifted rows, modulo the width
  // Linked columns: loads of the terms along the rows, which a block keeps for `rounds` rounds.
  std::vector<const loop::Load*> kept;
  int rounds = 1;

  ScanEmitter(const loop::Program& program, const loop::Nest& original, const GpuTarget& target,
              ScanVariant variant)
      : program(program),
        target(target),
        plan(schedule::parse_plan(original.schedule)),
        nest(schedule::reshaped(program, original, plan)),
        variant(variant),
        team(variant.team),
        width(variant.columns ? kColumnWidth : kWidth),
        text(program, kCudaText),
        body(text, nest) {
    for (const loop::Stmt& stmt : nest.body)
      if (const auto* found = std::get_if<loop::Scan>(&stmt.node)) scan = found;
    sum = loop::accumulation_of(nest, *scan);
    if (variant.shifted) {
      in = shifted_strip(sum->terms);
      out = shifted_strip(sum->rest);
    } else if (variant.vectors && !scan->reverse) {
      const sym::Facts facts = facts_of_scan();
      in = plan_strip(program, nest, sum->terms, scan->dim.var, scan->dim.extent, facts, kWidth);
      out = plan_strip(program, nest, sum->rest, scan->dim.var, scan->dim.extent, facts, kWidth);
    }
    if (!in || !out || in->vectors.empty()) in = out = std::nullopt;
    if (variant.columns && variant.linked) plan_kept();
  }

  void plan_kept() {
    for (const loop::Stmt& stmt : sum->terms)
      if (const auto* load = std::get_if<loop::Load>(&stmt.node);
          load && load->access.mask.is_const(1) &&
          sym::depends_on(loop::offset_of(program, load->access), scan->dim.var))
        kept.push_back(load);
    const int64_t round = kept_bytes();
    if (round > 0) rounds = static_cast<int>(std::clamp<int64_t>(kTileBytes / round, 1, kMostRounds));
  }

  int64_t kept_bytes() const {
    int64_t bytes = 0;
    for (const loop::Load* load : kept)
      bytes += int64_t{kThreads} * width * rounds * byte_size(program[load->access.buffer].dtype);
    return bytes;
  }

  sym::Facts facts_of_scan() const {
    sym::Facts facts = loop::facts_of(program, nest);
    facts.set_index(scan->dim.var, scan->dim.extent);
    return facts;
  }

  // Returns nothing if an access along the row is not a vector, or begins at another distance than the first
  // one.
  std::optional<Strip> shifted_strip(const loop::Block& block) {
    const sym::Facts facts = facts_of_scan();
    Strip strip{.var = scan->dim.var, .width = width};
    for (const loop::Stmt& stmt : block) {
      const loop::Access* access = loop::access_of(stmt);
      if (!access) continue;
      const auto stride = loop::stride_of(program, *access, scan->dim.var, facts);
      if (!stride || sym::depends_on(access->mask, scan->dim.var)) return std::nullopt;
      const bool store = std::holds_alternative<loop::Store>(stmt.node);
      if (stride->is_const(0) && !store) continue;
      if (!stride->is_const(1) || !access->mask.is_const(1)) return std::nullopt;
      const sym::Expr from =
          sym::simplify(sym::substitute(loop::offset_of(program, *access), scan->dim.var, 0), facts);
      if (!start) start = from;
      const sym::Expr apart = sym::simplify(from - *start, facts);
      if (!apart.is_const(0) && facts.known_divisor(apart) % width != 0) return std::nullopt;
      strip.vectors.push_back(&stmt);
      if (is_callers(program, access->buffer)) strip.aligned.push_back(access->buffer);
    }
    return strip;
  }

  // Whether the loads are contiguous along the points' last dim, and not along the rows.
  bool across() const {
    if (nest.dims.empty()) return false;
    const sym::Facts facts = facts_of_scan();
    bool some = false, all = true;
    for (const loop::Stmt& stmt : sum->terms) {
      const auto* load = std::get_if<loop::Load>(&stmt.node);
      if (!load) continue;
      const auto side = loop::stride_of(program, load->access, nest.dims.back().var, facts),
                 along = loop::stride_of(program, load->access, scan->dim.var, facts);
      some = some || (side && side->is_const(1));
      all = all && !(along && along->is_const(1));
    }
    return some && all;
  }

  DType dtype() const { return nest.values[scan->carried[0].value].dtype; }
  std::string type() { return text.value_type(dtype()); }
  std::string none() { return body.identity(sum->combine, dtype(), 0); }
  bool shares_warps() const { return team < 32; }
  // Threads along a row, and adjacent threads with rows of their own.
  int rows() const { return variant.columns ? team / 32 : team; }
  int side() const { return variant.columns ? 32 : 1; }
  int64_t tile() const { return int64_t{rows()} * width * rounds; }
  // A shifted row may have one more vector.
  sym::Expr links() const {
    return sym::ceildiv(scan->dim.extent + (variant.shifted ? width - 1 : 0), tile());
  }

  // Points of the grid, or tiles of as many points as a warp has lanes.
  sym::Expr points() const {
    sym::Expr count = variant.columns ? sym::ceildiv(nest.dims.back().extent, 32) : sym::Expr(1);
    for (size_t d = 0; d < nest.dims.size() - variant.columns; ++d) count *= nest.dims[d].extent;
    return count;
  }

  std::string combined(const std::string& a, const std::string& b) {
    return text.capture([&] { body.print_combine(sum->combine, {a}, {b}, {dtype()}, 1); });
  }
  void combine(const std::string& a, const std::string& b) { text.append(combined(a, b)); }

  // Combines `all` over the lanes of the group within the warp; `before` gets the combination of what
  // precedes the thread's own elements.
  void combine_lanes(bool before) {
    // Groups of lanes double in size; the upper half of a group follows the lower half.
    text.line("#pragma unroll");
    text.open(cat("for (int d = 1; d < ", std::min(team, 32), "; d <<= 1)"));
    text.line(cat("const ", type(), " other = sd_shuffle(members, all, d);"));
    if (before) {
      text.open("if (row & d)");
      combine("before", "other");
      text.close();
    }
    combine("all", "other");
    text.close();
  }

  // The thread's term; u counts vectorised elements in memory order.
  std::string term() const {
    return variant.shifted && scan->reverse ? cat("terms[", width - 1, " - u]") : "terms[u]";
  }

  // Prints the statements of `block` for each of the thread's elements; `each` gets the C condition that the
  // element exists.
  void print_each(const loop::Block& block, const std::optional<Strip>& strip,
                  const std::function<void(const std::string& there)>& each) {
    if (variant.shifted) {
      const auto load = [&](const loop::Stmt& stmt) {
        const loop::Access& access = *loop::access_of(stmt);
        const std::string name = text.fresh("vec");
        text.line(cat("const auto ", name, " = sd_load_within<", width, ">(", text.pointer(access.buffer),
                      ", ", body.offset(access), ", ",
                      body.index(schedule::extent_in_elements(program[access.buffer])), ");"));
        return name;
      };
      print_strip(
          text, body, block, *strip, "at",
          {.held = load, .each = [&] { each("(part >> u & 1)"); }, .when = "part", .down = scan->reverse});
      return;
    }
    if (strip) {
      print_strip(text, body, block, *strip, "at",
                  {.held = {}, .each = [&] { each("there"); }, .when = "there"});
      return;
    }
    text.line("#pragma unroll");
    text.open(cat("for (int u = 0; u < ", width, "; ++u)"));
    text.line(cat("const bool inside = begin + u < n, there = inside", variant.columns ? " && live;" : ";"));
    text.line(cat("const int64_t step = inside ? begin + u : n - 1, at = ",
                  scan->reverse ? "n - 1 - step;" : "step;"));
    body.set_index(scan->dim.var, "at");
    body.assign = [this](const loop::Access& access, const std::string& element, const std::string& value) {
      return cat("sd_put(&", element, ", (", text.storage_type(program[access.buffer].dtype), ")(", value,
                 "), there);");
    };
    body.print(block);
    each("there");
    body.assign = {};
    text.close();
  }

  // Declares where the thread's part of the tile begins.
  void print_begin() {
    text.line(cat("const int64_t begin = tile + row * ", width, ";"));
    if (variant.shifted) {
      text.line(cat("const bool there = ", shares_warps() ? "live && " : "", "begin < n + phase;"));
      text.line(cat("const int64_t at = (there ? ",
                    scan->reverse ? cat("(n + phase - 1) / ", width, " * ", width, " - begin") : "begin",
                    " : 0) - phase;"));
      text.line(cat("const unsigned part = there ? sd_part<", width, ">(at, n) : 0;"));
    } else if (in) {
      text.line("const bool there = begin < n;");
      text.line(cat("const int64_t at = there ? begin : n - ", width, ";"));
    }
  }

  // Combines each thread's `all` over the block; `before` gets the combination of what precedes the thread's
  // warp.
  void combine_warps(const std::string& totals) {
    const std::string warp = variant.columns ? "row" : "row / 32", lane = variant.columns ? "lane" : "0";
    text.line(cat(variant.columns ? "" : "if (row % 32 == 0) ", totals, "[", warp, "][", lane, "] = all;"));
    text.line("__syncthreads();");
    text.line(cat(type(), " earlier = ", none(), ";"));
    text.line(cat("all = ", none(), ";"));
    text.line("#pragma unroll");
    text.open(cat("for (int w = 0; w < ", team / 32, "; ++w)"));
    text.line(cat("const ", type(), " other = ", totals, "[w][", lane, "];"));
    text.open(cat("if (w < ", warp, ")"));
    combine("earlier", "other");
    text.close();
    combine("all", "other");
    text.close();
  }

  // Stores `all` for later blocks, and combines the totals of earlier ones into `carried`.
  void print_links() {
    const std::string lane = variant.columns ? " * 32 + lane" : "";
    text.line(cat(type(), "* const left = (", type(), "*)workspace + point * links * ", side(), ";"));
    text.line("unsigned* const flags = counters + 2 + point * links;");
    text.line(cat("if (row == 0) left[link", lane, "] = all;"));
    text.line("__syncthreads();");
    text.line("if (threadIdx.x == 0) sd_tell(flags + link);");
    text.line(cat("for (int64_t s = threadIdx.x; s < link; s += ", team, ") sd_await(flags + s);"));
    text.line("__syncthreads();");
    text.open("if (link > 0)");
    text.line(cat(type(), " all = ", none(), ";"));
    text.line("#pragma unroll 4");
    text.open(cat("for (int64_t s = row; s < link; s += ", rows(), ")"));
    text.line(cat("const ", type(), " other = left[s", lane, "];"));
    combine("all", "other");
    text.close();
    if (!variant.columns) combine_lanes(false);
    text.line(cat("__shared__ ", type(), " sums[", team / 32, "][", side(), "];"));
    combine_warps("sums");
    combine("carried", "all");
    text.close();
  }

  // Prints the scan of a linked block's columns. All rounds have the same text; elements beyond the rows are
  // disabled.
  void print_kept_scan() {
    int64_t offset = 0;
    std::vector<std::string> names;
    for (const loop::Load* load : kept) {
      const DType dtype = program[load->access.buffer].dtype;
      names.push_back(text.fresh("kept"));
      text.line(cat(text.storage_type(dtype), "* const ", names.back(), " = (", text.storage_type(dtype),
                    "*)(tile_kept + ", offset, ") + threadIdx.x;"));
      offset += int64_t{kThreads} * width * rounds * byte_size(dtype);
    }
    const auto element = [&](size_t i) {
      return cat(names[i], "[(round * ", width, " + u) * ", kThreads, "]");
    };
    const auto open_round = [&] {
      text.line("#pragma unroll 1");
      text.open(cat("for (int round = 0; round < ", rounds, "; ++round)"));
      text.line(cat("const int64_t begin = first + round * ", width, ";"));
    };
    text.line(cat("const int64_t first = tile + row * ", width * rounds, ";"));
    text.line(cat(type(), " all = ", none(), ";"));
    open_round();
    print_each(sum->terms, {}, [&](const std::string& there) {
      for (size_t i = 0; i < kept.size(); ++i)
        text.line(cat(element(i), " = ",
                      body.to_storage(body.value(kept[i]->result), program[kept[i]->access.buffer].dtype),
                      ";"));
      text.line(
          cat("const ", type(), " term = ", there, " ? ", body.value(sum->term).text, " : ", none(), ";"));
      combine("all", "term");
    });
    text.close();
    combine_warps("totals");
    print_links();
    text.line(cat(type(), " now = carried;"));
    combine("now", "earlier");
    body.set_value(scan->carried[0], {"now", dtype(), 1});
    loop::Block both = sum->terms;
    both.insert(both.end(), sum->rest.begin(), sum->rest.end());
    body.place = [&](const loop::Access& access) -> std::string {
      for (size_t i = 0; i < kept.size(); ++i)
        if (kept[i]->access.buffer == access.buffer && kept[i]->access.index == access.index)
          return element(i);
      return "";
    };
    open_round();
    print_each(both, {},
               [&](const std::string&) { text.line(cat("now = ", body.value(scan->yields[0]).text, ";")); });
    text.close();
    body.place = {};
    combine("carried", "all");
  }

  void print_scan() {
    const int warps = team / 32;
    text.line(cat("const int64_t n = ", body.index(scan->dim.extent), ";"));
    if (variant.shifted)
      text.line(cat("const int phase = (int)((", body.index(*start), ") & ", width - 1, ");"));
    text.line(cat(type(), " carried = ", body.value(scan->init[0]).text, ";"));
    if (warps > 1) text.line(cat("__shared__ ", type(), " totals[", warps, "][", side(), "];"));
    if (variant.linked) {
      text.line(cat("const int64_t tile = link * ", tile(), ";"));
      if (!kept.empty()) {
        print_kept_scan();
        body.set_value(scan->results[0], {"carried", dtype(), 1});
        return;
      }
    } else {
      text.open(cat("for (int64_t tile = 0; tile < ", variant.shifted ? "(n > 0 ? n + phase : 0)" : "n",
                    "; tile += ", tile(), ")"));
    }
    print_begin();
    text.line(cat(type(), " terms[", width, "];"));
    print_each(sum->terms, in, [&](const std::string& there) {
      text.line(cat(term(), " = ", there, " ? ", body.value(sum->term).text, " : ", none(), ";"));
    });
    text.line(cat(type(), " all = terms[0], before = ", none(), ";"));
    text.line("#pragma unroll");
    text.open(cat("for (int u = 1; u < ", width, "; ++u)"));
    combine("all", "terms[u]");
    text.close();
    if (!variant.columns) combine_lanes(true);
    if (warps > 1) {
      combine_warps("totals");
      combine("earlier", "before");
      text.line("before = earlier;");
      if (!variant.linked) text.line("__syncthreads();");
    }
    if (variant.linked) print_links();
    text.line(cat(type(), " now = carried;"));
    combine("now", "before");
    body.set_value(scan->carried[0], {"now", dtype(), 1});
    body.set_value(sum->term, {term(), dtype(), 1});
    print_each(sum->rest, out,
               [&](const std::string&) { text.line(cat("now = ", body.value(scan->yields[0]).text, ";")); });
    combine("carried", "all");
    if (!variant.linked) text.close();
    body.set_value(scan->results[0], {"carried", dtype(), 1});
  }

  // The last block resets the flags, since no block waits for them any more.
  void print_end() {
    text.line("__syncthreads();");
    text.line("__shared__ bool last;");
    text.line("if (threadIdx.x == 0) last = comes_last(counters + 1, gridDim.x);");
    text.line("__syncthreads();");
    text.line(
        cat("for (int64_t s = threadIdx.x; last && s < gridDim.x; s += ", team, ") counters[2 + s] = 0;"));
  }

  DeviceKernel emit() {
    const int teams = kThreads / team;
    std::vector<loop::Dim> dims = nest.dims;
    if (variant.columns) dims.pop_back();
    const sym::Expr count = points();
    text.line(variant.columns ? std::string("const int row = threadIdx.x / 32, lane = threadIdx.x % 32;")
                              : cat("const int row = threadIdx.x % ", team, ";"));
    if (!variant.columns) text.line(members_text(std::max(32, team)));
    const std::string n = body.index(count);
    if (variant.linked) {
      if (!kept.empty()) text.append(dynamic_shared("tile_kept", kept_bytes(), 16));
      text.line("__shared__ unsigned drawn;");
      text.line("if (threadIdx.x == 0) drawn = arrive(counters, gridDim.x);");
      text.line("__syncthreads();");
      text.line(cat("const int64_t links = ", body.index(links()), ", point = drawn % ", n,
                    ", link = drawn / ", n, ";"));
      text.open("");
    } else if (shares_warps()) {
      open_points_together(text, team, teams, n);
    } else {
      // Neighbouring points belong to neighbouring groups, which share what they load if the rows run across
      // memory.
      text.open(cat("for (int64_t point = blockIdx.x * (int64_t)", teams, " + threadIdx.x / ", team,
                    "; point < ", n, "; point += gridDim.x * (int64_t)", teams, ")"));
    }
    text.line("int64_t rest = point;");
    if (variant.columns) {
      const std::string all = body.index(sym::ceildiv(nest.dims.back().extent, 32)),
                        extent = body.index(nest.dims.back().extent);
      text.line(cat("const int64_t column_ = rest % ", all, " * 32 + lane;"));
      text.line(cat("rest /= ", all, ";"));
      text.line(cat("const bool live = column_ < ", extent, ";"));
      text.line(cat("const int64_t column = live ? column_ : ", extent, " - 1;"));
      body.set_index(nest.dims.back().var, "column");
    }
    print_indices(text, body, dims);
    for (const loop::Stmt& stmt : nest.body) {
      if (std::holds_alternative<loop::Scan>(stmt.node)) {
        print_scan();
      } else if (std::holds_alternative<loop::Store>(stmt.node)) {
        text.open(cat("if (row == 0", variant.columns || shares_warps() ? " && live" : "",
                      variant.linked ? " && link == links - 1)" : ")"));
        body.print(stmt);
        text.close();
      } else {
        body.print(stmt);
      }
    }
    text.close();
    if (variant.linked) print_end();
    Geometry geometry{.grid = {sym::min(sym::ceildiv(count, teams), 1 << 24), 1, 1},
                      .threads = kThreads,
                      .waits = target.dependent_launch};
    if (variant.linked) {
      geometry.grid[0] = count * links();
      geometry.workspace_bytes = count * links() * (side() * byte_size(dtype()));
      geometry.counters = count * links() + 2;
      geometry.shared_bytes = kept_bytes();
    }
    return finish(text, std::move(geometry),
                  cat(kTeamDeclarations, strip_declarations(),
                      variant.linked ? cat(arrive_declarations(), kLinkDeclarations) : ""));
  }
};

}  // namespace

DeviceNest emit_scans(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target) {
  DeviceNest out;
  const auto add = [&](const ScanVariant& variant) {
    if (out.is_complete()) return;
    ScanEmitter emitter(program, nest, target, variant);
    const sym::Expr extent = emitter.scan->dim.extent;
    std::vector<sym::Expr> conditions;
    if ((variant.vectors || variant.shifted) && !emitter.in) return;
    if (variant.columns && (!emitter.across() || (variant.linked && emitter.kept.empty()))) return;
    if (variant.columns) conditions.push_back(sym::ge(emitter.nest.dims.back().extent, kLeastColumns));
    if (variant.linked) {
      conditions.push_back(sym::gt(extent, emitter.tile()));
      conditions.push_back(sym::le(extent, kMostLinks * emitter.tile()));
      // If there are as many rows as resident blocks, they keep memory busy without links.
      if (!variant.columns) conditions.push_back(sym::lt(emitter.points(), 2 * target.multiprocessors));
    } else if (!variant.columns && variant.team < kThreads) {
      // A shifted row may have one more vector.
      conditions.push_back(sym::le(extent, variant.team < 32 ? emitter.tile() - kWidth : kShort));
    }
    DeviceChoice choice;
    for (const std::optional<Strip>* strip : {&emitter.in, &emitter.out}) {
      if (!*strip) continue;
      conditions.insert(conditions.end(), (*strip)->conditions.begin(), (*strip)->conditions.end());
      for (loop::BufferId id : (*strip)->aligned)
        if (!std::count(choice.aligned.begin(), choice.aligned.end(), id)) choice.aligned.push_back(id);
    }
    choice.condition = sym::simplify(sym::logical_and(conditions), program.facts);
    if (choice.condition.is_const(0)) return;
    choice.launches.push_back(emitter.emit());
    out.choices.push_back(std::move(choice));
  };
  for (const bool linked : {true, false}) add({.columns = true, .linked = linked});
  for (const int team : kShortTeams) add({.shifted = true, .team = team});
  const auto add_teams = [&](bool vectors, bool shifted) {
    add({.vectors = vectors, .shifted = shifted, .linked = true});
    for (const int team : {32, kThreads}) add({.vectors = vectors, .shifted = shifted, .team = team});
  };
  add_teams(true, false);
  add_teams(false, true);
  add_teams(false, false);
  return out;
}

}  // namespace stridec::codegen::cuda
