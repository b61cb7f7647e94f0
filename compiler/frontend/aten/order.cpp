// Sorting, searching and counting.
#include "compiler/base/text.h"
#include "compiler/frontend/aten/call.h"
#include "compiler/frontend/aten/promotion.h"

namespace stridec::aten {
namespace {

using namespace ops;

Results sorted(Context& c) {
  const Term x = c.in("self");
  if (x.rank() == 0) return {x, filled(c.b, {}, DType::kI64, 0)};
  const bool truth = is_bool(x.dtype());
  const Term keys = truth ? cast(x, DType::kU8, false) : x;
  const auto out = c.b.add(OpKind::kSort, {keys.id()},
                           {{"dim", c.dim("dim", x.rank())}, {"descending", int64_t{c.flag("descending")}}});
  const Term values(c.b, out[0]);
  return {truth ? cast(values, DType::kBool, false) : values, Term(c.b, out[1])};
}
Results argsort(Context& c) { return {sorted(c)[1]}; }
Results msort(Context& c) {
  const Term x = c.in("self");
  const auto out = c.b.add(OpKind::kSort, {x.id()}, {{"dim", int64_t{0}}, {"descending", int64_t{0}}});
  return {Term(c.b, out[0])};
}

Results topk(Context& c) {
  const Term x = c.in("self");
  if (x.rank() == 0) return {x, filled(c.b, {}, DType::kI64, 0)};
  const auto out = c.b.add(OpKind::kTopK, {x.id()},
                           {{"dim", c.dim("dim", x.rank())},
                            {"k", c.size("k")},
                            {"largest", int64_t{c.flag("largest")}},
                            {"sorted", int64_t{1}}});
  return {Term(c.b, out[0]), Term(c.b, out[1])};
}

Results searchsorted(Context& c) {
  const bool buckets = c.names("boundaries");
  const Value& keys_value = c.arg(buckets ? "boundaries" : "sorted_sequence");
  const Term keys = as_term(c.b, keys_value), x = as_term(c.b, c.arg("self"));
  if (keys.rank() != 1) c.unsupported("searchsorted in several sequences");
  if (c.names("sorter") && c.has("sorter")) c.unsupported("searchsorted with a sorter");
  bool right = c.flag("right");
  if (c.names("side") && c.has("side")) right = c.text("side") == "right";
  const DType to = promote(keys.dtype(), x.dtype());
  const Term at(c.b, c.b.add1(OpKind::kSearchSorted, {cast(keys, to, false).id(), cast(x, to, false).id()},
                              {{"right", int64_t{right}}}));
  return {c.flag("out_int32") ? cast(at, DType::kI32, false) : at};
}

// How many elements fall into each of equal bins; those outside of the bounds are not counted.
Results histc(Context& c) {
  const Term x = c.in("self");
  const int64_t count_of_bins = c.integer("bins");
  const double low = c.number("min"), high = c.number("max");
  if (!(low < high)) c.unsupported("histc without bounds");
  const DType wide = is_float(x.dtype()) ? compute_dtype(x.dtype()) : DType::kF64;
  const Term w = reshape(cast(x, wide, false), {count(x.shape())});
  const Term scaled = apply(OpKind::kFloor, (w - low) * static_cast<double>(count_of_bins) / (high - low));
  const Term bin = minimum(scaled, static_cast<double>(count_of_bins - 1));
  const Term inside = logical_and(greater_equal(w, low), less_equal(w, high));
  const Term at = cast(select(inside, bin, -1), DType::kI64, false);
  const Term hit = equal(unsqueeze(at, {0}), index_along(c.b, {count_of_bins, 1}, 0, DType::kI64));
  return {cast(reduce_sum(cast(hit, DType::kI64, false), {1}), x.dtype(), false)};
}

constexpr Row kRows[] = {
    {"argsort", argsort}, {"bucketize", searchsorted},    {"histc", histc},
    {"msort", msort},     {"searchsorted", searchsorted}, {"sort", sorted},
    {"topk", topk},
};

}  // namespace

std::span<const Row> order_rows() { return kRows; }

}  // namespace stridec::aten
