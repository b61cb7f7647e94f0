#include "compiler/ops/tables.h"

#include "compiler/base/number.h"

namespace stridec::ops {
namespace {

template <class T, class Write>
Term table(Builder& b, const std::vector<T>& values, DType dtype, Shape shape, const Write& write) {
  const auto width = static_cast<size_t>(byte_size(dtype));
  std::vector<uint8_t> bytes(values.size() * width);
  for (size_t i = 0; i < values.size(); ++i) write(dtype, values[i], bytes.data() + i * width);
  if (shape.empty()) shape = {static_cast<int64_t>(values.size())};
  return {b, b.constant("", {dtype, std::move(shape)}, graph::own(std::move(bytes)))};
}

}  // namespace

Term float_table(Builder& b, const std::vector<double>& values, DType dtype, Shape shape) {
  return table(b, values, dtype, std::move(shape), write_float);
}

Term integer_table(Builder& b, const std::vector<int64_t>& values, DType dtype, Shape shape) {
  return table(b, values, dtype, std::move(shape), write_integer);
}

std::optional<double> known_number(Term x) {
  const Builder& b = x.builder();
  const graph::Value& value = b.graph()[x.id()];
  if (const graph::Data* const data = value.known_data();
      data && data->size == static_cast<size_t>(byte_size(x.dtype())))
    return is_float(x.dtype()) ? read_float(x.dtype(), data->bytes)
                               : static_cast<double>(read_integer(x.dtype(), data->bytes));
  const auto elements = b.known(x);
  if (!elements || elements->size() != 1) return std::nullopt;
  const auto element = sym::as_const(b.simplify(elements->front()));
  return element ? std::optional(static_cast<double>(*element)) : std::nullopt;
}

}  // namespace stridec::ops
