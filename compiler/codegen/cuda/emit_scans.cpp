// Running sums, products and extremes: a team of threads goes along a point's row, tile by tile.
//
// Each thread has a few neighbours of a tile: it combines their terms, the team's threads learn by shuffles, and in shared
// memory, what comes before their own, and then each does its steps in order. Which results are combined with which does not
// depend on timing.
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
constexpr int kThreads = 512;     // of a block
constexpr int64_t kShort = 4096;  // of a row that a warp does

struct ScanEmitter {
  const loop::Program& program;
  const GpuTarget& target;
  const schedule::LoopPlan plan;
  const loop::Nest nest;
  const int team;
  const loop::Scan* scan = nullptr;
  std::optional<loop::Accumulation> sum;
  KernelText text;
  Body body;
  std::optional<Strip> in, out;  // of the terms and of the rest, where both go by vectors

  ScanEmitter(const loop::Program& program, const loop::Nest& original, const GpuTarget& target, int team,
              bool vectors)
      : program(program),
        target(target),
        plan(schedule::parse_plan(original.schedule)),
        nest(schedule::reshaped(program, original, plan)),
        team(team),
        text(program, kCudaText),
        body(text, nest) {
    for (const loop::Stmt& stmt : nest.body)
      if (const auto* found = std::get_if<loop::Scan>(&stmt.node)) scan = found;
    sum = loop::accumulation_of(nest, *scan);
    if (!vectors || scan->reverse) return;
    sym::Facts facts = loop::facts_of(program, nest);
    facts.set_index(scan->dim.var, scan->dim.extent);
    in = plan_strip(program, nest, sum->terms, scan->dim.var, scan->dim.extent, facts, kWidth);
    out = plan_strip(program, nest, sum->rest, scan->dim.var, scan->dim.extent, facts, kWidth);
    if (!in || !out || in->vectors.empty()) in = out = std::nullopt;
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
    text.open(cat("for (int u = 0; u < ", kWidth, "; ++u)"));
    text.line("const bool there = begin + u < n;");
    text.line(cat("const int64_t step = there ? begin + u : n - 1, at = ",
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
    const int warps = team / 32;
    text.line(cat("const int64_t n = ", body.index(scan->dim.extent), ";"));
    text.line(cat(type, " carried = ", body.value(scan->init[0]).text, ";"));
    if (warps > 1) text.line(cat("__shared__ ", type, " totals[", warps, "];"));
    text.open(cat("for (int64_t tile = 0; tile < n; tile += ", team * kWidth, ")"));
    text.line(cat("const int64_t begin = tile + row * ", kWidth, ";"));
    if (in) {
      text.line("const bool there = begin < n;");
      text.line(cat("const int64_t at = there ? begin : n - ", kWidth, ";"));
    }
    text.line(cat(type, " terms[", kWidth, "];"));
    print_each(sum->terms, in,
               [&] { text.line(cat("terms[u] = there ? ", body.value(sum->term).text, " : ", none, ";")); });
    text.line(cat(type, " all = terms[0], before = ", none, ";"));
    text.line("#pragma unroll");
    text.open(cat("for (int u = 1; u < ", kWidth, "; ++u)"));
    combine("all", "terms[u]");
    text.close();
    // Halves of groups that double: the upper half comes behind all of the lower one.
    text.line("#pragma unroll");
    text.open("for (int d = 1; d < 32; d <<= 1)");
    text.line(cat("const ", type, " other = sd_shuffle(~0u, all, d);"));
    text.open("if (row & d)");
    combine("before", "other");
    text.close();
    combine("all", "other");
    text.close();
    if (warps > 1) {
      text.line("if (row % 32 == 0) totals[row / 32] = all;");
      text.line("__syncthreads();");
      text.line(cat(type, " earlier = ", none, ";"));
      text.line(cat("all = ", none, ";"));
      text.line("#pragma unroll");
      text.open(cat("for (int w = 0; w < ", warps, "; ++w)"));
      text.line(cat("const ", type, " other = totals[w];"));
      text.open("if (w < row / 32)");
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
    sym::Expr count = 1;
    for (const loop::Dim& dim : nest.dims) count *= dim.extent;
    text.line(cat("const int row = threadIdx.x % ", team, ";"));
    // Neighbouring points are neighbouring teams', which share what they load where the rows lie across memory.
    const std::string n = body.index(count),
                      first = cat("blockIdx.x * (int64_t)", teams, " + threadIdx.x / ", team);
    text.open(
        cat("for (int64_t point = ", first, "; point < ", n, "; point += gridDim.x * (int64_t)", teams, ")"));
    text.line("int64_t rest = point;");
    print_indices(text, body, nest.dims);
    for (const loop::Stmt& stmt : nest.body) {
      if (std::holds_alternative<loop::Scan>(stmt.node)) {
        print_scan();
      } else if (std::holds_alternative<loop::Store>(stmt.node)) {
        text.open("if (row == 0)");
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
