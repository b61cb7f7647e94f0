#include "compiler/codegen/cuda/attention/flash_source.h"

#include <algorithm>

#include "compiler/base/text.h"

namespace stridec::codegen::cuda {

using kernels::Flash;
using sym::Expr;

std::string numbered(const char* before, int count, const char* after) {
  std::string out;
  for (int i = 0; i < count; ++i) out += cat(i ? ", " : "", before, i, after);
  return out;
}

std::string flash_products(int keys, int width, DType dtype) {
  const char* type = dtype == DType::kF16 ? "f16" : "bf16";
  auto instruction = [&](int columns) {
    return cat("wgmma.mma_async.sync.aligned.m64n", columns, "k16.f32.", type, ".", type, " {",
               numbered("%", columns / 2, ""), "}, ");
  };
  auto sums = [](int count) { return numbered("\"+f\"(d[", count, "])"); };
  const int s = keys / 2, o = width / 2;
  return cat(
      "static inline void multiply_keys(float (&d)[", s,
      "], unsigned long a, unsigned long b, int keep) {\n  asm volatile(\"{\\n.reg .pred "
      "p;\\nsetp.ne.b32 p, %",
      s + 2, ", 0;\\n", instruction(keys), "%", s, ", %", s + 1, ", p, 1, 1, 0, 0;\\n}\"\n      : ", sums(s),
      "\n      : \"l\"(a), \"l\"(b), \"r\"(keep));\n}\n", "static inline void multiply_values(float (&d)[", o,
      "], const unsigned* a, unsigned long b) {\n  asm volatile(\"{\\n.reg .pred p;\\nsetp.eq.u32 p, 0, "
      "0;\\n",
      instruction(width), "{%", o, ", %", o + 1, ", %", o + 2, ", %", o + 3, "}, %", o + 4,
      ", p, 1, 1, 1;\\n}\"\n      : ", sums(o),
      "\n      : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"l\"(b));\n}\n",
      // The sums are operands of the wait, so that none of their uses moves above it.
      "template <int kLeft> static inline void wait_keys(float (&d)[", s,
      "]) { asm volatile(\"wgmma.wait_group.sync.aligned %", s, ";\" : ", sums(s),
      " : \"n\"(kLeft) : \"memory\"); }\n", "template <int kLeft> static inline void wait_values(float (&d)[",
      o, "]) { asm volatile(\"wgmma.wait_group.sync.aligned %", o, ";\" : ", sums(o),
      " : \"n\"(kLeft) : \"memory\"); }\n");
}

std::optional<FlashSource> flash_source(DType dtype, const std::vector<loop::Dim>& batch,
                                        const Flash::Operand& operand, int64_t depth, Expr lines, int box,
                                        const sym::Facts& facts) {
  constexpr size_t kMostDims = 5;
  constexpr int kBytes = 2;
  FlashSource out{.map = {.buffer = operand.load->access.buffer, .dtype = dtype}, .coordinates = {}};
  out.map.dims = {depth, lines};
  out.map.strides = {operand.line * kBytes};
  out.map.box = {64, box};
  out.map.swizzle = 128;
  if (facts.bounds(operand.line).lo < 1) return std::nullopt;
  Expr rest = 0;
  std::vector<std::pair<Expr, Expr>> moves;  // an index, and elements between its values
  const auto terms = operand.base.op() == sym::Op::kAdd
                         ? std::vector<Expr>(operand.base.args().begin(), operand.base.args().end())
                         : std::vector<Expr>{operand.base};
  for (Expr term : terms) {
    if (!sym::has_index(term)) {
      rest += term;
      continue;
    }
    Expr step = 1, index = 1;
    if (term.op() == sym::Op::kMul)
      for (Expr factor : term.args()) (sym::has_index(factor) ? index : step) *= factor;
    else
      index = term;
    const auto found =
        std::find_if(moves.begin(), moves.end(), [&](const auto& m) { return m.first == index; });
    if (found != moves.end())
      found->second += step;
    else
      moves.emplace_back(index, step);
  }
  for (const auto& [index, step] : moves) {
    Expr extent = 0;
    for (const loop::Dim& dim : batch) {
      if (index == dim.var) extent = dim.extent;
      if (index.op() == sym::Op::kFloorDiv && index.arg(0) == dim.var && index.arg(1).is_const())
        extent = sym::ceildiv(dim.extent, index.arg(1));
    }
    if (extent.is_const(0) || facts.bounds(step).lo < 1) return std::nullopt;
    out.map.dims.push_back(extent);
    out.map.strides.push_back(step * kBytes);
    out.map.box.push_back(1);
    out.coordinates.push_back(index);
  }
  if (out.map.dims.size() > kMostDims) return std::nullopt;
  out.map.offset = rest * kBytes;
  return out;
}

}  // namespace stridec::codegen::cuda
