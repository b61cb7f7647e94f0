#include "compiler/codegen/cuda/attention/flash_backward_frame.h"

#include <algorithm>
#include <numbers>
#include <set>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cuda/common/prelude.h"
#include "compiler/codegen/cuda/matrix/matrix.h"
#include "compiler/codegen/cuda/matrix/matrix_wgmma_text.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"

namespace stridec::codegen::cuda {

using kernels::Flash;
using kernels::FlashBackward;
using loop::Stmt;
using loop::Store;
using sym::Expr;

namespace {

constexpr std::string_view kLoads = R"(
static inline void load_eight(float (&to)[8], const unsigned short* from) {
  const uint4 v = *(const uint4*)from;
  const unsigned words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) to[2 * i] = low_of(words[i]), to[2 * i + 1] = high_of(words[i]);
}
)";
constexpr std::string_view kWideLoads = R"(
static inline void load_eight(float (&to)[8], const float* from) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint4 v = ((const uint4*)from)[i];
    const unsigned words[4] = {v.x, v.y, v.z, v.w};
    for (int j = 0; j < 4; ++j) to[4 * i + j] = __builtin_bit_cast(float, words[j]);
  }
}
)";

}  // namespace

BackwardFrame::BackwardFrame(const loop::Program& program, const loop::Nest& nest, const FlashBackward& flash,
                             int tile_rows, int tile_keys, Expr at)
    : program(program), nest(nest), flash(flash), tile_rows(tile_rows), tile_keys(tile_keys) {
  heads = loop::extent_of(flash.batch);
  row_tiles = sym::ceildiv(flash.row.extent, tile_rows);
  const Expr bytes = heads * row_tiles * tile_rows * 4;
  sums = sym::align_up(at, 256);
  deltas = sums + bytes;
  end = deltas + bytes;
}

bool BackwardFrame::add_sources(DeviceChoice& choice, std::vector<Expr>& conditions) {
  const sym::Facts facts = loop::facts_of(program, nest);
  const Expr lines[] = {flash.row.extent, flash.row.extent, flash.keys.extent, flash.keys.extent};
  const Flash::Operand* const factors[] = {&flash.q, &flash.grad, &flash.k, &flash.v};
  for (size_t i = 0; i < 4; ++i) {
    auto source = flash_source(flash.dtype, flash.batch, *factors[i], flash.depth, lines[i],
                               i < 2 ? tile_rows : tile_keys, facts);
    if (!source) return false;
    for (Expr extent : source->map.dims) {
      conditions.push_back(sym::ge(extent, 1));
      conditions.push_back(sym::le(extent, 0x7fff0000));
    }
    add_aligned(choice, *factors[i]);
    sources_.push_back(*std::move(source));
  }
  add_aligned(choice, flash.o);
  return true;
}

void BackwardFrame::add_aligned(DeviceChoice& choice, const Flash::Operand& factor) const {
  const loop::BufferId id = factor.load->access.buffer;
  if (is_callers(program, id) &&
      std::find(choice.aligned.begin(), choice.aligned.end(), id) == choice.aligned.end())
    choice.aligned.push_back(id);
}

void BackwardFrame::print_sizes(KernelText& text) const {
  const auto integer = [&](Expr e) { return cat("(int)", text.size(e)); };
  text.line("Backward a;");
  text.line(cat("a.rows = ", integer(flash.row.extent), ", a.keys = ", integer(flash.keys.extent),
                ", a.row_tiles = ", integer(row_tiles), ", a.heads = ", integer(heads), ";"));
  text.line(cat("a.seen = ", flash.seen ? integer(*flash.seen) : "0", ";"));
  text.line(
      cat("a.scale = ", float_literal(static_cast<float>(flash.scale * std::numbers::log2e), true), ";"));
  text.line(cat("a.sums = (float*)(workspace + ", text.size(sums), "), a.deltas = (float*)(workspace + ",
                text.size(deltas), ");"));
}

void BackwardFrame::print_place(KernelText& text, Body& body, const std::string& head) const {
  if (flash.batch.empty()) return;
  text.line(cat("int64_t rest = ", head, ";"));
  print_indices(text, body, flash.batch);
}

void BackwardFrame::print_copies(KernelText& text, Body& body) const {
  std::string fields;
  for (size_t d = 0; d < flash.batch.size(); ++d) fields += cat(d ? ", t" : "t", d);
  text.line(cat("struct Place { int64_t ", fields.empty() ? "none" : fields, "; };"));
  text.open("const auto locate = [&](int head) -> Place");
  if (!flash.batch.empty()) {
    text.line("int64_t rest = head;");
    for (size_t d = flash.batch.size(); d-- > 0;) {
      const std::string extent = text.size(flash.batch[d].extent);
      text.line(cat("const int64_t t", d, " = ", d ? cat("rest % ", extent) : "rest", ";"));
      if (d) text.line(cat("rest /= ", extent, ";"));
      body.set_index(flash.batch[d].var, cat("at.t", d));
    }
  }
  text.line(cat("return {", fields.empty() ? "0" : fields, "};"));
  text.close(";");
  text.open("const auto load = [&](int factor, unsigned to, unsigned bar, int row, const Place& at)");
  for (size_t i = 0; i < sources_.size(); ++i) {
    std::string coordinates;
    for (Expr e : sources_[i].coordinates) coordinates += cat(", (int)(", body.index(e), ")");
    text.open(cat("if (factor == ", i, ")"));
    for (int64_t slab = 0; slab < flash.depth / 64; ++slab)
      text.line(cat("copy_box", sources_[i].map.dims.size(), "(to + ",
                    slab * 128 * (i < 2 ? tile_rows : tile_keys), ", &map", i, ", bar, ", slab * 64, ", row",
                    coordinates, ");"));
    text.close();
  }
  text.close(";");
}

void BackwardFrame::print_stores(KernelText& text, const Body& body,
                                 const std::vector<const FlashBackward::Result*>& results) const {
  const auto print_each = [&](const std::string& signature, const auto& print) {
    text.open(cat("const auto ", signature));
    for (size_t i = 0; i < results.size(); ++i) {
      text.open(cat("if (result == ", i, ")"));
      Body own = body;
      own.set_index(results[i]->line.var, "(int64_t)line");
      print(*results[i], own);
      text.close();
    }
  };
  const std::string place = "int result, const Place& at, int line, int column, ";
  print_each(cat("store = [&](", place, "float x, float y)"),
             [&](const FlashBackward::Result& result, const Body& own) { print_pair(text, own, result); });
  text.close(";");
  print_each(cat("pair = [&](", place, "float x, float y) -> unsigned"),
             [&](const FlashBackward::Result& result, const Body& own) {
               if (!is_wide(result)) return;
               print_words(text, own, result, aligned_stores(result, 2));
               text.line("return pair0[0] | (unsigned)pair0[1] << 16;");
             });
  text.line("return 0u;");
  text.close(";");
  print_each(cat("put = [&](", place, "uint4 words)"), [&](const FlashBackward::Result& result,
                                                           const Body& own) {
    if (!is_wide(result)) return;
    const loop::Access& access = aligned_stores(result, 8)[0]->access;
    Body there = own;
    there.set_index(result.column.var, "(int64_t)column");
    text.line(cat("*(uint4*)(", text.pointer(access.buffer), " + (", there.offset(access), ")) = words;"));
  });
  text.close(";");
  unsigned wide = 0;
  for (size_t i = 0; i < results.size(); ++i) wide |= unsigned{is_wide(*results[i])} << i;
  text.line(cat("const Output out{store, pair, put, ", wide, "u};"));
}

void BackwardFrame::print_pair(KernelText& text, const Body& base,
                               const FlashBackward::Result& result) const {
  const std::vector<const Store*> paired = aligned_stores(result, 2);
  print_words(text, base, result, paired);
  for (size_t i = 0; i < paired.size(); ++i) {
    Body there = base;
    there.set_index(result.column.var, "(int64_t)column");
    text.line(cat("*(unsigned*)(", text.pointer(paired[i]->access.buffer), " + (",
                  there.offset(paired[i]->access), ")) = pair", i, "[0] | (unsigned)pair", i, "[1] << 16;"));
  }
}

void BackwardFrame::print_words(KernelText& text, const Body& base, const FlashBackward::Result& result,
                                const std::vector<const Store*>& paired) const {
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
}

std::vector<const Store*> BackwardFrame::aligned_stores(const FlashBackward::Result& result,
                                                        int lanes) const {
  std::vector<const Store*> out;
  for (const Stmt* stmt : result.statements) {
    const auto* store = std::get_if<Store>(&stmt->node);
    if (!store || store->update || !store->access.mask.is_const(1) ||
        byte_size(program[store->access.buffer].dtype) != 2 || is_callers(program, store->access.buffer))
      continue;
    const auto at =
        sym::linear_in(kernels::offset_of(program, store->access, program.facts), result.column.var);
    if (at && at->coefficient.is_const(1) && program.facts.known_divisor(at->rest) % lanes == 0)
      out.push_back(store);
  }
  return out;
}

bool BackwardFrame::is_wide(const FlashBackward::Result& result) const {
  const auto stores = std::count_if(result.statements.begin(), result.statements.end(), [](const Stmt* stmt) {
    return std::holds_alternative<Store>(stmt->node);
  });
  return stores == 1 && aligned_stores(result, 8).size() == 1;
}

DeviceKernel BackwardFrame::rows_kernel(const std::string& declared,
                                        const std::function<void(KernelText&)>& print_fields,
                                        const std::vector<std::string>& clear, Expr workspace_bytes) const {
  KernelText text(program, kCudaText);
  Body body(text, nest);
  const auto each = flash.depth / 8, at_once = 128 / each;
  const Expr blocks = sym::ceildiv(row_tiles * tile_rows, at_once);
  print_sizes(text);
  if (print_fields) print_fields(text);
  text.line(cat("const int blocks = (int)", text.size(blocks), ", head = blockIdx.x / blocks;"));
  text.line(cat("const int row = blockIdx.x % blocks * ", at_once, " + threadIdx.x / ", each,
                ", part = threadIdx.x % ", each, ";"));
  print_place(text, body, "head");
  text.line("float sum = 0;");
  text.open("if (row < a.rows)");
  body.set_index(flash.row.var, "(int64_t)row");
  const auto pointer = [&](const Flash::Operand& operand) {
    return cat(text.pointer(operand.load->access.buffer), " + (", body.index(operand.base),
               ") + (int64_t)row * (", text.size(operand.line), ") + part * 8");
  };
  text.line("float x[8], y[8];");
  text.line(cat("load_eight(x, ", pointer(flash.o), ");"));
  text.line(cat("load_eight(y, ", pointer(flash.grad), ");"));
  text.line("#pragma unroll");
  text.line("for (int i = 0; i < 8; ++i) sum += x[i] * y[i];");
  text.close();
  text.line("#pragma unroll");
  text.line(cat("for (int i = ", each / 2, "; i > 0; i /= 2) sum += __shfl_xor_sync(~0u, sum, i);"));
  text.open("if (part == 0 && row < a.row_tiles * kRows)");
  text.line("float shift = __builtin_inff();");
  text.open("if (row < a.rows)");
  body.print({*log_sum_exp()});
  text.line(cat("const float natural = ", body.value(flash.log_sum_exp->result).text, ";"));
  // Infinite: the weights of a row that sees nothing are 0.
  text.line(cat("if (natural != -__builtin_inff()) shift = natural * ",
                float_literal(static_cast<float>(std::numbers::log2e), true), ";"));
  text.close();
  text.line("const int64_t at = (int64_t)head * a.row_tiles * kRows + row;");
  text.line("a.sums[at] = shift;");
  text.line("a.deltas[at] = sum;");
  for (const std::string& line : clear) text.line(line);
  text.close();
  return finish(text, {.grid = {blocks * heads, 1, 1}, .threads = 128, .workspace_bytes = workspace_bytes},
                cat(declared, kLoads, flash.o_dtype == DType::kF32 ? kWideLoads : ""));
}

std::string BackwardFrame::add_maps(Geometry& geometry) const {
  std::string declared = memory_declarations() + barrier_declarations();
  std::set<size_t> dims;
  for (const FlashSource& source : sources_) {
    geometry.maps.push_back(source.map);
    dims.insert(source.map.dims.size());
  }
  for (const size_t count : dims) declared += box_declarations(count);
  return declared;
}

// The statement that loads the row's log-sum-exp.
const Stmt* BackwardFrame::log_sum_exp() const {
  const Stmt* out = nullptr;
  loop::for_each_stmt(nest.body, [&](const Stmt& stmt) {
    if (std::get_if<loop::Load>(&stmt.node) == flash.log_sum_exp) out = &stmt;
  });
  STRIDEC_CHECK(out != nullptr);
  return out;
}

}  // namespace stridec::codegen::cuda
