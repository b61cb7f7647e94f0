#include "compiler/codegen/cuda/points/scatter.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/common/frame.h"
#include "compiler/codegen/cuda/common/prelude.h"
#include "compiler/codegen/cuda/points/points.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/walk.h"

namespace stridec::codegen::cuda {
namespace {

using sym::Expr;
using LoopDims = std::vector<loop::Dim>;

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1 << 24;
// Radix of a pass: a tile has several updates per digit, which move together.
constexpr int kBits = 8, kDigits = 1 << kBits, kMostPasses = 4;
constexpr int64_t kTile = 1024;                 // updates that a warp counts and sorts
constexpr int kTogether = 8, kAddTogether = 4;  // loads in flight per thread
constexpr int64_t kPiece = 64;                  // updates that a thread adds
// Fewer updates take less time one by one than these launches: 500 of 128 columns take 70 us on an H200,
// 2,000 take 45 us sorted.
constexpr int64_t kLeastUpdates = 256;

constexpr std::string_view kDeclarations = R"(// Exclusive prefix sum over the lanes of the warp.
static inline unsigned sum_before(unsigned x) {
  const unsigned lane = threadIdx.x & 31;
  unsigned sum = x;
  for (int distance = 1; distance < 32; distance *= 2) {
    const unsigned other = __shfl_sync(~0u, sum, (lane - distance) & 31);
    if (lane >= distance) sum += other;
  }
  return sum - x;
}
)";

class SortedUpdates {
 public:
  SortedUpdates(const loop::Program& program, const loop::Nest& nest, const LoopDims& parallel,
                const LoopDims& serial, const GpuTarget& target)
      : program_(program), nest_(nest), parallel_(parallel), serial_(serial), target_(target) {}

  std::vector<DeviceChoice> make() {
    std::vector<DeviceChoice> out;
    if (!match()) return out;
    for (int passes = 1; passes <= kMostPasses; ++passes) {
      // The last key means no element.
      const Expr most = std::min<int64_t>(INT32_MAX, (int64_t{1} << (kBits * passes)) - 1);
      Expr condition = sym::logical_and(sym::ge(updates_, kLeastUpdates), sym::lt(updates_, INT32_MAX));
      condition = sym::logical_and(condition, sym::le(rows_, most));
      condition = sym::simplify(condition, program_.facts);
      if (condition.is_const(0)) continue;
      // If the number of rows is unknown, only even numbers of passes are generated.
      if (passes % 2 == 1 && !rows_.is_const()) continue;
      DeviceChoice& choice = out.emplace_back();
      choice.condition = condition;
      choice.launches.push_back(keys());
      for (int pass = 0; pass < passes; ++pass) {
        choice.launches.push_back(count(pass));
        choice.launches.push_back(place());
        choice.launches.push_back(move(pass));
      }
      choice.launches.push_back(add(passes % 2));
      choice.launches.push_back(join(passes % 2));
      if (sym::simplify(sym::le(rows_, most), program_.facts).is_const(1)) break;
    }
    return out;
  }

 private:
  // ---- matching the nest ----

  bool match() {
    const loop::Effects effects = loop::effects_of(nest_);
    for (const loop::Stmt& stmt : nest_.body) {
      if (loop::body_of(stmt)) return false;
      if (const auto* store = std::get_if<loop::Store>(&stmt.node)) {
        if (store_ || !store->update || loop::arity(store->combine) != 1) return false;
        store_ = store;
      }
      if (const auto* load = std::get_if<loop::Load>(&stmt.node);
          load && std::count(effects.writes.begin(), effects.writes.end(), load->access.buffer))
        return false;
    }
    if (!store_) return false;
    find_places();
    // An update is identified by the dims that determine its index; the other dims are its points.
    std::set<Expr, sym::ExprLess> told;
    const auto tells = [&](Expr e) {
      for (Expr var : sym::free_vars(e)) told.insert(var);
    };
    for (const loop::Stmt* stmt : places_) loop::for_each_expr(*stmt, tells);
    tells(store_->access.mask);
    for (const loop::Dim& dim : parallel_) (told.contains(dim.var) ? items_ : points_).push_back(dim);
    items_.insert(items_.end(), serial_.begin(), serial_.end());
    for (const LoopDims* dims : {&items_, &points_})
      for (const loop::Dim& dim : *dims)
        if (sym::has_index(dim.extent)) return false;
    updates_ = extent_of(items_);
    each_ = extent_of(points_);
    find_key();
    return true;
  }

  // Collects the statements that bind indices, and those that they depend on.
  void find_places() {
    std::set<loop::ValueId> wanted;
    for (size_t i = nest_.body.size(); i-- > 0;) {
      const loop::Stmt& stmt = nest_.body[i];
      bool keep = std::holds_alternative<loop::Bind>(stmt.node);
      loop::for_each_result(stmt, [&](loop::ValueId id) { keep = keep || wanted.contains(id); });
      if (!keep) continue;
      loop::for_each_use(stmt, [&](loop::ValueId id) { wanted.insert(id); });
      places_.insert(places_.begin(), &stmt);
    }
  }

  // Sets the update's key: the row-major number of its indices along the buffer's dims that are not only the
  // points' own. Where the nest's dims were merged, the index of an outer dim is 0 and that of the next one
  // counts through both, so a dim with a constant index counts too.
  void find_key() {
    const loop::Buffer& buffer = program_[store_->access.buffer];
    for (size_t d = 0; d < buffer.shape.size(); ++d) {
      const Expr index = store_->access.index[d];
      bool other = index.is_const();
      for (Expr var : sym::free_vars(index))
        other = other || (sym::is_index(var) && !loop::is_var_of(var, points_));
      if (!other) continue;
      rows_ = rows_ * buffer.shape[d];
      key_ = key_ * buffer.shape[d] + at_zero(index, points_);
    }
  }

  // ---- the workspace ----

  static Expr bytes(Expr elements, int64_t each) { return sym::align_up(elements * each, 256); }
  Expr tiles() const { return sym::ceildiv(updates_, kTile); }
  Expr pieces() const { return 2 * sym::ceildiv(updates_, kPiece) * each_; }
  Expr list() const { return bytes(updates_, 4); }
  Expr counts_at() const { return 4 * list(); }
  Expr totals_at() const { return counts_at() + bytes(kDigits * tiles(), 4); }
  Expr sums_at() const { return totals_at() + kDigits * 4; }
  Expr places_at() const { return sums_at() + bytes(pieces(), 8); }
  Expr workspace() const { return places_at() + bytes(pieces(), 8); }

  void declare(KernelText& text, const std::string& type, const std::string& name, Expr at) const {
    text.line(cat(type, "* const ", name, " = (", type, "*)(workspace + ", text.size(at), ");"));
  }
  void declare_list(KernelText& text, int which, const std::string& suffix) const {
    declare(text, "unsigned", "keys" + suffix, 2 * which * list());
    declare(text, "unsigned", "ids" + suffix, (2 * which + 1) * list());
  }
  void declare_counts(KernelText& text) const {
    declare(text, "unsigned", "counts", counts_at());
    declare(text, "unsigned", "totals", totals_at());
    text.line(cat("const int64_t updates = ", text.size(updates_), ", tiles = ", text.size(tiles()), ";"));
  }
  // Declares the sums of cut runs and the elements that they belong to. Returns the sums' type.
  std::string declare_pieces(KernelText& text) const {
    std::string type = text.value_type(dtype());
    declare(text, type, "sums", sums_at());
    declare(text, "int64_t", "places", places_at());
    text.line(cat("const int64_t updates = ", text.size(updates_), ", each = ", text.size(each_), ";"));
    return type;
  }

  DeviceKernel finish(KernelText& text, Expr blocks, int threads, bool declarations = false) const {
    Geometry geometry{
        .grid = {std::move(blocks), 1, 1}, .threads = threads, .waits = target_.dependent_launch};
    geometry.workspace_bytes = workspace();
    return cuda::finish(text, std::move(geometry), declarations ? std::string(kDeclarations) : std::string());
  }
  static void open_jobs(KernelText& text, const std::string& count) {
    text.open(cat("for (int64_t job = blockIdx.x * (int64_t)", kThreads, " + threadIdx.x; job < ", count,
                  "; job += gridDim.x * (int64_t)", kThreads, ")"));
  }
  static Expr blocks_of(Expr jobs) { return sym::min(sym::ceildiv(jobs, kThreads), kMostBlocks); }

  // ---- the launches ----

  // Computes the keys. Updates without an element get a key greater than all others.
  DeviceKernel keys() const {
    KernelText text(program_, kCudaText);
    Body body(text, nest_);
    declare_list(text, 0, "");
    open_jobs(text, text.size(updates_));
    text.line("int64_t rest = job;");
    print_indices(text, body, items_);
    for (const loop::Dim& dim : points_) body.set_index(dim.var, "0");
    text.line(cat("unsigned key = (unsigned)", text.size(rows_), ";"));
    for (const loop::Stmt* stmt : places_) body.print(*stmt);
    body.set_value(store_->value, {"0", nest_.values[store_->value.value].dtype, 1});
    body.update = [&](const std::string&, const std::string&) {
      text.line(cat("key = (unsigned)(", body.index(key_), ");"));
    };
    body.print({*store_});
    text.line("keys[job] = key;");
    text.line("ids[job] = (unsigned)job;");
    text.close();
    return finish(text, blocks_of(updates_), kThreads);
  }

  static std::string digit(int pass) { return cat(" >> ", pass * kBits, " & ", kDigits - 1); }

  // Counts each digit in a tile.
  DeviceKernel count(int pass) const {
    KernelText text(program_, kCudaText);
    declare_list(text, pass % 2, "");
    declare_counts(text);
    text.line(cat("__shared__ unsigned count[", kDigits, "];"));
    text.line(cat("for (int d = threadIdx.x; d < ", kDigits, "; d += 32) count[d] = 0;"));
    text.line("__syncwarp(~0u);");
    text.line("#pragma unroll");
    text.open(cat("for (int r = 0; r < ", kTile, "; r += 32)"));
    text.line(cat("const int64_t i = blockIdx.x * (int64_t)", kTile, " + r + threadIdx.x;"));
    text.line(cat("if (i < updates) atomicAdd(&count[keys[i]", digit(pass), "], 1u);"));
    text.close();
    text.line("__syncwarp(~0u);");
    text.line(cat("for (int d = threadIdx.x; d < ", kDigits,
                  "; d += 32) counts[d * tiles + blockIdx.x] = count[d];"));
    return finish(text, tiles(), 32);
  }

  // Computes, for each digit, its count in the tiles before each tile, and its total.
  DeviceKernel place() const {
    constexpr int kOwn = 4;
    KernelText text(program_, kCudaText);
    declare_counts(text);
    text.line("unsigned* const row = counts + blockIdx.x * tiles;");
    text.line("unsigned all = 0;");
    text.open(cat("for (int64_t first = 0; first < tiles; first += ", 32 * kOwn, ")"));
    text.line(cat("const int64_t at = first + threadIdx.x * ", kOwn, ";"));
    text.line(cat("unsigned own[", kOwn, "], sum = 0;"));
    text.line("#pragma unroll");
    text.line(cat("for (int j = 0; j < ", kOwn, "; ++j) own[j] = at + j < tiles ? row[at + j] : 0;"));
    text.line(cat("for (int j = 0; j < ", kOwn, "; ++j) sum += own[j];"));
    text.line("const unsigned before = sum_before(sum);");
    text.line("unsigned now = all + before;");
    text.open(cat("for (int j = 0; j < ", kOwn, "; ++j)"));
    text.line("if (at + j < tiles) row[at + j] = now;");
    text.line("now += own[j];");
    text.close();
    text.line("all += __shfl_sync(~0u, before + sum, 31);");
    text.close();
    text.line("if (threadIdx.x == 0) totals[blockIdx.x] = all;");
    return finish(text, kDigits, 32, true);
  }

  // Moves a tile's updates to the positions of their digits, in order.
  DeviceKernel move(int pass) const {
    constexpr int kOwn = kDigits / 32;
    KernelText text(program_, kCudaText);
    declare_list(text, pass % 2, "");
    declare_list(text, 1 - pass % 2, "_to");
    declare_counts(text);
    text.line(cat("__shared__ unsigned place[", kDigits, "];"));
    text.line("const int lane = threadIdx.x;");
    text.line("unsigned sum = 0;");
    text.line(cat("for (int j = 0; j < ", kOwn, "; ++j) sum += totals[lane * ", kOwn, " + j];"));
    text.line("unsigned before = sum_before(sum);");
    text.open(cat("for (int j = 0; j < ", kOwn, "; ++j)"));
    text.line(cat("const int d = lane * ", kOwn, " + j;"));
    text.line("place[d] = before + counts[d * tiles + blockIdx.x];");
    text.line("before += totals[d];");
    text.close();
    text.line("__syncwarp(~0u);");
    text.open(cat("for (int first = 0; first < ", kTile, "; first += ", 32 * kTogether, ")"));
    text.line(cat("const int64_t from = blockIdx.x * (int64_t)", kTile, " + first + lane;"));
    text.line(cat("unsigned key[", kTogether, "], id[", kTogether, "];"));
    const std::string each = cat("for (int u = 0; u < ", kTogether, "; ++u)");
    text.line("#pragma unroll");
    text.open(each);
    text.line("const bool live = from + u * 32 < updates;");
    text.line("key[u] = live ? keys[from + u * 32] : 0;");
    text.line("id[u] = live ? ids[from + u * 32] : 0;");
    text.close();
    text.line("#pragma unroll");
    text.open(each);
    text.line("const bool live = from + u * 32 < updates;");
    text.line(cat("const unsigned digit = key[u]", digit(pass), ";"));
    text.line("unsigned same = __ballot_sync(~0u, live);");
    text.line("#pragma unroll");
    text.open(cat("for (int bit = 0; bit < ", kBits, "; ++bit)"));
    text.line("const bool set = digit >> bit & 1;");
    text.line("const unsigned with = __ballot_sync(~0u, set);");
    text.line("same &= set ? with : ~with;");
    text.close();
    text.line("const unsigned rank = __popc(same & ((1u << lane) - 1)), to = place[digit] + rank;");
    text.line("__syncwarp(~0u);");
    text.line("if (live && rank == 0) place[digit] += __popc(same);");
    text.line("__syncwarp(~0u);");
    text.line("if (live) keys_to[to] = key[u], ids_to[to] = id[u];");
    text.close();
    text.close();
    return finish(text, tiles(), 32, true);
  }

  DType dtype() const { return program_[store_->access.buffer].dtype; }

  void print_combine(KernelText& text, Body& body, const std::string& into, const std::string& value) const {
    const std::string from = text.fresh("v");
    text.line(cat("const ", text.value_type(dtype()), " ", from, " = ", value, ";"));
    body.print_combine(store_->combine, {into}, {from}, {dtype()}, 1);
  }
  std::string element(KernelText& text) const { return cat(text.pointer(store_->access.buffer), "[place]"); }
  void print_result(KernelText& text, Body& body) const {
    text.line(cat(element(text), " = ", body.to_storage(body.rounded("total", dtype(), 1), dtype(), 1), ";"));
  }

  // Loads whose indices depend only on the update and the point.
  std::vector<const loop::Load*> early_loads(const loop::Nest& nest) const {
    std::vector<const loop::Load*> out;
    for (const loop::Stmt& stmt : nest.body) {
      const auto* load = std::get_if<loop::Load>(&stmt.node);
      if (!load || !load->access.mask.is_const(1)) continue;
      const bool known = std::all_of(load->access.index.begin(), load->access.index.end(), [&](Expr index) {
        const auto vars = sym::free_vars(index);
        return std::all_of(vars.begin(), vars.end(), [&](Expr var) {
          return !sym::is_index(var) || loop::is_var_of(var, items_) || loop::is_var_of(var, points_);
        });
      });
      if (known) out.push_back(load);
    }
    return out;
  }

  // Adds the pieces: the parts of a run between multiples of kPiece.
  DeviceKernel add(int which) const {
    const loop::Nest nest = unchecked_nest();
    KernelText text(program_, kCudaText);
    Body body(text, nest);
    declare_list(text, which, "");
    const std::string type = declare_pieces(text);
    open_jobs(text, "updates * each");
    text.line("const int64_t at = job / each, point = job % each;");
    print_piece(text);
    text.open("");
    text.line("int64_t rest = point;");
    print_indices(text, body, points_);
    if (!points_.empty()) {
      text.line("const int64_t outer = rest;");
      body.set_index(points_[0].var, "outer");
    }
    text.line(cat(type, " total = ", body.identity(store_->combine, dtype(), 0), ";"));
    text.line("int64_t place = 0, next = at;");
    text.line("int more = 0;");
    text.open("for (;;)");
    print_updates(text, body, nest);
    text.line("next += more;");
    text.line(cat("if (more < ", kAddTogether, ") break;"));
    print_fetch(text, "next");
    text.close();
    print_piece_result(text, body);
    text.close();
    text.close();
    return finish(text, blocks_of(updates_ * each_), kThreads);
  }

  // The nest without checks of its indices, which keys() has done.
  loop::Nest unchecked_nest() const {
    loop::Nest nest = nest_;
    loop::for_each_stmt(nest.body, [](loop::Stmt& stmt) {
      if (auto* bind = std::get_if<loop::Bind>(&stmt.node);
          bind && bind->mode == loop::Bind::OutOfRange::kError)
        bind->mode = loop::Bind::OutOfRange::kSkip;
    });
    return nest;
  }

  static void open_each(KernelText& text) {
    text.line("#pragma unroll");
    text.open(cat("for (int u = 0; u < ", kAddTogether, "; ++u)"));
  }

  // Opens two blocks: a loop over the updates that are added together, and a branch for those of the piece.
  void open_each_update(KernelText& text, Body& body) const {
    open_each(text);
    text.open("if (u < more)");
    text.line("int64_t rest = id[u];");
    print_indices(text, body, items_);
  }

  // Loads the keys and numbers of the updates from position `from` on.
  static void print_fetch(KernelText& text, const std::string& from) {
    open_each(text);
    text.line(cat("const int64_t i = sd_min(", from, " + u, updates - 1);"));
    text.line("near[u] = keys[i];");
    text.line("id[u] = ids[i];");
    text.close();
  }

  // Declares the piece that begins at `at`, and continues with the next job if none does. The keys are
  // compared after loading, so the first loads are issued together.
  void print_piece(KernelText& text) const {
    text.line(cat("unsigned near[", kAddTogether, "], id[", kAddTogether, "];"));
    print_fetch(text, "at");
    text.line("const unsigned key = near[0], before = keys[sd_max(at - 1, 0)];");
    text.line(cat("if (key == (unsigned)", text.size(rows_), ") continue;"));
    text.line("const bool head = at == 0 || before != key;");
    text.line(cat("if (!head && at % ", kPiece, ") continue;"));
    text.line(cat("const int64_t end = sd_min(at / ", kPiece, " * ", kPiece, " + ", kPiece, ", updates);"));
  }

  // Counts the piece's updates among those that were fetched, and adds them to `total`.
  void print_updates(KernelText& text, Body& body, const loop::Nest& nest) const {
    text.line("more = 0;");
    open_each(text);
    text.line("more += next + u < end && near[u] == key;");
    text.close();
    const std::vector<const loop::Load*> early = early_loads(nest);
    const std::vector<std::string> held = print_early(text, body, early);
    body.place = [&](const loop::Access& access) -> std::string {
      for (size_t i = 0; i < early.size(); ++i)
        if (&early[i]->access == &access) return held[i] + "[u]";
      return "";
    };
    body.update = [&](const std::string& offset, const std::string& value) {
      text.open("if (next + u == at)");
      text.line(cat("place = ", offset, ";"));
      text.line(cat("if (head) total = ", body.from_storage(element(text), dtype(), 1), ";"));
      text.close();
      print_combine(text, body, "total", value);
    };
    open_each_update(text, body);
    body.print(nest.body);
    text.close();
    text.close();
    body.place = {};
    body.update = {};
  }

  // Issues the loads for all updates that are added together. Returns the names of what they load.
  std::vector<std::string> print_early(KernelText& text, Body& body,
                                       const std::vector<const loop::Load*>& loads) const {
    std::vector<std::string> held;
    for (const loop::Load* load : loads) {
      held.push_back(text.fresh("held"));
      text.line(cat(text.storage_type(program_[load->access.buffer].dtype), " ", held.back(), "[",
                    kAddTogether, "];"));
    }
    if (loads.empty()) return held;
    open_each_update(text, body);
    for (size_t i = 0; i < loads.size(); ++i) {
      const loop::Access& access = loads[i]->access;
      text.line(cat(held[i], "[u] = ", text.pointer(access.buffer), "[", body.offset(access), "];"));
    }
    text.close();
    text.close();
    return held;
  }

  // Stores `total` to its element, or for join() if the piece's run is cut.
  void print_piece_result(KernelText& text, Body& body) const {
    text.open("if (head && (next == updates || keys[next] != key))");
    print_result(text, body);
    text.close();
    text.open("else");
    text.line(cat("const int64_t slot = (at / ", kPiece, " * 2 + (at % ", kPiece, " != 0)) * each + point;"));
    text.line("sums[slot] = total;");
    text.line("places[slot] = place;");
    text.close();
  }

  // Adds the pieces of cut runs; the first piece of such a run ends at a multiple of kPiece.
  DeviceKernel join(int which) const {
    KernelText text(program_, kCudaText);
    Body body(text, nest_);
    declare_list(text, which, "");
    const std::string type = declare_pieces(text);
    const Expr jobs = sym::floordiv(updates_, kPiece) * each_;
    open_jobs(text, text.size(jobs));
    text.line("const int64_t piece = job / each, point = job % each;");
    text.line(cat("const int64_t first = piece * ", kPiece, ", last = first + ", kPiece, ";"));
    text.line("if (last >= updates) continue;");
    text.line("const unsigned key = keys[last];");
    text.line(cat("if (key == (unsigned)", text.size(rows_), " || keys[last - 1] != key) continue;"));
    text.line("const bool whole = keys[first] == key;");
    text.line("if (whole && first > 0 && keys[first - 1] == key) continue;");
    text.line("const int64_t slot = (piece * 2 + !whole) * each + point, place = places[slot];");
    text.line(cat(type, " total = sums[slot];"));
    text.line("int64_t next = piece + 1;");
    text.line("int more = 0;");
    text.open("do");
    text.line(cat(type, " held[", kTogether, "];"));
    text.line("more = 0;");
    text.line("#pragma unroll");
    text.open(cat("for (int u = 0; u < ", kTogether, "; ++u)"));
    text.line(cat("more += (next + u) * ", kPiece, " < updates && keys[(next + u) * ", kPiece, "] == key;"));
    text.line(cat("if (u < more) held[u] = sums[(next + u) * 2 * each + point];"));
    text.close();
    text.line("#pragma unroll");
    text.open(cat("for (int u = 0; u < ", kTogether, "; ++u)"));
    text.open("if (u < more)");
    print_combine(text, body, "total", "held[u]");
    text.close();
    text.close();
    text.line("next += more;");
    text.close(cat(" while (more == ", kTogether, ");"));
    print_result(text, body);
    text.close();
    return finish(text, blocks_of(jobs), kThreads);
  }

  const loop::Program& program_;
  const loop::Nest& nest_;
  const LoopDims &parallel_, &serial_;
  const GpuTarget& target_;
  const loop::Store* store_ = nullptr;
  std::vector<const loop::Stmt*> places_;
  LoopDims items_, points_;      // dims of an update, and of the points that it updates
  Expr updates_ = 0, each_ = 1;  // number of updates, and of points per update
  Expr rows_ = 1, key_ = 0;
};

}  // namespace

std::vector<DeviceChoice> sorted_updates(const loop::Program& program, const loop::Nest& nest,
                                         const std::vector<loop::Dim>& parallel,
                                         const std::vector<loop::Dim>& serial, const GpuTarget& target) {
  return SortedUpdates(program, nest, parallel, serial, target).make();
}

}  // namespace stridec::codegen::cuda
