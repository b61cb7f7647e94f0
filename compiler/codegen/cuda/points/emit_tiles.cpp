// Emits tiles of neighbouring points along two dims, for nests that load along one dim of memory and store
// along another.
//
// A thread block loads its tile in memory order, rows along %b, stores it to shared memory, and computes its
// points from there with neighbouring threads along %a, so that all global accesses cover whole rows of the
// tile. Loads that run along %a, or along neither dim, bypass shared memory.
#include <algorithm>

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/common/frame.h"
#include "compiler/codegen/cuda/common/prelude.h"
#include "compiler/codegen/cuda/common/vector_access.h"
#include "compiler/codegen/cuda/points/points.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/effects.h"
#include "compiler/schedule/directives/schedule.h"

namespace stridec::codegen::cuda {
namespace {

using sym::Expr;

constexpr int kThreads = 256;
constexpr int kAlong = 128;     // points of a tile along %a
constexpr int kRowBytes = 256;  // bytes of a tile's row along %b, for the widest element
constexpr int kLeast = 16;      // smallest extents for which a tile pays
constexpr int kWidest = 8;      // elements of a shifted vector
constexpr int kTogether = 16;   // single elements that a thread loads before it stores them to shared memory
constexpr int kVector = 16;     // bytes

// How a tile is moved into and out of shared memory.
enum class Way : uint8_t {
  kVectors,  // by vectors; rows in memory begin at multiples of them
  // By vectors, wherever rows begin: loads use the vectors that cover a row, stores those that may begin
  // before a tile.
  kShifted,
  kElements,
};

struct TileEmitter {
  const loop::Program& program;
  const schedule::LoopPlan plan;
  const loop::Nest nest;
  KernelText text;
  Body body;
  const loop::Dim a, b;
  const Way way;
  const bool vectors = way == Way::kVectors, shifted = way == Way::kShifted;
  loop::Block turned;  // the loads that pass through shared memory
  std::optional<Strip> rows, points;
  int wide = 16;                   // points of a tile along %b
  int pack = 1;                    // points along %b that a thread computes at a time
  int before = 0;                  // rows of the tile before its first one
  std::vector<std::string> tiles;  // shared memory of the loads in `turned`

  TileEmitter(const loop::Program& program, const loop::Nest& original, Way way)
      : program(program),
        plan(schedule::parse_plan(original.schedule)),
        nest(schedule::reshaped(program, original, plan)),
        text(program, kCudaText),
        body(text, nest),
        a(dim_of(plan.tile->first)),
        b(dim_of(plan.tile->second)),
        way(way) {
    const sym::Facts facts = loop::facts_of(program, nest);
    int bytes = 1;
    for (const loop::Stmt& stmt : nest.body) {
      const auto* load = std::get_if<loop::Load>(&stmt.node);
      if (!load || !is_turned(*load, facts)) continue;
      turned.push_back(stmt);
      bytes = std::max(bytes, byte_size(program[load->access.buffer].dtype));
    }
    wide = kRowBytes / bytes / (turned.size() > 1 || !vectors ? 2 : 1);
    if (shifted) plan_shifted();
    if (!vectors) return;
    rows = plan_strip(program, nest, turned, b.var, b.extent, facts);
    points = plan_strip(program, nest, nest.body, a.var, a.extent, facts);
    pack = std::max(1, 4 / bytes);
  }

  const loop::Dim& dim_of(Expr var) const {
    return *std::find_if(nest.dims.begin(), nest.dims.end(),
                         [&](const loop::Dim& dim) { return dim.var == var; });
  }

  bool is_turned(const loop::Load& load, const sym::Facts& facts) const {
    const auto along = loop::stride_of(program, load.access, b.var, facts),
               across = loop::stride_of(program, load.access, a.var, facts);
    return along && along->is_const(1) && across && !across->is_const(0);
  }

  // Plans the only store, with vectors at aligned addresses.
  void plan_shifted() {
    const loop::Store* only = nullptr;
    const loop::Stmt* at = nullptr;
    for (const loop::Stmt& stmt : nest.body)
      if (const auto* store = std::get_if<loop::Store>(&stmt.node)) {
        if (only) return;
        only = store;
        at = &stmt;
      }
    if (!only || !only->access.mask.is_const(1)) return;
    const loop::Buffer& buffer = program[only->access.buffer];
    points =
        Strip{.var = a.var, .width = std::min(kVector / byte_size(buffer.dtype), kWidest), .vectors = {at}};
    auto align = [&](loop::BufferId id) {
      if (is_callers(program, id)) points->aligned.push_back(id);
    };
    align(only->access.buffer);
    for (size_t i = 0; i < turned.size(); ++i)
      if (is_covered(i)) align(loop::access_of(turned[i])->buffer);
    before = std::max(points->width, kThreads / wide);
  }

  // Whether turned load number i uses the aligned vectors that cover a row of the tile, wherever the row
  // begins.
  bool is_covered(size_t i) const { return shifted && loop::access_of(turned[i])->mask.is_const(1); }

  // Whether loads and stores are vectors that divide the rows of the tile.
  bool fits() const {
    if (shifted) return points.has_value();
    if (!vectors) return true;
    if (!rows || !points || rows->vectors.size() != turned.size() || wide % rows->width) return false;
    for (const loop::Stmt& stmt : turned)
      if (!loop::access_of(stmt)->mask.is_const(1)) return false;
    for (const loop::Stmt& stmt : nest.body)
      if (std::holds_alternative<loop::Store>(stmt.node) &&
          !std::count(points->vectors.begin(), points->vectors.end(), &stmt))
        return false;
    return true;
  }

  DeviceChoice choice() const {
    std::vector<Expr> conditions = {sym::ge(a.extent, kLeast), sym::ge(b.extent, kLeast)};
    DeviceChoice out;
    for (const std::optional<Strip>* strip : {&rows, &points}) {
      if (!*strip) continue;
      conditions.insert(conditions.end(), (*strip)->conditions.begin(), (*strip)->conditions.end());
      for (loop::BufferId id : (*strip)->aligned)
        if (!std::count(out.aligned.begin(), out.aligned.end(), id)) out.aligned.push_back(id);
    }
    out.condition = sym::simplify(sym::logical_and(conditions), program.facts);
    return out;
  }

  // ---- shared memory ----

  // Padding: row r of a tile begins at r * pitch, and every group of rows that a vector of points covers is
  // followed by a shift of one bank or more, so that neither rows nor columns cause bank conflicts.
  int pad(DType dtype) const {
    const int bytes = byte_size(dtype);
    return way != Way::kElements ? std::max(1, kVector / bytes) : bytes == 1 ? 5 : bytes == 2 ? 3 : 1;
  }
  std::string at(DType dtype, const std::string& row, const std::string& column) const {
    std::string out = cat("(", row, ") * ", wide + pad(dtype), " + ", column);
    if (way != Way::kElements) out += cat(" + (unsigned)(", row, ") / ", points->width, " * ", pad(dtype));
    return out;
  }
  int elements(DType dtype) const {
    return (kAlong + before) * (wide + pad(dtype)) +
           (way != Way::kElements ? (kAlong + before) / points->width * pad(dtype) : 0);
  }

  // Whether elements smaller than a word of shared memory are read a word at a time.
  bool packed(DType dtype) const { return vectors && pack > 1 && byte_size(dtype) * pack == 4; }

  // Text of the value of turned load number i, at `row` (its element u) and `column`.
  std::string element(size_t i) {
    const loop::Access& access = *loop::access_of(turned[i]);
    const DType dtype = program[access.buffer].dtype;
    if (packed(dtype)) return cat("(", text.storage_type(dtype), ")(word", i, "[u] >> h * ", 32 / pack, ")");
    if (!shifted)
      return cat(tiles[i], "[", at(dtype, "row", "column"),
                 points ? cat(" + u * ", wide + pad(dtype), "]") : "]");
    // Position of the row's first element in its first vector.
    const std::string begins = is_covered(i) ? cat(" + (int)(((unsigned)(", body.offset(access),
                                                   ") - column) & ", pad(dtype) - 1, ")")
                                             : "";
    return cat(tiles[i], "[", at(dtype, "line + u", "column"), begins, "]");
  }

  void declare_tiles() {
    for (const loop::Stmt& stmt : turned) {
      const DType dtype = program[loop::access_of(stmt)->buffer].dtype;
      tiles.push_back(text.fresh("tile"));
      text.line(cat("alignas(16) __shared__ ", text.storage_type(dtype), " ", tiles.back(), "[",
                    elements(dtype), "];"));
    }
  }

  // Condition that no vector of a complete tile's rows ends beyond its buffer.
  std::string ends_within() {
    std::string out;
    for (size_t i = 0; i < turned.size(); ++i) {
      if (!is_covered(i)) continue;
      const loop::Access& access = *loop::access_of(turned[i]);
      const loop::Buffer& buffer = program[access.buffer];
      body.set_index(b.var, "b0");
      for (const std::string& row : {cat("(a0 - ", before, ")"), cat("(a0 + ", kAlong - 1, ")")}) {
        body.set_index(a.var, row);
        out += cat(" && ", body.offset(access), " + ", wide + pad(buffer.dtype),
                   " <= ", body.index(schedule::extent_in_elements(buffer)));
      }
    }
    return out;
  }

  void print_cover(size_t i, bool whole) {
    const loop::Access& access = *loop::access_of(turned[i]);
    const loop::Buffer& buffer = program[access.buffer];
    const std::string type = text.storage_type(buffer.dtype), pointer = text.pointer(access.buffer),
                      q = text.fresh("q"), held = text.fresh("held");
    const int width = pad(buffer.dtype), across = wide / width + 1, all = (kAlong + before) * across,
              count = (all - 1) / kThreads + 1;
    text.open("");
    text.line(cat("Vec<", type, ", ", width, "> ", held, "[", count, "];"));
    auto each = [&](const std::function<void()>& inside) {
      text.line("#pragma unroll");
      text.open(cat("for (int ", q, " = 0; ", q, " < ", count, "; ++", q, ")"));
      text.line(cat("const int number = threadIdx.x + ", q, " * ", kThreads, ", line = number / ", across,
                    ", row = line - ", before, ", piece = number % ", across, ";"));
      if (all % kThreads) text.open(cat("if (", q, " < ", count - 1, " || number < ", all, ")"));
      inside();
      if (all % kThreads) text.close();
      text.close();
    };
    each([&] {
      body.set_index(a.var, whole ? "(a0 + row)" : "sd_max(0, a0 + (row < rows ? row : rows - 1))");
      body.set_index(b.var, "b0");
      text.line(cat("const int64_t start = ", body.offset(access), ";"));
      if (whole) {
        text.line(cat(held, "[", q, "] = sd_load<", width, ">(", pointer, " + (start & ", -width,
                      ") + piece * ", width, ");"));
        return;
      }
      // Vectors beyond the row's last one repeat it, and elements beyond the buffer are not accessed.
      const std::string end = body.index(schedule::extent_in_elements(buffer));
      text.line(cat("const int64_t from = sd_min((start & ", -width, ") + piece * ", width,
                    ", (start + columns - 1) & ", -width, ");"));
      text.line(cat("if (from + ", width, " <= ", end, ") ", held, "[", q, "] = sd_load<", width, ">(",
                    pointer, " + from);"));
      text.line(cat("else for (int e = 0; e < ", width, "; ++e) ", held, "[", q, "].e[e] = ", pointer,
                    "[sd_min(from + e, ", end, " - 1)];"));
    });
    each([&] {
      text.line(cat("sd_store_shared<", width, ">(", tiles[i], " + ",
                    at(buffer.dtype, "line", cat("piece * ", width)), ", ", held, "[", q, "]);"));
    });
    text.close();
  }

  // `whole`: no part of the tile is beyond the edges.
  void print_loads(bool whole) {
    for (size_t i = 0; i < turned.size(); ++i) {
      if (is_covered(i)) {
        print_cover(i, whole);
        continue;
      }
      const loop::Stmt& stmt = turned[i];
      const loop::Access& access = *loop::access_of(stmt);
      const loop::Buffer& buffer = program[access.buffer];
      const std::string type = text.storage_type(buffer.dtype), &tile = tiles[i], q = text.fresh("q");
      const int width = vectors ? rows->width : 1, across = wide / width,
                count = (kAlong + before) * across / kThreads;
      const std::string held = text.fresh("held"),
                        vector = vectors ? cat("Vec<", type, ", ", width, ">") : type;
      auto each = [&](int from, int to, const std::function<void()>& inside) {
        text.line("#pragma unroll");
        text.open(cat("for (int ", q, " = ", from, "; ", q, " < ", to, "; ++", q, ")"));
        text.line(cat("const int line = (threadIdx.x + ", q, " * ", kThreads, ") / ", across,
                      ", row = line - ", before, ", column = (threadIdx.x + ", q, " * ", kThreads, ") % ",
                      across, " * ", width, ";"));
        body.set_index(a.var, "(a0 + row)");
        body.set_index(b.var, "(b0 + column)");
        inside();
        text.close();
      };
      // Beyond the edges the last row and column are loaded again, so that no load waits for a comparison.
      const auto inner = [&] {
        if (whole) return;
        body.set_index(a.var, before ? "sd_max(0, a0 + (row < rows ? row : rows - 1))"
                                     : "(a0 + (row < rows ? row : rows - 1))");
        body.set_index(b.var, cat("(b0 + (column < columns ? column : columns - ", width, "))"));
      };
      if (!access.mask.is_const(1)) {
        each(0, count, [&] {
          text.open(whole ? "" : "if (a0 + row >= 0 && row < rows && column < columns)");
          body.print(stmt);
          const loop::ValueId result = std::get<loop::Load>(stmt.node).result;
          text.line(cat(tile, "[", at(buffer.dtype, "line", "column"),
                        "] = ", body.to_storage(body.value(result), buffer.dtype), ";"));
          text.close();
        });
        continue;
      }
      const int together = vectors ? count : std::min(count, kTogether);
      for (int from = 0; from < count; from += together) {
        text.open("");
        text.line(cat(vector, " ", held, "[", together, "];"));
        each(from, std::min(count, from + together), [&] {
          inner();
          const std::string element = cat(text.pointer(access.buffer), " + ", body.offset(access));
          text.line(cat(held, "[", q, " - ", from, "] = ",
                        vectors ? cat("sd_load<", width, ">(", element, ")") : cat("*(", element, ")"), ";"));
        });
        each(from, std::min(count, from + together), [&] {
          const std::string to = cat(tile, " + ", at(buffer.dtype, "line", "column")),
                            value = cat(held, "[", q, " - ", from, "]");
          text.line(vectors ? cat("sd_store_shared<", width, ">(", to, ", ", value, ");")
                            : cat("*(", to, ") = ", value, ";"));
        });
        text.close();
      }
    }
  }

  void print_shifted() {
    const int width = points->width, along = kAlong / width;
    const std::string extent = body.index(a.extent);
    // The last tile also has the vectors that begin after all whole ones.
    text.line(cat("const unsigned vectors = a0 + ", kAlong, " >= ", extent, " ? ", (along + 1) * wide, " : ",
                  along * wide, ";"));
    text.line("#pragma unroll 2");
    text.open(cat("for (unsigned p = threadIdx.x; p < vectors; p += ", kThreads, ")"));
    // A warp computes eight vectors in each of four columns, which causes no bank conflicts.
    text.line(cat("const bool within = p < ", along * wide, ";"));
    text.line(cat("const int vector = within ? p % 8 + p / ", 8 * wide, " * 8 : ", along,
                  ", column = within ? p / 8 % 4 + p / 32 % ", wide / 4, " * 4 : p - ", along * wide, ";"));
    text.open("if (column < columns)");
    body.set_index(a.var, "a0");
    body.set_index(b.var, "(b0 + column)");
    const loop::Access& store = std::get<loop::Store>(points->vectors[0]->node).access;
    text.line(cat("const int row = vector * ", width, " - (int)((", body.offset(store), ") & ", width - 1,
                  "), line = row + ", before, ";"));
    text.open(cat("if (a0 + row >= 0 && a0 + row + ", width, " <= ", extent, ")"));
    print_strip(text, body, nest.body, *points, "(a0 + row)");
    text.close();
    text.open("else");
    text.open(cat("for (int u = 0; u < ", width, "; ++u)"));
    text.open(cat("if (a0 + row + u >= 0 && a0 + row + u < ", extent, ")"));
    body.set_index(a.var, "(a0 + row + u)");
    body.print(nest.body);
    for (int i = 0; i < 5; ++i) text.close();
  }

  void print_points(bool whole) {
    if (shifted) return print_shifted();
    const std::string q = text.fresh("q");
    const int width = vectors ? points->width : 1, along = kAlong / width;
    const std::string p = cat("(threadIdx.x + ", q, " * ", kThreads, ")");
    text.line(vectors ? "#pragma unroll" : "#pragma unroll 4");
    text.open(cat("for (int ", q, " = 0; ", q, " < ", along * wide / pack / kThreads, "; ++", q, ")"));
    if (vectors) {  // a warp stores pieces of rows that are as long as possible
      const int lanes = std::min(32, along), beside = 32 / lanes;
      text.line(cat("const int row = (", p, " % ", lanes, " + ", p, " / 32 % ", along / lanes, " * ", lanes,
                    ") * ", width, ", first = (", p, " % 32 / ", lanes, " + ", p, " / ", 32 * (along / lanes),
                    " * ", beside, ") * ", pack, ";"));
    } else {
      text.line(cat("const int row = ", p, " % ", along, ", column = ", p, " / ", along, ";"));
    }
    text.open(whole ? "" : vectors ? "if (row < rows)" : "if (row < rows && column < columns)");
    body.set_index(a.var, "(a0 + row)");
    body.set_index(b.var, "(b0 + column)");
    if (vectors) {
      // Columns that share a word of shared memory are read together.
      for (size_t i = 0; i < turned.size(); ++i) {
        const DType dtype = program[loop::access_of(turned[i])->buffer].dtype;
        if (!packed(dtype)) continue;
        text.line(cat("unsigned word", i, "[", width, "];"));
        text.line("#pragma unroll");
        text.line(cat("for (int u = 0; u < ", width, "; ++u) word", i, "[u] = *(const unsigned*)(", tiles[i],
                      " + ", at(dtype, "row", "first"), " + u * ", wide + pad(dtype), ");"));
      }
      text.line("#pragma unroll");
      text.open(cat("for (int h = 0; h < ", pack, "; ++h)"));
      text.line("const int column = first + h;");
      text.open("if (column < columns)");
      print_strip(text, body, nest.body, *points, "(a0 + row)");
      text.close();
      text.close();
    } else {
      body.print(nest.body);
    }
    text.close();
    text.close();
  }

  DeviceKernel emit(const GpuTarget& target) {
    const Expr tiles_a = sym::ceildiv(a.extent, kAlong), tiles_b = sym::ceildiv(b.extent, wide);
    Expr blocks = tiles_a * tiles_b;
    text.line("unsigned rest = blockIdx.x;");
    auto take = [&](Expr extent) {
      const std::string name = text.fresh("t"), n = cat("(unsigned)", body.index(extent));
      text.line(cat("const int64_t ", name, " = rest % ", n, ";"));
      text.line(cat("rest /= ", n, ";"));
      return name;
    };
    text.line(cat("const int64_t a0 = ", take(tiles_a), " * ", kAlong, ";"));
    text.line(cat("const int64_t b0 = ", take(tiles_b), " * ", wide, ";"));
    text.line(cat("const int rows = (int)sd_min(", kAlong, ", ", body.index(a.extent),
                  " - a0), columns = (int)sd_min(", wide, ", ", body.index(b.extent), " - b0);"));
    for (size_t d = nest.dims.size(); d-- > 0;) {
      const loop::Dim& dim = nest.dims[d];
      if (dim.var == a.var || dim.var == b.var) continue;
      blocks *= dim.extent;
      body.set_index(dim.var, take(dim.extent));
    }
    declare_tiles();
    auto print = [&](bool whole) {
      print_loads(whole);
      text.line("__syncthreads();");
      body.place = [this](const loop::Access& access) -> std::string {
        for (size_t i = 0; i < turned.size(); ++i) {
          const loop::Access& other = *loop::access_of(turned[i]);
          if (access.buffer == other.buffer && access.index == other.index && access.mask == other.mask)
            return element(i);
        }
        return "";
      };
      print_points(whole);
      body.place = {};
    };
    if (vectors) {
      print(false);
    } else {  // bounds checks of single elements cost more than the elements
      text.open(
          cat("if (a0 >= ", before, " && rows == ", kAlong, " && columns == ", wide, ends_within(), ")"));
      print(true);
      text.close();
      text.open("else");
      print(false);
      text.close();
    }
    return finish(text, {.grid = {blocks, 1, 1}, .threads = kThreads, .waits = target.dependent_launch},
                  std::string(strip_declarations()));
  }
};

}  // namespace

DeviceNest emit_tiles(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target) {
  DeviceNest out;
  for (const Way way : {Way::kVectors, Way::kShifted, Way::kElements}) {
    TileEmitter emitter(program, nest, way);
    if (!emitter.fits()) continue;
    DeviceChoice choice = emitter.choice();
    if (choice.condition.is_const(0)) continue;
    if (!out.choices.empty() && out.choices.back().condition == choice.condition && way == Way::kShifted)
      continue;
    choice.launches.push_back(emitter.emit(target));
    out.choices.push_back(std::move(choice));
    if (way == Way::kShifted) break;
  }
  if (out.is_complete()) return out;
  for (DeviceChoice& choice : emit_points(program, nest, target).choices)
    out.choices.push_back(std::move(choice));
  return out;
}

}  // namespace stridec::codegen::cuda
