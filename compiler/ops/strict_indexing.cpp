#include "compiler/ops/strict_indexing.h"

#include <utility>

namespace stridec::ops {
namespace {

using graph::OpKind;

graph::Attributes along(int64_t dim, Negative negative) {
  graph::Attributes attributes = {{"dim", dim}};
  if (negative == Negative::kError) attributes.set("wrap", int64_t{0});
  return attributes;
}

}  // namespace

Term gather(Term data, Term indices, int64_t dim, int64_t batch_dims, Negative negative) {
  Builder& b = data.builder();
  graph::Attributes attributes = along(dim, negative);
  attributes.set("batch_dims", batch_dims);
  return {b, b.add1(OpKind::kGather, {data, indices}, std::move(attributes))};
}

Term gather_elements(Term data, Term indices, int64_t dim, Negative negative) {
  Builder& b = data.builder();
  return {b, b.add1(OpKind::kGatherElements, {data, indices}, along(dim, negative))};
}

Term scatter_elements(Term data, Term indices, Term updates, int64_t dim, const std::string& reduction,
                      Negative negative) {
  Builder& b = data.builder();
  graph::Attributes attributes = along(dim, negative);
  attributes.set("reduction", reduction);
  return {b, b.add1(OpKind::kScatterElements, {data, indices, updates}, std::move(attributes))};
}

}  // namespace stridec::ops
