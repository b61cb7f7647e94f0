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

constexpr int kKeptElements = 32;           // of a row that a thread keeps
constexpr int kKeptRows = 8;                // of its columns
constexpr int64_t kSharedBytes = 40 << 10;  // of local buffers, without asking the driver for more
constexpr int kHeldWords = 64;              // registers for loads in flight
constexpr int kUnrolled = 512;              // statements of a loop's copies
constexpr int kCombineRows = 8;             // of a block that combines them, 32 points wide
constexpr int64_t kManyChunks = 1 << 30;

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

bool is_range(const loop::Stmt& stmt) {
  return loop::body_of(stmt) && !std::holds_alternative<loop::Scan>(stmt.node);
}

int value_bytes(DType dtype) { return is_storage_float(dtype) ? 4 : byte_size(dtype); }

int statements(const loop::Block& block) {
  int count = 0;
  loop::for_each_stmt(block, [&](const loop::Stmt&) { ++count; });
  return count;
}

struct Variant {
  bool columns = false;
  bool keep = false;     // chunks stay in registers
  bool vectors = false;  // chunks and columns by vectors
  bool split = false;    // blocks share the range of the only reduction
  bool narrow = false;   // numbers of chunks fit an int
};

struct TeamEmitter {
  const loop::Program& program;
  const GpuTarget& target;
  const schedule::LoopPlan plan;
  const loop::Nest nest;
  const Variant variant;
  KernelText text;
  Body body;
  const int team, teams;  // threads of a point, points of a block
  sym::Facts facts;
  // Columns: the dim, and the team as a grid.
  loop::Dim column;
  int lanes = 1, rows = 1;
  int width = 1;  // elements of a chunk, or points of a lane
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
  std::map<loop::BufferId, std::string> passed;  // local buffers in registers

  TeamEmitter(const loop::Program& program, const loop::Nest& original, const GpuTarget& target,
              Variant variant)
      : program(program),
        target(target),
        plan(schedule::parse_plan(original.schedule)),
        nest(schedule::reshaped(program, original, plan)),
        variant(variant),
        text(program, kCudaText),
        body(text, nest),
        team(plan.team),
        teams(team > 32 || variant.columns ? 1 : 256 / team),  // barriers of larger teams are the block's
        facts(loop::facts_of(program, nest)),
        rows(team) {
    if (variant.columns)
      column = *std::find_if(nest.dims.begin(), nest.dims.end(),
                             [&](const loop::Dim& dim) { return dim.var == *plan.columns; });
    choose_width();
    if (!variant.columns) return;
    // A row of the grid covers 128 bytes. Single elements may begin anywhere in a sector of memory: longer rows have
    // fewer of their sectors in common with neighbours. Fewer rows where the range is short.
    lanes = variant.vectors ? 8 : column.extent.is_const() ? 128 : 64;
    while (2 * lanes < team && longest() < 8 * team / lanes) lanes *= 2;
    while (lanes > 1 && facts.holds(sym::le(column.extent, width * lanes / 2))) lanes /= 2;
    rows = team / lanes;
  }

  int threads() const { return team * teams; }
  bool any_vectors() const { return width > 1; }
  int kept_chunks() const { return variant.columns ? kKeptRows : kKeptElements / width; }
  // The largest number of points of the ranges that is known; symbols are long.
  int64_t longest() const {
    int64_t most = 0;
    for (const loop::Stmt& stmt : nest.body) {
      if (!is_range(stmt)) continue;
      Expr count = 1;
      for (const loop::Dim& dim : loop::dims_of(stmt)) count *= dim.extent;
      most = std::max(most, sym::as_const(count).value_or(INT64_MAX / 1024));
    }
    return most;
  }

  // ---- ranges ----

  std::optional<Strip> strip_of(const loop::Stmt& stmt, int wide) const {
    const std::vector<loop::Dim> dims = loop::dims_of(stmt);
    sym::Facts inside = facts;
    for (const loop::Dim& dim : dims) inside.set_index(dim.var, dim.extent);
    if (!variant.columns && dims.empty()) return std::nullopt;
    const loop::Dim& along = variant.columns ? column : dims.back();
    return plan_strip(program, nest, *loop::body_of(stmt), along.var, along.extent, inside, wide);
  }

  // One width for all ranges, so that a thread's chunks are the same in all.
  void choose_width() {
    if (!variant.vectors) return;
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

  Range range_of(const loop::Stmt& stmt) {
    Range range;
    range.dims = loop::dims_of(stmt);
    range.block = loop::body_of(stmt);
    for (const loop::Dim& dim : range.dims) range.count *= dim.extent;
    range.chunks = range.count;
    if (width == 1) return range;
    range.strip = strip_of(stmt, width);
    if (!range.strip) return range;
    if (!variant.columns) range.chunks = sym::floordiv(range.count, width);
    conditions.insert(conditions.end(), range.strip->conditions.begin(), range.strip->conditions.end());
    for (loop::BufferId id : range.strip->aligned)
      if (!std::count(aligned.begin(), aligned.end(), id)) aligned.push_back(id);
    return range;
  }

  // What an access of a range touches, with the range's variables renamed.
  std::string place_of(const Range& range, const loop::Access& access) const {
    Expr offset = loop::offset_of(program, access);
    std::string extents;
    for (size_t d = 0; d < range.dims.size(); ++d) {
      offset = sym::substitute(offset, range.dims[d].var, sym::var(cat("%range", d)));
      extents += " " + sym::to_string(range.dims[d].extent);
    }
    return cat(access.buffer.value, " ", sym::to_string(sym::simplify(offset, facts)), extents);
  }

  // Loads that a range has in registers as a whole: by vectors, or single elements at a place that is no data.
  bool can_keep(const Range& range, const loop::Stmt& stmt) const {
    const auto* load = std::get_if<loop::Load>(&stmt.node);
    if (!load || program[load->access.buffer].storage == loop::Storage::kLocal) return false;
    if (range.strip) return std::count(range.strip->vectors.begin(), range.strip->vectors.end(), &stmt) > 0;
    if (width > 1 || !load->access.mask.is_const(1)) return false;
    const loop::Effects effects = loop::effects_of(nest);
    if (std::count(effects.writes.begin(), effects.writes.end(), load->access.buffer)) return false;
    for (const Expr& index : load->access.index)
      for (const Expr& var : sym::free_vars(index)) {
        auto is = [&](const loop::Dim& dim) { return dim.var == var; };
        if (sym::is_index(var) && std::none_of(nest.dims.begin(), nest.dims.end(), is) &&
            std::none_of(range.dims.begin(), range.dims.end(), is))
          return false;
      }
    return true;
  }

  void count_wanted() {
    std::map<loop::BufferId, std::set<std::string>> local;
    std::map<loop::BufferId, int> all, direct;
    loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
      if (const loop::Access* access = loop::access_of(stmt)) ++all[access->buffer];
    });
    for (const loop::Stmt& stmt : nest.body) {
      if (!is_range(stmt)) continue;
      const Range range = range_of(stmt);
      std::set<std::string> here;
      for (const loop::Stmt& inner : *range.block) {
        const loop::Access* access = loop::access_of(inner);
        if (!access) continue;
        if (can_keep(range, inner)) here.insert(place_of(range, *access));
        if (program[access->buffer].storage != loop::Storage::kLocal || !access->mask.is_const(1)) continue;
        ++direct[access->buffer];
        local[access->buffer].insert(place_of(range, *access));
      }
      for (const std::string& place : here) ++wanted[place];
    }
    for (const auto& [buffer, places] : local)
      if (variant.keep && places.size() == 1 && direct[buffer] == all[buffer])
        passed[buffer] = cat("row", passed.size());
  }

  bool has_locals() const {
    const std::vector<loop::BufferId> buffers = loop::buffers_of(nest);
    return std::any_of(buffers.begin(), buffers.end(),
                       [&](loop::BufferId id) { return program[id].storage == loop::Storage::kLocal; });
  }
  bool keeps_something() const {
    return !passed.empty() ||
           std::any_of(wanted.begin(), wanted.end(), [](const auto& entry) { return entry.second > 1; });
  }

  // ---- printing ----

  // The C type of a chunk's number.
  const char* chunk_type(const Range& range) const {
    return variant.keep || variant.narrow || facts.bounds(range.chunks).hi < kManyChunks ? "int" : "int64_t";
  }

  // What is known of a batch of chunks.
  enum class Batch : uint8_t {
    kWhole,  // all of them are in the range
    kLoads,  // those beyond the range are its last, so that no load waits for a comparison of another
    kSome,   // those beyond the range are left out
  };

  // `together` of a thread's chunks, the first of them number `from` of the range; `inside` gets the number of one of
  // them.
  void print_chunks(const Range& range, const std::string& from, int together, Batch batch,
                    const std::function<void(const std::string& first, const std::string& j)>& inside) {
    const std::string c = text.fresh("c"), j = text.fresh("j");
    text.line("#pragma unroll");
    text.open(cat("for (int ", j, " = 0; ", j, " < ", together, "; ++", j, ")"));
    const std::string number = cat(from, " + ", j, " * ", rows);
    if (batch == Batch::kLoads) {
      const std::string last = cat(chunks_, " - 1");
      text.line(cat("const ", chunk_type(range), " ", c, " = ", number, " < ", last, " ? ", number, " : ",
                    last, ";"));
    } else {
      text.line(cat("const ", chunk_type(range), " ", c, " = ", number, ";"));
      if (batch == Batch::kSome)
        text.open(cat("if (", variant.columns ? "live && " : "", c, " < ", chunks_, ")"));
    }
    std::string first = cat("((int64_t)", c, range.strip && !variant.columns ? cat(" * ", width, ")") : ")");
    if (range.dims.size() > 1) {
      const std::string left = text.fresh("t");
      text.line(cat("int64_t ", left, " = ", first, ";"));
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
    inside(first, j);
    if (batch == Batch::kSome) text.close();
    text.close();
  }

  // Loads of the range that are held in registers, before anything is done with them: all at once, so that their
  // latencies overlap.
  std::vector<const loop::Stmt*> held_loads(const Range& range) {
    std::vector<const loop::Stmt*> out;
    std::set<std::string> seen;
    for (const loop::Stmt& stmt : *range.block) {
      if (!can_keep(range, stmt)) continue;
      const std::string place = place_of(range, *loop::access_of(stmt));
      if (variant.keep && wanted[place] < 2) continue;
      if (!kept.count(place) && seen.insert(place).second) out.push_back(&stmt);
    }
    return out;
  }

  void print_held(const Range& range, const std::vector<const loop::Stmt*>& loads, const std::string& from,
                  int together, Batch batch) {
    if (loads.empty()) return;
    for (const loop::Stmt* stmt : loads) {
      const loop::Access& access = *loop::access_of(*stmt);
      const std::string storage = text.storage_type(program[access.buffer].dtype), name = text.fresh("held");
      kept[place_of(range, access)] = name;
      const std::string declaration =
          cat(range.strip ? cat("Vec<", storage, ", ", width, ">") : storage, " ", name, "[", together, "];");
      if (variant.keep)
        declared_ += cat("    ", declaration, "\n");
      else
        text.line(declaration);
    }
    // Without a chunk there is nothing to load; in a loop over chunks there is one.
    if (variant.keep) text.open(cat("if (", chunks_, " > 0)"));
    print_chunks(range, from, together, batch, [&](const std::string& first, const std::string& j) {
      if (range.strip) body.set_index(range.strip->var, variant.columns ? "column" : first);
      for (const loop::Stmt* stmt : loads) {
        const loop::Access& access = *loop::access_of(*stmt);
        const std::string element = cat(text.pointer(access.buffer), " + ", body.offset(access));
        text.line(cat(
            kept[place_of(range, access)], "[", j,
            "] = ", range.strip ? cat("sd_load<", width, ">(", element, ")") : cat("*(", element, ")"), ";"));
      }
    });
    if (variant.keep) text.close();
  }

  void print_batch(const Range& range, const std::vector<const loop::Stmt*>& loads, const std::string& from,
                   int together, bool whole, const std::function<void()>& inside) {
    print_held(range, loads, from, together, whole ? Batch::kWhole : Batch::kLoads);
    const Batch batch = whole ? Batch::kWhole : Batch::kSome;
    print_chunks(range, from, together, batch, [&](const std::string& first, const std::string& j) {
      body.place = [&](const loop::Access& access) -> std::string {
        const auto found = passed.find(access.buffer);
        if (found != passed.end()) return cat(found->second, "[", j, "][", range.strip ? "u" : "0", "]");
        if (range.strip || !access.mask.is_const(1)) return local_element(access);
        const auto held = kept.find(place_of(range, access));
        return held == kept.end() ? local_element(access) : cat(held->second, "[", j, "]");
      };
      if (!range.strip) {
        body.print(*range.block);
        inside();
      } else {
        print_strip(
            text, body, program, *range.block, *range.strip, variant.columns ? "column" : first,
            [&](const loop::Stmt& stmt) -> std::string {
              const auto found = kept.find(place_of(range, *loop::access_of(stmt)));
              return found == kept.end() ? "" : cat(found->second, "[", j, "]");
            },
            inside);
      }
      body.place = top_place();
    });
  }

  // The range's chunks of this thread; `inside` prints one value's end.
  void print_range(const Range& range, const std::function<void()>& inside) {
    chunks_ = text.fresh("n");
    text.line(cat("const ", chunk_type(range), " ", chunks_, " = ", body.index(range.chunks), ";"));
    const std::vector<const loop::Stmt*> loads = held_loads(range);
    const sym::Facts outer = facts;
    for (const loop::Dim& dim : range.dims) facts.set_index(dim.var, dim.extent);
    if (variant.keep) {
      print_batch(range, loads, "row", kept_chunks(), false, inside);
    } else {
      int words = 0;
      for (const loop::Stmt* stmt : loads)
        words += std::max(1, width * byte_size(program[loop::access_of(*stmt)->buffer].dtype) / 4);
      int together = width == 1 ? 16 : variant.columns ? 8 : 4;
      while (together > 1 &&
             (together * words > kHeldWords || together * width * statements(*range.block) > kUnrolled))
        together /= 2;
      if (loads.empty()) together = 4;
      const std::string from = text.fresh("c");
      text.line(cat(chunk_type(range), " ", from, " = ",
                    variant.split ? cat("split * ", together * rows, " + ") : "", "row;"));
      // Blocks that share a range take its batches by turns, so that what they read at a time lies together.
      const std::string turns = variant.split ? " * " + text.size(splits()) : "";
      text.open(cat("for (; ", variant.columns ? "live && " : "", from, " + ", (together - 1) * rows, " < ",
                    chunks_, "; ", from, " += ", together * rows, turns, ")"));
      print_batch(range, loads, from, together, true, inside);
      text.close();
      kept.clear();
      text.open(cat("if (", from, " < ", chunks_, ")"));
      print_batch(range, loads, from, together, false, inside);
      text.close();
      kept.clear();
    }
    facts = outer;
  }

  // Columns: a local buffer has an element for each point of the team, neighbours next to each other.
  std::string local_element(const loop::Access& access) {
    if (!variant.columns || program[access.buffer].storage != loop::Storage::kLocal) return "";
    return cat(local_.at(access.buffer), "[(", body.index(loop::offset_of(program, access)), ") * ",
               lanes * width, " + lane * ", width, width > 1 ? " + u]" : "]");
  }
  std::function<std::string(const loop::Access&)> top_place() {
    return [this](const loop::Access& access) { return local_element(access); };
  }

  void barrier() { text.line(team > 32 || variant.columns ? "__syncthreads();" : "__syncwarp();"); }

  // Of a lane's point: an array's element where a lane has several.
  std::string of_point(const std::string& name) const {
    return variant.columns && width > 1 ? name + "[u]" : name;
  }
  std::string array() const { return variant.columns && width > 1 ? cat("[", width, "]") : ""; }
  void open_points() {
    if (!variant.columns || width == 1) return;
    text.line("#pragma unroll");
    text.open(cat("for (int u = 0; u < ", width, "; ++u)"));
    body.set_index(column.var, "(column + u)");
  }
  void close_points() {
    if (variant.columns && width > 1) text.close();
  }

  std::vector<DType> dtypes_of(const loop::Reduce& reduce) const {
    std::vector<DType> out;
    for (loop::ValueId id : reduce.results) out.push_back(nest.values[id.value].dtype);
    return out;
  }

  // Partial results of a reduce: one name a part, for each of a lane's points.
  std::vector<std::string> print_partial(const loop::Reduce& reduce, const loop::Stmt& stmt) {
    const std::vector<DType> dtypes = dtypes_of(reduce);
    std::vector<std::string> into, points;
    for (DType dtype : dtypes) {
      into.push_back(text.fresh("a"));
      points.push_back(of_point(into.back()));
      text.line(cat(text.value_type(dtype), " ", into.back(), array(), ";"));
    }
    open_points();
    for (size_t p = 0; p < into.size(); ++p)
      text.line(cat(points[p], " = ", body.identity(reduce.combine, dtypes[p], p), ";"));
    close_points();
    print_range(range_of(stmt), [&] {
      std::vector<std::string> from;
      for (loop::ValueId id : reduce.yields) from.push_back(body.value(id).text);
      body.print_combine(reduce.combine, points, from, dtypes, 1);
    });
    print_meeting(reduce, into, points, dtypes);
    return points;
  }

  void print_shuffles(const loop::Reduce& reduce, const std::vector<std::string>& points,
                      const std::vector<DType>& dtypes, int from, int to) {
    if (from < to) return;
    const std::string d = text.fresh("d");
    text.line("#pragma unroll");
    text.open(cat("for (int ", d, " = ", from, "; ", d, " >= ", to, "; ", d, " >>= 1)"));
    open_points();
    std::vector<std::string> others;
    for (size_t p = 0; p < points.size(); ++p) {
      others.push_back(text.fresh("v"));
      text.line(cat("const ", text.value_type(dtypes[p]), " ", others.back(), " = sd_shuffle(", points[p],
                    ", ", d, ");"));
    }
    // Both sides of a pair combine in the same order, so that all threads hold the same bits.
    body.print_combine(reduce.combine, points, others, dtypes, 1);
    close_points();
    text.close();
  }

  void print_meeting(const loop::Reduce& reduce, const std::vector<std::string>& into,
                     const std::vector<std::string>& points, const std::vector<DType>& dtypes) {
    const int side = variant.columns ? lanes : 1;  // neighbours in a warp that do not meet
    print_shuffles(reduce, points, dtypes, std::min(team, 32) / 2, side);
    if (team <= 32) return;
    const int warps = team / std::max(32, side), all = variant.columns ? lanes * width : 1;
    if (warps == 1) return;
    const std::string warp = cat("threadIdx.x / ", std::max(32, side));
    const std::string at = variant.columns ? cat("[lane * ", width, width > 1 ? " + u]" : "]") : "[0]";
    for (size_t p = 0; p < into.size(); ++p)
      text.line(
          cat("__shared__ ", text.value_type(dtypes[p]), " part_", into[p], "[", warps, "][", all, "];"));
    text.open(cat("if (threadIdx.x % ", std::max(32, side), " < ", side, ")"));
    open_points();
    for (size_t p = 0; p < into.size(); ++p)
      text.line(cat("part_", into[p], "[", warp, "]", at, " = ", points[p], ";"));
    close_points();
    text.close();
    text.line("__syncthreads();");
    if (!variant.columns) {
      for (size_t p = 0; p < into.size(); ++p)
        text.line(cat(into[p], " = part_", into[p], "[threadIdx.x % ", warps, "][0];"));
      print_shuffles(reduce, points, dtypes, warps / 2, 1);
    } else {
      open_points();
      for (size_t p = 0; p < into.size(); ++p) text.line(cat(points[p], " = part_", into[p], "[0]", at, ";"));
      const std::string w = text.fresh("w");
      text.line("#pragma unroll");
      text.open(cat("for (int ", w, " = 1; ", w, " < ", warps, "; ++", w, ")"));
      std::vector<std::string> others;
      for (size_t p = 0; p < into.size(); ++p) {
        others.push_back(text.fresh("v"));
        text.line(cat("const ", text.value_type(dtypes[p]), " ", others.back(), " = part_", into[p], "[", w,
                      "]", at, ";"));
      }
      body.print_combine(reduce.combine, points, others, dtypes, 1);
      text.close();
      close_points();
    }
    text.line("__syncthreads();");  // before the next point writes them
  }

  void print_reduce(const loop::Reduce& reduce, const loop::Stmt& stmt) {
    const std::vector<DType> dtypes = dtypes_of(reduce);
    const std::vector<std::string> points = print_partial(reduce, stmt);
    for (size_t p = 0; p < points.size(); ++p) {
      const std::string result = text.fresh("v");
      text.line(cat(array().empty() ? "const " : "", text.value_type(dtypes[p]), " ", result, array(),
                    array().empty() ? cat(" = ", body.rounded(points[p], dtypes[p], 1)) : "", ";"));
      if (!array().empty()) {
        open_points();
        text.line(cat(result, "[u] = ", body.rounded(points[p], dtypes[p], 1), ";"));
        close_points();
      }
      body.set_value(reduce.results[p], {of_point(result), dtypes[p], 1});
    }
  }

  // A statement at the top, for each of a lane's points.
  void print_top(const loop::Stmt& stmt) {
    if (array().empty() || std::holds_alternative<loop::Constant>(stmt.node)) {
      if (variant.columns && width == 1) body.set_index(column.var, "column");
      return body.print(stmt);
    }
    std::vector<loop::ValueId> results;
    loop::for_each_result(stmt, [&](loop::ValueId id) { results.push_back(id); });
    std::vector<std::string> names;
    for (loop::ValueId id : results) {
      names.push_back(text.fresh("v"));
      text.line(cat(text.value_type(nest.values[id.value].dtype), " ", names.back(), array(), ";"));
    }
    open_points();
    body.print(stmt);
    for (size_t i = 0; i < results.size(); ++i) {
      const CValue value = body.value(results[i]);
      text.line(cat(names[i], "[u] = ", value.text, ";"));
      body.set_value(results[i], {names[i] + "[u]", value.dtype, 1});
    }
    close_points();
  }

  // Whether a later loop, done by other threads, reads what the statement writes.
  bool passes_on(const loop::Stmt& stmt) {
    const loop::Effects effects = loop::effects_of(nest);
    const loop::Block one = {stmt};
    bool found = false;
    loop::for_each_stmt(one, [&](const loop::Stmt& s) {
      const auto* store = std::get_if<loop::Store>(&s.node);
      found = found || (store && !passed.count(store->access.buffer) &&
                        std::count(effects.reads.begin(), effects.reads.end(), store->access.buffer));
    });
    return found;
  }

  void print_body() {
    body.place = top_place();
    for (const loop::Stmt& stmt : nest.body) {
      if (const auto* reduce = std::get_if<loop::Reduce>(&stmt.node)) {
        print_reduce(*reduce, stmt);
      } else if (std::holds_alternative<loop::For>(stmt.node)) {
        print_range(range_of(stmt), [] {});
      } else if (std::holds_alternative<loop::Store>(stmt.node)) {
        text.open(variant.columns ? "if (row == 0 && live)" : "if (row == 0)");
        print_top(stmt);
        text.close();
      } else {
        print_top(stmt);
      }
      if (passes_on(stmt) && &stmt != &nest.body.back()) barrier();
    }
    // The next point may write what this one still reads.
    if (uses_locals) barrier();
  }

  bool uses_locals = false, scratch = false;

  void declare_locals() {
    int64_t used = 0;
    const int each = variant.columns ? lanes * width : teams;  // points of a block
    for (const loop::BufferId id : loop::buffers_of(nest)) {
      const loop::Buffer& buffer = program[id];
      if (buffer.storage != loop::Storage::kLocal) continue;
      const std::string type = text.storage_type(buffer.dtype);
      if (const auto found = passed.find(id); found != passed.end()) {
        declared_ += cat("    ", type, " ", found->second, "[", kept_chunks(), "][", width, "];\n");
        continue;
      }
      uses_locals = true;
      const std::string name = text.fresh("l");
      const Expr elements = schedule::extent_in_elements(buffer);
      const std::optional<int64_t> count = sym::as_const(elements);
      const int64_t bytes = count ? *count * byte_size(buffer.dtype) * each : 0;
      const int64_t length = std::max<int64_t>(count.value_or(1), 1);
      if (count && used + bytes <= kSharedBytes) {
        used += bytes;
        text.line(cat("__shared__ ", type, " all_", name, "[", length * each, "];"));
        text.line(cat(type, "* const ", name, " = all_", name,
                      variant.columns ? ";" : cat(" + (threadIdx.x / ", team, ") * ", length, ";")));
      } else {
        scratch = true;
        const Expr of_team = variant.columns ? elements * each : elements;
        text.line(cat(type, "* const ", name, " = (", type, "*)",
                      text.scratch(of_team * byte_size(buffer.dtype)), ";"));
      }
      local_[id] = name;
      body.set_buffer(id, name, buffer.strides);
    }
  }

  // ---- points ----

  // The dims whose points are dealt out to teams; columns count by tiles.
  std::vector<loop::Dim> grid_dims() const {
    std::vector<loop::Dim> out;
    for (const loop::Dim& dim : nest.dims)
      if (!variant.columns || dim.var != column.var) out.push_back(dim);
    return out;
  }
  Expr tiles() const { return variant.columns ? sym::ceildiv(column.extent, lanes * width) : Expr(1); }
  Expr points() const {
    Expr out = 1;
    for (const loop::Dim& dim : grid_dims()) out *= dim.extent;
    return out;
  }

  // Indices of the dims out of `rest`, an int64_t that is counted down to the first of them.
  void print_indices(const std::vector<loop::Dim>& dims) {
    for (size_t d = dims.size(); d-- > 0;) {
      if (d == 0) return body.set_index(dims[0].var, "rest");
      const std::string extent = body.index(dims[d].extent), name = text.fresh("t");
      text.line(cat("const int64_t ", name, " = rest % ", extent, ";"));
      text.line(cat("rest /= ", extent, ";"));
      body.set_index(dims[d].var, name);
    }
  }

  void print_column() {
    text.line(cat("const int64_t column_ = rest % ", body.index(tiles()), " * ", lanes * width, " + lane * ",
                  width, ";"));
    text.line(cat("rest /= ", body.index(tiles()), ";"));
    text.line(cat("const bool live = column_ < ", body.index(column.extent), ";"));
    text.line(
        "const int64_t column = live ? column_ : 0;");  // a point that is there, for what all threads do
    body.set_index(column.var, "column");
  }

  DeviceKernel emit() {
    count_wanted();
    declare_locals();
    const Expr count = points() * tiles();
    const Expr blocks =
        sym::min(sym::ceildiv(count, teams), scratch ? Expr(8 * target.multiprocessors) : Expr(1 << 24));
    const std::string n = body.index(count);
    if (variant.columns)
      text.line(cat("const int lane = threadIdx.x % ", lanes, ", row = threadIdx.x / ", lanes, ";"));
    else
      text.line(cat("const int row = threadIdx.x % ", team, ";"));
    const std::string first = teams > 1 ? cat("blockIdx.x * (int64_t)", teams, " + threadIdx.x / ", team)
                                        : std::string("blockIdx.x");
    text.open(
        cat("for (int64_t point = ", first, "; point < ", n, "; point += gridDim.x * (int64_t)", teams, ")"));
    text.line("int64_t rest = point;");
    if (variant.columns) print_column();
    print_indices(grid_dims());
    const std::string statements = text.capture([&] { print_body(); });
    text.append(declared_ + statements);
    text.close();
    Geometry geometry{.grid = {blocks, 1, 1}, .threads = threads()};
    geometry.scratch_owners = blocks * teams;
    geometry.scratch_owner = first;
    return finish(text, std::move(geometry), cat(kDeclarations, strip_declarations()));
  }

  // ---- reductions that blocks share ----

  // The reduction, if the loops of the body are it alone.
  const loop::Stmt* only_reduction() const {
    const loop::Stmt* found = nullptr;
    for (const loop::Stmt& stmt : nest.body) {
      if (!loop::body_of(stmt)) continue;
      if (found || !std::holds_alternative<loop::Reduce>(stmt.node)) return nullptr;
      found = &stmt;
    }
    return found;
  }

  // Blocks per tile of columns: so many that they fill the GPU, each with some work.
  Expr splits() {
    const Range range = range_of(*only_reduction());
    const Expr room = sym::floordiv(8 * target.multiprocessors * 256 / team, sym::max(1, points() * tiles()));
    return sym::simplify(sym::max(1, sym::min(room, sym::floordiv(range.chunks, 8 * rows))), program.facts);
  }

  // Where the results of a split begin in the workspace, and where the next part does.
  Expr part_elements() { return splits() * points() * column.extent; }
  Expr part_offset(const std::vector<DType>& dtypes, size_t part) {
    Expr out = 0;
    for (size_t p = 0; p < part; ++p) out += sym::align_up(part_elements() * value_bytes(dtypes[p]), 64);
    return out;
  }

  DeviceKernel emit_split() {
    const loop::Stmt& stmt = *only_reduction();
    const auto& reduce = std::get<loop::Reduce>(stmt.node);
    const std::vector<DType> dtypes = dtypes_of(reduce);
    const Range range = range_of(stmt);
    const std::string n = text.size(splits());
    text.line("#if __CUDA_ARCH__ >= 900 && !defined STRIDEC_EMULATE");
    text.line("asm volatile(\"griddepcontrol.launch_dependents;\");");  // the combination may wait in place
    text.line("#endif");
    text.line(cat("const int lane = threadIdx.x % ", lanes, ", row = threadIdx.x / ", lanes, ";"));
    text.line("int64_t rest = blockIdx.x;");
    print_column();
    text.line(cat("const int64_t split = rest % ", n, ", point = rest / ", n, ";"));
    text.line("rest = point;");
    print_indices(grid_dims());
    for (const loop::Stmt& before : nest.body) {
      if (&before == &stmt) break;
      if (!std::holds_alternative<loop::Store>(before.node)) print_top(before);
    }
    const std::vector<std::string> parts = print_partial(reduce, stmt);
    text.open("if (row == 0 && live)");
    open_points();
    for (size_t p = 0; p < parts.size(); ++p) {
      const std::string type = text.value_type(dtypes[p]);
      text.line(cat("((", type, "*)(workspace + ", text.size(part_offset(dtypes, p)), "))[(split * ",
                    text.size(points()), " + point) * ", text.size(column.extent), " + column",
                    width > 1 ? " + u" : "", "] = ", parts[p], ";"));
    }
    close_points();
    text.close();
    Geometry geometry{.grid = {points() * tiles() * splits(), 1, 1}, .threads = threads()};
    geometry.workspace_bytes = part_offset(dtypes, parts.size());
    return finish(text, std::move(geometry), cat(kDeclarations, strip_declarations()));
  }

  // The second launch; `shares` are the first one's.
  DeviceKernel emit_combination(Expr shares, Expr workspace) {
    const auto& reduce = std::get<loop::Reduce>(only_reduction()->node);
    const std::vector<DType> dtypes = dtypes_of(reduce);
    const Expr elements = shares * points() * column.extent;
    text.line("#if __CUDA_ARCH__ >= 900 && !defined STRIDEC_EMULATE");
    text.line("asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");");
    text.line("#endif");
    text.line(cat("const int64_t point = blockIdx.x * (int64_t)32 + threadIdx.x % 32, all = ",
                  body.index(points() * column.extent), ";"));
    text.line("const int64_t at = point < all ? point : all - 1;");
    text.line("const int row = threadIdx.x / 32;");
    // First the partial results of every eighth split, in order, then those of the rows.
    std::vector<std::string> into;
    Expr offset = 0;
    for (size_t p = 0; p < dtypes.size(); ++p) {
      const std::string type = text.value_type(dtypes[p]);
      into.push_back(text.fresh("a"));
      text.line(cat(type, " ", into[p], " = ", body.identity(reduce.combine, dtypes[p], p), ";"));
      text.line(cat("const ", type, "* const from_", into[p], " = (const ", type, "*)(workspace + ",
                    text.size(offset), ") + at;"));
      text.line(cat("__shared__ ", type, " part_", into[p], "[", kCombineRows, "][32];"));
      offset += sym::align_up(elements * value_bytes(dtypes[p]), 64);
    }
    auto combine = [&](const std::function<std::string(const std::string&)>& element) {
      std::vector<std::string> from;
      for (size_t p = 0; p < dtypes.size(); ++p) {
        from.push_back(text.fresh("v"));
        text.line(cat("const ", text.value_type(dtypes[p]), " ", from[p], " = ", element(into[p]), ";"));
      }
      body.print_combine(reduce.combine, into, from, dtypes, 1);
    };
    text.line("#pragma unroll 8");
    text.open(cat("for (int64_t s = row; s < ", text.size(shares), "; s += ", kCombineRows, ")"));
    combine([](const std::string& a) { return cat("from_", a, "[s * all]"); });
    text.close();
    for (const std::string& a : into) text.line(cat("part_", a, "[row][threadIdx.x % 32] = ", a, ";"));
    text.line("__syncthreads();");
    text.line("if (row > 0 || point >= all) return;");
    text.line("#pragma unroll");
    text.open(cat("for (int r = 1; r < ", kCombineRows, "; ++r)"));
    combine([](const std::string& a) { return cat("part_", a, "[r][threadIdx.x % 32]"); });
    text.close();
    text.line(cat("int64_t rest = at / ", body.index(column.extent), ";"));
    text.line(cat("const int64_t column = at % ", body.index(column.extent), ";"));
    body.set_index(column.var, "column");
    print_indices(grid_dims());
    for (const loop::Stmt& stmt : nest.body) {
      if (&stmt != only_reduction()) {
        body.print(stmt);
        continue;
      }
      for (size_t p = 0; p < dtypes.size(); ++p) {
        const std::string result = text.fresh("v");
        text.line(cat("const ", text.value_type(dtypes[p]), " ", result, " = ",
                      body.rounded(into[p], dtypes[p], 1), ";"));
        body.set_value(reduce.results[p], {result, dtypes[p], 1});
      }
    }
    Geometry geometry{.grid = {sym::ceildiv(points() * column.extent, 32), 1, 1},
                      .threads = 32 * kCombineRows};
    geometry.workspace_bytes = workspace;
    geometry.dependent_launch = target.clusters;
    return finish(text, std::move(geometry));
  }

 private:
  std::map<loop::BufferId, std::string> local_;
  std::string declared_, chunks_;
};

}  // namespace

DeviceNest emit_teams(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target) {
  DeviceNest out;
  auto add = [&](Variant variant) {
    if (!out.choices.empty() && out.choices.back().condition.is_const(1) &&
        out.choices.back().aligned.empty())
      return;
    TeamEmitter probe(program, nest, target, variant);
    if (variant.vectors && !probe.any_vectors()) return;
    // The longest range decides whether all fit.
    std::vector<Expr> conditions;
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
    const Expr condition = sym::simplify(sym::logical_and(conditions), program.facts);
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
