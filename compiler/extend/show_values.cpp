#include "compiler/extend/show_values.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <vector>

#include "compiler/base/number.h"
#include "compiler/base/text.h"

namespace stridec::extend {

std::string number(const loop::HostTensor& tensor, int64_t i) {
  if (!is_float(tensor.dtype)) {
    const int64_t value = read_integer(tensor.dtype, tensor.bytes.data() + i * byte_size(tensor.dtype));
    return is_signed(tensor.dtype) ? cat(value) : cat(static_cast<uint64_t>(value));
  }
  if (std::isnan(loop::get_number(tensor, i))) return "nan";
  std::ostringstream out;
  out.precision(tensor.dtype == DType::kF64 ? 17 : 9);
  out << loop::get_number(tensor, i);
  return out.str();
}

std::string place(const loop::HostTensor& tensor, int64_t i) {
  std::vector<std::string> index(tensor.shape.size());
  for (size_t d = tensor.shape.size(); d-- > 0; i /= tensor.shape[d]) index[d] = cat(i % tensor.shape[d]);
  return cat("[", join(index, ", "), "]");
}

std::string shown(const loop::HostTensor& tensor) {
  constexpr int64_t kMost = 12;
  std::string out = cat(stridec::name(tensor.dtype), "[",
                        join(tensor.shape, ", ", [](int64_t d) { return cat(d); }), "] [");
  const int64_t count = loop::element_count(tensor);
  for (int64_t i = 0; i < std::min(count, kMost); ++i) out += cat(i ? ", " : "", number(tensor, i));
  return out + (count > kMost ? ", ...]" : "]");
}

}  // namespace stridec::extend
