// Tensors of pseudo-random values, equal on every machine.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/loop/interpret.h"

namespace stridec::test {

// Every element is `value` of a pseudo-random number in [0, 1).
inline loop::HostTensor drawn_tensor(DType dtype, std::vector<int64_t> shape, int seed,
                                     const std::function<double(double)>& value) {
  loop::HostTensor out = loop::make_tensor(dtype, std::move(shape));
  uint64_t state = 0x9E3779B97F4A7C15ull * static_cast<uint64_t>(seed + 1);
  for (int64_t i = 0; i < loop::element_count(out); ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    loop::set_number(out, i, value(static_cast<double>(state >> 11) * 0x1p-53));
  }
  return out;
}

// Floats in [-reach, reach), integers in [0, integers).
inline loop::HostTensor random_tensor(DType dtype, std::vector<int64_t> shape, int seed, double reach = 1,
                                      int integers = 9) {
  return drawn_tensor(dtype, std::move(shape), seed, [&](double unit) {
    return is_float(dtype) ? (2 * unit - 1) * reach : std::floor(integers * unit);
  });
}

// The buffer's shape, evaluated with the symbols' sizes.
inline std::vector<int64_t> shape_of(const loop::Buffer& buffer,
                                     const std::function<int64_t(const std::string& symbol)>& size) {
  std::vector<int64_t> shape;
  for (sym::Expr e : buffer.shape)
    shape.push_back(*sym::evaluate(
        e, [&](sym::Expr var) -> std::optional<int64_t> { return size(std::string(var.name())); }));
  return shape;
}

// The buffer's shape, which must be constant.
inline std::vector<int64_t> shape_of(const loop::Buffer& buffer) {
  std::vector<int64_t> shape;
  for (sym::Expr e : buffer.shape) shape.push_back(e.value());
  return shape;
}

inline loop::WeightData weight_data(std::vector<uint8_t> bytes) {
  auto owned = std::make_shared<std::vector<uint8_t>>(std::move(bytes));
  return {.owner = owned, .bytes = owned->data(), .size = owned->size()};
}

}  // namespace stridec::test
