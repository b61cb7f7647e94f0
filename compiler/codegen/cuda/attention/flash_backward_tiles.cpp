#include "compiler/codegen/cuda/attention/flash_backward_tiles.h"

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/attention/flash_backward_frame.h"
#include "compiler/codegen/cuda/attention/flash_backward_tiles_text.h"
#include "compiler/codegen/cuda/common/prelude.h"
#include "compiler/loop/analysis.h"

namespace stridec::codegen::cuda {
namespace {

using kernels::FlashBackward;
using sym::Expr;

// Heads whose tiles run side by side: with more, the f32 sums of dQ leave the L2; with fewer, tiles wait
// for turns (tests/gpu/attention_backward).
int section_of(const FlashBackward& flash) { return !flash.seen ? 8 : flash.depth == 64 ? 32 : 16; }

class Emitter {
 public:
  Emitter(const loop::Program& program, const loop::Nest& nest, const FlashBackward& flash)
      : flash_(flash),
        sizes_{flash.depth},
        frame_(program, nest, flash, sizes_.rows(), BackwardSizes::keys,
               kTurns + 4 * loop::extent_of(flash.batch) * sym::ceildiv(flash.row.extent, sizes_.rows())) {
    key_tiles_ = sym::ceildiv(flash_.keys.extent, BackwardSizes::keys);
    parts_ = frame_.end;
    bytes_ = parts_ + frame_.heads * frame_.row_tiles * (2 * 64 * 64 * 4);
  }

  std::optional<DeviceChoice> emit(const GpuTarget& target) {
    DeviceChoice choice;
    std::vector<Expr> conditions = {sym::le(frame_.heads * frame_.row_tiles * 8, 0x3fff0000),
                                    sym::le(frame_.heads * key_tiles_, 0x3fff0000)};
    if (!frame_.add_sources(choice, conditions)) return std::nullopt;
    choice.condition = sym::simplify(sym::logical_and(conditions), frame_.program.facts);
    if (choice.condition.is_const(0)) return std::nullopt;
    const DeviceKernel rows = frame_.rows_kernel(
        declarations(), [&](KernelText& text) { print_fields(text); },
        {"if (row % kRows == 0) a.turns[at / kRows] = 0;", "if (at == 0) *a.ticket = 0;"}, bytes_);
    choice.launches = {rows, main_kernel(target), dq_kernel()};
    return choice;
  }

 private:
  static constexpr int64_t kTurns = 64;  // the turns' offset in the workspace, after the ticket

  std::string declarations() const {
    return flash_backward_sizes(sizes_, flash_.dtype, flash_.seen.has_value());
  }

  void print_sizes(KernelText& text) const {
    frame_.print_sizes(text);
    print_fields(text);
  }
  void print_fields(KernelText& text) const {
    text.line(cat("a.key_tiles = (int)", text.size(key_tiles_), ";"));
    text.line(cat("a.section = a.heads < ", section_of(flash_), " ? a.heads : ", section_of(flash_), ";"));
    text.line(cat("a.ticket = (unsigned*)workspace, a.turns = (unsigned*)(workspace + ", kTurns,
                  "), a.parts = (float*)(workspace + ", text.size(parts_), ");"));
  }

  DeviceKernel main_kernel(const GpuTarget& target) const {
    KernelText text(frame_.program, kCudaText);
    text.line("extern __shared__ __align__(1024) unsigned char shared[];");
    const int bars = sizes_.barriers();
    text.line(cat("__shared__ alignas(8) unsigned long bars[", bars + 1, "];"));
    print_sizes(text);
    Body body(text, frame_.nest);
    frame_.print_copies(text, body);
    frame_.print_stores(text, body, {&flash_.dk, &flash_.dv});
    text.line(
        cat("attention_backward(a, shared, bars, (volatile int*)(bars + ", bars, "), locate, load, out);"));
    Geometry geometry{.grid = {sym::min(frame_.heads * key_tiles_, target.multiprocessors), 1, 1},
                      .threads = BackwardSizes::threads,
                      .blocks_sm = 1};
    geometry.shared_bytes = sizes_.shared_bytes();
    geometry.workspace_bytes = bytes_;
    std::string declared = frame_.add_maps(geometry);
    declared += declarations() + flash_backward_products(sizes_, flash_.dtype);
    return finish(text, std::move(geometry), declared);
  }

  DeviceKernel dq_kernel() const {
    KernelText text(frame_.program, kCudaText);
    Body body(text, frame_.nest);
    print_sizes(text);
    text.line(
        "const int unit = blockIdx.x % 2, tile = blockIdx.x / 2 % a.row_tiles, head = blockIdx.x / 2 / "
        "a.row_tiles;");
    text.line("const int lane_id = threadIdx.x % 32;");
    frame_.print_place(text, body, "head");
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
    frame_.print_pair(text, body, flash_.dq);
    text.close();
    text.close();
    text.close();
    return finish(
        text,
        {.grid = {frame_.heads * frame_.row_tiles * 2, 1, 1}, .threads = 128, .workspace_bytes = bytes_},
        declarations());
  }

  const FlashBackward& flash_;
  const BackwardSizes sizes_;
  BackwardFrame frame_;
  Expr key_tiles_;
  Expr parts_, bytes_;  // offset of dQ in f32 in the workspace, and the workspace's size
};

}  // namespace

std::optional<DeviceChoice> backward_of_tiles(const loop::Program& program, const loop::Nest& nest,
                                              const FlashBackward& flash, const GpuTarget& target) {
  return Emitter(program, nest, flash).emit(target);
}

}  // namespace stridec::codegen::cuda
