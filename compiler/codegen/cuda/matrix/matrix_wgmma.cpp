#include "compiler/codegen/cuda/matrix/matrix_wgmma.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "compiler/base/text.h"
#include "compiler/kernels/group_results.h"

namespace stridec::codegen::cuda {
namespace {

class Printer {
 public:
  Printer(MatrixFrame& frame, MatrixSide& a, MatrixSide& b, MatrixEpilogue& epilogue, MatrixRows* rows,
          bool dependent)
      : f_(frame),
        text_(frame.text),
        a_(a),
        b_(b),
        epilogue_(epilogue),
        rows_(rows),
        dependent_(dependent),
        registers_(frame.kernel, frame.a_element, gathers()) {}

  void print() {
    const kernels::MatrixKernel& k = f_.kernel;
    text_.line("extern __shared__ __align__(1024) unsigned char shared[];");
    text_.line(cat("__shared__ alignas(8) unsigned long bars[", 2 * k.stages + (split() > 1), "];"));
    text_.line("const int group = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);");
    if (split() > 1) {
      text_.line(cat("const unsigned given_bar = shared_address(bars) + ", 16 * k.stages, ";"));
      text_.open("if (threadIdx.x == 0)");
      text_.line("barrier_init(given_bar, 1);");
      text_.line(cat("barrier_expect(given_bar, ", (split() - 1) * lines() * k.columns * 4, ");"));
      text_.close();
    }
    print_ring_barriers(text_, k.stages, (boxes() ? 1 : 0) + (gathers() ? k.loaders() : 0), k.tile_groups());
    if (split() > 1) text_.line("blocks_begin();");
    print_map_prefetch();
    print_tile_counts(f_);
    if (split() > 1) {
      text_.line(cat("const int rank = blockIdx.x % ", split(), ";"));
      text_.line(cat("const ", f_.index_type(), " block = blockIdx.x / ", split(), ";"));
      print_tile_place(f_, "block");
    } else {
      text_.line(cat("const ", f_.index_type(), " tiles = row_tiles * column_tiles * (", f_.index_type(), ")",
                     text_.size(extent_of(f_.batch)), ";"));
    }
    print_steps(f_);
    if (dependent_ && !makes_room()) text_.line("launch_dependents();");
    if (rows_) print_rows();
    text_.open(cat("if (group == ", groups(), ")"));
    print_loader();
    text_.close(" else {");
    print_worker();
    text_.line("}");
  }

 private:
  std::string sum_type() const { return f_.contraction.dtype == DType::kI32 ? "int" : "float"; }
  int groups() const { return f_.kernel.workers() / 128; }
  int64_t split() const { return f_.plan.split; }
  // Lines of a tile that a block adds up.
  int lines() const { return static_cast<int>(f_.kernel.rows / split()); }
  bool gives_in_ring() const { return split() > 1 && kernels::given_at(f_.kernel) == 0; }
  // Whether the next launch starts only after a block has requested all its copies, or all weights if these
  // are requested before the predecessor ends: blocks of a cluster end one by one. Other kernels let the next
  // launch's blocks start at once, if there is room.
  bool makes_room() const { return split() > 1; }
  bool boxes() const { return a_.map() || b_.map(); }
  bool gathers() const { return !a_.map() || (!b_.map() && !rows_); }
  int stage() const { return a_.tile_bytes() + (rows_ ? 0 : b_.tile_bytes()); }
  int ring() const { return f_.kernel.stages * stage(); }
  // With what is kept next to the ring.
  int held() const { return ring() + f_.kernel.held_steps * (rows_ ? b_.tile_bytes() : 0); }

  // Lines whose operands fit in registers.
  int together() const {
    constexpr int kLine = 4;
    const int lines = registers_.free() / kLine;
    return lines >= 4 ? 4 : lines >= 2 ? 2 : 1;
  }
  // The results of a part have two buffers in shared memory: those of one part are stored while those of the
  // next are computed.
  bool in_registers() const {
    return split() == 1 && epilogue_.in_registers() && registers_.have_results(epilogue_.cost());
  }
  int line_bytes() const { return epilogue_.line_bytes(fragment_part("0")); }
  int halves() const { return f_.kernel.rows / 64 / f_.kernel.tile_groups(); }  // blocks of 64 rows per group
  int sums() const { return f_.kernel.sums(); }                                 // per thread

  // Prefetches the tensor maps, so that the first copies find them in the multiprocessor's cache.
  void print_map_prefetch() {
    if (!boxes()) return;
    text_.open("if (threadIdx.x == 0)");
    for (int i = 0; i < (a_.map() ? 1 : 0) + (b_.map() ? 1 : 0); ++i)
      text_.line(cat("prefetch_map(&map", i, ");"));
    text_.close();
  }

  // Prefetches the epilogue's operands one tile ahead, so that they are loaded while the products are
  // computed.
  void print_ahead() {
    if (!epilogue_.has_prefetch()) return;
    const std::string type = f_.index_type(),
                      first = f_.kernel.turns ? "blockIdx.x + group * gridDim.x" : "blockIdx.x",
                      step = f_.kernel.turns ? "2 * gridDim.x" : "gridDim.x";
    text_.line("#pragma unroll 1");
    text_.open(cat("for (", type, " soon = block == ", first, " ? block : block + ", step,
                   "; soon < tiles && soon <= block + ", step, "; soon += ", step, ")"));
    print_tile_place(f_, "soon");
    epilogue_.print_prefetch(f_.kernel.turns ? "thread % 128" : "thread");
    text_.close();
  }

  // With alternating groups, a worker processes every other tile, beginning with its group's first one.
  void open_tiles(bool worker = false) {
    if (split() > 1) return text_.open("");
    const bool turns = worker && f_.kernel.turns;
    text_.open(cat("for (", f_.index_type(), " block = blockIdx.x", turns ? " + group * gridDim.x" : "",
                   "; block < tiles; block += ", turns ? "2 * " : "", "gridDim.x)"));
    if (worker) print_ahead();
    print_tile_place(f_, "block");
  }

  void print_advance() {
    text_.open(cat("if (++slot == ", f_.kernel.stages, ")"));
    text_.line("slot = 0;");
    text_.line("phase ^= 1;");
    text_.close();
  }

  void print_stage(const std::string& at) {
    text_.line(
        cat("const unsigned fill_stage = ring + ", at, " * ", stage(), ", full = full_bars + ", at, " * 8;"));
  }

  void print_box(MatrixSide& side) {
    const int number = &side == &b_ && a_.map() ? 1 : 0;
    print_fill(side, [&] { side.print_boxes(cat("map", number)); });
  }

  // Fills the ring with tiles of weights, before the previous launch has ended.
  void print_ahead_of_predecessor(MatrixSide& side, int expected) {
    text_.open(cat("for (ahead = 0; ahead < ", f_.kernel.stages, " && begin + ahead < end; ++ahead)"));
    text_.line("const int64_t next = begin + ahead;");
    print_stage("(int)ahead");
    text_.line(cat("barrier_expect(full, ", expected, ");"));
    print_box(side);
    text_.close();
    if (dependent_ && makes_room()) text_.line("if (begin + ahead == end) launch_dependents();");
  }

  // Computes the prologue's rows; weights are loaded meanwhile.
  void print_rows() {
    rows_->print_weights();
    text_.line("int64_t ahead = 0;");
    text_.open(cat("if (threadIdx.x == ", f_.kernel.workers(), ")"));
    print_tile_place(f_, cat("(", f_.index_type(), ")blockIdx.x / ", split()));
    print_ahead_of_predecessor(a_, a_.tile_bytes());
    text_.close();
    if (dependent_) text_.line("wait_predecessor();");
    rows_->print(std::to_string(ring()));
    text_.line("fence_async();");
    text_.line("__syncthreads();");
  }

  void print_loader() {
    if (const auto& r = registers_.handed())
      text_.line(cat("asm volatile(\"setmaxnreg.dec.sync.aligned.u32 ", r->loaders, ";\");"));
    text_.line(cat("const int thread = threadIdx.x - ", f_.kernel.workers(), ";"));
    text_.line("int slot = 0;");
    text_.line("unsigned phase = 1;");
    MatrixSide* early = nullptr;  // weights do not wait for the previous launch
    for (MatrixSide* side : {&a_, &b_})
      if ((dependent_ || rows_) && !gathers() && side->map() && side->is_weight()) early = side;
    if (dependent_ && !early) text_.line("wait_predecessor();");
    if (early && !rows_) text_.line("int64_t ahead = 0;\n    bool first = true;");
    // A single thread issues TMA copies.
    text_.open(gathers() ? "" : "if (thread == 0)");
    open_tiles();
    for (MatrixSide* side : {&a_, &b_})
      if (!side->map() && gathers()) side->print_start();
    const int expected = (a_.map() ? a_.tile_bytes() : 0) + (b_.map() ? b_.tile_bytes() : 0);
    if (early && !rows_) {
      text_.open("if (first)");
      text_.line("first = false;");
      print_ahead_of_predecessor(*early, expected);
      text_.line("wait_predecessor();");
      text_.close();
    }
    text_.open("for (int64_t next = begin; next < end; ++next)");
    print_stage("slot");
    if (early) text_.open("if (ahead > 0)");
    if (early) text_.line("--ahead;");
    if (early) text_.close(" else {");
    text_.line("barrier_wait(empty_bars + slot * 8, phase);");
    if (boxes()) {
      if (gathers()) text_.open("if (thread == 0)");
      text_.line(cat("barrier_expect(full, ", expected, ");"));
      if (early) print_box(*early);
      if (early) text_.line("}");
      for (MatrixSide* side : {&a_, &b_})
        if (side->map() && side != early) print_box(*side);
      if (gathers()) text_.close();
    }
    for (MatrixSide* side : {&a_, &b_})
      if (!side->map() && gathers()) print_fill(*side, [&] { side->print_issue(); });
    if (gathers()) text_.line("barrier_arrive_copied(full);");
    print_advance();
    text_.close();
    text_.close();
    if (dependent_ && makes_room()) text_.line("launch_dependents();");
    if (gathers()) text_.line("wait_all_copies();");
    text_.close();
    if (!gives_in_ring()) return;
    text_.line("__syncwarp();");
    text_.line("cluster_sync();");
  }

  void print_fill(MatrixSide& side, const std::function<void()>& print) {
    text_.open("");
    text_.line(
        cat("const unsigned fill_tile = fill_stage", &side == &b_ ? cat(" + ", a_.tile_bytes()) : "", ";"));
    print();
    text_.close();
  }

  void print_worker() {
    const kernels::MatrixKernel& k = f_.kernel;
    // Descriptors: the address, and the distance between panels of 64 rows if a tile runs along its rows.
    auto low = [&](const MatrixSide& side, const std::string& at) {
      return cat("((", at, " & 0x3ffff) >> 4 | ", side.along_depth() ? 1 : k.depth * 128 >> 4, " << 16)");
    };
    if (const auto& r = registers_.handed())
      text_.line(cat("asm volatile(\"setmaxnreg.inc.sync.aligned.u32 ", r->workers, ";\");"));
    text_.line("const int thread = threadIdx.x, lane_id = thread % 32;");
    text_.line(cat("const unsigned a_low = ", low(a_, "ring"), k.turns ? "" : " + group * 512",
                   ", b_low = ", low(b_, cat("(ring + ", rows_ ? ring() : a_.tile_bytes(), ")")), ";"));
    text_.line("int slot = 0;");
    text_.line("unsigned phase = 0;");
    if (in_registers()) {
      text_.line(
          cat("unsigned char* const lines = shared + ", held(), " + group * ", 128 * line_bytes(), ";"));
      text_.line("int turn = 0;");
    }
    // Steps of the block's earlier tiles, for all groups.
    if (k.turns) text_.line("unsigned long before = group * (unsigned long)(end - begin);");
    if (dependent_ && !rows_) text_.line("wait_predecessor();");
    open_tiles(true);
    if (k.turns) {
      text_.line(cat("slot = (int)(before % ", k.stages, ");"));
      text_.line(cat("phase = (unsigned)(before / ", k.stages, ") & 1;"));
      text_.line("before += 2 * (unsigned long)(end - begin);");
      // Parities distinguish a stage's rounds only for a group that has seen the previous one, so the
      // products of the previous tile have to be complete.
      text_.line("if (block != blockIdx.x) named_sync(3 + group, 256);");
    }
    text_.line(cat(sum_type(), " acc[", halves(), "][", k.columns / 2, "];"));
    text_.line("#pragma unroll");
    text_.line(cat("for (int i = 0; i < ", sums(), "; ++i) acc[i / ", k.columns / 2, "][i % ", k.columns / 2,
                   "] = 0;"));
    registers_.parts() ? print_added_steps() : print_steps_of_products();
    if (k.turns) text_.line("if (tiles - block > gridDim.x) named_arrive(4 - group, 256);");
    if (in_registers())
      epilogue_.print_fragment_loads(fragment_part("0"), true);
    else if (split() == 1)
      epilogue_.print_loads(chunk_part("0"));
    if (!registers_.parts()) {
      text_.line("products_wait<0>();");
      text_.line("products_ready(acc);");
      print_read("last", "begin < end");
    }
    in_registers() ? print_fragments() : split() > 1 ? print_all_sums() : print_chunks();
    text_.close();
  }

  // The loop over the steps of a tile: issues a step's products before it waits for those of the previous
  // step, whose stage has then been read.
  void print_steps_of_products() {
    text_.line("int last = 0;");
    text_.open("for (int64_t step = begin; step < end; ++step)");
    print_step("acc");
    text_.line("products_wait<1>();");
    print_read("last", "step > begin");
    text_.line("last = slot;");
    print_advance();
    text_.close();
  }

  // The same with separate accumulators per step, which are added to the totals. If there are two sets, they
  // alternate, with two steps per iteration, since registers cannot be indexed. Nothing in between may depend
  // on a counter: the assembler would then wait for each instruction.
  void print_added_steps() {
    const int parts = registers_.parts();
    text_.line(cat("float part[", parts, "][", halves(), "][", f_.kernel.columns / 2, "];"));
    if (parts == 1) {
      text_.open("for (int64_t step = begin; step < end; ++step)");
      print_step("part[0]");
      print_addition(0, 0);
      print_read("slot");
      print_advance();
      text_.close();
      return;
    }
    text_.line("int last = 0;");
    const auto next = [&](int now) {
      print_step(cat("part[", now, "]"));
      print_addition(1 - now, 1);
      print_read("last");
      text_.line("last = slot;");
      print_advance();
    };
    text_.open("if (begin < end)");
    print_step("part[0]");
    text_.line("last = slot;");
    print_advance();
    text_.line("int64_t step = begin + 1;");
    text_.open("for (; step + 1 < end; step += 2)");
    for (const int now : {1, 0}) next(now);
    text_.close();
    text_.open("if (step < end)");
    next(1);
    print_addition(1, 0);
    text_.close(" else {");
    print_addition(0, 0);
    text_.line("}");
    print_read("last");
    text_.close();
  }

  // Waits for all products except those of the last `running` steps, and adds.
  void print_addition(int part, int running) {
    const int columns = f_.kernel.columns / 2;
    text_.line(cat("products_wait<", running, ">();"));
    text_.line(cat("products_ready(part[", part, "]);"));
    text_.line("#pragma unroll");
    text_.line(cat("for (int i = 0; i < ", sums(), "; ++i) acc[i / ", columns, "][i % ", columns,
                   "] += part[", part, "][i / ", columns, "][i % ", columns, "];"));
  }

  // Issues the products of a step of 128 bytes of the depth, 32 per instruction: into `to`, or added to
  // `acc`.
  void print_step(const std::string& to) {
    const bool own = to != "acc";
    text_.line("barrier_wait(full_bars + slot * 8, phase);");
    if (gathers()) text_.line("fence_async();");  // makes the threads' copies visible to the tensor cores
    text_.line("products_begin();");
    const std::string at = cat("slot * ", stage() / 16);
    text_.line("#pragma unroll");
    text_.line("for (int k = 0; k < 4; ++k)");
    text_.line("  #pragma unroll");
    text_.line(cat("  for (int half = 0; half < ", halves(), "; ++half) multiply(", to,
                   "[half], descriptor(a_low + ", at, " + half * 512 + k * ", a_.along_depth() ? 2 : 128,
                   "), descriptor(b_low + ", rows_ ? cat("(int)(step - begin) * ", b_.tile_bytes() / 16) : at,
                   " + k * ", b_.along_depth() ? 2 : 128, ")", own ? ", k" : "", ");"));
    text_.line("products_commit();");
  }

  // Marks the stage `which` as read by a group, if `when` holds.
  void print_read(const std::string& which, const std::string& when = "") {
    text_.line(cat("if (", when.empty() ? "" : cat(when, " && "),
                   "thread % 128 == 0) barrier_arrive(empty_bars + ", which, " * 8);"));
  }

  // Registers 4j.. of a half hold columns 8j.. of two rows.
  std::string put(const std::string& half, const std::string& row, int pitch, const std::string& j,
                  const std::string& to) const {
    const std::string pair = cat(sum_type(), "2");
    return cat("for (int h = 0; h < 2; ++h) *(", pair, "*)(sums + (", row,
               " + thread / 32 % 4 * 16 + lane_id / 4 + h * 8) * ", pitch, " + (", to,
               ") * 8 + lane_id % 4 * 2) = make_", pair, "(acc[", half, "][(", j, ") * 4 + 2 * h], acc[",
               half, "][(", j, ") * 4 + 2 * h + 1]);");
  }

  void print_all_sums() {
    const kernels::MatrixKernel& k = f_.kernel;
    const int pitch = k.columns + kernels::kSumPadding;
    if (gives_in_ring()) text_.line("cluster_sync();");  // no block waits for its ring any more
    text_.line(cat(sum_type(), "* const sums = (", sum_type(), "*)(shared + ", kernels::given_at(k), ");"));
    text_.line("#pragma unroll");
    text_.open("for (int h = 0; h < 2; ++h)");
    text_.line("const int line = group * 64 + thread / 32 % 4 * 16 + lane_id / 4 + h * 8;");
    text_.line(cat("const int owner = __shfl_sync(0xffffffff, line / ", lines(), ", 0);"));
    text_.line(cat(sum_type(), "* const to = sums + (rank * ", lines(), " + line % ", lines(), ") * ", pitch,
                   " + lane_id % 4 * 2;"));
    text_.line("#pragma unroll");
    text_.open(cat("for (int j = 0; j < ", k.columns / 8, "; ++j)"));
    const std::string pair = cat("acc[0][j * 4 + 2 * h], acc[0][j * 4 + 2 * h + 1]");
    text_.line(
        cat("if (owner == rank) *(", sum_type(), "2*)(to + j * 8) = make_", sum_type(), "2(", pair, ");"));
    text_.line(cat("else give_sums(to + j * 8, given_bar, owner, ", pair, ");"));
    text_.close();
    text_.close();
    const MatrixEpilogue::Part part{.rows = lines(),
                                    .columns = k.columns,
                                    .first_row = cat("rank * ", lines()),
                                    .first_column = "0",
                                    .thread = "thread",
                                    .threads = k.workers(),
                                    .together = 4,
                                    .given = static_cast<int>(split())};
    epilogue_.print_loads(part);
    text_.line(cat("named_sync(7, ", k.workers(), ");"));
    text_.line("barrier_wait(given_bar, 0);");
    epilogue_.print(part);
  }

  void print_chunks() {
    const kernels::MatrixKernel& k = f_.kernel;
    const int chunk = k.chunk(), pitch = chunk + kernels::kSumPadding, chunks = k.columns / chunk;
    text_.line(cat(sum_type(), "* const sums = (", sum_type(), "*)(shared + ", held(), " + group * ",
                   64 * pitch * 4, ");"));
    text_.line("#pragma unroll 1");
    text_.open(cat("for (int part = 0; part < ", halves() * chunks, "; ++part)"));
    text_.line("named_sync(1 + group, 128);");
    text_.line("#pragma unroll");
    text_.line(cat("for (int c = 0; c < ", halves() * chunks, "; ++c) if (c == part)"));
    text_.line("  #pragma unroll");
    text_.line(cat("  for (int j = 0; j < ", chunk / 8, "; ++j)"));
    text_.line("    #pragma unroll");
    text_.line("    " +
               put(cat("c / ", chunks), "0", pitch, cat("c % ", chunks, " * ", chunk / 8, " + j"), "j"));
    text_.line("named_sync(1 + group, 128);");
    const int parts = halves() * chunks;
    epilogue_.print(chunk_part("part"), parts > 1 ? std::optional(chunk_part("(part + 1)")) : std::nullopt,
                    cat("part + 1 < ", parts));
    text_.close();
  }

  // A thread waits once per part: every thread that has arrived has read the results of the part before the
  // previous one.
  void print_fragments() {
    const kernels::MatrixKernel& k = f_.kernel;
    const int sums = registers_.columns() / 2, chunks = k.columns / registers_.columns(),
              parts = halves() * chunks;
    text_.line("#pragma unroll 1");
    text_.open(cat("for (int part = 0; part < ", parts, "; ++part)"));
    text_.line(cat(sum_type(), " v[", sums, "];"));
    text_.line("#pragma unroll");
    text_.line(cat("for (int c = 0; c < ", parts, "; ++c) if (c == part)"));
    text_.line("  #pragma unroll");
    text_.line(cat("  for (int i = 0; i < ", sums, "; ++i) v[i] = acc[c / ", chunks, "][c % ", chunks, " * ",
                   sums, " + i];"));
    const std::string here = cat("lines + turn * ", 64 * line_bytes());
    epilogue_.print_fragments(fragment_part("part"), here);
    if (parts > 1) {
      text_.open(cat("if (part + 1 < ", parts, ")"));
      epilogue_.print_fragment_loads(fragment_part("(part + 1)"), false);
      text_.close();
    }
    text_.line("named_sync(1 + group, 128);");
    epilogue_.print_stores(fragment_part("part"), here);
    text_.line("turn ^= 1;");
    text_.close();
  }

  MatrixEpilogue::Part fragment_part(const std::string& part) const {
    return part_of(part, registers_.columns());
  }
  // The columns of a group's sums that are in shared memory at a time.
  MatrixEpilogue::Part chunk_part(const std::string& part) const { return part_of(part, f_.kernel.chunk()); }
  MatrixEpilogue::Part part_of(const std::string& part, int columns) const {
    const kernels::MatrixKernel& k = f_.kernel;
    const int chunks = k.columns / columns;
    return {.rows = 64,
            .columns = columns,
            .first_row = k.turns ? cat(part, " / ", chunks, " * 64") : "group * 64",
            .first_column = cat(part, " % ", chunks, " * ", columns),
            .thread = "thread % 128",
            .threads = 128,
            .together = together(),
            .free = registers_.free()};
  }

  MatrixFrame& f_;
  KernelText& text_;
  MatrixSide &a_, &b_;
  MatrixEpilogue& epilogue_;
  MatrixRows* const rows_;
  const bool dependent_;
  const kernels::GroupRegisters registers_;
};

}  // namespace

void print_wgmma(MatrixFrame& frame, MatrixSide& a, MatrixSide& b, MatrixEpilogue& epilogue, MatrixRows* rows,
                 bool dependent) {
  Printer(frame, a, b, epilogue, rows, dependent).print();
}

}  // namespace stridec::codegen::cuda
