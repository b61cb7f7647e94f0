// Samples are gathered first, then contracted as in any convolution.
#include "compiler/ops/composite/deformable.h"

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/composite/sampling.h"

namespace stridec::ops {

Term deformable_convolution(Term x, Term w, Term offset, std::optional<Term> mask, std::optional<Term> bias,
                            const DeformableOptions& options) {
  if (x.rank() != 4)
    fail(ErrorKind::kUnsupported, "unsupported",
         cat("deformable convolution of a tensor of rank ", x.rank()));
  Builder& b = x.builder();
  const Window& window = options.window;
  const int64_t groups = options.groups, offset_groups = options.offset_groups;
  const sym::Expr n = x.dim(0), channels = x.dim(1), oh = offset.dim(2), ow = offset.dim(3), kh = w.dim(2),
                  kw = w.dim(3), taps = kh * kw, part = b.simplify(sym::floordiv(channels, offset_groups));
  b.require(sym::eq(part * offset_groups, channels), "{0} channels do not divide into offset groups",
            {channels});
  b.require(sym::eq(offset.dim(1), taps * (2 * offset_groups)), "offsets have {0} channels, not {1}",
            {offset.dim(1), taps * (2 * offset_groups)});
  const Term moved = cast(reshape(offset, {n * offset_groups, kh, kw, 2, oh, ow}), DType::kF32);
  const Term image = reshape(x, {n * offset_groups, part, x.dim(2), x.dim(3)});
  const Sampler sampler(image, SamplePadding::kZeros, true);
  std::vector<Term> position;
  for (int64_t d = 0; d < 2; ++d) {
    const auto dim = static_cast<size_t>(d);
    Shape tap{1, 1, 1, 1, 1}, place{1, 1, 1, 1, 1};
    tap[dim + 1] = w.dim(d + 2);
    place[dim + 3] = offset.dim(d + 2);
    const Term grid = index_along(b, tap, d + 1, DType::kI64) * static_cast<double>(window.dilations[dim]) +
                      index_along(b, place, d + 3, DType::kI64) * static_cast<double>(window.strides[dim]) -
                      size_as(b, DType::kI64, window.before[dim]);
    position.push_back(squeeze(slice(moved, 3, d, 1), {3}) + cast(grid, DType::kF32));
  }
  Term samples =
      sampler.interpolate(position, 1, triangle_weight);  // [n * offset_groups, part, kh, kw, oh, ow]
  if (mask) samples = samples * reshape(*mask, {n * offset_groups, 1, kh, kw, oh, ow});
  const sym::Expr outputs = b.simplify(sym::floordiv(w.dim(0), groups)), depth = w.dim(1) * taps;
  Term y = matmul(reshape(w, {1, groups, outputs, depth}), reshape(samples, {n, groups, depth, oh * ow}));
  y = reshape(y, {n, w.dim(0), oh, ow});
  if (bias) y = y + reshape(*bias, {w.dim(0), 1, 1});
  return y;
}

}  // namespace stridec::ops
