#include "compiler/train/states.h"

#include <optional>

#include "compiler/base/number.h"

namespace stridec::train {

using namespace ops;
using graph::OpKind;

namespace {

graph::Data scalar_data(DType dtype, double value) {
  std::vector<uint8_t> bytes(static_cast<size_t>(byte_size(dtype)));
  write_float(dtype, value, bytes.data());
  return graph::own(std::move(bytes));
}

}  // namespace

Term state(graph::Builder& b, const std::string& name, const graph::Type& type, double initial) {
  std::optional<graph::Data> data;
  if (initial != 0) data = scalar_data(type.dtype, initial);
  return {b, b.state(name, type, std::move(data))};
}

void update(graph::Builder& b, Term of, Term to) { b.add(OpKind::kUpdateState, {of, to}); }

Term wide_enough(Term x) { return x.dtype() == DType::kF64 ? x : cast(x, DType::kF32); }

}  // namespace stridec::train
