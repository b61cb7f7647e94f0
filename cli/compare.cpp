#include "cli/compare.h"

#include <algorithm>
#include <cmath>

#include "compiler/base/text.h"

namespace stridec::cli {

using loop::HostTensor;

Difference compare(const HostTensor& got, const HostTensor& want) {
  Difference worst;
  if (got.dtype != want.dtype || got.shape != want.shape) return {.error = HUGE_VAL};
  double largest = 0, sum = 0;
  const int64_t count = loop::element_count(want);
  for (int64_t i = 0; i < count; ++i)
    if (const double v = std::abs(loop::get_number(want, i)); std::isfinite(v))
      largest = std::max(largest, v);
  for (int64_t i = 0; i < count; ++i) {
    const double a = loop::get_number(got, i), b = loop::get_number(want, i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double error =
        std::isfinite(a) && std::isfinite(b) ? std::abs(a - b) / std::max(largest, 1e-30) : HUGE_VAL;
    sum += error;
    if (error > worst.error) worst = {.error = error, .element = i, .got = a, .want = b};
  }
  worst.mean = sum / static_cast<double>(std::max<int64_t>(1, count));
  return worst;
}

std::vector<Difference> compare(const Tensors& got, const Tensors& want) {
  std::vector<Difference> all;
  for (size_t i = 0; i < want.size(); ++i) {
    all.push_back(compare(got[i], want[i]));
    all.back().output = i;
  }
  return all;
}

std::string position(const HostTensor& tensor, int64_t element) {
  std::vector<int64_t> at(tensor.shape.size());
  for (size_t d = at.size(); d-- > 0;) {
    at[d] = element % std::max<int64_t>(1, tensor.shape[d]);
    element /= std::max<int64_t>(1, tensor.shape[d]);
  }
  return "[" + join(at, ",", [](int64_t i) { return std::to_string(i); }) + "]";
}

}  // namespace stridec::cli
