// Sorting, searching and counting.
#include "compiler/base/text.h"
#include "compiler/frontend/aten/call.h"
#include "compiler/frontend/aten/promotion.h"
#include "compiler/ops/composite/indexing.h"
#include "compiler/ops/name_size.h"
#include "compiler/ops/nodes.h"

namespace stridec::aten {
namespace {

using namespace ops;

Results sorted(Context& c) {
  const Term x = c.in("self");
  if (x.rank() == 0) return {x, filled(c.b, {}, DType::kI64, 0)};
  const bool truth = is_bool(x.dtype());
  const Term keys = truth ? cast(x, DType::kU8, false) : x;
  const Ordered out = ops::sort(keys, c.dim("dim", x.rank()), c.flag("descending"));
  return {truth ? cast(out.values, DType::kBool, false) : out.values, out.indices};
}
Results argsort(Context& c) { return {sorted(c)[1]}; }
Results msort(Context& c) { return {ops::sort(c.in("self"), 0).values}; }

Results topk(Context& c) {
  const Term x = c.in("self");
  if (x.rank() == 0) return {x, filled(c.b, {}, DType::kI64, 0)};
  const Ordered out = top_k(x, c.dim("dim", x.rank()), c.size("k"), c.flag("largest"));
  return {out.values, out.indices};
}

// The number of keys of each row below each element of x's row, by comparing all of them.
Term rank_in_rows(Term keys, Term x, bool right) {
  const Term key = unsqueeze(keys, {keys.rank() - 1}), value = unsqueeze(x, {x.rank()});
  // NaN is larger than every key.
  const Term below = logical_not(right ? greater(key, value) : greater_equal(key, value));
  return reduce_sum(cast(below, DType::kI64, false), {value.rank() - 1});
}
Results searchsorted(Context& c) {
  const bool buckets = c.names("boundaries");
  const Value& keys_value = c.arg(buckets ? "boundaries" : "sorted_sequence");
  Term keys = as_term(c.b, keys_value);
  const Term x = as_term(c.b, c.arg("self"));
  if (c.names("sorter") && c.has("sorter")) keys = gather_elements(keys, c.in("sorter"), keys.rank() - 1);
  bool right = c.flag("right");
  if (c.names("side") && c.has("side")) right = c.text("side") == "right";
  const DType to = promote(keys.dtype(), x.dtype());
  const Term k = cast(keys, to, false), v = cast(x, to, false);
  const Term at = keys.rank() == 1 ? search_sorted(k, v, right) : rank_in_rows(k, v, right);
  return {c.flag("out_int32") ? cast(at, DType::kI32, false) : at};
}

// Distinct elements, or slices along dim, with each element's place among them and how often each occurs.
// With `runs`, only equal neighbours count as one.
template <bool runs>
Results unique(Context& c) {
  const Term x = c.in("self");
  const bool slices = c.names("dim") && c.has("dim");
  const int64_t dim = slices ? c.dim("dim", x.rank()) : 0;
  const Term rows = slices ? transpose(x, 0, dim) : reshape(x, {count(x.shape())});
  const Unique u = runs ? unique_runs(rows) : ops::unique(rows, true);
  return {slices ? transpose(u.values, 0, dim) : u.values, slices ? u.inverse : reshape(u.inverse, x.shape()),
          u.counts};
}

// Each element as often as `repeats` says; the length is bound during the run.
Results repeat_interleave(Context& c) {
  const Term given = c.in("repeats");
  const Term repeats = cast(reshape(given, {count(given.shape())}), DType::kI64, false);
  const bool alone = !c.names("self");
  Term x = alone ? index_along(c.b, repeats.shape(), 0, DType::kI64) : c.in("self");
  if (!alone && !c.has("dim")) x = reshape(x, {count(x.shape())});
  const int64_t dim = !alone && c.has("dim") ? c.dim("dim", x.rank()) : 0;
  const Term times = expand(repeats, {x.dim(dim)});
  const sym::Expr total = c.names("output_size") && c.has("output_size")
                              ? c.size("output_size")
                              : c.b.symbol_of(reduce_sum(times, {0}), "repeats", 0, kLargestSize);
  const Term place = index_along(c.b, {total}, 0, DType::kI64);
  const Term at = search_sorted(cumulative_sum(times, 0), place, true);
  return {alone ? at : gather(x, at, dim)};
}

constexpr Row kRows[] = {
    {"_unique2", unique<false>},
    {"argsort", argsort},
    {"bucketize", searchsorted},
    {"msort", msort},
    {"repeat_interleave.Tensor", repeat_interleave},
    {"repeat_interleave.self_Tensor", repeat_interleave},
    {"searchsorted", searchsorted},
    {"sort", sorted},
    {"topk", topk},
    {"unique_consecutive", unique<true>},
    {"unique_dim", unique<false>},
    {"unique_dim_consecutive", unique<true>},
};

}  // namespace

std::span<const Row> order_rows() { return kRows; }

}  // namespace stridec::aten
