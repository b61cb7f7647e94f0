// Operators that join, repeat, move and pad, and those that return sizes.
#include <algorithm>
#include <numeric>

#include "compiler/base/text.h"
#include "compiler/frontend/aten/call.h"
#include "compiler/frontend/aten/promotion.h"
#include "compiler/frontend/aten/slices.h"
#include "compiler/ops/composite/shape.h"

namespace stridec::aten {
namespace {

using namespace ops;

// The tensors of a list in their common dtype.
std::vector<Term> promoted_list(Context& c, const char* name) {
  const Value& list = c.arg(name);
  const DType to = result_type(c.b, list.items);
  std::vector<Term> out;
  for (Term t : c.terms(name)) out.push_back(cast(t, to, false));
  return out;
}

Results cat_row(Context& c) {
  std::vector<Term> parts = promoted_list(c, "tensors");
  if (parts.empty()) c.does_not_fit("cat of no tensors");
  // PyTorch ignores empty tensors of rank 1 next to tensors of a higher rank.
  const int64_t rank = std::max_element(parts.begin(), parts.end(), [](Term a, Term b) {
                         return a.rank() < b.rank();
                       })->rank();
  std::erase_if(parts, [&](Term t) { return t.rank() == 1 && rank > 1 && t.dim(0).is_const(0); });
  return {concat(parts, c.dim("dim", rank))};
}
Results stack(Context& c) {
  std::vector<Term> parts = promoted_list(c, "tensors");
  if (parts.empty()) c.does_not_fit("stack of no tensors");
  const int64_t dim = c.dim("dim", parts[0].rank() + 1);
  for (Term& t : parts) t = unsqueeze(t, {dim});
  return {concat(parts, dim)};
}

// Repeats x along each dim; dims that x lacks come first.
Term repeated(Term x, const Shape& times) {
  Shape shape = x.shape();
  shape.insert(shape.begin(), times.size() - shape.size(), 1);
  return ops::tile(reshape(x, shape), times);
}
Results repeat(Context& c) {
  const Term x = c.in("self");
  const Shape times = c.sizes("repeats");
  if (std::ssize(times) < x.rank()) c.does_not_fit("repeat has fewer numbers than dims");
  return {repeated(x, times)};
}
Results tile(Context& c) {
  const Term x = c.in("self");
  Shape times = c.sizes("dims");
  if (std::ssize(times) < x.rank())
    times.insert(times.begin(), static_cast<size_t>(x.rank()) - times.size(), 1);
  return {repeated(x, times)};
}
Results repeat_interleave(Context& c) {
  Term x = c.in("self");
  if (!c.has("dim")) x = reshape(x, {count(x.shape())});
  const int64_t dim = c.has("dim") ? c.dim("dim", x.rank()) : 0;
  const sym::Expr times = c.size("repeats");
  Shape wide = x.shape(), out = x.shape();
  wide.insert(wide.begin() + dim + 1, times);
  out[static_cast<size_t>(dim)] = out[static_cast<size_t>(dim)] * times;
  return {reshape(expand(unsqueeze(x, {dim + 1}), wide), out)};
}

Results op_flip(Context& c) {
  const Term x = c.in("self");
  return {x.rank() == 0 ? x : flip(x, c.listed_dims("dims", x.rank()))};
}
Term rolled(Term x, int64_t dim, sym::Expr shift) {
  Builder& b = x.builder();
  if (x.dim(dim).is_const(0)) return x;
  const sym::Expr n = x.dim(dim), at = b.simplify(sym::mod(n - shift, sym::max(n, 1)));
  if (at.is_const(0)) return x;
  return concat({slice(x, dim, at, b.simplify(n - at)), slice(x, dim, 0, at)}, dim);
}
Results roll(Context& c) {
  Term x = c.in("self");
  if (x.rank() == 0) return {x};
  const Shape shifts = c.sizes("shifts");
  const Dims dims = c.integers("dims");
  if (dims.empty()) return {reshape(rolled(reshape(x, {count(x.shape())}), 0, shifts.at(0)), x.shape())};
  if (dims.size() != shifts.size()) c.does_not_fit("shifts and dims differ in length");
  for (size_t i = 0; i < dims.size(); ++i) x = rolled(x, normal_dim(dims[i], x.rank()), shifts[i]);
  return {x};
}
Results rot90(Context& c) {
  const Term x = c.in("self");
  const Dims dims = c.integers("dims");
  const int64_t a = normal_dim(dims.at(0), x.rank()), d = normal_dim(dims.at(1), x.rank()),
                k = ((c.integer("k") % 4) + 4) % 4;
  if (k == 0) return {x};
  if (k == 2) return {flip(x, {std::min(a, d), std::max(a, d)})};
  return {k == 1 ? flip(transpose(x, a, d), {a}) : transpose(flip(x, {a}), a, d)};
}

// Pairs from the last dim on, as F.pad has them.
Term padded(Context& c, Term x, const Shape& amounts, const std::string& mode, double value) {
  if (amounts.size() % 2 || std::ssize(amounts) > 2 * x.rank())
    c.does_not_fit("pad has pairs for more dims than there are");
  Shape before(x.shape().size(), 0), after(x.shape().size(), 0);
  for (size_t i = 0; i < amounts.size() / 2; ++i) {
    before[before.size() - 1 - i] = amounts[2 * i];
    after[after.size() - 1 - i] = amounts[2 * i + 1];
  }
  if (mode == "constant") {
    if (is_bool(x.dtype()))
      return cast(ops::pad(cast(x, DType::kU8, false), before, after, value != 0), DType::kBool, false);
    return ops::pad(x, before, after, value);
  }
  if (mode == "circular") return wrap(x, before, after);
  const std::string kind = mode == "replicate" ? "edge" : mode == "reflect" ? "reflect" : "";
  if (kind.empty()) c.unsupported(cat("pad mode '", mode, "'"));
  return {c.b, ops::pad(c.b, x, before, after, {}, kind)};
}
Results pad(Context& c) {
  const double value = c.has("value") ? c.number("value") : 0;
  return {padded(c, c.in("self"), c.sizes("pad"), c.text("mode"), value)};
}
Results constant_pad(Context& c) {
  return {padded(c, c.in("self"), c.sizes("pad"), "constant", c.number("value"))};
}
Results reflection_pad(Context& c) { return {padded(c, c.in("self"), c.sizes("padding"), "reflect", 0)}; }
Results replication_pad(Context& c) { return {padded(c, c.in("self"), c.sizes("padding"), "replicate", 0)}; }

Results meshgrid(Context& c) {
  const std::vector<Term> axes = c.terms("tensors");
  const bool xy = c.names("indexing") && c.has("indexing") && c.text("indexing") == "xy" && axes.size() >= 2;
  const size_t n = axes.size();
  Shape shape;
  for (Term t : axes) shape.push_back(t.rank() == 0 ? sym::Expr(1) : t.dim(0));
  if (xy) std::swap(shape[0], shape[1]);
  std::vector<Value> out;
  for (size_t i = 0; i < n; ++i) {
    const size_t at = xy && i < 2 ? 1 - i : i;
    Shape own(n, 1);
    own[at] = shape[at];
    out.emplace_back(expand(reshape(axes[i], own), shape));
  }
  return {Value::list(std::move(out))};
}

Results broadcast_tensors(Context& c) {
  std::vector<Term> all = c.terms("tensors");
  if (all.empty()) return {Value::list({})};
  Term sum = filled(c.b, all[0].shape(), DType::kBool, 0);
  for (Term t : all) sum = logical_or(sum, filled(c.b, t.shape(), DType::kBool, 0));
  std::vector<Value> out;
  for (Term t : all) out.emplace_back(expand(t, sum.shape()));
  return {Value::list(std::move(out))};
}

Results select_scatter(Context& c) {
  const Term x = c.in("self"), src = c.in("src");
  const int64_t dim = c.dim("dim", x.rank());
  const sym::Expr at = python_index(c.b, x.dim(dim), c.size("index"));
  return {replace_slice(x, dim, {.start = at, .extent = 1}, unsqueeze(cast(src, x.dtype(), false), {dim}))};
}
Results slice_scatter(Context& c) {
  const Term x = c.in("self"), src = c.in("src");
  const int64_t dim = c.dim("dim", x.rank());
  const auto bound = [&](const char* n) { return c.has(n) ? std::optional(c.size(n)) : std::nullopt; };
  const Slice s = python_slice(c.b, x.dim(dim), bound("start"), bound("end"), c.integer("step"));
  Shape shape = x.shape();
  shape[static_cast<size_t>(dim)] = s.extent;
  return {replace_slice(x, dim, s, expand(cast(src, x.dtype(), false), shape))};
}

Results sym_size(Context& c) {
  const Shape shape = shape_of(c.b, c.tensor("self"));
  if (!c.names("dim")) {
    std::vector<Value> all;
    for (sym::Expr dim : shape) all.push_back(Value::integer_of(dim));
    return {Value::list(std::move(all))};
  }
  if (shape.empty()) c.does_not_fit("a scalar has no dims");
  return {Value::integer_of(shape[static_cast<size_t>(c.dim("dim", std::ssize(shape)))])};
}
Results sym_numel(Context& c) {
  return {Value::integer_of(c.b.simplify(count(shape_of(c.b, c.tensor("self")))))};
}
Results sym_stride(Context& c) {
  const Tensor t = c.tensor("self");
  const Shape shape = shape_of(c.b, t);
  std::vector<sym::Expr> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  if (t.strides && t.strides->size() == shape.size()) strides = *t.strides;
  return {Value::integer_of(strides.at(static_cast<size_t>(c.dim("dim", std::ssize(shape)))))};
}

constexpr Row kRows[] = {
    {"broadcast_tensors", broadcast_tensors},
    {"cat", cat_row},
    {"concat", cat_row},
    {"concatenate", cat_row},
    {"constant_pad_nd", constant_pad},
    {"flip", op_flip},
    {"meshgrid", meshgrid},
    {"pad", pad},
    {"reflection_pad1d", reflection_pad},
    {"reflection_pad2d", reflection_pad},
    {"reflection_pad3d", reflection_pad},
    {"repeat", repeat},
    {"repeat_interleave.self_int", repeat_interleave},
    {"replication_pad1d", replication_pad},
    {"replication_pad2d", replication_pad},
    {"replication_pad3d", replication_pad},
    {"roll", roll},
    {"rot90", rot90},
    {"select_scatter", select_scatter},
    {"slice_scatter", slice_scatter},
    {"stack", stack},
    {"sym_numel", sym_numel, Numbers::kComplex},
    {"sym_size", sym_size, Numbers::kComplex},
    {"sym_stride", sym_stride, Numbers::kComplex},
    {"tile", tile},
};

}  // namespace

std::span<const Row> shape_rows() { return kRows; }

}  // namespace stridec::aten
