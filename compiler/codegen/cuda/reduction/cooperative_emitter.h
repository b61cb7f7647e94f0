// Generates one kernel whose points are computed by cooperating thread groups (`team` in names);
// emit_cooperative.cpp describes the method and selects the kernels of a nest. Parts:
//   cooperative_emitter.cpp    the loop over points and the top level of the body
//   cooperative_common.cpp     work that the points of a block share
//   cooperative_locals.cpp     placement of local buffers
//   cooperative_shared.cpp     rows kept in shared memory
//   cooperative_barriers.cpp   barriers
//   cooperative_strips.cpp     vectorised accesses
//   cooperative_ranges.cpp     loops split over the group's threads
//   cooperative_reduce.cpp     combination of partial results
//   cooperative_stream.cpp     weights streamed through shared memory
//   cooperative_split.cpp      ranges split over blocks
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/common/vector_access.h"
#include "compiler/codegen/cuda/reduction/reduction.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/directives/schedule.h"

namespace stridec::codegen::cuda {

constexpr int kKeptElements = 32;         // elements of a row that a thread keeps in registers
constexpr int kKeptRows = 8;              // the same for columns, in rows
constexpr int kGroup = 8;                 // chunks of a thread that are skipped together
constexpr int kUnrolled = 512;            // most statements in a loop's unrolled copies
constexpr int64_t kManyChunks = 1 << 27;  // element indices of so many chunks still fit an int
constexpr int kWays = 4;
constexpr int64_t kSharedBytes = 40 << 10;  // for local buffers, without requesting more from the driver

// Whether the statement is a loop that the thread group splits.
inline bool is_range(const loop::Stmt& stmt) {
  return loop::body_of(stmt) && !std::holds_alternative<loop::Scan>(stmt.node);
}

extern const std::string_view kStreamDeclarations;

// Number of statements, inner ones included; a division by a symbol counts as the instructions that it takes.
int statements(const loop::Block& block);

// Device function sd_shuffle(members, x, distance): a butterfly shuffle of a value of any width among the
// warp's threads `members`.
extern const std::string_view kTeamDeclarations;

struct TeamVariant {
  bool columns = false;
  bool keep = false;     // chunks stay in registers
  bool vectors = false;  // chunks and columns are vectorised
  bool covered = false;  // columns begin anywhere; loads use the aligned vectors that cover them
  // Rows begin anywhere: the aligned vectors within a row, and single elements before and after them.
  bool shifted = false;
  // Shifted, but the vectors at both ends, which a row shares with its neighbours, are loaded and used in
  // part.
  bool parts = false;
  bool shared = false;  // what several loops load stays in shared memory
  bool split = false;   // blocks split the range of the only reduction
  bool narrow = false;  // chunk indices fit an int
  int team = 0;         // overrides the plan's group size, for other lengths
};

// Declares `members`: the threads of the warp that take part in shuffles. Groups have their own points, and
// the last ones may have none.
std::string members_text(int team);

// Opens a loop over `count` points, `teams` per block, in which all groups of a warp iterate together:
// shuffles among a subset of the threads would first have to determine it. A group without a point of its own
// gets the last `point`, and is not `live`.
void open_points_together(KernelText& text, int team, int teams, const std::string& count);

// Emits one kernel: an object is used for one call of emit, emit_split or emit_combination. The queries
// before that call (conditions, splits, keeps_something) require count_wanted() if they depend on registers.
class CooperativeEmitter {
 public:
  using Expr = sym::Expr;

  CooperativeEmitter(const loop::Program& program, const loop::Nest& original, const GpuTarget& target,
                     TeamVariant variant);

  DeviceKernel emit();
  DeviceKernel emit_split();
  // The second launch; `shares` are the splits of the first one.
  DeviceKernel emit_combination(Expr shares, Expr workspace);

  // A loop at the top level of the body, split over the thread group.
  struct Range {
    std::vector<loop::Dim> dims;
    Expr count = 1, chunks = 1;
    std::optional<Strip> strip;
    const loop::Block* block = nullptr;
    bool edges = false;  // for a shifted row: the single elements outside its vectors
  };
  Range range_of(const loop::Stmt& stmt);
  int statements_of(const Range& range) const;  // per element of a chunk, as statements() counts them

  // Upper bound on the number of points of any range.
  int64_t longest_bound() const;
  void count_wanted();
  bool has_locals() const;
  // Whether points share work, which a block then does once.
  bool has_common() const { return common_ > 0; }
  bool keeps_something() const;
  // Whether all local buffers stay in registers.
  bool passes_locals() const;
  // Bytes of rows in shared memory, per block and in total.
  Expr kept_bytes() const { return shared_bytes_; }
  Expr all_kept_bytes() const { return points() * tiles() * shared_bytes_; }
  bool any_vectors() const { return width > 1; }
  int kept_chunks() const {
    const int64_t most = longest() - 1 + (variant.parts ? width - 1 : 0);
    return static_cast<int>(std::min<int64_t>(variant.columns ? kKeptRows : kKeptElements / width,
                                              most / (variant.columns ? rows : width * rows) + 1));
  }
  // Chunks per thread of the elements outside a shifted row's vectors.
  int edge_chunks() const { return (2 * width - 3) / rows + 1; }
  // The reduction, if it is the body's only loop.
  const loop::Stmt* only_reduction() const;
  // Blocks per tile of columns: as many as fill the GPU, each with some work.
  Expr splits();

  const loop::Program& program;
  const GpuTarget& target;
  const schedule::LoopPlan plan;
  const loop::Nest nest;
  const TeamVariant variant;
  int team;   // threads per point; while the shared work is printed, threads of the block
  int teams;  // points per block
  // Columns: the dim, and the thread group as a grid of lanes and rows.
  loop::Dim column;
  int lanes = 1, rows = 1;
  int width = 1;  // elements of a chunk, or points per lane
  // Conditions of the kernel: on sizes, and buffers that have to be aligned.
  std::vector<Expr> conditions;
  std::vector<loop::BufferId> aligned;

 private:
  // ---- cooperative_emitter.cpp ----

  int threads() const { return threads_; }
  // The largest value of `elements` over the ranges, applied to a range's number of elements.
  int64_t most_of(const std::function<int64_t(sym::Expr)>& elements) const;
  // The largest known number of points of a range; symbolic extents count as long.
  int64_t longest() const;

  // Text of `name` for a lane's point: an array element if a lane has several points.
  std::string of_point(const std::string& name) const;
  std::string array() const { return variant.columns && width > 1 ? cat("[", width, "]") : ""; }
  void open_points();
  void close_points();

  void print_statement(size_t at);
  void print_body();
  // Prints a top-level statement for each of a lane's points.
  void print_top(const loop::Stmt& stmt);

  // The dims whose points are assigned to thread groups; columns count in tiles.
  std::vector<loop::Dim> grid_dims() const;
  Expr tiles() const {
    return variant.columns ? sym::ceildiv(column.extent, (phase_ ? lanes - 1 : lanes) * width) : Expr(1);
  }
  // If tiles begin in the middle of vectors, tiles have equal widths, for which one vector fewer than lanes
  // suffices.
  Expr tile_columns() const { return sym::align_up(sym::ceildiv(column.extent, tiles()), width); }
  Expr points() const;
  Expr columns() const { return variant.columns ? column.extent : Expr(1); }
  // Declares column indices from `rest`, an int64_t that is divided down to the index of the first dim.
  void print_column();
  void print_phase();

  // ---- cooperative_locals.cpp ----

  // Whether only one loop uses the local buffer, and not all of the loop's variables index it: each iteration
  // has its own copy.
  bool is_of_round(loop::BufferId id) const;
  // Text of a local buffer's element. Columns: a local buffer has an element per point of the group, with
  // neighbouring points adjacent.
  std::string local_element(const loop::Access& access);
  std::function<std::string(const loop::Access&)> top_place();
  // Where a local buffer is.
  struct Local {
    enum class In { kRegisters, kElement, kStack, kThreadScratch, kShared, kScratch };
    loop::BufferId id;
    In in;
    Expr elements = 1;  // of a copy
    int copies = 1;     // per block, in shared memory
    Expr bytes = 0;     // of scratch
  };
  // Chooses places for the local buffers; count_wanted() has chosen those in registers.
  void plan_locals();
  // Plans a buffer in memory. `shared`: by the points of a block.
  Local plan_local(loop::BufferId id, bool shared);
  Expr scratch_of_locals() const;  // of a thread group
  void declare_locals();
  void declare_local(const Local& local);

  // ---- cooperative_shared.cpp ----

  // Assigns space to the rows that several loops load.
  void plan_shared();
  // C address of the current chunk's part of such a row; "": it is not such a row.
  std::string shared_place(const Range& range, const loop::Access& access);
  // Whether a loop before the range has stored the row there.
  bool is_filled(const Range& range, const loop::Access& access) const;
  // Marks the rows that the range has loaded as available to later loops.
  void fill_shared(const Range& range);

  // ---- cooperative_barriers.cpp ----

  struct Touch {
    loop::BufferId buffer;
    bool store;
    std::string place;  // place_of(), within a range
    // Bounds of its indices; empty if one may exceed its dim, as happens if loops over consecutive dims are
    // merged.
    std::vector<sym::Interval> box;
    sym::Interval offset;  // bounds, in elements
  };
  std::vector<Touch> touches(const loop::Stmt& top);
  // Whether the two can never touch the same element.
  static bool apart(const Touch& a, const Touch& b);
  // Whether the two may touch the same element from different threads, and not both only read.
  static bool meet(const Touch& a, const Touch& b);
  // Emits a barrier if a statement from `at` up to `last` touches what other threads have touched since the
  // last barrier.
  void synchronise_before(size_t at, size_t last);
  void barrier() { text_.line(team > 32 || variant.columns ? "__syncthreads();" : "__syncwarp(members);"); }

  // ---- cooperative_common.cpp ----

  size_t find_common() const;
  void print_common();
  // Chunks of a common loop per thread of the block, if they stay in registers for the other common loops;
  // otherwise 0.
  int common_chunks(const Range& range) const;
  // Prefetches the weights of a group's first point into L2; this need not wait for preceding kernels.
  void print_prefetch(const std::string& first, const std::string& count);
  void print_l2_prefetch(const loop::Access& access);  // prefetches the element
  // Whether it is a top-level load that depends on the nest's dims only and that the nest does not write.
  bool is_free_load(const loop::Stmt& stmt) const;
  // Top-level loads that depend on no loop, and the statements that they need. `first` and `once`: for all
  // points of a block, of which `first` need no other statement; `early`: per point, before its loops.
  struct Free {
    std::set<size_t> first, once, early;
    bool contains(size_t at) const { return first.contains(at) || once.contains(at) || early.contains(at); }
  };
  Free find_free() const;

  // ---- cooperative_strips.cpp ----

  std::optional<Strip> strip_of(const loop::Stmt& stmt, int wide) const;
  std::optional<Strip> cover_of(const loop::Stmt& stmt, const sym::Facts& inside) const;
  // For columns that begin anywhere: the offset at which a range element's columns begin, if for each thread
  // all of its elements begin at the same distance from an aligned vector, in all loads. The thread then
  // loads aligned vectors, and its sums are for the columns shifted by that distance.
  std::optional<Expr> find_phase();
  // Whether each vector of columns is extracted from the two aligned vectors that cover it.
  bool covers_columns() const { return variant.covered && !phase_; }
  // Offset at which the access's row begins; nothing if its elements are not contiguous.
  std::optional<Expr> start_of(const loop::Access& access, const loop::Dim& along,
                               const sym::Facts& inside) const;
  // For shifted rows: the begin of the rows with which the chunks are aligned, which are the first stored
  // ones, otherwise the first loaded ones. Their element size determines the width.
  std::optional<Expr> find_start();
  bool in_step(const loop::Access& access, Expr var) const;
  static bool is_along(const loop::Access& access, const Range& range);
  std::optional<Strip> shifted_strip_of(const loop::Stmt& stmt, const sym::Facts& inside) const;
  // Whether a vector of the range is extracted from the aligned vectors that cover it.
  bool covers(const Range& range, const loop::Access& access) const;
  // Sets one width for all ranges, so that a thread has the same chunks in all of them.
  void choose_width();

  // ---- cooperative_ranges.cpp ----

  // Chunks of a thread whose loads are in flight together.
  int batch_of(const Range& range, const std::vector<const loop::Stmt*>& loads) const;
  std::string cover_arguments(const loop::Access& access);
  // A key for the elements that a range's access touches, independent of the names of the range's variables.
  std::string place_of(const Range& range, const loop::Access& access) const;
  // Whether the load's chunks are held in registers as a whole: vectors, or single elements at an index that
  // does not depend on data.
  bool can_keep(const Range& range, const loop::Stmt& stmt) const;
  // Whether an iteration of the loop loads from memory what it may have stored.
  bool loads_again(const loop::Block& block) const;
  // C expression for a thread's first chunk.
  std::string first_chunk(const Range& range);
  // C type of chunk indices.
  const char* chunk_type(const Range& range) const;

  // Which chunks of a batch exist.
  enum class Batch : uint8_t {
    kWhole,  // all of them are in the range
    kLoads,  // chunks beyond the range load its last chunk, so that loads need no branch
    kSome,   // chunks beyond the range have no effect: no stores, no contribution to results
  };
  // Prints `together` of a thread's chunks, the first of which has index `from` in the range; `inside` gets
  // the index of each.
  void print_chunks(const Range& range, const std::string& from, int together, Batch batch,
                    const std::function<void(const std::string& first, const std::string& j)>& inside);
  // Opens a loop over groups of `group` chunks, and a branch for those of which the thread group has some.
  // Returns the numbers of a group's first chunk and of the one after its last.
  std::pair<std::string, std::string> open_group(int group, int together);
  // Declares the chunk's index, chunk_. If a chunk beyond the range is to have no effect and no branch skips
  // it, sets there_ to the condition that it is in the range; for vectors in part, sets part_ as well.
  // Returns whether it opened a branch for chunks in the range.
  bool open_chunk(const Range& range, const std::string& from, const std::string& j, Batch batch);
  // Lets assignments have no effect unless there_ holds.
  void guard_assignments();
  // C expression for the index of the current chunk's first element, in the range's row-major order.
  std::string first_element(const Range& range) const;
  // Sets the indices of the range's dims to the chunk's first element. Returns that of the last dim.
  std::string print_chunk_indices(const Range& range);
  // Declares pointers to the range's first elements, from which its single-element accesses count.
  void print_starts(const Range& range);
  // C expression for such an access's element of the current chunk; "": there is no such pointer.
  std::string started(const Range& range, const loop::Access& access, bool stored) const;
  // Loads of the range that are held in registers. They are all issued before any is used, so that their
  // latencies overlap.
  std::vector<const loop::Stmt*> held_loads(const Range& range);
  void print_held(const Range& range, const std::vector<const loop::Stmt*>& loads, const std::string& from,
                  int together, Batch batch);
  void print_batch(const Range& range, const std::vector<const loop::Stmt*>& loads, const std::string& from,
                   int together, bool whole, const std::function<void()>& inside);
  // Stores the chunk's held loads to the rows in shared memory that later loops read.
  void print_shared_stores(const Range& range, const std::vector<const loop::Stmt*>& loads,
                           const std::string& j);
  // Loads of neighbouring elements that are not held, and for each the name of a pointer to the element that
  // a vector's first element loads. All elements of the vector use this one address.
  using Neighbours = std::map<const loop::Access*, std::string>;
  // Declares these pointers.
  Neighbours print_neighbours(const Range& range, const std::string& first);
  // The C expression that replaces an access's element in the current chunk; "": memory.
  std::string chunk_element(const Range& range, const loop::Access& access, const Neighbours& neighbours,
                            const std::string& j);
  // The name of a vector that holds the access's elements of the current chunk; "": none does. `loaded`:
  // whether this batch has loaded it.
  std::string chunk_vector(const Range& range, const loop::Access& access, bool loaded,
                           const std::string& first, const std::string& j);
  // For launches with one point: issues all register-held loads at once.
  void print_eager();
  // Declares chunks_, the range's number of chunks.
  void print_count(const Range& range);
  // Prints the elements outside the vectors of a shifted row, after its chunks.
  void print_edges(Range range, const std::function<void(const Range&)>& print);
  void print_held_edges(const Range& range);
  std::string held_place(const Range& range, const loop::Access& access) const;  // key into kept_
  // Prints this thread's chunks of the range; `inside` prints what follows each value's statements.
  void print_range(const Range& range, const std::function<void()>& inside);

  // ---- cooperative_stream.cpp ----

  // A reduction whose weights a warp streams through shared memory.
  struct Run {
    const loop::Stmt* top;
    std::vector<const loop::Stmt*> loads;  // loads of weights
    int together;                          // chunks of a thread per stage
    int64_t chunks, stage_bytes;
    int64_t stages() const { return loads.size() * ((chunks - 1) / (together * 32) + 1); }  // per point
  };
  void plan_stream();
  const Run* run_of(const loop::Block& block) const;
  bool is_streamed(const loop::Stmt& stmt) const {
    return loop::body_of(stmt) && run_of(*loop::body_of(stmt));
  }
  // Declares the ring and requests its first stages; `number` is the C type of point indices.
  void print_stream(const std::string& number, const std::string& first, const std::string& count);
  // Loads rows that all points share into registers, for all points of a warp, if a run reads them whole.
  void print_rows();
  // Whether it is a load of shared values along the range.
  bool is_row_vector(const Range& range, const loop::Stmt& stmt) const;
  void print_run(const Range& range, const Run& run, const std::function<void()>& inside);
  int stream_warps() const;
  int64_t stage_bytes() const;
  int64_t stream_stages() const;  // per warp
  int64_t stream_bytes() const;
  bool persists() const { return common_ || !stream_.empty(); }

  // ---- cooperative_reduce.cpp ----

  std::vector<DType> dtypes_of(const loop::Reduce& reduce) const;
  // For a reduction to an extremum and its index: the index expression, which increases with the loop's only
  // variable; nothing if it may not.
  std::optional<Expr> growing_index(const loop::Reduce& reduce, const Range& range) const;
  // Combines extrema and indices if a thread visits indices in increasing order: of equal keys the first is
  // the one it holds, the last is the new one.
  void print_take(loop::Combine combine, const std::vector<std::string>& into,
                  const std::vector<std::string>& from, DType dtype);
  // Declares the partial results of a reduction: one name per part, for each of a lane's points.
  std::vector<std::string> print_partial(const loop::Reduce& reduce, const loop::Stmt& stmt);
  // Prefetches into L2 what a thread's first batches load from inputs and weights, in one of `blocks` that
  // split the range. The preceding kernel may still run, since L2 sees its writes. Only for columns whose
  // vectors have a common start: long rows take 5 to 10 % longer with it.
  void print_ahead(const Range& range, const std::string& blocks);
  void print_shuffles(const loop::Reduce& reduce, const std::vector<std::string>& points,
                      const std::vector<DType>& dtypes, int from, int to);
  void print_meeting(const loop::Reduce& reduce, const std::vector<std::string>& into,
                     const std::vector<std::string>& points, const std::vector<DType>& dtypes);
  void print_reduce(const loop::Reduce& reduce, const loop::Stmt& stmt);

  // ---- cooperative_split.cpp ----

  // Workspace offset at which the split results of part `part` begin.
  Expr part_elements() { return splits() * points() * columns(); }
  Expr part_offset(const std::vector<DType>& dtypes, size_t part);

  int threads_ = 0;
  std::vector<Run> stream_;
  int ways_ = 1;            // independent sums per thread, of the loop being printed
  size_t common_ = 0;       // top-level statements that are the same for all points
  bool in_common_ = false;  // these statements are being printed
  bool in_edges_ = false;
  Free free_;
  KernelText text_;
  Body body_;
  sym::Facts facts_;
  // Registers that hold a load's chunks: place_of() -> name. wanted_: how many loops use a place.
  std::map<std::string, int> wanted_;
  int kept_from_ = 2;   // loops that have to use a place for it to be kept
  int kept_words_ = 0;  // registers of kept places
  std::map<std::string, std::string> kept_;
  std::map<std::string, std::string> rows_;  // the same for print_rows()
  struct SharedRow {
    Expr offset;          // in bytes
    bool filled = false;  // by an earlier loop
  };
  std::map<std::string, SharedRow> shared_rows_;  // by place, as wanted_
  Expr shared_bytes_ = 0;
  std::map<loop::BufferId, std::string> passed_;  // local buffers in registers
  std::map<loop::BufferId, std::string> local_;   // local buffers in memory
  std::set<loop::BufferId> of_round_;             // those with one copy per iteration, private to a thread
  std::set<loop::BufferId> same_;  // one-element buffers that every thread of the block computes
  int64_t shared_needed_ = 0, shared_used_ = 0;  // bytes of shared memory for the others; with padding
  bool uses_locals_ = false;
  std::vector<Local> locals_;
  std::vector<std::vector<Touch>> touched_;  // by statement of the body
  size_t synchronised_ = 0;                  // statements before this one are complete in all threads
  std::string declared_;                     // declarations that precede the body's
  // Pointers to where single elements of the current range begin: place -> name.
  std::map<std::string, std::string> starts_;
  std::string number_, chunk_;  // the current chunk's index; chunk_ is limited to existing chunks
  std::string there_;           // C condition that the chunk is in its range; "": always
  std::string part_;            // bit mask of the chunk's elements that are in its row; "": all
  // For `parts`: number of chunks by number of elements, and the bit masks of a thread's chunks by that name.
  std::map<std::string, std::string> counts_, parts_;
  std::optional<Expr> start_;  // for shifted rows
  std::optional<Expr> phase_;  // for covered columns, modulo the width
  std::string vectors_;        // number of vectors of a shifted row
  std::string chunks_;         // name of the current range's number of chunks
};

}  // namespace stridec::codegen::cuda
