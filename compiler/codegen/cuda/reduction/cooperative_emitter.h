// The text of one kernel whose points are done by teams of threads; emit_cooperative.cpp says how, and which kernels there are for
// a nest. Its parts: cooperative_emitter.cpp (points and the body's top), cooperative_common.cpp (what points have in common),
// cooperative_locals.cpp (where local buffers lie), cooperative_shared.cpp (rows that shared memory keeps), cooperative_barriers.cpp,
// cooperative_strips.cpp (what goes by vectors), cooperative_ranges.cpp (loops that are dealt out), cooperative_reduce.cpp (results that meet),
// cooperative_stream.cpp (weights on their way) and cooperative_split.cpp (ranges that blocks share).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/common/vector_access.h"
#include "compiler/codegen/cuda/reduction/reduction.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/directives/schedule.h"

namespace stridec::codegen::cuda {

constexpr int kKeptElements = 32;         // of a row that a thread keeps
constexpr int kKeptRows = 8;              // of its columns
constexpr int kGroup = 8;                 // chunks of a thread that are left out together
constexpr int kUnrolled = 512;            // statements of a loop's copies
constexpr int64_t kManyChunks = 1 << 27;  // the numbers of their elements fit an int as well
constexpr int kWays = 4;
constexpr int64_t kSharedBytes = 40 << 10;  // of local buffers, without asking the driver for more

// Of a loop that is dealt out to the team.
inline bool is_range(const loop::Stmt& stmt) {
  return loop::body_of(stmt) && !std::holds_alternative<loop::Scan>(stmt.node);
}

extern const std::string_view kStreamDeclarations;

// How many there are, inner ones included; divisions by symbols count as the many instructions that they are.
int statements(const loop::Block& block);

// CUDA text of sd_shuffle(members, x, distance): a value of any width from another of those threads of the warp.
extern const std::string_view kTeamDeclarations;

struct TeamVariant {
  bool columns = false;
  bool keep = false;     // chunks stay in registers
  bool vectors = false;  // chunks and columns by vectors
  bool covered = false;  // loads of columns by the aligned vectors that cover them, wherever they begin
  bool shifted =
      false;  // rows begin anywhere: vectors where memory has them, single elements before and behind
  bool parts = false;   // shifted, but the first and the last vector are those that a row shares with others
  bool shared = false;  // what several loops load stays in shared memory
  bool split = false;   // blocks share the range of the only reduction
  bool narrow = false;  // numbers of chunks fit an int
  int team = 0;         // instead of the plan's, where that is for other lengths
};

// Declares members: the threads of the warp that meet in shuffles. Teams have points of their own, and the last ones may have
// none.
std::string members_text(int team);

// Opens a loop over `count` points, `teams` a block, in which the warps of such teams stay together: shuffles among some of
// their threads would first have to find these. A team without a point of its own has the last `point`, and is not `live`.
void open_points_together(KernelText& text, int team, int teams, const std::string& count);

// Emits one kernel: an object is used for one call of emit, emit_split or emit_combination. The questions before them
// (conditions, splits, keeps_something) need count_wanted() where they speak of registers.
class CooperativeEmitter {
 public:
  using Expr = sym::Expr;

  CooperativeEmitter(const loop::Program& program, const loop::Nest& original, const GpuTarget& target,
                     TeamVariant variant);

  DeviceKernel emit();
  DeviceKernel emit_split();
  // The second launch; `shares` are the first one's.
  DeviceKernel emit_combination(Expr shares, Expr workspace);

  // A loop at the top.
  struct Range {
    std::vector<loop::Dim> dims;
    Expr count = 1, chunks = 1;
    std::optional<Strip> strip;
    const loop::Block* block = nullptr;
    bool edges = false;  // of a shifted row: what its vectors leave, one by one
  };
  Range range_of(const loop::Stmt& stmt);
  int statements_of(const Range& range) const;  // of a chunk's element, as statements() counts them

  // A bound on the numbers of points of the ranges.
  int64_t longest_bound() const;
  void count_wanted();
  bool has_locals() const;
  // Whether points have work in common, which a block does once.
  bool has_common() const { return common_ > 0; }
  bool keeps_something() const;
  // Whether all local buffers stay in registers.
  bool passes_locals() const;
  // Of rows in shared memory, for each block.
  Expr kept_bytes() const { return shared_bytes_; }
  Expr all_kept_bytes() const { return points() * tiles() * shared_bytes_; }
  bool any_vectors() const { return width > 1; }
  int kept_chunks() const {
    const int64_t most = longest() - 1 + (variant.parts ? width - 1 : 0);
    return static_cast<int>(std::min<int64_t>(variant.columns ? kKeptRows : kKeptElements / width,
                                              most / (variant.columns ? rows : width * rows) + 1));
  }
  // Of a thread, of what a shifted row's vectors leave.
  int edge_chunks() const { return (2 * width - 3) / rows + 1; }
  // The reduction, if the loops of the body are it alone.
  const loop::Stmt* only_reduction() const;
  // Blocks per tile of columns: so many that they fill the GPU, each with some work.
  Expr splits();

  const loop::Program& program;
  const GpuTarget& target;
  const schedule::LoopPlan plan;
  const loop::Nest nest;
  const TeamVariant variant;
  int team;   // threads of a point; of the block, while what is common to its points is printed
  int teams;  // points of a block
  // Columns: the dim, and the team as a grid.
  loop::Dim column;
  int lanes = 1, rows = 1;
  int width = 1;  // elements of a chunk, or points of a lane
  // What the kernel asks for: of sizes, and of the places of buffers.
  std::vector<Expr> conditions;
  std::vector<loop::BufferId> aligned;

 private:
  // ---- cooperative_emitter.cpp ----

  int threads() const { return threads_; }
  // The most that `elements` says of a range, from the number of its elements.
  int64_t most_of(const std::function<int64_t(sym::Expr)>& elements) const;
  // The largest number of points of the ranges that is known; symbols are long.
  int64_t longest() const;

  // Of a lane's point: an array's element where a lane has several.
  std::string of_point(const std::string& name) const;
  std::string array() const { return variant.columns && width > 1 ? cat("[", width, "]") : ""; }
  void open_points();
  void close_points();

  void print_statement(size_t at);
  void print_body();
  // A statement at the top, for each of a lane's points.
  void print_top(const loop::Stmt& stmt);

  // The dims whose points are dealt out to teams; columns count by tiles.
  std::vector<loop::Dim> grid_dims() const;
  Expr tiles() const {
    return variant.columns ? sym::ceildiv(column.extent, (phase_ ? lanes - 1 : lanes) * width) : Expr(1);
  }
  // Of a tile that begins in the middle of vectors: tiles of equal widths, for which a vector less than there are lanes is enough.
  Expr tile_columns() const { return sym::align_up(sym::ceildiv(column.extent, tiles()), width); }
  Expr points() const;
  Expr columns() const { return variant.columns ? column.extent : Expr(1); }
  // Indices of the dims out of `rest`, an int64_t that is counted down to the first of them.
  void print_column();
  void print_phase();

  // ---- cooperative_locals.cpp ----

  // A local buffer that one loop alone uses, and without the loop's variables as indices: its rounds have one each.
  bool is_of_round(loop::BufferId id) const;
  // Columns: a local buffer has an element for each point of the team, neighbours next to each other.
  std::string local_element(const loop::Access& access);
  std::function<std::string(const loop::Access&)> top_place();
  void declare_locals();

  // ---- cooperative_shared.cpp ----

  // Gives places to the rows that several loops load.
  void plan_shared();
  // The C address of the current chunk's part of such a row; "": it is none.
  std::string shared_place(const Range& range, const loop::Access& access);
  // Whether a loop before the range has left it there.
  bool is_filled(const Range& range, const loop::Access& access) const;
  // Of what the range has loaded, the loops behind it need nothing from memory.
  void fill_shared(const Range& range);

  // ---- cooperative_barriers.cpp ----

  struct Touch {
    loop::BufferId buffer;
    bool store;
    std::string place;  // place_of(), in a range
    // Bounds of its indices; none of one that may leave its dim, as loops merged to one over consecutive dims do.
    std::vector<sym::Interval> box;
    sym::Interval offset;  // bounds, in elements
  };
  std::vector<Touch> touches(const loop::Stmt& top);
  // Never of the same element.
  static bool apart(const Touch& a, const Touch& b);
  // Perhaps of the same element, by different threads, not both reading.
  static bool meet(const Touch& a, const Touch& b);
  // A barrier, if one of the statements from `at` up to `last` touches what other threads have touched since the last one.
  void synchronise_before(size_t at, size_t last);
  void barrier() { text_.line(team > 32 || variant.columns ? "__syncthreads();" : "__syncwarp(members);"); }

  // ---- cooperative_common.cpp ----

  size_t find_common() const;
  void print_common();
  // Chunks of a common loop that a thread of the block has, where they stay in registers for the other such loops; 0: they
  // do not.
  int common_chunks(const Range& range) const;
  // Brings the weights of a team's first point into L2, which no other kernel has to finish for.
  void print_prefetch(const std::string& first, const std::string& count);
  void print_l2_prefetch(const loop::Access& access);  // of the element
  // At the top, of what neither this nest writes nor a loop finds.
  bool is_free_load(const loop::Stmt& stmt) const;
  // Loads at the top that no loop has a part in, and what they need: `first` and `once` for all points of a block, `first`
  // by themselves; `early` for each point, before its loops.
  struct Free {
    std::set<size_t> first, once, early;
    bool contains(size_t at) const { return first.contains(at) || once.contains(at) || early.contains(at); }
  };
  Free find_free() const;

  // ---- cooperative_strips.cpp ----

  std::optional<Strip> strip_of(const loop::Stmt& stmt, int wide) const;
  std::optional<Strip> cover_of(const loop::Stmt& stmt, const sym::Facts& inside) const;
  // Columns that begin anywhere: where those of a range's element lie, if a thread's elements all begin equally far from a vector's
  // start, and the loads alike. A thread has aligned vectors then, and what it sums are columns that begin so far before its own.
  std::optional<Expr> find_phase();
  // Each vector of columns comes by the two aligned ones that it lies in.
  bool covers_columns() const { return variant.covered && !phase_; }
  // Where the access's row begins; nothing where its elements do not lie side by side.
  std::optional<Expr> start_of(const loop::Access& access, const loop::Dim& along,
                               const sym::Facts& inside) const;
  // Shifted rows: where those begin that the chunks are in step with, the first that are stored or else loaded. Their
  // elements decide the width.
  std::optional<Expr> find_start();
  bool in_step(const loop::Access& access, Expr var) const;
  static bool is_along(const loop::Access& access, const Range& range);
  std::optional<Strip> shifted_strip_of(const loop::Stmt& stmt, const sym::Facts& inside) const;
  // Whether a vector of the range is taken out of the aligned ones that cover it.
  bool covers(const Range& range, const loop::Access& access) const;
  // One width for all ranges, so that a thread's chunks are the same in all.
  void choose_width();

  // ---- cooperative_ranges.cpp ----

  // Chunks of a thread whose loads are under way together.
  int batch_of(const Range& range, const std::vector<const loop::Stmt*>& loads) const;
  std::string cover_arguments(const loop::Access& access);
  // What an access of a range touches, with the range's variables renamed.
  std::string place_of(const Range& range, const loop::Access& access) const;
  // Loads that a range has in registers as a whole: by vectors, or single elements at a place that is no data.
  bool can_keep(const Range& range, const loop::Stmt& stmt) const;
  // Whether a round of the loop loads from memory what it may have stored there.
  bool loads_again(const loop::Block& block) const;
  // The first of a thread, a C expression.
  std::string first_chunk(const Range& range);
  // The C type of a chunk's number.
  const char* chunk_type(const Range& range) const;

  // What is known of a batch of chunks.
  enum class Batch : uint8_t {
    kWhole,  // all of them are in the range
    kLoads,  // those beyond the range are its last, so that no load waits for a comparison of another
    kSome,   // nothing comes of those beyond the range: neither stores nor parts of results
  };
  // `together` of a thread's chunks, the first of them number `from` of the range; `inside` gets the number of one of
  // them.
  void print_chunks(const Range& range, const std::string& from, int together, Batch batch,
                    const std::function<void(const std::string& first, const std::string& j)>& inside);
  // Pointers to the range's first elements, which its accesses of single elements count from.
  void print_starts(const Range& range);
  // Such an access's element of the current chunk, a C expression; "": there is no such pointer.
  std::string started(const Range& range, const loop::Access& access, bool stored) const;
  // Loads of the range that are held in registers, before anything is done with them: all at once, so that their
  // latencies overlap.
  std::vector<const loop::Stmt*> held_loads(const Range& range);
  void print_held(const Range& range, const std::vector<const loop::Stmt*>& loads, const std::string& from,
                  int together, Batch batch);
  void print_batch(const Range& range, const std::vector<const loop::Stmt*>& loads, const std::string& from,
                   int together, bool whole, const std::function<void()>& inside);
  // Of a launch of one point: all loads that registers hold, at once.
  void print_eager();
  // Declares the number of the range's chunks, chunks_.
  void print_count(const Range& range);
  // Behind the chunks of a shifted row, what they leave.
  void print_edges(Range range, const std::function<void(const Range&)>& print);
  void print_held_edges(const Range& range);
  std::string held_place(const Range& range, const loop::Access& access) const;  // of kept_
  // The range's chunks of this thread; `inside` prints one value's end.
  void print_range(const Range& range, const std::function<void()>& inside);

  // ---- cooperative_stream.cpp ----

  // A reduce whose weights a warp streams through shared memory.
  struct Run {
    const loop::Stmt* top;
    std::vector<const loop::Stmt*> loads;  // of weights
    int together;                          // chunks of a thread in a stage
    int64_t chunks, stage_bytes;
    int64_t stages() const { return loads.size() * ((chunks - 1) / (together * 32) + 1); }  // of a point
  };
  void plan_stream();
  const Run* run_of(const loop::Block& block) const;
  bool is_streamed(const loop::Stmt& stmt) const {
    return loop::body_of(stmt) && run_of(*loop::body_of(stmt));
  }
  // Declares the ring and asks for what it holds; `number` is the C type of points.
  void print_stream(const std::string& number, const std::string& first, const std::string& count);
  // Rows that points have in common, where a run takes them whole, into registers for all points of a warp.
  void print_rows();
  // A load of what points have in common, along the range.
  bool is_row_vector(const Range& range, const loop::Stmt& stmt) const;
  void print_run(const Range& range, const Run& run, const std::function<void()>& inside);
  int stream_warps() const;
  int64_t stage_bytes() const;
  int64_t stream_stages() const;  // of a warp
  int64_t stream_bytes() const;
  bool persists() const { return common_ || !stream_.empty(); }

  // ---- cooperative_reduce.cpp ----

  std::vector<DType> dtypes_of(const loop::Reduce& reduce) const;
  // Of a reduce to an extreme and where it is: that index of the loop's only variable, which grows with it; nothing where it may
  // not.
  std::optional<Expr> growing_index(const loop::Reduce& reduce, const Range& range) const;
  // The same where a thread comes to places in order: the first or the last of equal keys is the one it has or the one it meets.
  void print_take(loop::Combine combine, const std::vector<std::string>& into,
                  const std::vector<std::string>& from, DType dtype);
  // Partial results of a reduce: one name a part, for each of a lane's points.
  std::vector<std::string> print_partial(const loop::Reduce& reduce, const loop::Stmt& stmt);
  // Asks L2 for what a thread's first batches load of inputs and weights, in one of `blocks` that share the range: the kernel
  // in front may still run, and what it writes to L2 is seen there. Of columns alone, whose vectors begin at one place: long
  // rows take 5 to 10 % more time with it.
  void print_ahead(const Range& range, const std::string& blocks);
  void print_shuffles(const loop::Reduce& reduce, const std::vector<std::string>& points,
                      const std::vector<DType>& dtypes, int from, int to);
  void print_meeting(const loop::Reduce& reduce, const std::vector<std::string>& into,
                     const std::vector<std::string>& points, const std::vector<DType>& dtypes);
  void print_reduce(const loop::Reduce& reduce, const loop::Stmt& stmt);

  // ---- cooperative_split.cpp ----

  // Where the results of a split begin in the workspace, and where the next part does.
  Expr part_elements() { return splits() * points() * columns(); }
  Expr part_offset(const std::vector<DType>& dtypes, size_t part);

  int threads_ = 0;
  std::vector<Run> stream_;
  int ways_ = 1;            // sums side by side, of the loop that is printed
  size_t common_ = 0;       // statements at the top of the body that are the same for all points
  bool in_common_ = false;  // these are printed
  bool in_edges_ = false;
  Free free_;
  KernelText text_;
  Body body_;
  sym::Facts facts_;
  // Registers that hold a load's chunks: place (what is loaded, by which range) -> name; how many loops want it.
  std::map<std::string, int> wanted_;
  int kept_from_ = 2;   // loops that want it, for it to be kept
  int kept_words_ = 0;  // registers of what is
  std::map<std::string, std::string> kept_;
  std::map<std::string, std::string> rows_;  // the same of print_rows()
  struct SharedRow {
    Expr offset;          // bytes
    bool filled = false;  // by a loop before
  };
  std::map<std::string, SharedRow> shared_rows_;  // by what is loaded, as wanted_
  Expr shared_bytes_ = 0;
  std::map<loop::BufferId, std::string> passed_;  // local buffers in registers
  std::map<loop::BufferId, std::string> local_;   // and those in memory
  std::set<loop::BufferId> of_round_;             // of these, a thread's own
  std::set<loop::BufferId> same_;                 // of one element, which every thread of the block makes
  int64_t shared_used_ = 0;                       // bytes of the others
  bool uses_locals_ = false, scratch_ = false;
  std::vector<std::vector<Touch>> touched_;  // by the statements of the body
  size_t synchronised_ = 0;                  // those before this one are done by all threads
  std::string declared_;                     // declarations before the body's
  // Where single elements of the current range begin: place -> name.
  std::map<std::string, std::string> starts_;
  std::string number_, chunk_;  // of the current chunk: as the thread counts them, and of one that is there
  std::string there_;           // the C condition that a chunk is in its range; "": it is
  std::string part_;            // those of its elements that are, as bits; "": all
  // Of vectors in part: the number of chunks by the number of elements, and the parts of a thread's chunks by that.
  std::map<std::string, std::string> counts_, parts_;
  std::optional<Expr> start_;  // of shifted rows
  std::optional<Expr> phase_;  // of covered columns, modulo the width
  std::string vectors_;        // of a shifted row, how many
  std::string chunks_;         // the name of the current range's number of chunks
};

}  // namespace stridec::codegen::cuda
