#include "compiler/ops/composite/detection.h"

#include <vector>

#include "compiler/ops/nodes.h"

namespace stridec::ops {

Term non_max_suppression(Term boxes, Term scores, const SuppressionOptions& options) {
  Builder& b = boxes.builder();
  const sym::Expr batch = boxes.dim(0), n = boxes.dim(1), classes = scores.dim(1);
  const auto [score, order] = top_k(scores, 2, n);  // [batch, classes, n]

  // Corners [batch, classes, n] in order of score.
  const auto part = [&](int64_t i) {
    const Term column = expand(reshape(slice(boxes, 2, i, 1), {batch, 1, n}), {batch, classes, n});
    return gather_elements(column, order, 2);
  };
  const Term p = part(0), q = part(1), r = part(2), s = part(3);
  const bool center = options.centers;
  const Term x0 = center ? p - r * 0.5 : minimum(q, s), x1 = center ? p + r * 0.5 : maximum(q, s);
  const Term y0 = center ? q - s * 0.5 : minimum(p, r), y1 = center ? q + s * 0.5 : maximum(p, r);
  const Term eligible =
      options.threshold ? greater(score, *options.threshold) : filled(b, score.shape(), DType::kBool, 1);

  const sym::Expr rows_of_boxes = batch * classes;
  std::vector<Term> corners;
  for (const Term& side : {x0, y0, x1, y1}) corners.push_back(cast(unsqueeze(side, {2}), DType::kF32));
  const Term kept = suppress(reshape(concat(corners, 2), {rows_of_boxes, 4, n}),
                             reshape(eligible, {rows_of_boxes, n}), options.most, options.overlap);
  const sym::Expr found = b.fresh_symbol("selected", 0, batch * classes * n);
  const Term at = coordinates(reshape(kept, score.shape()), found);  // [3, found]
  const Term rows = transpose(at, 0, 1);
  const Term box = gather_nd(order, rows);
  return concat({slice(rows, 1, 0, 2), unsqueeze(box, {1})}, 1);
}

}  // namespace stridec::ops
