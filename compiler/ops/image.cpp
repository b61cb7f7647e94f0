// Decoding of images, whose size is read from the encoded bytes at run time.
#include "compiler/ops/call.h"
#include "compiler/ops/helpers.h"
#include "compiler/ops/nodes.h"

namespace stridec::ops {

using graph::OpKind;

namespace {

constexpr int64_t kMostImageSize = 65535;  // per dim, the limit of runtime/image

}  // namespace

Term decode_image(Term bytes, const std::string& format) {
  Builder& b = bytes.builder();
  const Term size(b, add_call(b, "image_size", {bytes})[0]);
  std::vector<sym::Expr> sizes;
  for (int64_t i : {0, 1}) {
    sizes.push_back(b.fresh_symbol(i == 0 ? "height" : "width", 1, kMostImageSize));
    b.add(OpKind::kSymbolOf, {reshape(slice(size, 0, i, 1), {})},
          {{"symbol", sizes.back()},
           {"lower", sym::Expr(1)},
           {"upper", sym::Expr(kMostImageSize)},
           {"sentence", std::string("the bytes are not an image of a supported form")}});
  }
  const auto decoded =
      add_call(b, "image_decode", {bytes}, {{"height", sizes[0]}, {"width", sizes[1]}, {"format", format}});
  b.require(sym::eq(b.elements_of(decoded[1], "whole", 0, 1)[0], 1), "the image is damaged");
  return {b, decoded[0]};
}

}  // namespace stridec::ops
