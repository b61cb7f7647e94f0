#include "compiler/ops/composite/unfold.h"

#include <optional>

#include "compiler/base/text.h"
#include "compiler/ops/name_size.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {
namespace {

struct Places {
  Shape places, padded;  // number of blocks, and size of the padded image
};

// Sums one image per block element (their number is known): [n, channels, padded...].
Term overlapped(Term x, sym::Expr channels, const Places& room, const FoldOptions& options) {
  const auto& [places, padded] = room;
  const Shape& block = options.block;
  const Dims &strides = options.strides, &dilations = options.dilations;
  const size_t n = block.size();
  Shape apart{x.dim(0), channels};
  apart.insert(apart.end(), block.begin(), block.end());
  apart.insert(apart.end(), places.begin(), places.end());
  x = reshape(x, apart);
  std::optional<Term> sum;
  std::vector<int64_t> at(n, 0);
  for (bool more = true; more;) {
    Term part = x;
    for (size_t d = 0; d < n; ++d) part = squeeze(slice(part, 2, at[d], 1), {2});
    for (size_t d = 0; d < n; ++d) {
      const auto dim = static_cast<int64_t>(d) + 2;
      const sym::Expr reach = (places[d] - 1) * strides[d] + 1;
      const auto padded_along = [](Term t, int64_t along, sym::Expr before, sym::Expr after) {
        Shape low(t.shape().size(), 0), high = low;
        low[static_cast<size_t>(along)] = before, high[static_cast<size_t>(along)] = after;
        return pad(t, low, high, 0);
      };
      if (strides[d] > 1) {
        Shape wide = part.shape();
        wide[d + 2] = places[d] * strides[d];
        part = reshape(padded_along(unsqueeze(part, {dim + 1}), dim + 1, 0, strides[d] - 1), wide);
        part = slice(part, dim, 0, reach);
      }
      const sym::Expr before = at[d] * dilations[d];
      part = padded_along(part, dim, before, padded[d] - before - reach);
    }
    sum = sum ? *sum + part : part;
    more = false;
    for (size_t d = n; d-- > 0 && !more;) {
      more = ++at[d] < block[d].value();
      if (!more) at[d] = 0;
    }
  }
  return *sum;
}

}  // namespace

Term fold_blocks(Term x, const FoldOptions& options) {
  Builder& b = x.builder();
  const auto& [image, block, strides, dilations, front, back] = options;
  const size_t n = image.size();
  if (block.size() != n || strides.size() != n || dilations.size() != n || front.size() != n ||
      back.size() != n)
    does_not_fit("strides, dilations or pads do not fit image_shape");
  // Sizes known only at run time are multiplied with each other, so even short expressions are replaced by
  // symbols.
  const auto size = [&](sym::Expr e, const char* hint) {
    return named(b, b.simplify(e), hint, 0, kLargestSize, 1);
  };
  const sym::Expr channels = size(sym::floordiv(x.dim(1), count(block)), "channels");
  Shape order, padded, places;
  for (size_t d = 0; d < n; ++d) {
    padded.push_back(size(image[d] + front[d] + back[d], "padded"));
    const sym::Expr room = padded[d] - dilations[d] * (block[d] - 1) - 1;
    b.require(sym::ge(room, 0), cat("a block does not fit in padded dim ", d, " of size {0}"), {padded[d]});
    places.push_back(size(sym::floordiv(room, strides[d]) + 1, "places"));
  }
  order.insert(order.end(), block.begin(), block.end());
  order.insert(order.end(), places.begin(), places.end());
  const auto cropped = [&](Term out) {
    for (size_t d = 0; d < n; ++d) out = slice(out, static_cast<int64_t>(d) + 2, front[d], image[d]);
    return out;
  };
  constexpr int64_t kFewTaps = 64;
  const auto taps = sym::as_const(b.simplify(count(block)));
  if (taps && *taps <= kFewTaps) return cropped(overlapped(x, channels, {places, padded}, options));
  // Flat index of element (tap, position) in the padded image.
  Term flat = filled(b, order, DType::kI64, 0);
  for (size_t d = 0; d < n; ++d) {
    const Term at =
        index_along(b, order, static_cast<int64_t>(d), DType::kI64) * static_cast<double>(dilations[d]) +
        index_along(b, order, static_cast<int64_t>(d + n), DType::kI64) * static_cast<double>(strides[d]);
    flat = flat * size_as(b, DType::kI64, padded[d]) + at;
  }
  const sym::Expr total = count(padded), each = count(order);
  const Term values = reshape(x, {x.dim(0), channels, each});
  const Term index = expand(reshape(flat, {1, 1, each}), values.shape());
  const Term zeros = filled(b, {x.dim(0), channels, total}, x.dtype(), 0);
  const Term out = scatter_elements(zeros, index, values, 2, "add");
  Shape shape{x.dim(0), channels};
  shape.insert(shape.end(), padded.begin(), padded.end());
  return cropped(reshape(out, shape));
}

}  // namespace stridec::ops
