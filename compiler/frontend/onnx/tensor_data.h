// Element counts and stored sizes of tensors, and unpacking of types narrower than a byte.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/model.h"

namespace stridec::onnx {

// None if a dim is negative or the count overflows int64.
std::optional<int64_t> element_count(std::span<const int64_t> dims);

// Bits per element in raw_data and external files; 0 for strings and unknown types.
int stored_bits(int elem_type);

// Size in a file of `count` elements. Types narrower than a byte are packed, padded to a whole byte.
std::optional<uint64_t> stored_bytes(int elem_type, int64_t count);

// Unpacks to one element per byte, low bits first. i2 and i4 are sign-extended, others zero-extended.
Bytes unpack(int elem_type, int64_t count, Bytes packed);
// The inverse, for types narrower than a byte.
std::string pack(int elem_type, std::span<const std::byte> elements);

Bytes own_bytes(std::vector<std::byte> data);

// A tensor of shape `dims` with values[i] at indices[i] and zero elsewhere. indices [n] are flat positions,
// [n, rank] are coordinates. Throws Error for positions out of range and for results above kMaxDensified
// bytes.
inline constexpr uint64_t kMaxDensified = uint64_t{1} << 31;
Tensor densify(const Tensor& values, const Tensor& indices, std::vector<int64_t> dims);

}  // namespace stridec::onnx
