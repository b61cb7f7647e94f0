// Counting and reducing by bins and segments.
#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <vector>

#include "compiler/base/text.h"
#include "compiler/frontend/aten/call.h"
#include "compiler/frontend/aten/promotion.h"
#include "compiler/ops/composite/histogram.h"
#include "compiler/ops/name_size.h"
#include "compiler/ops/nodes.h"

namespace stridec::aten {
namespace {

using namespace ops;

Term flat(Term x) { return reshape(x, {count(x.shape())}); }

// PyTorch counts in the dtype of the data, in f32 or wider.
DType counting_type(DType dtype) { return is_float(dtype) ? compute_dtype(dtype) : DType::kF64; }

Results histc(Context& c) {
  const Term x = c.in("self");
  const int64_t bins = c.integer("bins");
  if (bins <= 0) c.does_not_fit(cat("histc with ", bins, " bins"));
  const double low = c.number("min"), high = c.number("max");
  const Term data = flat(cast(x, counting_type(x.dtype()), false));
  Bounds bounds{number_like(data, low), number_like(data, high)};
  if (low == high)
    bounds = apart(x.shape().empty() || !count(x.shape()).is_const(0) ? bounds_of(data) : bounds, 1);
  return {cast(equal_bins(data, bounds, bins), x.dtype(), false)};
}

// Columns [samples, dims] with a weight for each sample, and the edges of the bins of each dim.
struct Samples {
  Term columns;
  std::optional<Term> weight;
  std::vector<Term> edges;
};
Samples samples_of(Context& c, bool one_dim) {
  const Term x = c.in("self");
  const DType wide = widen(x).dtype();
  if (!is_float(x.dtype())) c.does_not_fit("a histogram takes floats");
  if (!one_dim && x.rank() < 2) c.does_not_fit("histogramdd takes a tensor of at least two dims");
  const sym::Expr dims = one_dim ? sym::Expr(1) : c.b.simplify(x.dim(x.rank() - 1));
  if (!dims.is_const()) c.unsupported("a histogram of a symbolic number of dims");
  const sym::Expr samples = one_dim ? count(x.shape()) : count(x.shape(), 0, x.rank() - 1);
  Samples out{reshape(widen(x), {samples, dims}), std::nullopt, {}};
  if (c.names("weight") && c.has("weight")) out.weight = flat(cast(c.in("weight"), wide, false));
  return out;
}
Term column(const Samples& s, int64_t dim) { return squeeze(slice(s.columns, 1, dim, 1), {1}); }

// `bins` of equal width between the bounds that `range` gives for each dim, or those of the data.
void add_equal_edges(Context& c, Samples& s, const Dims& bins) {
  const int64_t dims = s.columns.dim(1).value();
  if (std::ssize(bins) != dims) c.does_not_fit(cat(bins.size(), " numbers of bins for ", dims, " dims"));
  std::vector<double> range;
  if (c.names("range") && c.has("range"))
    for (const Value& v : c.arg("range").items)
      range.push_back(v.kind == Value::Kind::kInt ? static_cast<double>(v.integer.value()) : v.number);
  if (!range.empty() && std::ssize(range) != 2 * dims)
    c.does_not_fit("the range has two numbers for each dim");
  for (int64_t d = 0; d < dims; ++d) {
    const Term x = column(s, d);
    const auto i = static_cast<size_t>(d);
    if (bins[i] <= 0) c.does_not_fit(cat("a histogram with ", bins[i], " bins"));
    Bounds bounds{number_like(x, 0), number_like(x, 1)};
    if (!range.empty())
      bounds = {number_like(x, range[2 * i]), number_like(x, range[2 * i + 1])};
    else if (!x.dim(0).is_const(0))
      bounds = bounds_of(x);
    s.edges.push_back(edges_between(apart(bounds, 0.5), bins[i]));
  }
}
void add_given_edges(Context& c, Samples& s) {
  const bool list = c.arg("bins").kind == Value::Kind::kList;
  for (Term edges : list ? c.terms("bins") : std::vector<Term>{c.in("bins")})
    s.edges.push_back(cast(edges, s.columns.dtype(), false));
  if (std::ssize(s.edges) != s.columns.dim(1).value())
    c.does_not_fit("there are edges for another number of dims");
}
Samples with_edges(Context& c, bool one_dim) {
  Samples s = samples_of(c, one_dim);
  const Value& bins = c.arg("bins");
  const bool given = bins.is_tensor() ||
                     (bins.kind == Value::Kind::kList && !bins.items.empty() && bins.items[0].is_tensor());
  if (given)
    add_given_edges(c, s);
  else
    add_equal_edges(c, s,
                    bins.kind == Value::Kind::kList
                        ? c.integers("bins")
                        : Dims(static_cast<size_t>(s.columns.dim(1).value()), c.integer("bins")));
  return s;
}
Value counts(Context& c, const Samples& s) {
  std::vector<Term> columns;
  for (int64_t d = 0; d < s.columns.dim(1).value(); ++d) columns.push_back(column(s, d));
  return cast(ops::histogram(columns, s.edges, s.weight, c.flag("density")), c.in("self").dtype(), false);
}
Value edges_of(Context& c, const Samples& s) {
  std::vector<Value> edges;
  for (const Term e : s.edges) edges.emplace_back(cast(e, c.in("self").dtype(), false));
  return Value::list(std::move(edges));
}

Results histogram(Context& c) {
  const Samples s = with_edges(c, true);
  return {counts(c, s), edges_of(c, s).items[0]};
}
Results histogramdd(Context& c) {
  const Samples s = with_edges(c, false);
  return {counts(c, s), edges_of(c, s)};
}
Results histogramdd_counts(Context& c) { return {counts(c, with_edges(c, false))}; }
Results histogramdd_edges(Context& c) { return {edges_of(c, with_edges(c, false))}; }

// How often each number from 0 occurs, or the sum of its weights; the length is bound during the run.
Results bincount(Context& c) {
  const Term x = c.in("self");
  if (x.rank() != 1 || is_float(x.dtype())) c.does_not_fit("bincount takes integers of one dim");
  const Term at = cast(x, DType::kI64, false);
  const sym::Expr least = c.size("minlength");
  const Term last = reduce_max(concat({at, filled(c.b, {1}, DType::kI64, -1)}, 0), {0});
  const Term length = maximum(last + 1.0, size_as(c.b, DType::kI64, least));
  const sym::Expr total = c.b.symbol_of(length, "bins", least, kLargestSize);
  DType to = DType::kI64;
  if (c.has("weights")) to = c.in("weights").dtype() == DType::kF32 ? DType::kF32 : DType::kF64;
  const Term weight = c.has("weights") ? cast(c.in("weights"), to, false) : filled(c.b, at.shape(), to, 1);
  return {scatter_elements(filled(c.b, {total}, to, 0), at, weight, 0, "add", Negative::kError)};
}

// Reduces the runs of elements along the axis that the lengths, or the offsets, give.
Results segment_reduce(Context& c) {
  const Term x = c.in("data");
  const int64_t axis = normal_dim(c.integer("axis"), x.rank());
  const bool by_length = c.has("lengths");
  if (!by_length && !c.has("offsets")) c.unsupported("segments that are neither lengths nor offsets");
  const Term given = cast(c.in(by_length ? "lengths" : "offsets"), DType::kI64, false);
  const int64_t last = given.rank() - 1;
  if (last != axis) c.does_not_fit("the segments have as many dims as the data up to the axis");
  const sym::Expr n = c.b.simplify(given.dim(last) - 1);
  const Term ends = by_length ? cumulative_sum(given, last) : slice(given, last, 1, n);
  const Term starts = by_length ? cumulative_sum(given, last, true) : slice(given, last, 0, n);
  const std::string how = c.text("reduce");
  static constexpr std::string_view kNames[] = {"sum", "mean", "max", "min", "prod"};
  const auto found = std::ranges::find(kNames, how);
  if (found == std::end(kNames)) c.does_not_fit(cat("reduction '", how, "'"));
  return {
      cast(segments(widen(x), starts, ends, axis, static_cast<SegmentReduction>(found - std::begin(kNames)),
                    c.optional_number("initial")),
           x.dtype(), false)};
}

constexpr Row kRows[] = {
    {"_histogramdd_bin_edges", histogramdd_edges},
    {"_histogramdd_from_bin_cts", histogramdd_counts},
    {"_histogramdd_from_bin_tensors", histogramdd_counts},
    {"bincount", bincount},
    {"histc", histc},
    {"histogram", histogram},
    {"histogramdd", histogramdd},
    {"segment_reduce", segment_reduce},
};

}  // namespace

std::span<const Row> histogram_rows() { return kRows; }

}  // namespace stridec::aten
