// Running sums, products and extremes: a team of threads goes along a point's row, tile by tile.
//
// Each thread has a few neighbours of a tile: it combines their terms, the team's threads learn by shuffles, and in shared
// memory, what comes before their own, and then each does its steps in order. Which results are combined with which does not
// depend on timing. Where points side by side in memory have the rows across it, a warp's lanes are so many points, and the
// warps of a block are a team.
#include <algorithm>
#include <optional>

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/emit.h"
#include "compiler/codegen/cuda/frame.h"
#include "compiler/codegen/cuda/prelude.h"
#include "compiler/codegen/cuda/strip.h"
#include "compiler/codegen/cuda/team_emitter.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/schedule/schedule.h"

namespace stridec::codegen::cuda {
namespace {

constexpr int kWidth = 8;         // neighbours of a thread
constexpr int kColumnWidth = 16;  // where lanes are points
constexpr int64_t kLeastColumns = 16;
constexpr int kThreads = 512;     // of a block
constexpr int64_t kShort = 4096;  // of a row that a warp does

struct ScanEmitter {
  const loop::Program& program;
  const GpuTarget& target;
  const schedule::LoopPlan plan;
  const loop::Nest nest;
  const bool columns;  // lanes are points
  const int team, width;
  const loop::Scan* scan = nullptr;
  std::optional<loop::Accumulation> sum;
  KernelText text;
  Body body;
  std::optional<Strip> in, out;  // of the terms and of the rest, where both go by vectors

  ScanEmitter(const loop::Program& program, const loop::Nest& original, const GpuTarget& target, int team,
              bool vectors, bool columns = false)
      : program(program),
        target(target),
        plan(schedule::parse_plan(original.schedule)),
        nest(schedule::reshaped(program, original, plan)),
        columns(columns),
        team(team),
        width(columns ? kColumnWidth : kWidth),
        text(program, kCudaText),
        body(text, nest) {
    for (const loop::Stmt& stmt : nest.body)
      if (const auto* found = std::get_if<loop::Scan>(&stmt.node)) scan = found;
    sum = loop::accumulation_of(nest, *scan);
    if (!vectors || scan->reverse) return;
    const sym::Facts facts = facts_of_scan();
    in = plan_strip(program, nest, sum->terms, scan->dim.var, scan->dim.extent, facts, kWidth);
    out = plan_strip(program, nest, sum->rest, scan->dim.var, scan->dim.extent, facts, kWidth);
    if (!in || !out || in->vectors.empty()) in = out = std::nullopt;
  }

  sym::Facts facts_of_scan() const {
    sym::Facts facts = loop::facts_of(program, nest);
    facts.set_index(scan->dim.var, scan->dim.extent);
    return facts;
  }

  // Whether what is loaded lies side by side along the points' last dim, and not along the rows.
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

  std::string combined(const std::string& a, const std::string& b) {
    const DType dtype = nest.values[scan->carried[0].value].dtype;
    return text.capture([&] { body.print_combine(sum->combine, {a}, {b}, {dtype}, 1); });
  }
  void combine(const std::string& a, const std::string& b) { text.append(combined(a, b)); }

  // The statements of `block` for each of the thread's neighbours, u of them.
  void print_each(const loop::Block& block, const std::optional<Strip>& strip,
                  const std::function<void()>& each) {
    if (strip) {
      print_strip(text, body, program, block, *strip, "at", {}, each, "there");
      return;
    }
    text.line("#pragma unroll");
    text.open(cat("for (int u = 0; u < ", width, "; ++u)"));
    text.line(cat("const bool inside = begin + u < n, there = inside", columns ? " && live;" : ";"));
    text.line(cat("const int64_t step = inside ? begin + u : n - 1, at = ",
                  scan->reverse ? "n - 1 - step;" : "step;"));
    body.set_index(scan->dim.var, "at");
    body.assign = [this](const loop::Access& access, const std::string& element, const std::string& value) {
      return cat("sd_put(&", element, ", (", text.storage_type(program[access.buffer].dtype), ")(", value,
                 "), there);");
    };
    body.print(block);
    each();
    body.assign = {};
    text.close();
  }

  void print_scan() {
    const DType dtype = nest.values[scan->carried[0].value].dtype;
    const std::string type = text.value_type(dtype), none = body.identity(sum->combine, dtype, 0);
    const int warps = team / 32, rows = columns ? warps : team, side = columns ? 32 : 1;
    text.line(cat("const int64_t n = ", body.index(scan->dim.extent), ";"));
    text.line(cat(type, " carried = ", body.value(scan->init[0]).text, ";"));
    if (warps > 1) text.line(cat("__shared__ ", type, " totals[", warps, "][", side, "];"));
    text.open(cat("for (int64_t tile = 0; tile < n; tile += ", rows * width, ")"));
    text.line(cat("const int64_t begin = tile + row * ", width, ";"));
    if (in) {
      text.line("const bool there = begin < n;");
      text.line(cat("const int64_t at = there ? begin : n - ", width, ";"));
    }
    text.line(cat(type, " terms[", width, "];"));
    print_each(sum->terms, in,
               [&] { text.line(cat("terms[u] = there ? ", body.value(sum->term).text, " : ", none, ";")); });
    text.line(cat(type, " all = terms[0], before = ", none, ";"));
    text.line("#pragma unroll");
    text.open(cat("for (int u = 1; u < ", width, "; ++u)"));
    combine("all", "terms[u]");
    text.close();
    if (!columns) {
      // Halves of groups that double: the upper half comes behind all of the lower one.
      text.line("#pragma unroll");
      text.open("for (int d = 1; d < 32; d <<= 1)");
      text.line(cat("const ", type, " other = sd_shuffle(~0u, all, d);"));
      text.open("if (row & d)");
      combine("before", "other");
      text.close();
      combine("all", "other");
      text.close();
    }
    if (warps > 1) {
      const std::string warp = columns ? "row" : "row / 32", lane = columns ? "lane" : "0";
      text.line(cat(columns ? "" : "if (row % 32 == 0) ", "totals[", warp, "][", lane, "] = all;"));
      text.line("__syncthreads();");
      text.line(cat(type, " earlier = ", none, ";"));
      text.line(cat("all = ", none, ";"));
      text.line("#pragma unroll");
      text.open(cat("for (int w = 0; w < ", warps, "; ++w)"));
      text.line(cat("const ", type, " other = totals[w][", lane, "];"));
      text.open(cat("if (w < ", warp, ")"));
      combine("earlier", "other");
      text.close();
      combine("all", "other");
      text.close();
      combine("earlier", "before");
      text.line("before = earlier;");
      text.line("__syncthreads();");
    }
    text.line(cat(type, " now = carried;"));
    combine("now", "before");
    body.set_value(scan->carried[0], {"now", dtype, 1});
    body.set_value(sum->term, {"terms[u]", dtype, 1});
    print_each(sum->rest, out, [&] { text.line(cat("now = ", body.value(scan->yields[0]).text, ";")); });
    combine("carried", "all");
    text.close();
    body.set_value(scan->results[0], {"carried", dtype, 1});
  }

  DeviceKernel emit() {
    const int teams = kThreads / team;
    std::vector<loop::Dim> dims = nest.dims;
    sym::Expr count = 1, tiles = 1;
    if (columns) {
      tiles = sym::ceildiv(dims.back().extent, 32);
      dims.pop_back();
    }
    for (const loop::Dim& dim : dims) count *= dim.extent;
    count *= tiles;
    text.line(columns ? std::string("const int row = threadIdx.x / 32, lane = threadIdx.x % 32;")
                      : cat("const int row = threadIdx.x % ", team, ";"));
    // Neighbouring points are neighbouring teams', which share what they load where the rows lie across memory.
    const std::string n = body.index(count),
                      first = cat("blockIdx.x * (int64_t)", teams, " + threadIdx.x / ", team);
    text.open(
        cat("for (int64_t point = ", first, "; point < ", n, "; point += gridDim.x * (int64_t)", teams, ")"));
    text.line("int64_t rest = point;");
    if (columns) {
      const std::string all = body.index(tiles), extent = body.index(nest.dims.back().extent);
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
        text.open(columns ? "if (row == 0 && live)" : "if (row == 0)");
        body.print(stmt);
        text.close();
      } else {
        body.print(stmt);
      }
    }
    text.close();
    return finish(text,
                  {.grid = {sym::min(sym::ceildiv(count, teams), 1 << 24), 1, 1},
                   .threads = kThreads,
                   .waits = target.dependent_launch},
                  cat(kTeamDeclarations, strip_declarations()));
  }
};

}  // namespace

DeviceNest emit_scans(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target) {
  DeviceNest out;
  if (ScanEmitter emitter(program, nest, target, kThreads, false, true); emitter.across()) {
    const sym::Expr condition =
        sym::simplify(sym::ge(emitter.nest.dims.back().extent, kLeastColumns), program.facts);
    if (!condition.is_const(0)) out.choices.push_back({condition, {}, {emitter.emit()}});
  }
  for (const bool vectors : {true, false})
    for (const int team : {32, kThreads}) {
      ScanEmitter emitter(program, nest, target, team, vectors);
      if (vectors && !emitter.in) continue;
      std::vector<sym::Expr> conditions;
      if (team == 32) conditions.push_back(sym::le(emitter.scan->dim.extent, kShort));
      DeviceChoice choice;
      for (const std::optional<Strip>* strip : {&emitter.in, &emitter.out}) {
        if (!*strip) continue;
        conditions.insert(conditions.end(), (*strip)->conditions.begin(), (*strip)->conditions.end());
        for (loop::BufferId id : (*strip)->aligned)
          if (!std::count(choice.aligned.begin(), choice.aligned.end(), id)) choice.aligned.push_back(id);
      }
      choice.condition = sym::simplify(sym::logical_and(conditions), program.facts);
      if (choice.condition.is_const(0) || out.is_complete()) continue;
      choice.launches.push_back(emitter.emit());
      out.choices.push_back(std::move(choice));
    }
  return out;
}

}  // namespace stridec::codegen::cuda
