// Emits one thread per point of the parallel dims: the fallback for every nest.
#include <algorithm>
#include <bit>

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/common/frame.h"
#include "compiler/codegen/cuda/common/prelude.h"
#include "compiler/codegen/cuda/common/vector_access.h"
#include "compiler/codegen/cuda/points/points.h"
#include "compiler/codegen/cuda/points/scatter.h"
#include "compiler/kernels/packed_weights.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/effects.h"
#include "compiler/schedule/analysis/typical.h"
#include "compiler/schedule/directives/schedule.h"

namespace stridec::codegen::cuda {
namespace {

using sym::Expr;

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1 << 24;  // with more points, threads take several
constexpr int64_t kStackBytes = 1024;     // for local buffers in a thread's local memory
constexpr int kSeveral = 8;               // most points per thread if there are more points than threads
constexpr size_t kSeveralLoads = 32;      // for all points of a thread
constexpr int kSeveralVectors = 2;        // vectors of contiguous points per thread
constexpr size_t kSeveralStatements = 256;
constexpr int64_t kMany = 1 << 18;  // more points than resident threads
constexpr int kMostOwners = 256;    // most threads that share a point's updates
constexpr int kThreadsSm = 512;     // threads per multiprocessor that hide the latency of updates
constexpr double kFewUpdates = 16;  // updates that a single thread may do

// Division by an extent that the device compiler does not know, for values below 2^31.
constexpr std::string_view kDivider = R"(struct sd_divider { unsigned by, inverse; };
static inline sd_divider sd_make_divider(int64_t by) {
  return {(unsigned)by, 0xffffffffu / (unsigned)(by > 0 ? by : 1)};
}
static inline unsigned sd_divide(unsigned x, sd_divider d) {
  const unsigned q = (unsigned)((unsigned long)x * d.inverse >> 32);
  return x - q * d.by >= d.by ? q + 1 : q;
}
)";

struct PointEmitter {
  const loop::Program& program;
  const GpuTarget& target;
  const schedule::LoopPlan plan;
  const loop::Nest nest;  // after merges and splits
  KernelText text;
  Body body;
  std::vector<loop::Dim> parallel, serial;
  // Number of threads per point, a power of two: each iterates over all serial points, and updates only the
  // elements that it owns.
  int owners = 1;

  PointEmitter(const loop::Program& program, const loop::Nest& original, const GpuTarget& target)
      : program(program),
        target(target),
        plan(schedule::parse_plan(original.schedule)),
        nest(schedule::reshaped(program, original, plan)),
        text(program, kCudaText),
        body(text, nest) {}

  // ---- updates ----

  bool exact(const loop::Store& store) const {
    const DType dtype = program[store.access.buffer].dtype;
    if (byte_size(dtype) < 4 || is_storage_float(dtype)) return false;
    return !is_float(dtype) || store.combine == loop::Combine::kMax || store.combine == loop::Combine::kMin;
  }

  // Whether points that differ in `dim` never update the same element: one index depends on `dim` and on no
  // other index variable that could compensate.
  bool separates(const loop::Dim& dim, const loop::Store& store) const {
    for (const Expr& index : store.access.index) {
      const auto linear = sym::linear_in(index, dim.var);
      if (!linear || linear->coefficient.is_const(0) || sym::has_index(linear->coefficient)) continue;
      if (!sym::has_index(linear->rest)) return true;
    }
    return false;
  }

  // Splits the dims into parallel and serial ones. Float sums depend on their order, so dims whose points may
  // update the same element run in order in one thread. Exact updates may be done in any order.
  void assign() {
    std::vector<const loop::Store*> updates;
    loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
      if (const auto* store = std::get_if<loop::Store>(&stmt.node); store && store->update)
        updates.push_back(store);
    });
    const bool atomic =
        std::all_of(updates.begin(), updates.end(), [&](const loop::Store* s) { return exact(*s); });
    body.atomic_updates = atomic && !updates.empty();
    for (const loop::Dim& dim : nest.dims) {
      const bool apart = atomic || std::all_of(updates.begin(), updates.end(),
                                               [&](const loop::Store* s) { return separates(dim, *s); });
      (apart && !sym::has_index(dim.extent) ? parallel : serial).push_back(dim);
    }
    // Extents of serial loops may depend on parallel dims and on earlier serial ones, never the reverse.
    if (!serial.empty() && only_updates()) choose_owners();
  }

  bool only_updates() const {
    const loop::Effects effects = loop::effects_of(nest);
    return std::all_of(nest.body.begin(), nest.body.end(), [&](const loop::Stmt& stmt) {
      const auto* load = std::get_if<loop::Load>(&stmt.node);
      const auto* store = std::get_if<loop::Store>(&stmt.node);
      return !loop::body_of(stmt) && (!store || store->update) &&
             (!load || !std::count(effects.writes.begin(), effects.writes.end(), load->access.buffer));
    });
  }

  // Chooses enough owners to fill the GPU. An element's updates stay in order, since one owner does them all.
  void choose_owners() {
    const sym::Facts facts = loop::facts_of(program, nest);
    double points = 1, updates = 1;
    for (const loop::Dim& dim : parallel) points *= std::max(1.0, schedule::typical(dim.extent, facts));
    for (const loop::Dim& dim : serial)
      if (!sym::has_index(dim.extent)) updates *= std::max(1.0, schedule::typical(dim.extent, facts));
    const double threads = double{kThreadsSm} * target.multiprocessors;
    if (updates < kFewUpdates) return;
    while (owners < kMostOwners && 2 * owners * points <= threads) owners *= 2;
    if (owners == 1) return;
    // The upper bits of a multiplication by the golden ratio (Knuth, TAOCP 3, 6.4).
    const int shift = 32 - std::countr_zero(static_cast<unsigned>(owners));
    body.owns = [shift](const std::string& offset) {
      return cat("(unsigned)(", offset, ") * 2654435769u >> ", shift, " == owner");
    };
  }

  // Local buffers of few bytes are in the thread's local memory, the others in scratch.
  Expr bytes_of(const loop::Buffer& buffer) const {
    return schedule::extent_in_elements(buffer) * byte_size(buffer.dtype);
  }
  bool is_on_stack(const loop::Buffer& buffer) const {
    const std::optional<int64_t> bytes = sym::as_const(bytes_of(buffer));
    return bytes && *bytes <= kStackBytes;
  }

  Expr scratch_of_locals() const {
    std::vector<Expr> pieces;
    for (const loop::BufferId id : loop::buffers_of(nest))
      if (const loop::Buffer& buffer = program[id];
          buffer.storage == loop::Storage::kLocal && !is_on_stack(buffer))
        pieces.push_back(bytes_of(buffer));
    return scratch_bytes(pieces);
  }

  void declare_locals() {
    for (const loop::BufferId id : loop::buffers_of(nest)) {
      const loop::Buffer& buffer = program[id];
      if (buffer.storage != loop::Storage::kLocal) continue;
      const std::string name = text.fresh("l"), type = text.storage_type(buffer.dtype);
      if (is_on_stack(buffer))
        text.line(cat(type, " ", name, "[",
                      std::max<int64_t>(schedule::extent_in_elements(buffer).value(), 1), "];"));
      else
        text.line(cat(type, "* const ", name, " = (", type, "*)", text.scratch(bytes_of(buffer)), ";"));
      body.set_buffer(id, name, buffer.strides);
    }
  }

  // Vectors of neighbouring points along the fastest dim.
  std::optional<Strip> strip() {
    if (parallel.empty() || !serial.empty() || parallel.back().var != nest.dims.back().var)
      return std::nullopt;
    return plan_strip(program, nest, nest.body, parallel.back().var, parallel.back().extent,
                      loop::facts_of(program, nest));
  }

  // ---- several points a thread ----

  // For points without loops, updates and local buffers: how many of them a thread may compute together; 0:
  // none.
  int several() const {
    if (parallel.empty() || !serial.empty()) return 0;
    for (const loop::Stmt& stmt : nest.body) {
      const auto* store = std::get_if<loop::Store>(&stmt.node);
      if (loop::body_of(stmt) || (store && store->update)) return 0;
      const loop::Access* access = loop::access_of(stmt);
      if (access && program[access->buffer].storage == loop::Storage::kLocal) return 0;
    }
    const size_t loads = held_per_point();
    int count = kSeveral;
    while (count > 1 && (count * loads > kSeveralLoads || count * nest.body.size() > kSeveralStatements))
      count /= 2;
    return count > 1 ? count : 0;
  }

  // Loads whose indices depend only on the point, and which may precede all stores.
  std::vector<const loop::Load*> early_loads() const {
    const loop::Effects effects = loop::effects_of(nest);
    std::vector<const loop::Load*> out;
    for (const loop::Stmt& stmt : nest.body) {
      const auto* load = std::get_if<loop::Load>(&stmt.node);
      if (!load || !load->access.mask.is_const(1)) continue;
      const loop::BufferId from = load->access.buffer;
      if (std::ranges::count(effects.writes, from) > 0 && !is_updated_in_place(nest, from)) continue;
      const bool known =
          std::all_of(load->access.index.begin(), load->access.index.end(), [&](const Expr& index) {
            for (const Expr& var : sym::free_vars(index))
              if (sym::is_index(var) && !loop::is_var_of(var, parallel) && !loop::is_var_of(var, serial))
                return false;
            return true;
          });
      if (known) out.push_back(load);
    }
    return out;
  }

  // Values that a thread holds for one point; those that all points share do not count.
  size_t held_per_point() const {
    const auto loads = early_loads();
    return static_cast<size_t>(std::ranges::count_if(loads, [](const loop::Load* load) {
      return std::ranges::any_of(load->access.index, [](Expr index) { return sym::has_index(index); });
    }));
  }

  // Whether the access is contiguous in the points' row-major order, so that it needs no indices.
  bool in_order(const loop::Access& access) const {
    Expr flat = 0, below = 1;
    for (size_t d = parallel.size(); d-- > 0; below *= parallel[d].extent) flat += parallel[d].var * below;
    return access.mask.is_const(1) &&
           sym::simplify(body.offset_expr(access) - flat, body.facts()).is_const(0);
  }

  // Vectors of points that are consecutive in row-major order, also across the end of the fastest dim. All
  // stores and at least one load have to be contiguous in this order, and all other loads have to be early
  // ones.
  std::optional<Strip> run() const {
    if (!several()) return std::nullopt;
    const std::vector<const loop::Load*> early = early_loads();
    Strip out{.var = parallel.back().var};
    int least = 16;
    for (const loop::Stmt& stmt : nest.body) {
      if (std::holds_alternative<loop::Bind>(stmt.node) ||
          std::holds_alternative<loop::IndexValue>(stmt.node))
        return std::nullopt;
      const loop::Access* access = loop::access_of(stmt);
      if (!access) continue;
      const auto* load = std::get_if<loop::Load>(&stmt.node);
      if (load && !std::count(early.begin(), early.end(), load)) return std::nullopt;
      if (!in_order(*access)) {
        if (!load) return std::nullopt;
        continue;
      }
      out.vectors.push_back(&stmt);
      least = std::min(least, byte_size(program[access->buffer].dtype));
      if (is_callers(program, access->buffer) &&
          !std::count(out.aligned.begin(), out.aligned.end(), access->buffer))
        out.aligned.push_back(access->buffer);
    }
    out.width = std::min(16 / least, kSeveral);
    return out.vectors.size() > 1 && out.width > 1 ? std::optional(out) : std::nullopt;
  }

  // Declares the divisors that decompose point numbers.
  std::vector<std::string> print_dividers() {
    std::vector<std::string> dividers(parallel.size());
    for (size_t d = 1; d < parallel.size(); ++d) {
      if (parallel[d].extent.is_const()) continue;
      dividers[d] = text.fresh("by");
      text.line(
          cat("const sd_divider ", dividers[d], " = sd_make_divider(", body.index(parallel[d].extent), ");"));
    }
    return dividers;
  }
  // Declares the indices of `point` and returns their names.
  std::vector<std::string> print_digits(const std::vector<std::string>& dividers) {
    std::vector<std::string> digits(parallel.size());
    digits[0] = "point";
    for (size_t d = parallel.size(); d-- > 1;) {
      const std::string next = text.fresh("t"), extent = body.index(parallel[d].extent);
      digits[d] = text.fresh("t");
      text.line(cat("const unsigned ", next, " = ",
                    dividers[d].empty() ? cat(digits[0], " / ", extent, "u")
                                        : cat("sd_divide(", digits[0], ", ", dividers[d], ")"),
                    ", ", digits[d], " = ", digits[0], " - ", next, " * (unsigned)", extent, ";"));
      digits[0] = next;
    }
    for (size_t d = 0; d < parallel.size(); ++d)
      body.set_index(parallel[d].var, cat("((int64_t)", digits[d], ")"));
    return digits;
  }

  // A thread's points, with all of their loads first. They are one block width apart, so that neighbouring
  // threads access neighbouring elements, or they are vectors of `run`, of which the last block computes its
  // points in the first way. Point numbers fit 31 bits.
  DeviceKernel emit_several(const std::optional<Strip>& run) {
    Expr count = 1;
    for (const loop::Dim& dim : parallel) count *= dim.extent;
    const std::vector<const loop::Load*> loads = early_loads();
    const int together = several(), vectors = run ? run_vectors(*run) : 0,
              points = run ? vectors * run->width : together;
    const std::vector<std::string> dividers = print_dividers();
    text.line(cat("const unsigned count = (unsigned)", body.index(count), ", block = blockIdx.x * ",
                  kThreads * points, "u;"));
    text.open(cat("if (block + ", kThreads * points, "u <= count)"));
    if (run)
      print_run(*run, loads, dividers, vectors);
    else
      print_several(loads, dividers, points, true);
    text.close();
    text.open("else");
    if (points > together) text.open(cat("for (int part = 0; part < ", points / together, "; ++part)"));
    print_several(loads, dividers, together, false, points > together);
    if (points > together) text.close();
    text.close();
    const Expr blocks = sym::ceildiv(count, kThreads * points);
    return finish(text, {.grid = {blocks, 1, 1}, .threads = kThreads, .waits = target.dependent_launch},
                  cat(kDivider, run ? strip_declarations() : ""));
  }

  int run_vectors(const Strip& run) const {
    const size_t points = run.width * kSeveralVectors;
    return points * held_per_point() <= kSeveralLoads && points * nest.body.size() <= kSeveralStatements
               ? kSeveralVectors
               : 1;
  }

  // What a thread holds of early loads: one name per load.
  struct Held {
    const std::vector<const loop::Load*>& loads;
    std::vector<std::string> names;
    // The name for the access; "": it is not held.
    std::string name_of(const loop::Access& access) const {
      for (size_t i = 0; i < loads.size(); ++i)
        if (&loads[i]->access == &access) return names[i];
      return "";
    }
    // The element with number `u`, likewise.
    std::string element_of(const loop::Access& access) const {
      const std::string name = name_of(access);
      return name.empty() ? "" : name + "[u]";
    }
  };
  // Declares an array of `count` elements for each load.
  Held declare_arrays(const std::vector<const loop::Load*>& loads, int count) {
    Held held{loads, {}};
    for (const loop::Load* load : loads) {
      held.names.push_back(text.fresh("held"));
      text.line(cat(text.storage_type(program[load->access.buffer].dtype), " ", held.names.back(), "[", count,
                    "];"));
    }
    return held;
  }

  // `whole`: all points of the block exist. With `part`, these are only part number `part` (a generated
  // variable) of a thread's points.
  void print_several(const std::vector<const loop::Load*>& loads, const std::vector<std::string>& dividers,
                     int points, bool whole, bool part = false) {
    text.line(cat("const unsigned first = block + ", part ? cat("part * ", kThreads * points, "u + ") : "",
                  "threadIdx.x;"));
    const Held held = declare_arrays(loads, points);
    text.line("const int64_t start = first;");
    auto element = [&](const loop::Access& access) -> std::string {
      if (!in_order(access)) return "";
      return cat(text.pointer(access.buffer), whole ? cat("[start + u * ", kThreads, "]") : "[point]");
    };
    auto each = [&](const std::function<void()>& inside) {
      text.line("#pragma unroll");
      text.open(cat("for (int u = 0; u < ", points, "; ++u)"));
      text.line(cat("const unsigned at = first + u * ", kThreads,
                    "u, point = ", whole ? "at;" : "at < count ? at : count - 1;"));
      print_digits(dividers);
      inside();
      text.close();
    };
    body.place = [&](const loop::Access& access) -> std::string {
      const std::string kept = held.element_of(access);
      return kept.empty() ? element(access) : kept;
    };
    if (!loads.empty())
      each([&] {
        for (size_t i = 0; i < loads.size(); ++i) {
          const loop::Access& access = loads[i]->access;
          const std::string ordered = element(access);
          text.line(
              cat(held.names[i], "[u] = ",
                  ordered.empty() ? cat(text.pointer(access.buffer), "[", body.offset(access), "]") : ordered,
                  ";"));
        }
      });
    each([&] {
      if (!whole) text.open("if (at < count)");
      body.print(nest.body);
      if (!whole) text.close();
    });
    body.place = {};
  }

  void print_run(const Strip& run, const std::vector<const loop::Load*>& loads,
                 const std::vector<std::string>& dividers, int vectors) {
    const Held held = declare_held(run, loads, vectors);
    print_held_loads(run, held, open_vectors(run, dividers, vectors));
    text.close();
    body.place = [&](const loop::Access& access) -> std::string {
      const std::string name = held.name_of(access);
      return name.empty() ? "" : name + "[v][u]";
    };
    const std::vector<std::string> digits = open_vectors(run, dividers, vectors);
    const std::string first = cat("((int64_t)", digits.back(), ")");
    const auto held_vector = [&](const loop::Stmt& stmt) -> std::string {
      const loop::Access* access = loop::access_of(stmt);
      const std::string name = access ? held.name_of(*access) : "";
      return name.empty() ? "" : name + "[v]";
    };
    print_strip(text, body, nest.body, run, first, {.held = held_vector, .each = {}, .when = {}});
    text.close();
    body.place = {};
  }

  static bool is_vector(const Strip& run, const loop::Access& access) {
    return std::any_of(run.vectors.begin(), run.vectors.end(),
                       [&](const loop::Stmt* stmt) { return loop::access_of(*stmt) == &access; });
  }

  Held declare_held(const Strip& run, const std::vector<const loop::Load*>& loads, int vectors) {
    Held held{loads, {}};
    for (const loop::Load* load : loads) {
      const std::string type = text.storage_type(program[load->access.buffer].dtype);
      const std::string& name = held.names.emplace_back(text.fresh("held"));
      text.line(is_vector(run, load->access)
                    ? cat("Vec<", type, ", ", run.width, "> ", name, "[", vectors, "];")
                    : cat(type, " ", name, "[", vectors, "][", run.width, "];"));
    }
    return held;
  }

  // Opens a loop over a thread's vectors and declares the indices of a vector's first point. Returns their
  // names.
  std::vector<std::string> open_vectors(const Strip& run, const std::vector<std::string>& dividers,
                                        int vectors) {
    text.line("#pragma unroll");
    text.open(cat("for (int v = 0; v < ", vectors, "; ++v)"));
    text.line(cat("const unsigned point = block + (threadIdx.x + v * ", kThreads, ") * ", run.width, ";"));
    return print_digits(dividers);
  }

  void open_vector_points(const Strip& run) {
    text.line("#pragma unroll");
    text.open(cat("for (int u = 0; u < ", run.width, "; ++u)"));
  }

  // Prints the early loads of the points of vector `v`, the first of which has the indices `digits`.
  void print_held_loads(const Strip& run, const Held& held, const std::vector<std::string>& digits) {
    std::vector<size_t> others;
    for (size_t i = 0; i < held.loads.size(); ++i)
      if (is_vector(run, held.loads[i]->access))
        text.line(cat(held.names[i], "[v] = sd_load<", run.width, ">(",
                      text.pointer(held.loads[i]->access.buffer), " + point);"));
      else
        others.push_back(i);
    if (others.empty()) return;
    const loop::Dim& last = parallel.back();
    // Most vectors end before the dim does.
    if (parallel.size() > 1)
      text.open(
          cat("if (", digits.back(), " + ", run.width, "u <= (unsigned)", body.index(last.extent), ")"));
    open_vector_points(run);
    body.set_index(last.var, cat("((int64_t)", digits.back(), " + u)"));
    print_point_loads(held, others);
    text.close();
    if (parallel.size() == 1) return;
    text.close();
    text.open("else");
    print_wrapping_loads(run, held, others, digits);
    text.close();
  }

  // Prints the loads with these numbers for one point.
  void print_point_loads(const Held& held, const std::vector<size_t>& numbers) {
    for (size_t i : numbers) {
      const loop::Access& access = held.loads[i]->access;
      text.line(cat(held.names[i], "[v][u] = ", text.pointer(access.buffer), "[", body.offset(access), "];"));
    }
  }

  // Prints the loads with these numbers for all points of a vector, which may continue beyond the end of the
  // fastest dim.
  void print_wrapping_loads(const Strip& run, const Held& held, const std::vector<size_t>& numbers,
                            const std::vector<std::string>& digits) {
    std::vector<std::string> now;
    for (size_t d = 0; d < parallel.size(); ++d) {
      now.push_back(text.fresh("t"));
      text.line(cat("unsigned ", now[d], " = ", digits[d], ";"));
      body.set_index(parallel[d].var, cat("((int64_t)", now[d], ")"));
    }
    open_vector_points(run);
    print_point_loads(held, numbers);
    std::string carry;
    for (size_t d = parallel.size(); d-- > 1;) {
      text.line(cat(carry.empty() ? "" : cat("if (", carry, ") "), "++", now[d], ";"));
      const std::string next = text.fresh("t");
      text.line(
          cat("const bool ", next, " = ", now[d], " == (unsigned)", body.index(parallel[d].extent), ";"));
      text.line(cat("if (", next, ") ", now[d], " = 0;"));
      carry = next;
    }
    text.line(cat("if (", carry, ") ++", now[0], ";"));
    text.close();
  }

  // Loads that determine the indices of updates are issued for several updates at once: an owner does few
  // updates and would otherwise wait for each load.
  void print_owned() {
    constexpr int kAhead = 16;
    const loop::Dim& dim = serial[0];
    std::vector<const loop::Load*> places = early_loads();
    std::erase_if(places,
                  [&](const loop::Load* load) { return is_float(program[load->access.buffer].dtype); });
    const std::string count = text.fresh("n"), first = text.fresh("i"), at = text.fresh("i");
    text.line(cat("const int64_t ", count, " = ", body.index(dim.extent), ";"));
    text.open(cat("for (int64_t ", first, " = 0; ", first, " < ", count, "; ", first, " += ", kAhead, ")"));
    const Held held = declare_arrays(places, kAhead);
    const auto each = [&](const std::function<void()>& inside) {
      text.line("#pragma unroll");
      text.open(cat("for (int u = 0; u < ", kAhead, "; ++u)"));
      inside();
      text.close();
    };
    body.set_index(dim.var, at);
    if (!places.empty())
      each([&] {
        text.line(cat("const int64_t ", at, " = sd_min(", first, " + u, ", count, " - 1);"));
        for (size_t i = 0; i < places.size(); ++i) {
          const loop::Access& access = places[i]->access;
          text.line(
              cat(held.names[i], "[u] = ", text.pointer(access.buffer), "[", body.offset(access), "];"));
        }
      });
    body.place = [&](const loop::Access& access) { return held.element_of(access); };
    each([&] {
      text.line(cat("const int64_t ", at, " = ", first, " + u;"));
      text.open(cat("if (", at, " < ", count, ")"));
      body.print(nest.body);
      text.close();
    });
    body.place = {};
    text.close();
  }

  DeviceKernel emit(const std::optional<Strip>& vectors) {
    const Expr scratch = scratch_of_locals();
    declare_locals();
    if (vectors) parallel.back().extent = sym::floordiv(parallel.back().extent, vectors->width);
    Expr count = 1;
    for (const loop::Dim& dim : parallel) count *= dim.extent;
    const Expr blocks = sym::min(sym::ceildiv(count * owners, kThreads),
                                 scratch.is_const(0) ? Expr(kMostBlocks) : Expr(4 * target.multiprocessors));
    const std::string n = body.index(count * owners), number = owners > 1 ? "job" : "point";
    text.open(cat("for (int64_t ", number, " = blockIdx.x * (int64_t)", kThreads, " + threadIdx.x; ", number,
                  " < ", n, "; ", number, " += gridDim.x * (int64_t)", kThreads, ")"));
    if (owners > 1) {
      text.line(cat("const unsigned owner = (unsigned)(job / ", body.index(count), ");"));
      text.line(cat("const int64_t point = job % ", body.index(count), ";"));
    }
    if (parallel.size() > 1) {
      text.line("int64_t rest = point;");
      print_indices(text, body, parallel);
    } else if (!parallel.empty()) {
      body.set_index(parallel[0].var, "point");
    }
    if (vectors)
      print_strip(text, body, nest.body, *vectors,
                  cat("(", body.index(vectors->var), " * ", vectors->width, ")"));
    else {
      if (owners > 1 && serial.size() == 1)
        print_owned();
      else
        body.print_loops(serial, 0, [&] { body.print(nest.body); });
    }
    text.close();
    Geometry geometry{.grid = {blocks, 1, 1}, .threads = kThreads, .waits = target.dependent_launch};
    geometry.scratch_bytes = scratch;
    geometry.scratch_owners = blocks * kThreads;
    geometry.scratch_owner = cat("blockIdx.x * (int64_t)", kThreads, " + threadIdx.x");
    return finish(text, std::move(geometry), vectors ? std::string(strip_declarations()) : std::string());
  }
};

}  // namespace

DeviceNest emit_points(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target) {
  PointEmitter plain(program, nest, target);
  plain.assign();
  const std::optional<Strip> strip = plain.strip();
  DeviceNest out;
  if (!plain.serial.empty())
    out.choices = sorted_updates(program, plain.nest, plain.parallel, plain.serial, target);
  if (strip) {
    PointEmitter vectors(program, nest, target);
    vectors.assign();
    // Plans the strip again: it points at the statements of this emitter's own copy of the nest.
    const std::optional<Strip> own = vectors.strip();
    out.choices.push_back({sym::logical_and(strip->conditions), strip->aligned, {}});
    out.choices.back().launches.push_back(vectors.emit(own));
  }
  if (!out.is_complete() && plain.several()) {
    Expr count = 1;
    for (const loop::Dim& dim : plain.parallel) count *= dim.extent;
    const Expr condition =
        sym::simplify(sym::logical_and(sym::ge(count, kMany),
                                       sym::lt(count, INT32_MAX - kThreads * kSeveral * kSeveralVectors)),
                      program.facts);
    auto add = [&](bool vectors) {
      PointEmitter several(program, nest, target);
      several.assign();
      const std::optional<Strip> run = vectors ? several.run() : std::nullopt;
      if (vectors && !run) return false;
      out.choices.push_back({condition, run ? run->aligned : std::vector<loop::BufferId>(), {}});
      out.choices.back().launches.push_back(several.emit_several(run));
      return out.choices.back().aligned.empty();
    };
    if (!condition.is_const(0) && !add(true)) add(false);
  }
  if (!out.is_complete()) {
    out.choices.emplace_back();
    out.choices.back().launches.push_back(plain.emit(std::nullopt));
  }
  return out;
}

}  // namespace stridec::codegen::cuda
