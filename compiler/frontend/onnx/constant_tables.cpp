#include "compiler/frontend/onnx/constant_tables.h"

#include <algorithm>
#include <cmath>

#include "compiler/base/number.h"
#include "compiler/base/text.h"
#include "compiler/ops/composite/activations.h"
#include "compiler/ops/composite/normalization.h"

namespace stridec::onnx {

using namespace ops;

Term float_table(Builder& b, const std::vector<double>& values, DType dtype, Shape shape) {
  const auto width = static_cast<size_t>(byte_size(dtype));
  std::vector<uint8_t> bytes(values.size() * width);
  for (size_t i = 0; i < values.size(); ++i) write_float(dtype, values[i], bytes.data() + i * width);
  if (shape.empty()) shape = {static_cast<int64_t>(values.size())};
  return {b, b.constant("", {dtype, std::move(shape)}, graph::own(std::move(bytes)))};
}

Term integer_table(Builder& b, const std::vector<int64_t>& values, DType dtype, Shape shape) {
  const auto width = static_cast<size_t>(byte_size(dtype));
  std::vector<uint8_t> bytes(values.size() * width);
  for (size_t i = 0; i < values.size(); ++i) write_integer(dtype, values[i], bytes.data() + i * width);
  if (shape.empty()) shape = {static_cast<int64_t>(values.size())};
  return {b, b.constant("", {dtype, std::move(shape)}, graph::own(std::move(bytes)))};
}

std::vector<double> float_values(const Tensor& t) {
  const auto dtype = t.dtype();
  if (!dtype || !is_float(*dtype))
    fail(ErrorKind::kDoesNotFit, "table-type",
         cat("a table of floats is given as ", elem_type_name(t.elem_type)));
  std::vector<double> out;
  const auto* bytes = reinterpret_cast<const uint8_t*>(t.bytes.data);
  for (int64_t i = 0; i < t.count(); ++i) out.push_back(read_float(*dtype, bytes + i * byte_size(*dtype)));
  return out;
}

std::vector<int64_t> integer_values(const Tensor& t) {
  const auto dtype = t.dtype();
  if (!dtype || is_float(*dtype))
    fail(ErrorKind::kDoesNotFit, "table-type",
         cat("a table of integers is given as ", elem_type_name(t.elem_type)));
  std::vector<int64_t> out;
  const auto* bytes = reinterpret_cast<const uint8_t*>(t.bytes.data);
  for (int64_t i = 0; i < t.count(); ++i) out.push_back(read_integer(*dtype, bytes + i * byte_size(*dtype)));
  return out;
}

std::vector<double> float_attribute(const Context& c, const std::string& name) {
  if (const Tensor* t = c.tensor(name + "_as_tensor")) return float_values(*t);
  if (const Tensor* t = c.tensor(name)) return float_values(*t);
  return c.numbers(name);
}

namespace {

// Winitzki's approximation, as in onnxruntime.
Term inverse_erf(Term x) {
  const Term sign = apply(OpKind::kSign, x), l = log(subtract_from(1, square(x)));
  const Term v = l * 0.5 + 2 / (3.14159f * 0.147f), v2 = l * (1 / 0.147f);
  return sign * sqrt(sqrt(square(v) - v2) - v);
}

}  // namespace

Term find_number(Term x, std::vector<std::pair<double, int64_t>> floats,
                 std::vector<std::pair<int64_t, int64_t>> integers) {
  Builder& b = x.builder();
  std::vector<int64_t> places;
  std::optional<Term> keys;
  if (is_float(x.dtype())) {
    const auto nan = [](double v) { return std::isnan(v); };
    std::sort(floats.begin(), floats.end(), [&](const auto& l, const auto& r) {
      if (nan(l.first) || nan(r.first))
        return nan(l.first) == nan(r.first) ? l.second < r.second : nan(r.first);
      return l < r;
    });
    std::vector<double> values;
    for (const auto& [key, place] : floats) {
      values.push_back(key);
      places.push_back(place);
    }
    if (values.empty()) return filled(b, x.shape(), DType::kI64, -1);
    keys = float_table(b, values, x.dtype());
  } else {
    x = cast(x, DType::kI64);
    std::sort(integers.begin(), integers.end());
    std::vector<int64_t> values;
    for (const auto& [key, place] : integers) {
      values.push_back(key);
      places.push_back(place);
    }
    if (values.empty()) return filled(b, x.shape(), DType::kI64, -1);
    // A dense range of keys is looked up by index instead of binary search.
    const int64_t low = values.front(), high = values.back();
    constexpr int64_t kExact = int64_t{1} << 53;  // largest integer range exact in a double
    if (low > -kExact && high < kExact && high - low < 4 * static_cast<int64_t>(values.size()) + 64) {
      std::vector<int64_t> table(static_cast<size_t>(high - low + 1), -1);
      for (size_t i = values.size(); i-- > 0;) table[static_cast<size_t>(values[i] - low)] = places[i];
      const Term inside = minimum(maximum(x, static_cast<double>(low)), static_cast<double>(high));
      const Term place = gather(integer_table(b, table), inside - static_cast<double>(low), 0);
      return select(equal(inside, x), place, -1);
    }
    keys = integer_table(b, values);
  }
  const Term at = minimum(Term(b, b.add1(OpKind::kSearchSorted, {keys->id(), x.id()})),
                          static_cast<double>(places.size() - 1));
  const Term key = gather(*keys, at, 0);
  Term same = equal(key, x);
  if (is_float(x.dtype()))
    same = logical_or(same, logical_and(apply(OpKind::kIsNan, key), apply(OpKind::kIsNan, x)));
  return select(same, gather(integer_table(b, places), at, 0), -1);
}

Term post_transform(const Context& c, Term scores, const std::string& kind) {
  if (kind == "NONE") return scores;
  if (kind == "LOGISTIC") return sigmoid(scores);
  if (kind == "PROBIT") return inverse_erf(scores * 2.0 - 1.0) * 1.41421356;
  const Dims classes{scores.rank() - 1};
  if (kind == "SOFTMAX") return softmax(scores, classes);
  if (kind != "SOFTMAX_ZERO") c.does_not_fit("post_transform is '" + kind + "'");
  // Scores near zero stay near zero and are left out of the sum.
  const Term top = reduce_max(scores, classes, kKeep), counted = greater(abs(scores), 1e-7);
  const Term raised = select(counted, exp(scores - top), 0);
  return select(counted, raised, scores * exp(-top)) / reduce_sum(raised, classes, kKeep);
}

}  // namespace stridec::onnx
