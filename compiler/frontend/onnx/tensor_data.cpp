#include "compiler/frontend/onnx/tensor_data.h"

#include <cstring>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"

namespace stridec::onnx {

std::optional<int64_t> element_count(std::span<const int64_t> dims) {
  bool zero = false;
  for (int64_t d : dims) {
    if (d < 0) return std::nullopt;
    zero |= d == 0;
  }
  if (zero) return 0;
  int64_t n = 1;
  for (int64_t d : dims)
    if (__builtin_mul_overflow(n, d, &n)) return std::nullopt;
  return n;
}

int stored_bits(int elem_type) {
  if (elem_type == kElemComplex64) return 64;
  if (elem_type == kElemComplex128) return 128;
  const auto type = dtype_from_onnx(elem_type);
  if (!type) return 0;
  return is_bool(*type) ? 8 : info(*type).bits;
}

std::optional<uint64_t> stored_bytes(int elem_type, int64_t count) {
  int64_t bits = 0;
  if (__builtin_mul_overflow(count, int64_t{stored_bits(elem_type)}, &bits)) return std::nullopt;
  return static_cast<uint64_t>(bits / 8) + (bits % 8 != 0);
}

Bytes own_bytes(std::vector<std::byte> data) {
  auto owner = std::make_shared<const std::vector<std::byte>>(std::move(data));
  return {owner, owner->data(), owner->size()};
}

Bytes unpack(int elem_type, int64_t count, Bytes packed) {
  const int bits = stored_bits(elem_type);
  if (bits >= 8) return packed;
  const auto type = dtype_from_onnx(elem_type);
  const bool sign = type && is_signed(*type);
  std::vector<std::byte> out(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t bit = static_cast<uint64_t>(i) * static_cast<unsigned>(bits);
    auto window = static_cast<unsigned>(packed.data[bit / 8]);
    if (bit % 8 + static_cast<unsigned>(bits) > 8)
      window |= static_cast<unsigned>(packed.data[bit / 8 + 1]) << 8;
    unsigned value = (window >> (bit % 8)) & ((1u << bits) - 1);
    if (sign && (value >> (bits - 1))) value |= ~0u << bits;
    out[static_cast<size_t>(i)] = static_cast<std::byte>(value);
  }
  return own_bytes(std::move(out));
}

std::string pack(int elem_type, std::span<const std::byte> elements) {
  const auto bits = static_cast<unsigned>(stored_bits(elem_type));
  std::string out((elements.size() * bits + 7) / 8, '\0');
  const auto set = [&](size_t byte, unsigned value) {
    out[byte] = static_cast<char>(static_cast<unsigned char>(out[byte]) | (value & 0xff));
  };
  for (size_t i = 0; i < elements.size(); ++i) {
    const size_t bit = i * bits;
    const unsigned value = (static_cast<unsigned>(elements[i]) & ((1u << bits) - 1)) << (bit % 8);
    set(bit / 8, value);
    if (value > 0xff) set(bit / 8 + 1, value >> 8);
  }
  return out;
}

namespace {

int64_t read_index(const Tensor& indices, int64_t at) {
  int64_t value = 0;
  std::memcpy(&value, indices.bytes.data + at * 8, 8);
  return value;
}

}  // namespace

Tensor densify(const Tensor& values, const Tensor& indices, std::vector<int64_t> dims) {
  const auto bad = [&](std::string message) {
    fail(ErrorKind::kMalformed, "sparse-tensor", "sparse tensor '" + values.name + "' " + message);
  };
  const auto type = values.dtype();
  if (!type)
    fail(ErrorKind::kUnsupported, "sparse-tensor",
         "sparse tensor '" + values.name + "' holds " + elem_type_name(values.elem_type));
  const auto count = element_count(dims);
  if (!count) bad("has a negative dim or more than 2^63 elements");
  const auto width = static_cast<uint64_t>(byte_size(*type));
  if (static_cast<uint64_t>(*count) > kMaxDensified / width)
    fail(ErrorKind::kOverBudget, "sparse-tensor",
         cat("sparse tensor '", values.name, "' has ", *count, " elements when dense; 2 GB is the limit"));
  const auto rank = static_cast<int64_t>(dims.size());
  if (values.dims.size() != 1) bad("has values that are not a vector");
  const int64_t stored = values.dims[0];
  if (indices.elem_type != info(DType::kI64).onnx_type) bad("has indices that are not i64");
  const bool linear = indices.dims.size() == 1;
  if (!(linear && indices.dims[0] == stored) &&
      !(indices.dims.size() == 2 && indices.dims[0] == stored && indices.dims[1] == rank))
    bad("has indices whose shape does not fit its values");

  std::vector<std::byte> out(static_cast<size_t>(*count) * width);
  for (int64_t i = 0; i < stored; ++i) {
    int64_t position = linear ? read_index(indices, i) : 0;
    if (!linear) {
      for (int64_t d = 0; d < rank; ++d) {
        const int64_t index = read_index(indices, i * rank + d);
        if (index < 0 || index >= dims[static_cast<size_t>(d)]) bad("has an index outside its dims");
        position = position * dims[static_cast<size_t>(d)] + index;
      }
    }
    if (position < 0 || position >= *count) bad("has an index outside its dims");
    std::memcpy(out.data() + static_cast<uint64_t>(position) * width,
                values.bytes.data + static_cast<uint64_t>(i) * width, width);
  }
  return {.name = values.name,
          .elem_type = values.elem_type,
          .dims = std::move(dims),
          .bytes = own_bytes(std::move(out))};
}

}  // namespace stridec::onnx
