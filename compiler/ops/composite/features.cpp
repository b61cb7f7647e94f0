#include "compiler/ops/composite/features.h"

#include <cmath>

#include "compiler/ops/tables.h"

namespace stridec::ops {

using graph::OpKind;

Term as_rows(Term x) { return x.rank() == 1 ? unsqueeze(x, {0}) : x; }

Term binarize(Term x, double threshold) { return cast(greater(x, threshold), x.dtype()); }

Term scale_features(Term x, const std::vector<double>& offset, const std::vector<double>& scale) {
  x = cast(x, DType::kF32);
  const auto row = [&](const std::vector<double>& values, double otherwise, const char* name) {
    return values.size() < 2 ? number(x.builder(), DType::kF32, values.empty() ? otherwise : values[0])
                             : unidirectional(float_table(x.builder(), values, DType::kF32), x.shape(), name);
  };
  return (x - row(offset, 0, "offset")) * row(scale, 1, "scale");
}

Term impute(Term x, double missing, const std::vector<double>& values, const std::string& what) {
  const Term hit = std::isnan(missing) ? apply(OpKind::kIsNan, x) : equal(x, missing);
  const Term row = unidirectional(float_table(x.builder(), values, x.dtype()), x.shape(), what);
  return select(hit, row, x);
}

Term impute(Term x, int64_t missing, const std::vector<int64_t>& values, const std::string& what) {
  Builder& b = x.builder();
  const Term replaced(b, b.integers({missing}));
  const Term row = unidirectional(integer_table(b, values), x.shape(), what);
  return select(equal(x, reshape(replaced, {})), row, x);
}

Term normalize_rows(Term x, RowNorm norm) {
  const Shape shape = x.shape();
  x = cast(as_rows(x), DType::kF32);
  const Dims last{x.rank() - 1};
  const Term size = norm == RowNorm::kMax  ? reduce_max(x, last, kKeep)
                    : norm == RowNorm::kL1 ? reduce_sum(abs(x), last, kKeep)
                                           : sqrt(reduce_sum(square(x), last, kKeep));
  return reshape(select(equal(size, 0), x, x / size), shape);
}

Term select_features(Term x, Term index) {
  x = as_rows(x);
  return gather(x, reshape(index, {count(index.shape())}), x.rank() - 1);
}

Term join_features(const std::vector<Term>& parts, const std::vector<int64_t>& sizes) {
  std::vector<Term> rows;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Term x = cast(as_rows(parts[i]), DType::kF32);
    const Term flat = reshape(x, {x.dim(0), count(x.shape(), 1, x.rank())});
    rows.push_back(i < sizes.size() ? slice(flat, 1, 0, sizes[i]) : flat);
  }
  return concat(rows, 1);
}

}  // namespace stridec::ops
