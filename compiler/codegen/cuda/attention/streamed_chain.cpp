#include "compiler/codegen/cuda/attention/streamed_chain.h"

#include <algorithm>
#include <map>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cuda/attention/flash_mma.h"
#include "compiler/codegen/cuda/common/frame.h"
#include "compiler/codegen/cuda/common/prelude.h"
#include "compiler/codegen/cuda/matrix/matrix.h"
#include "compiler/codegen/key_range.h"
#include "compiler/kernels/streamed_chain.h"
#include "compiler/loop/walk.h"

namespace stridec::codegen::cuda {
namespace {

using kernels::Chain;
using kernels::StreamedChain;
using loop::BufferId;
using loop::Stmt;
using sym::Expr;

StreamedChain matched(const loop::Program& program, const loop::Nest& nest) {
  std::string reason;
  auto chain = kernels::match_streamed_chain(program, nest, &reason);
  STRIDEC_CHECK(chain.has_value(), cat("nest '", nest.name, "' is not a streamed chain: ", reason));
  return *std::move(chain);
}

// Generated variables:
//   first_row, row_count      the tile's first row and its number of rows
//   row_at[h]                 indices of the two rows of a thread
//   n0, column_count          the step's first column and its number of columns
//   s<i>[j][e], o<i>[j][e]    sums of the products of fill i, and over the columns
//   c<id>[j][e]               elements of a local buffer
// Element e of a block of 8 columns is of row e / 2 and column lane_id % 4 * 2 + e % 2.
class Emitter {
 public:
  Emitter(const loop::Program& program, const loop::Nest& nest, bool wide)
      : program_(program),
        chain_(matched(program, nest)),
        plan_(kernels::to_streamed_chain_plan(nest.schedule)),
        wide_(wide),
        text_(program, kCudaText) {
    for (const Chain::Part& part : chain_.chain.parts) bodies_.emplace(&part, Body(text_, part.nest));
    for (const StreamedChain::Fill& fill : chain_.fills) add_local(fill.part->nest.body);
    for (const Chain::Part* part : chain_.between) add_local(part->nest.body);
  }

  // Whether the factors' rows begin at multiples of 16 bytes, relative to the buffers, whatever the sizes.
  bool has_wide_rows() const {
    return std::ranges::all_of(chain_.fills, [&](const StreamedChain::Fill& fill) {
      bool ok = fill.depth * bytes() % 16 == 0;
      for (const kernels::Flash::Operand* operand : {&fill.row, &fill.column})
        for (Expr e : {operand->base, operand->line})
          ok = ok && (e.is_const(0) || program_.facts.known_divisor(e) * bytes() % 16 == 0);
      return ok;
    });
  }
  std::vector<BufferId> callers_factors() const {
    std::vector<BufferId> out;
    for (const StreamedChain::Fill& fill : chain_.fills)
      for (const kernels::Flash::Operand* operand : {&fill.row, &fill.column}) {
        const BufferId id = operand->load->access.buffer;
        if (is_callers(program_, id) && std::ranges::find(out, id) == out.end()) out.push_back(id);
      }
    return out;
  }

  DeviceKernel emit(const GpuTarget& target) {
    print(target.dependent_launch);
    const DType element = words() ? DType::kTF32 : chain_.dtype;
    Expr batches = 1;
    for (const loop::Dim& dim : chain_.chain.batch) batches *= dim.extent;
    Geometry geometry{.grid = {batches * row_tiles(), 1, 1}, .threads = threads()};
    geometry.shared_bytes = kernels::shared_bytes(plan_, chain_);
    geometry.dependent_launch = target.dependent_launch;
    return finish(text_, std::move(geometry),
                  cat(memory_declarations(), mma_declarations(element, element, DType::kF32),
                      words() ? words_declarations() : std::string_view(), load_lines_declarations()));
  }

 private:
  Expr row_tiles() const { return sym::ceildiv(chain_.chain.row.extent, plan_.rows); }
  int threads() const { return plan_.rows * 2; }
  static int padded(const StreamedChain::Fill& fill) { return static_cast<int>(kernels::padded(fill.depth)); }
  int bytes() const { return byte_size(chain_.dtype); }
  bool words() const { return bytes() == 4; }
  WordProducts word_products() { return {text_, chain_.dtype == DType::kF32}; }
  int line_bytes(const StreamedChain::Fill& fill) const { return bytes() * padded(fill); }
  int row_bytes() const {
    int bytes = 0;
    for (const StreamedChain::Fill& fill : chain_.fills) bytes += plan_.rows * line_bytes(fill);
    return bytes;
  }
  // Of a stage of the ring: all columns, or those of the fills before `fill`.
  int stage_bytes(size_t fill) const {
    int bytes = 0;
    for (size_t i = 0; i < fill; ++i) bytes += plan_.columns * line_bytes(chain_.fills[i]);
    return bytes;
  }
  int stage_bytes() const { return stage_bytes(chain_.fills.size()); }

  void add_local(const loop::Block& body) {
    loop::for_each_stmt(body, [&](const Stmt& stmt) {
      const auto* store = std::get_if<loop::Store>(&stmt.node);
      if (store && std::ranges::find(locals_, store->access.buffer) == locals_.end())
        locals_.push_back(store->access.buffer);
    });
  }
  static std::string name_of(BufferId local) { return cat("c", local.value); }

  // A part's body, in which elements of local buffers are registers.
  Body body_of(const Chain::Part& part) {
    Body body = bodies_.at(&part);
    body.place = [this](const loop::Access& access) -> std::string {
      if (std::ranges::find(locals_, access.buffer) == locals_.end()) return {};
      return cat(name_of(access.buffer), "[j][2 * h + w]");
    };
    return body;
  }

  // for (h, j, w), with `at` the column of a block of `count` columns.
  void open_elements(int count) {
    text_.line("#pragma unroll");
    text_.open(cat("for (int j = 0; j < ", count / 8, "; ++j)"));
    text_.line("#pragma unroll");
    text_.open("for (int w = 0; w < 2; ++w)");
    text_.line("const int at = j * 8 + lane_id % 4 * 2 + w;");
  }
  void close_elements() {
    text_.close();
    text_.close();
  }
  void open_rows() {
    text_.line("#pragma unroll");
    text_.open("for (int h = 0; h < 2; ++h)");
  }
  static std::string column() { return "(n0 + (at < column_count ? at : 0))"; }

  void print(bool dependent) {
    text_.line("extern __shared__ __align__(1024) unsigned char shared[];");
    text_.line("const int thread = threadIdx.x, lane_id = thread % 32, warp = thread / 32;");
    if (dependent) {
      text_.line("launch_dependents();");
      text_.line("wait_predecessor();");
    }
    print_tile();
    print_operands();
    for (size_t i = 0; i < chain_.fills.size(); ++i)
      print_load(i, false, cat("a", i, "_tile"), "first_row", "row_count");
    print_step_load("begin", "0");
    text_.line("commit_copies();");
    for (size_t i = 0; i < chain_.sums.size(); ++i)
      text_.line(cat("float o", i, "[", padded(chain_.fills[chain_.sums[i].fill]) / 8, "][4] = {};"));
    text_.line("int stage = 0;");
    text_.line("#pragma unroll 1");
    text_.open(cat("for (int64_t n0 = begin; n0 < end; n0 += ", plan_.columns, ")"));
    text_.line(cat("const int column_count = (int)(end - n0 < ", plan_.columns,
                   " ? end - n0 : ", plan_.columns, ");"));
    text_.line("wait_copies<0>();");
    text_.line("__syncthreads();");
    text_.open(cat("if (n0 + ", plan_.columns, " < end)"));
    print_step_load(cat("(n0 + ", plan_.columns, ")"), "(1 - stage)");
    text_.close();
    text_.line("commit_copies();");
    for (const BufferId id : locals_)
      text_.line(
          cat(text_.storage_type(program_[id].dtype), " ", name_of(id), "[", plan_.columns / 8, "][4];"));
    for (size_t i = 0; i < chain_.fills.size(); ++i) print_fill(i);
    for (const Chain::Part* part : chain_.between) print_rows(*part);
    for (size_t i = 0; i < chain_.sums.size(); ++i) print_sum(i);
    text_.line("stage = 1 - stage;");
    text_.close();
    text_.line("wait_copies<0>();");
    for (size_t i = 0; i < chain_.sums.size(); ++i) print_result(i);
  }

  // Declares the tile's batch point and rows, and its columns [begin, end). Tiles with the most columns come
  // first.
  void print_tile() {
    const auto& range = chain_.range;
    text_.line(cat("const int64_t row_tiles = ", text_.size(row_tiles()), ";"));
    text_.line("int64_t rest = blockIdx.x / row_tiles;");
    std::vector<Body*> bodies;
    for (auto& [part, body] : bodies_) bodies.push_back(&body);
    print_indices(text_, bodies, chain_.chain.batch);
    const std::string rows = text_.size(chain_.chain.row.extent), columns = text_.size(chain_.columns);
    text_.line(cat("const int64_t first_row = (", range && range->end ? "row_tiles - 1 - " : "",
                   "blockIdx.x % row_tiles) * ", plan_.rows, ";"));
    text_.line(cat("const int row_count = (int)(", rows, " - first_row < ", plan_.rows, " ? ", rows,
                   " - first_row : ", plan_.rows, ");"));
    text_.line(cat("int64_t begin = 0, end = ", columns, ";"));
    if (range && range->end) {
      text_.line(cat("const int64_t shown = first_row + row_count - 1 + (", text_.size(*range->end), ");"));
      text_.line("end = shown < 0 ? 0 : shown < end ? shown : end;");
    }
    if (range && range->first) {
      text_.line(cat("const int64_t shown = first_row + (", text_.size(*range->first), ");"));
      text_.line(cat("begin = shown < 0 ? 0 : shown / ", plan_.columns, " * ", plan_.columns, ";"));
    }
    text_.line("const int warp_row = warp * 16 + lane_id / 4;");
    text_.line("int64_t row_at[2];");
    text_.line("#pragma unroll");
    text_.line(
        "for (int h = 0; h < 2; ++h) row_at[h] = first_row + (warp_row + h * 8 < row_count ? warp_row + h * "
        "8 : "
        "row_count - 1);");
    for (Body* body : bodies) body->set_index(chain_.chain.row.var, "row_at[h]");
  }

  // Declares, of each fill, pointers to its factors, the distance of their lines, and their places in shared
  // memory.
  void print_operands() {
    int at = 0;
    for (size_t i = 0; i < chain_.fills.size(); ++i) {
      const StreamedChain::Fill& fill = chain_.fills[i];
      for (const bool column : {false, true}) {
        const kernels::Flash::Operand& operand = column ? fill.column : fill.row;
        const std::string name = cat(column ? "b" : "a", i);
        const char* const bits = words() ? "unsigned" : "unsigned short";
        text_.line(cat("const ", bits, "* const ", name, "_from = (const ", bits, "*)",
                       text_.pointer(operand.load->access.buffer), " + ",
                       bodies_.at(fill.part).index(operand.base), ";"));
        text_.line(cat("const int64_t ", name, "_line = ", text_.size(operand.line), ";"));
      }
      text_.line(cat("const unsigned a", i, "_tile = shared_address(shared) + ", at, ";"));
      at += plan_.rows * line_bytes(fill);
    }
    text_.line(cat("const unsigned ring = shared_address(shared) + ", row_bytes(), ";"));
  }

  void print_load(size_t fill, bool column, const std::string& to, const std::string& first,
                  const std::string& count) {
    const std::string name = cat(column ? "b" : "a", fill);
    text_.line(cat("load_lines<", column ? plan_.columns : plan_.rows, ", ", padded(chain_.fills[fill]), ", ",
                   chain_.fills[fill].depth, ", ", threads(), ", ", wide_ ? "true" : "false", ">(", to, ", ",
                   name, "_from + ", first, " * ", name, "_line, ", name, "_line, ", count, ", thread);"));
  }

  void print_step_load(const std::string& first, const std::string& stage) {
    for (size_t i = 0; i < chain_.fills.size(); ++i)
      print_load(i, true, cat("ring + ", stage, " * ", stage_bytes(), " + ", stage_bytes(i)), first,
                 cat("end - ", first));
  }

  // The product of the tile's rows and the step's columns, and the statements after it.
  void print_fill(size_t i) {
    const StreamedChain::Fill& fill = chain_.fills[i];
    const int bytes = line_bytes(fill);
    text_.line(
        cat("const unsigned b", i, "_tile = ring + stage * ", stage_bytes(), " + ", stage_bytes(i), ";"));
    text_.line(cat(
        "const unsigned a", i,
        "_lane = ", place(cat("a", i, "_tile"), bytes, "warp * 16 + lane_id % 16", "lane_id / 16 * 16"),
        ", b", i, "_lane = ",
        place(cat("b", i, "_tile"), bytes, "lane_id % 8 + lane_id / 16 * 8", "lane_id / 8 % 2 * 16"), ";"));
    if (words())
      word_products().print_products(cat("s", i), cat("small", i), plan_.columns, padded(fill), bytes,
                                     cat("a", i, "_lane"), cat("b", i, "_lane"));
    else
      print_product(i);
    open_rows();
    open_elements(plan_.columns);
    Body body = body_of(*fill.part);
    body.set_index(fill.part->link->columns[0].var, column());
    body.set_value(fill.part->link->contraction.reduce->results[0],
                   {.text = cat("s", i, "[j][2 * h + w]"), .dtype = DType::kF32});
    for (const Stmt* stmt : slice(fill.part->nest.body, fill.part->link->contraction.at, {}, true))
      body.print(*stmt);
    close_elements();
    text_.close();
  }

  // Of 16-bit elements.
  void print_product(size_t i) {
    const StreamedChain::Fill& fill = chain_.fills[i];
    const int bytes = line_bytes(fill);
    text_.line(cat("float s", i, "[", plan_.columns / 8, "][4] = {};"));
    text_.line("#pragma unroll");
    text_.open(cat("for (int k = 0; k < ", padded(fill), "; k += 16)"));
    text_.line("unsigned a[4];");
    text_.line(cat("load_matrices(a, ", place_on(cat("a", i, "_lane"), bytes, "0", "k * 2"), ");"));
    text_.line("#pragma unroll");
    text_.open(cat("for (int j = 0; j < ", plan_.columns / 16, "; ++j)"));
    text_.line("unsigned b[4];");
    text_.line(cat("load_matrices(b, ", place_on(cat("b", i, "_lane"), bytes, "j * 16", "k * 2"), ");"));
    text_.line(cat("multiply(s", i, "[2 * j], a, b[0], b[1]);"));
    text_.line(cat("multiply(s", i, "[2 * j + 1], a, b[2], b[3]);"));
    text_.close();
    text_.close();
  }

  void print_rows(const Chain::Part& part) {
    open_rows();
    Body body = body_of(part);
    for (const Stmt& stmt : part.nest.body) {
      const auto* loop = std::get_if<loop::For>(&stmt.node);
      if (!loop) {
        body.print(stmt);
        continue;
      }
      open_elements(plan_.columns);
      Body inner = body;
      inner.set_index(loop->dims[0].var, column());
      for (const Stmt& each : loop->body) inner.print(each);
      close_elements();
    }
    text_.close();
  }

  // Adds the product of a local buffer and the step's columns. Columns past the last one count as zeros.
  void print_sum(size_t i) {
    const StreamedChain::Sum& sum = chain_.sums[i];
    const StreamedChain::Fill& fill = chain_.fills[sum.fill];
    const int bytes = line_bytes(fill);
    const std::string weights = name_of(sum.weights);
    text_.open(cat("if (column_count < ", plan_.columns, ")"));
    text_.line("#pragma unroll");
    text_.open(cat("for (int j = 0; j < ", plan_.columns / 8, "; ++j)"));
    text_.line("#pragma unroll");
    text_.line(cat("for (int e = 0; e < 4; ++e) if (j * 8 + lane_id % 4 * 2 + e % 2 >= column_count) ",
                   weights, "[j][e] = 0;"));
    text_.close();
    text_.close();
    text_.open("");
    const std::string tile = cat("b", sum.fill, "_tile");
    if (words()) {
      const auto weight = [&](const std::string& at) {
        return chain_.dtype == DType::kTF32 ? cat("__builtin_bit_cast(float, ", weights, at, ")")
                                            : weights + at;
      };
      word_products().print_sums(cat("o", i), weight, plan_.columns, padded(fill), bytes, tile);
      return text_.close();
    }
    text_.line(cat("const unsigned b_lane = ",
                   place(tile, bytes, "lane_id % 8 + lane_id / 8 % 2 * 8", "lane_id / 16 * 16"), ";"));
    text_.line("#pragma unroll");
    text_.open(cat("for (int k = 0; k < ", plan_.columns / 16, "; ++k)"));
    text_.line("unsigned a[4];");
    text_.line("#pragma unroll");
    text_.line(cat("for (int i = 0; i < 4; ++i) a[i] = ", weights, "[2 * k + i / 2][i % 2 * 2] | (unsigned)",
                   weights, "[2 * k + i / 2][i % 2 * 2 + 1] << 16;"));
    text_.line("#pragma unroll");
    text_.open(cat("for (int j = 0; j < ", padded(fill) / 16, "; ++j)"));
    text_.line("unsigned b[4];");
    text_.line(cat("load_transposed(b, ", place_on("b_lane", bytes, "k * 16", "j * 32"), ");"));
    text_.line(cat("multiply(o", i, "[2 * j], a, b[0], b[1]);"));
    text_.line(cat("multiply(o", i, "[2 * j + 1], a, b[2], b[3]);"));
    text_.close();
    text_.close();
    text_.close();
  }

  // The statements after a sum over the columns.
  void print_result(size_t i) {
    const StreamedChain::Sum& sum = chain_.sums[i];
    const StreamedChain::Fill& fill = chain_.fills[sum.fill];
    open_rows();
    text_.open("if (warp_row + h * 8 < row_count)");
    open_elements(padded(fill));
    if (fill.depth % 16) text_.open(cat("if (at < ", fill.depth, ")"));
    Body body = body_of(*sum.part);
    body.set_index(sum.part->link->columns[0].var, "(int64_t)at");
    body.set_value(sum.part->link->contraction.reduce->results[0],
                   {.text = cat("o", i, "[j][2 * h + w]"), .dtype = DType::kF32});
    for (const Stmt* stmt : slice(sum.part->nest.body, sum.part->link->contraction.at, {}, true))
      body.print(*stmt);
    if (fill.depth % 16) text_.close();
    close_elements();
    text_.close();
    text_.close();
  }

  const loop::Program& program_;
  const StreamedChain chain_;
  const kernels::StreamedChainPlan plan_;
  const bool wide_;
  KernelText text_;
  std::map<const Chain::Part*, Body> bodies_;
  std::vector<BufferId> locals_;
};

}  // namespace

DeviceNest emit_streamed_chain(const loop::Program& program, const loop::Nest& nest,
                               const GpuTarget& target) {
  DeviceNest out;
  for (const bool wide : {true, false}) {
    Emitter emitter(program, nest, wide);
    if (wide && !emitter.has_wide_rows()) continue;
    DeviceChoice& choice = out.choices.emplace_back();
    if (wide) choice.aligned = emitter.callers_factors();
    choice.launches.push_back(emitter.emit(target));
    if (out.is_complete()) break;
  }
  return out;
}

}  // namespace stridec::codegen::cuda
