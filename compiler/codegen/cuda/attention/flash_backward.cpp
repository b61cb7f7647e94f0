#include "compiler/codegen/cuda/attention/flash_backward.h"

#include <algorithm>
#include <numbers>
#include <set>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cuda/attention/flash_backward_text.h"
#include "compiler/codegen/cuda/attention/flash_source.h"
#include "compiler/codegen/cuda/common/frame.h"
#include "compiler/codegen/cuda/common/prelude.h"
#include "compiler/codegen/cuda/matrix/matrix.h"
#include "compiler/codegen/cuda/matrix/matrix_wgmma.h"
#include "compiler/codegen/cuda/points/points.h"
#include "compiler/kernels/flash_backward.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"

namespace stridec::codegen::cuda {
namespace {

using kernels::Flash;
using kernels::FlashBackward;
using loop::Stmt;
using loop::Store;
using sym::Expr;

// Heads whose tiles run side by side: with more, the f32 sums of dQ leave the L2; with fewer, tiles wait
// for turns (tests/gpu/attention_backward).
int section_of(const FlashBackward& flash) { return !flash.seen ? 8 : flash.depth == 64 ? 32 : 16; }

class Emitter {
 public:
  Emitter(const loop::Program& program, const loop::Nest& nest, FlashBackward flash)
      : program_(program), nest_(nest), flash_(std::move(flash)), sizes_{flash_.depth} {
    heads_ = loop::extent_of(flash_.batch);
    row_tiles_ = sym::ceildiv(flash_.row.extent, sizes_.rows());
    key_tiles_ = sym::ceildiv(flash_.keys.extent, BackwardSizes::keys);
    turns_ = 64;
    sums_ = sym::align_up(turns_ + 4 * heads_ * row_tiles_, 256);
    const Expr rows = heads_ * row_tiles_ * sizes_.rows();
    deltas_ = sums_ + 4 * rows;
    parts_ = deltas_ + 4 * rows;
    bytes_ = parts_ + heads_ * row_tiles_ * (2 * 64 * 64 * 4);
  }

  std::optional<DeviceChoice> emit(const GpuTarget& target) {
    DeviceChoice choice;
    std::vector<Expr> conditions = {sym::le(heads_ * row_tiles_ * 2, 0x3fff0000),
                                    sym::le(heads_ * key_tiles_, 0x3fff0000)};
    const sym::Facts facts = loop::facts_of(program_, nest_);
    const Expr lines[] = {flash_.row.extent, flash_.row.extent, flash_.keys.extent, flash_.keys.extent};
    const Flash::Operand* const factors[] = {&flash_.q, &flash_.grad, &flash_.k, &flash_.v};
    for (size_t i = 0; i < 4; ++i) {
      const int box = i < 2 ? sizes_.rows() : BackwardSizes::keys;
      auto source = flash_source(flash_.dtype, flash_.batch, *factors[i], flash_.depth, lines[i], box, facts);
      if (!source) return std::nullopt;
      for (Expr extent : source->map.dims) {
        conditions.push_back(sym::ge(extent, 1));
        conditions.push_back(sym::le(extent, 0x7fff0000));
      }
      add_aligned(choice, *factors[i]);
      sources_.push_back(*std::move(source));
    }
    add_aligned(choice, flash_.o);
    choice.condition = sym::simplify(sym::logical_and(conditions), program_.facts);
    if (choice.condition.is_const(0)) return std::nullopt;
    choice.launches = {rows_kernel(), main_kernel(target), dq_kernel()};
    return choice;
  }

 private:
  void add_aligned(DeviceChoice& choice, const Flash::Operand& factor) const {
    const loop::BufferId id = factor.load->access.buffer;
    if (is_callers(program_, id) &&
        std::find(choice.aligned.begin(), choice.aligned.end(), id) == choice.aligned.end())
      choice.aligned.push_back(id);
  }

  // ---- what the launches share ----

  std::string declarations() const {
    return flash_backward_sizes(sizes_, flash_.dtype, flash_.seen.has_value());
  }

  void print_sizes(KernelText& text) const {
    const auto integer = [&](Expr e) { return cat("(int)", text.size(e)); };
    text.line("Backward a;");
    text.line(cat("a.rows = ", integer(flash_.row.extent), ", a.keys = ", integer(flash_.keys.extent),
                  ", a.row_tiles = ", integer(row_tiles_), ", a.key_tiles = ", integer(key_tiles_),
                  ", a.heads = ", integer(heads_), ";"));
    text.line(cat("a.section = a.heads < ", section_of(flash_), " ? a.heads : ", section_of(flash_), ";"));
    text.line(cat("a.seen = ", flash_.seen ? integer(*flash_.seen) : "0", ";"));
    text.line(
        cat("a.scale = ", float_literal(static_cast<float>(flash_.scale * std::numbers::log2e), true), ";"));
    text.line(cat("a.ticket = (unsigned*)workspace, a.turns = (unsigned*)(workspace + ", text.size(turns_),
                  "), a.sums = (float*)(workspace + ", text.size(sums_),
                  "), a.deltas = (float*)(workspace + ", text.size(deltas_),
                  "), a.parts = (float*)(workspace + ", text.size(parts_), ");"));
  }

  // Sets the batch dims' indices from `head`, a C expression.
  void print_place(KernelText& text, Body& body, const std::string& head) const {
    if (flash_.batch.empty()) return;
    text.line(cat("int64_t rest = ", head, ";"));
    print_indices(text, body, flash_.batch);
  }

  // Prints the stores of two neighbouring elements x, y of a result, at columns `column` and `column + 1`.
  // The indices of the batch and the line are set.
  void print_pair(KernelText& text, const Body& base, const FlashBackward::Result& result) const {
    std::vector<const Store*> stores, paired;
    for (const Stmt* stmt : result.statements)
      if (const auto* store = std::get_if<Store>(&stmt->node)) {
        stores.push_back(store);
        if (pairs(*store, result.column.var)) paired.push_back(store);
      }
    for (size_t i = 0; i < paired.size(); ++i) text.line(cat("unsigned short pair", i, "[2];"));
    for (const int w : {0, 1}) {
      text.open("");
      Body body = base;
      body.set_index(result.column.var, w ? "(int64_t)(column + 1)" : "(int64_t)column");
      body.set_value(result.sum->results[0], {.text = w ? "y" : "x", .dtype = DType::kF32});
      body.place = [&](const loop::Access& access) -> std::string {
        for (size_t i = 0; i < paired.size(); ++i)
          if (&paired[i]->access == &access) return cat("pair", i, "[", w, "]");
        return {};
      };
      for (const Stmt* stmt : result.statements) body.print(*stmt);
      text.close();
    }
    for (size_t i = 0; i < paired.size(); ++i) {
      Body there = base;
      there.set_index(result.column.var, "(int64_t)column");
      text.line(cat("*(unsigned*)(", text.pointer(paired[i]->access.buffer), " + (",
                    there.offset(paired[i]->access), ")) = pair", i, "[0] | (unsigned)pair", i,
                    "[1] << 16;"));
    }
  }

  // Whether elements at even columns and their right neighbours are one aligned word.
  bool pairs(const Store& store, Expr column) const {
    if (byte_size(program_[store.access.buffer].dtype) != 2 || is_callers(program_, store.access.buffer))
      return false;
    const auto at = sym::linear_in(kernels::offset_of(program_, store.access, program_.facts), column);
    return at && at->coefficient.is_const(1) && program_.facts.known_divisor(at->rest) % 2 == 0;
  }

  // ---- the launches ----

  DeviceKernel rows_kernel() const {
    KernelText text(program_, kCudaText);
    Body body(text, nest_);
    const auto each = flash_.depth / 8, at_once = 128 / each;
    const Expr blocks = sym::ceildiv(row_tiles_ * sizes_.rows(), at_once);
    print_sizes(text);
    text.line(cat("const int blocks = (int)", text.size(blocks), ", head = blockIdx.x / blocks;"));
    text.line(cat("const int row = blockIdx.x % blocks * ", at_once, " + threadIdx.x / ", each,
                  ", part = threadIdx.x % ", each, ";"));
    print_place(text, body, "head");
    text.line("float sum = 0;");
    text.open("if (row < a.rows)");
    body.set_index(flash_.row.var, "(int64_t)row");
    const auto pointer = [&](const Flash::Operand& operand) {
      return cat(text.pointer(operand.load->access.buffer), " + (", body.index(operand.base), ") + row * (",
                 text.size(operand.line), ") + part * 8");
    };
    text.line("float x[8], y[8];");
    text.line(cat("load_eight(x, ", pointer(flash_.o), ");"));
    text.line(cat("load_eight(y, ", pointer(flash_.grad), ");"));
    text.line("#pragma unroll");
    text.line("for (int i = 0; i < 8; ++i) sum += x[i] * y[i];");
    text.close();
    text.line("#pragma unroll");
    text.line(cat("for (int i = ", each / 2, "; i > 0; i /= 2) sum += __shfl_xor_sync(~0u, sum, i);"));
    text.open("if (part == 0 && row < a.row_tiles * kRows)");
    text.line("float shift = __builtin_inff();");
    text.open("if (row < a.rows)");
    body.print({*log_sum_exp()});
    text.line(cat("const float natural = ", body.value(flash_.log_sum_exp->result).text, ";"));
    // Infinite: the weights of a row that sees nothing are 0.
    text.line(cat("if (natural != -__builtin_inff()) shift = natural * ",
                  float_literal(static_cast<float>(std::numbers::log2e), true), ";"));
    text.close();
    text.line("const int64_t at = (int64_t)head * a.row_tiles * kRows + row;");
    text.line("a.sums[at] = shift;");
    text.line("a.deltas[at] = sum;");
    text.line("if (row % kRows == 0) a.turns[at / kRows] = 0;");
    text.line("if (at == 0) *a.ticket = 0;");
    text.close();
    const std::string declared = cat(declarations(), kLoads, flash_.o_dtype == DType::kF32 ? kWideLoads : "");
    return finish(text, {.grid = {blocks * heads_, 1, 1}, .threads = 128, .workspace_bytes = bytes_},
                  declared);
  }

  DeviceKernel main_kernel(const GpuTarget& target) const {
    KernelText text(program_, kCudaText);
    text.line("extern __shared__ __align__(1024) unsigned char shared[];");
    const int bars = sizes_.barriers();
    text.line(cat("__shared__ alignas(8) unsigned long bars[", bars + 1, "];"));
    print_sizes(text);
    Body body(text, nest_);
    std::string fields;
    for (size_t d = 0; d < flash_.batch.size(); ++d) fields += cat(d ? ", t" : "t", d);
    text.line(cat("struct Place { int64_t ", fields.empty() ? "none" : fields, "; };"));
    text.open("const auto locate = [&](int head) -> Place");
    if (!flash_.batch.empty()) {
      text.line("int64_t rest = head;");
      for (size_t d = flash_.batch.size(); d-- > 0;) {
        const std::string extent = text.size(flash_.batch[d].extent);
        text.line(cat("const int64_t t", d, " = ", d ? cat("rest % ", extent) : "rest", ";"));
        if (d) text.line(cat("rest /= ", extent, ";"));
        body.set_index(flash_.batch[d].var, cat("at.t", d));
      }
    }
    text.line(cat("return {", fields.empty() ? "0" : fields, "};"));
    text.close(";");
    text.open("const auto load = [&](int factor, unsigned to, unsigned bar, int row, const Place& at)");
    for (size_t i = 0; i < sources_.size(); ++i) {
      std::string coordinates;
      for (Expr e : sources_[i].coordinates) coordinates += cat(", (int)(", body.index(e), ")");
      text.open(cat("if (factor == ", i, ")"));
      for (int64_t slab = 0; slab < flash_.depth / 64; ++slab)
        text.line(cat("copy_box", sources_[i].map.dims.size(), "(to + ",
                      slab * 128 * (i < 2 ? sizes_.rows() : BackwardSizes::keys), ", &map", i, ", bar, ",
                      slab * 64, ", row", coordinates, ");"));
      text.close();
    }
    text.close(";");
    text.open("const auto store = [&](int result, const Place& at, int key, int column, float x, float y)");
    for (const int which : {0, 1}) {
      const FlashBackward::Result& result = which ? flash_.dv : flash_.dk;
      text.open(cat("if (result == ", which, ")"));
      Body own = body;
      own.set_index(result.line.var, "(int64_t)key");
      print_pair(text, own, result);
      text.close();
    }
    text.close(";");
    text.line(
        cat("attention_backward(a, shared, bars, (volatile int*)(bars + ", bars, "), locate, load, store);"));
    Geometry geometry{.grid = {sym::min(heads_ * key_tiles_, target.multiprocessors), 1, 1},
                      .threads = BackwardSizes::threads,
                      .blocks_sm = 1};
    geometry.shared_bytes = sizes_.shared_bytes();
    geometry.workspace_bytes = bytes_;
    std::string declared = memory_declarations() + barrier_declarations();
    std::set<size_t> dims;
    for (const FlashSource& source : sources_) {
      geometry.maps.push_back(source.map);
      dims.insert(source.map.dims.size());
    }
    for (const size_t count : dims) declared += box_declarations(count);
    declared += declarations() + flash_backward_products(sizes_, flash_.dtype);
    return finish(text, std::move(geometry), declared);
  }

  DeviceKernel dq_kernel() const {
    KernelText text(program_, kCudaText);
    Body body(text, nest_);
    print_sizes(text);
    text.line(
        "const int unit = blockIdx.x % 2, tile = blockIdx.x / 2 % a.row_tiles, head = blockIdx.x / 2 / "
        "a.row_tiles;");
    text.line("const int lane_id = threadIdx.x % 32;");
    print_place(text, body, "head");
    text.line(
        "const uint4* const from = (const uint4*)(a.parts + (int64_t)blockIdx.x * 4096) + threadIdx.x;");
    text.line("const bool any = seen_key_tiles(a, tile) > 0;");
    text.line("#pragma unroll");
    text.open("for (int i = 0; i < 8; ++i)");
    text.line("uint4 sums = {0, 0, 0, 0};");
    text.line("if (any) sums = from[i * 128];");
    text.line("const int column = (kDepth == 128 ? unit * 64 : 0) + i * 8 + lane_id % 4 * 2;");
    text.line("#pragma unroll");
    text.open("for (int h = 0; h < 2; ++h)");
    text.line(
        "const int row = tile * kRows + (kDepth == 64 ? unit * 64 : 0) + threadIdx.x / 32 * 16 + lane_id / 4 "
        "+ h * 8;");
    text.line(
        "const float x = __builtin_bit_cast(float, h ? sums.z : sums.x), y = __builtin_bit_cast(float, h ? "
        "sums.w : "
        "sums.y);");
    text.open("if (row < a.rows)");
    body.set_index(flash_.row.var, "(int64_t)row");
    print_pair(text, body, flash_.dq);
    text.close();
    text.close();
    text.close();
    return finish(text, {.grid = {heads_ * row_tiles_ * 2, 1, 1}, .threads = 128, .workspace_bytes = bytes_},
                  declarations());
  }

  // The statement that loads the row's log-sum-exp.
  const Stmt* log_sum_exp() const {
    const Stmt* out = nullptr;
    loop::for_each_stmt(nest_.body, [&](const Stmt& stmt) {
      if (std::get_if<loop::Load>(&stmt.node) == flash_.log_sum_exp) out = &stmt;
    });
    STRIDEC_CHECK(out != nullptr);
    return out;
  }

  static constexpr std::string_view kLoads = R"(
static inline void load_eight(float (&to)[8], const unsigned short* from) {
  const uint4 v = *(const uint4*)from;
  const unsigned words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) to[2 * i] = low_of(words[i]), to[2 * i + 1] = high_of(words[i]);
}
)";
  static constexpr std::string_view kWideLoads = R"(
static inline void load_eight(float (&to)[8], const float* from) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint4 v = ((const uint4*)from)[i];
    const unsigned words[4] = {v.x, v.y, v.z, v.w};
    for (int j = 0; j < 4; ++j) to[4 * i + j] = __builtin_bit_cast(float, words[j]);
  }
}
)";

  const loop::Program& program_;
  const loop::Nest& nest_;
  const FlashBackward flash_;
  const BackwardSizes sizes_;
  Expr heads_, row_tiles_, key_tiles_;
  Expr turns_, sums_, deltas_, parts_, bytes_;  // offsets in the workspace, and its size
  std::vector<FlashSource> sources_;
};

}  // namespace

DeviceNest emit_flash_backward(const loop::Program& program, const loop::Nest& nest,
                               const GpuTarget& target) {
  std::string reason;
  auto flash = kernels::match_flash_backward(program, nest, &reason);
  STRIDEC_CHECK(flash.has_value(), cat("nest '", nest.name, "' is not a backward pass: ", reason));
  DeviceNest out;
  Emitter emitter(program, nest, *std::move(flash));
  if (auto choice = emitter.emit(target)) out.choices.push_back(*std::move(choice));
  if (!out.is_complete()) {
    loop::Nest plain = nest;
    plain.schedule = {};
    DeviceNest loops = emit_points(program, plain, target);
    // Scratch is reserved for any choice. The loops keep all scores there, so they ask for it only where
    // they run.
    const Expr runs = out.choices.empty() || !out.choices[0].aligned.empty()
                          ? Expr(1)
                          : sym::logical_not(out.choices[0].condition);
    for (DeviceChoice& choice : loops.choices) {
      for (DeviceKernel& kernel : choice.launches)
        kernel.workspace_bytes = sym::select(runs, kernel.workspace_bytes, 0);
      out.choices.push_back(std::move(choice));
    }
  }
  return out;
}

}  // namespace stridec::codegen::cuda
