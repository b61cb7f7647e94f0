// A team of threads per point.
//
// Statements at the top of the body are done by every thread of the team alike; stores there by its first. A reduce or
// for at the top is dealt out: its dims are one range, cut into chunks of a vector, and thread t of T does chunks
// t, t + T, ... The threads' partial results of a reduce meet in a fixed tree, so results do not depend on timing.
//
// What is loaded at the same place by several of these loops (a row that is summed and then scaled) is loaded once: the
// same thread does the same chunks of equal ranges, so that its part stays in its registers. That takes ranges of
// at most kKept chunks a thread; longer ones are read again.
#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cuda/emit.h"
#include "compiler/codegen/cuda/frame.h"
#include "compiler/codegen/cuda/prelude.h"
#include "compiler/codegen/cuda/strip.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/effects.h"
#include "compiler/schedule/schedule.h"
#include "compiler/sym/text.h"

namespace stridec::codegen::cuda {
namespace {

using sym::Expr;

constexpr int kKept = 4;                    // chunks a thread keeps
constexpr int64_t kSharedBytes = 40 << 10;  // of local buffers, without asking the driver for more

constexpr std::string_view kDeclarations =
    R"(template <class T> static inline T sd_shuffle(T x, int distance) {
  if constexpr (sizeof(T) == 8)
    return __builtin_bit_cast(T, __shfl_xor_sync(~0u, __builtin_bit_cast(unsigned long long, x), distance));
  else if constexpr (sizeof(T) == 4)
    return __builtin_bit_cast(T, __shfl_xor_sync(~0u, __builtin_bit_cast(unsigned, x), distance));
  else
    return (T)__shfl_xor_sync(~0u, (int)x, distance);
}
)";

struct TeamEmitter {
  const loop::Program& program;
  const GpuTarget& target;
  const schedule::LoopPlan plan;
  const loop::Nest nest;
  KernelText text;
  Body body;
  const int team, teams;  // threads of a point, points of a block
  bool keep = false;      // chunks stay in registers
  sym::Facts facts;
  bool vectors_allowed = true, any_vectors = false;
  // Of the choice that is being emitted.
  std::vector<Expr> conditions;
  std::vector<loop::BufferId> aligned;

  struct Range {  // a loop at the top
    std::vector<loop::Dim> dims;
    Expr count = 1, chunks = 1;
    std::optional<Strip> strip;
    const loop::Block* block = nullptr;
  };
  // Registers that hold a load's chunks: place (what is loaded, by which range) -> name; how many loops want it.
  std::map<std::string, int> wanted;
  std::map<std::string, std::string> kept;

  TeamEmitter(const loop::Program& program, const loop::Nest& original, const GpuTarget& target, bool keep,
              bool vectors)
      : program(program),
        target(target),
        plan(schedule::parse_plan(original.schedule)),
        nest(schedule::reshaped(program, original, plan)),
        text(program, kCudaText),
        body(text, nest),
        team(plan.team),
        teams(std::max(1, 256 / plan.team)),
        keep(keep),
        facts(loop::facts_of(program, nest)),
        vectors_allowed(vectors) {
    if (team > 32) const_cast<int&>(teams) = 1;  // barriers are the block's
  }

  int threads() const { return team * teams; }

  // ---- ranges ----

  Range range_of(const loop::Stmt& stmt) {
    Range range;
    range.dims = loop::dims_of(stmt);
    range.block = loop::body_of(stmt);
    sym::Facts inside = facts;
    for (const loop::Dim& dim : range.dims) {
      range.count *= dim.extent;
      inside.set_index(dim.var, dim.extent);
    }
    range.chunks = range.count;
    if (!vectors_allowed || range.dims.empty()) return range;
    const loop::Dim& last = range.dims.back();
    range.strip = plan_strip(program, nest, *range.block, last.var, last.extent, inside);
    if (!range.strip) return range;
    any_vectors = true;
    range.chunks = sym::floordiv(range.count, range.strip->width);
    conditions.insert(conditions.end(), range.strip->conditions.begin(), range.strip->conditions.end());
    for (loop::BufferId id : range.strip->aligned)
      if (!std::count(aligned.begin(), aligned.end(), id)) aligned.push_back(id);
    return range;
  }

  // What a vector load of a range reads, with the range's variables renamed.
  std::string place_of(const Range& range, const loop::Stmt& stmt) {
    Expr offset = loop::offset_of(program, *loop::access_of(stmt));
    std::string extents;
    for (size_t d = 0; d < range.dims.size(); ++d) {
      offset = sym::substitute(offset, range.dims[d].var, sym::var(cat("%range", d)));
      extents += " " + sym::to_string(range.dims[d].extent);
    }
    return cat(loop::access_of(stmt)->buffer.value, " ", sym::to_string(sym::simplify(offset, facts)),
               extents, " ", range.strip->width);
  }

  void count_wanted() {
    for (const loop::Stmt& stmt : nest.body) {
      if (!loop::body_of(stmt) || std::holds_alternative<loop::Scan>(stmt.node)) continue;
      const Range range = range_of(stmt);
      if (!range.strip) continue;
      std::set<std::string> here;
      for (const loop::Stmt* vector : range.strip->vectors)
        if (std::holds_alternative<loop::Load>(vector->node)) here.insert(place_of(range, *vector));
      for (const std::string& place : here) ++wanted[place];
    }
  }

  // ---- printing ----

  // The range's chunks of this thread; `inside` prints one value's end.
  void print_range(const Range& range, const std::function<void()>& inside) {
    const std::string chunks = body.index(range.chunks), c = text.fresh("c"), j = text.fresh("j");
    if (keep) {
      text.line("#pragma unroll");
      text.open(cat("for (int ", j, " = 0; ", j, " < ", kKept, "; ++", j, ")"));
      text.line(cat("const int64_t ", c, " = lane + ", j, " * ", team, ";"));
      text.open(cat("if (", c, " < ", chunks, ")"));
    } else {
      text.line("#pragma unroll 4");
      text.open(cat("for (int64_t ", c, " = lane; ", c, " < ", chunks, "; ", c, " += ", team, ")"));
    }
    const sym::Facts outer = facts;
    for (const loop::Dim& dim : range.dims) facts.set_index(dim.var, dim.extent);
    std::string rest = c;
    if (range.strip && range.dims.size() > 1) {
      rest = text.fresh("t");
      text.line(cat("const int64_t ", rest, " = ", c, " * ", range.strip->width, ";"));
    }
    std::string first = range.strip ? cat("(", c, " * ", range.strip->width, ")") : c;
    if (range.dims.size() > 1) {
      const std::string left = text.fresh("t");
      text.line(cat("int64_t ", left, " = ", rest, ";"));
      for (size_t d = range.dims.size(); d-- > 1;) {
        const std::string extent = body.index(range.dims[d].extent), name = text.fresh("t");
        text.line(cat("const int64_t ", name, " = ", left, " % ", extent, ";"));
        text.line(cat(left, " /= ", extent, ";"));
        if (d + 1 == range.dims.size()) first = name;
        body.set_index(range.dims[d].var, name);
      }
      body.set_index(range.dims[0].var, left);
    } else if (!range.dims.empty()) {
      body.set_index(range.dims[0].var, first);
    }
    if (!range.strip) {
      body.print(*range.block);
      inside();
    } else {
      print_strip(
          text, body, program, *range.block, *range.strip, first,
          [&](const loop::Stmt& stmt) -> Kept {
            if (!keep || !std::holds_alternative<loop::Load>(stmt.node)) return {};
            const std::string place = place_of(range, stmt);
            if (wanted[place] < 2) return {};
            const auto found = kept.find(place);
            if (found != kept.end()) return {cat(found->second, "[", j, "]"), true};
            fresh_.emplace_back(place, cat("kept", kept.size() + fresh_.size()));
            const std::string storage = text.storage_type(program[loop::access_of(stmt)->buffer].dtype);
            declared_ += cat("    Vec<", storage, ", ", range.strip->width, "> ", fresh_.back().second, "[",
                             kKept, "];\n");
            return {cat(fresh_.back().second, "[", j, "]"), false};
          },
          inside);
    }
    facts = outer;
    if (keep) text.close();
    text.close();
    for (auto& [place, name] : fresh_) kept[place] = name;
    fresh_.clear();
  }

  void barrier() { text.line(team > 32 ? "__syncthreads();" : "__syncwarp();"); }

  void print_reduce(const loop::Reduce& reduce, const loop::Stmt& stmt) {
    const size_t parts = reduce.results.size();
    std::vector<DType> dtypes;
    std::vector<std::string> into;
    for (size_t p = 0; p < parts; ++p) {
      dtypes.push_back(nest.values[reduce.results[p].value].dtype);
      into.push_back(text.fresh("a"));
      text.line(cat(text.value_type(dtypes[p]), " ", into[p], " = ",
                    body.identity(reduce.combine, dtypes[p], p), ";"));
    }
    const Range range = range_of(stmt);
    print_range(range, [&] {
      std::vector<std::string> from;
      for (loop::ValueId id : reduce.yields) from.push_back(body.value(id).text);
      body.print_combine(reduce.combine, into, from, dtypes, 1);
    });
    auto meet = [&](int distance_from) {
      const std::string d = text.fresh("d");
      text.line("#pragma unroll");
      text.open(cat("for (int ", d, " = ", distance_from, "; ", d, " > 0; ", d, " >>= 1)"));
      std::vector<std::string> from;
      for (size_t p = 0; p < parts; ++p) {
        from.push_back(text.fresh("v"));
        text.line(cat("const ", text.value_type(dtypes[p]), " ", from[p], " = sd_shuffle(", into[p], ", ", d,
                      ");"));
      }
      // Both sides of a pair combine in the same order, so that all threads hold the same bits.
      body.print_combine(reduce.combine, into, from, dtypes, 1);
      text.close();
    };
    meet(std::min(team, 32) / 2);
    if (team > 32) {
      const int warps = team / 32;
      for (size_t p = 0; p < parts; ++p)
        text.line(cat("__shared__ ", text.value_type(dtypes[p]), " part_", into[p], "[", warps, "];"));
      for (size_t p = 0; p < parts; ++p)
        text.line(cat("if (threadIdx.x % 32 == 0) part_", into[p], "[threadIdx.x / 32] = ", into[p], ";"));
      text.line("__syncthreads();");
      for (size_t p = 0; p < parts; ++p)
        text.line(cat(into[p], " = part_", into[p], "[threadIdx.x % ", warps, "];"));
      meet(warps / 2);
      text.line("__syncthreads();");  // before the next point writes them
    }
    for (size_t p = 0; p < parts; ++p) {
      const std::string result = text.fresh("v");
      text.line(cat("const ", text.value_type(dtypes[p]), " ", result, " = ",
                    body.rounded(into[p], dtypes[p], 1), ";"));
      body.set_value(reduce.results[p], {result, dtypes[p], 1});
    }
  }

  bool writes(const loop::Stmt& stmt) {
    bool found = std::holds_alternative<loop::Store>(stmt.node);
    if (const loop::Block* block = loop::body_of(stmt))
      loop::for_each_stmt(
          *block, [&](const loop::Stmt& s) { found = found || std::holds_alternative<loop::Store>(s.node); });
    return found;
  }

  void print_body() {
    for (const loop::Stmt& stmt : nest.body) {
      if (const auto* reduce = std::get_if<loop::Reduce>(&stmt.node)) {
        print_reduce(*reduce, stmt);
      } else if (std::holds_alternative<loop::For>(stmt.node)) {
        print_range(range_of(stmt), [] {});
      } else if (std::holds_alternative<loop::Store>(stmt.node)) {
        text.open("if (lane == 0)");
        body.print(stmt);
        text.close();
      } else {
        body.print(stmt);
      }
      if (writes(stmt) && &stmt != &nest.body.back()) barrier();
    }
    // The next point may write what this one still reads.
    if (uses_locals) barrier();
  }

  bool uses_locals = false, scratch = false;

  void declare_locals() {
    std::set<loop::BufferId> seen;
    int64_t used = 0;
    loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
      const loop::Access* access = loop::access_of(stmt);
      if (!access || program[access->buffer].storage != loop::Storage::kLocal ||
          !seen.insert(access->buffer).second)
        return;
      uses_locals = true;
      const loop::Buffer& buffer = program[access->buffer];
      const std::string name = text.fresh("l"), type = text.storage_type(buffer.dtype);
      const Expr elements = schedule::extent_in_elements(buffer);
      const std::optional<int64_t> count = sym::as_const(elements);
      const int64_t bytes = count ? *count * byte_size(buffer.dtype) * teams : 0;
      if (count && used + bytes <= kSharedBytes) {
        used += bytes;
        text.line(cat("__shared__ ", type, " all_", name, "[", std::max<int64_t>(*count, 1) * teams, "];"));
        text.line(cat(type, "* const ", name, " = all_", name, " + (threadIdx.x / ", team, ") * ",
                      std::max<int64_t>(*count, 1), ";"));
      } else {
        scratch = true;
        text.line(cat(type, "* const ", name, " = (", type, "*)",
                      text.scratch(elements * byte_size(buffer.dtype)), ";"));
      }
      body.set_buffer(access->buffer, name, buffer.strides);
    });
  }

  DeviceKernel emit() {
    count_wanted();
    declare_locals();
    Expr points = 1;
    for (const loop::Dim& dim : nest.dims) points *= dim.extent;
    const Expr blocks =
        sym::min(sym::ceildiv(points, teams), scratch ? Expr(8 * target.multiprocessors) : Expr(1 << 24));
    const std::string n = body.index(points);
    text.line(cat("const int lane = threadIdx.x % ", team, ";"));
    text.open(cat("for (int64_t point = blockIdx.x * (int64_t)", teams, " + threadIdx.x / ", team,
                  "; point < ", n, "; point += gridDim.x * (int64_t)", teams, ")"));
    if (nest.dims.size() > 1) text.line("int64_t rest = point;");
    for (size_t d = nest.dims.size(); d-- > 0;) {
      if (d == 0) {
        body.set_index(nest.dims[0].var, nest.dims.size() > 1 ? "rest" : "point");
        break;
      }
      const std::string extent = body.index(nest.dims[d].extent), name = text.fresh("t");
      text.line(cat("const int64_t ", name, " = rest % ", extent, ";"));
      text.line(cat("rest /= ", extent, ";"));
      body.set_index(nest.dims[d].var, name);
    }
    const std::string statements = text.capture([&] { print_body(); });
    text.append(declared_ + statements);
    text.close();
    Geometry geometry{.grid = {blocks, 1, 1}, .threads = threads()};
    geometry.scratch_owners = blocks * teams;
    geometry.scratch_owner = cat("blockIdx.x * (int64_t)", teams, " + threadIdx.x / ", team);
    return finish(text, std::move(geometry), cat(kDeclarations, strip_declarations()));
  }

 private:
  std::vector<std::pair<std::string, std::string>> fresh_;  // kept from the range being printed on
  std::string declared_;
};

}  // namespace

DeviceNest emit_teams(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target) {
  DeviceNest out;
  auto add = [&](bool keep, bool vectors) {
    TeamEmitter emitter(program, nest, target, keep, vectors);
    // The longest range decides whether all fit.
    std::vector<Expr> conditions;
    bool kept = false;
    for (const loop::Stmt& stmt : emitter.nest.body) {
      if (!loop::body_of(stmt) || std::holds_alternative<loop::Scan>(stmt.node)) continue;
      const TeamEmitter::Range range = emitter.range_of(stmt);
      if (keep) conditions.push_back(sym::le(range.chunks, kKept * emitter.team));
    }
    emitter.count_wanted();
    for (const auto& [place, count] : emitter.wanted) kept = kept || count > 1;
    emitter.wanted.clear();
    if ((keep && !kept) || (vectors && !emitter.any_vectors)) return;
    if (!out.choices.empty() && out.choices.back().condition.is_const(1)) {
      if (vectors || out.choices.back().aligned.empty()) return;
    }
    conditions.insert(conditions.end(), emitter.conditions.begin(), emitter.conditions.end());
    const Expr condition = sym::simplify(sym::logical_and(conditions), program.facts);
    if (condition.is_const(0)) return;
    std::vector<loop::BufferId> aligned = emitter.aligned;
    out.choices.push_back({condition, aligned, {}});
    out.choices.back().launches.push_back(emitter.emit());
  };
  add(true, true);
  add(false, true);
  add(false, false);
  return out;
}

}  // namespace stridec::codegen::cuda
