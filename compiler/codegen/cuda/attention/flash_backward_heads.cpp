#include "compiler/codegen/cuda/attention/flash_backward_heads.h"

#include <algorithm>

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/attention/flash_backward_frame.h"
#include "compiler/codegen/cuda/attention/flash_backward_heads_text.h"
#include "compiler/codegen/cuda/common/prelude.h"

namespace stridec::codegen::cuda {
namespace {

using kernels::FlashBackward;
using sym::Expr;

// As many tiles as the keys need; the most there are if the number of keys is not fixed.
int key_tiles_of(const FlashBackward& flash) {
  const int most = BackwardHeadSizes::most_key_tiles(flash.depth);
  const auto keys = sym::as_const(flash.keys.extent);
  return keys ? static_cast<int>(std::clamp<int64_t>((*keys + 63) / 64, 1, most)) : most;
}

class Emitter {
 public:
  Emitter(const loop::Program& program, const loop::Nest& nest, const FlashBackward& flash)
      : flash_(flash),
        sizes_{flash.depth, key_tiles_of(flash)},
        frame_(program, nest, flash, BackwardHeadSizes::rows, sizes_.keys(), 0) {}

  std::optional<DeviceChoice> emit(const GpuTarget& target) {
    DeviceChoice choice;
    std::vector<Expr> conditions = {sym::le(flash_.keys.extent, sizes_.keys()),
                                    sym::le(frame_.heads * frame_.row_tiles * 8, 0x3fff0000)};
    if (!frame_.add_sources(choice, conditions)) return std::nullopt;
    choice.condition = sym::simplify(sym::logical_and(conditions), frame_.program.facts);
    if (choice.condition.is_const(0)) return std::nullopt;
    choice.launches = {frame_.rows_kernel(declarations(), {}, {}, frame_.end), main_kernel(target)};
    return choice;
  }

 private:
  std::string declarations() const {
    return backward_head_sizes(sizes_, flash_.dtype, flash_.seen.has_value());
  }

  DeviceKernel main_kernel(const GpuTarget& target) const {
    KernelText text(frame_.program, kCudaText);
    text.line("extern __shared__ __align__(1024) unsigned char shared[];");
    text.line(cat("__shared__ alignas(8) unsigned long bars[", sizes_.barriers(), "];"));
    frame_.print_sizes(text);
    Body body(text, frame_.nest);
    frame_.print_copies(text, body);
    frame_.print_stores(text, body, {&flash_.dk, &flash_.dv, &flash_.dq});
    text.line("attention_backward(a, shared, bars, locate, load, out);");
    Geometry geometry{.grid = {sym::min(frame_.heads, target.multiprocessors * sizes_.blocks_sm()), 1, 1},
                      .threads = sizes_.threads(),
                      .blocks_sm = sizes_.blocks_sm()};
    geometry.shared_bytes = sizes_.shared_bytes();
    geometry.workspace_bytes = frame_.end;
    std::string declared = frame_.add_maps(geometry);
    declared += declarations() + backward_head_products(sizes_, flash_.dtype);
    return finish(text, std::move(geometry), declared);
  }

  const FlashBackward& flash_;
  const BackwardHeadSizes sizes_;
  BackwardFrame frame_;
};

}  // namespace

std::optional<DeviceChoice> backward_of_heads(const loop::Program& program, const loop::Nest& nest,
                                              const FlashBackward& flash, const GpuTarget& target) {
  return Emitter(program, nest, flash).emit(target);
}

}  // namespace stridec::codegen::cuda
