// Convolutions.
#include "compiler/base/text.h"
#include "compiler/frontend/aten/call.h"
#include "compiler/frontend/aten/promotion.h"

namespace stridec::aten {
namespace {

using namespace ops;

Term with_bias(const Context& c, Term y) {
  if (!c.has("bias")) return y;
  Shape shape(y.shape().size() - 1, 1);
  shape[0] = y.dim(1);
  return y + reshape(c.in("bias"), shape);
}

struct Unbatched {
  Term x;
  bool added = false;
};
// PyTorch takes an input without a batch dim.
Unbatched batched(Term x, Term w) {
  if (x.rank() + 1 == w.rank()) return {unsqueeze(x, {0}), true};
  return {x, false};
}
Results unbatched(Term y, bool added) { return {added ? squeeze(y, {0}) : y}; }

Results transposed(Context& c, const Unbatched& in) {
  const Term w = c.in("weight");
  const size_t n = w.shape().size() - 2;
  const Dims padding = c.spatial("padding", n);
  const Shape pads(padding.begin(), padding.end());
  const Term y(c.b, c.b.add1(OpKind::kConvTranspose, {in.x.id(), w.id()},
                             {{"strides", c.spatial("stride", n)},
                              {"dilations", c.spatial("dilation", n)},
                              {"before", pads},
                              {"after", pads},
                              {"output_extra",
                               [&] {
                                 const Dims extra = c.spatial("output_padding", n);
                                 return Shape(extra.begin(), extra.end());
                               }()},
                              {"groups", c.integer("groups")}}));
  return unbatched(with_bias(c, y), in.added);
}

Results conv(Context& c) {
  const Term w = c.in("weight");
  if (w.rank() < 3) c.does_not_fit(cat("weights of rank ", w.rank()));
  const Unbatched in = batched(c.in("input"), w);
  if (in.x.rank() != w.rank())
    c.does_not_fit(cat("weights of rank ", w.rank(), " for an input of rank ", in.x.rank()));
  if (c.names("transposed") && c.flag("transposed")) return transposed(c, in);
  const size_t n = w.shape().size() - 2;
  const Dims strides = c.spatial("stride", n), dilations = c.spatial("dilation", n);
  Shape before(n, 0), after(n, 0);
  if (c.arg("padding").kind == Value::Kind::kString) {
    const std::string mode = c.text("padding");
    if (mode != "same" && mode != "valid") c.does_not_fit(cat("padding '", mode, "'"));
    for (size_t i = 0; i < n && mode == "same"; ++i) {
      const sym::Expr total = c.b.simplify((w.shape()[i + 2] - 1) * dilations[i]);
      before[i] = c.b.simplify(sym::floordiv(total, 2));
      after[i] = c.b.simplify(total - before[i]);
    }
  } else {
    const Dims padding = c.spatial("padding", n);
    before.assign(padding.begin(), padding.end());
    after = before;
  }
  const Term y(c.b, c.b.add1(OpKind::kConv, {in.x.id(), w.id()},
                             {{"strides", strides},
                              {"dilations", dilations},
                              {"before", before},
                              {"after", after},
                              {"groups", c.integer("groups")}}));
  return unbatched(with_bias(c, y), in.added);
}
Results conv_transpose(Context& c) { return transposed(c, batched(c.in("input"), c.in("weight"))); }

constexpr Row kRows[] = {
    {"_convolution", conv},
    {"conv1d", conv},
    {"conv2d", conv},
    {"conv3d", conv},
    {"conv_transpose1d", conv_transpose},
    {"conv_transpose2d", conv_transpose},
    {"conv_transpose3d", conv_transpose},
    {"convolution", conv},
};

}  // namespace

std::span<const Row> convolution_rows() { return kRows; }

}  // namespace stridec::aten
