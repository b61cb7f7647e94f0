// Element counts, sizes in files, and unpacking of types narrower than a byte.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/model.h"

namespace stridec::onnx {

// None if a dim is negative or the product leaves int64.
std::optional<int64_t> element_count(std::span<const int64_t> dims);

// Bits that one element takes in raw_data and external files; 0 for strings and unknown types.
int stored_bits(int elem_type);

// The bytes of `count` elements in a file: types narrower than a byte are packed and padded to a whole byte.
std::optional<uint64_t> stored_bytes(int elem_type, int64_t count);

// One element per byte from packed data, low bits first; i2 and i4 sign-extended, others zero-extended.
Bytes unpack(int elem_type, int64_t count, Bytes packed);
// The way back, for types narrower than a byte.
std::string pack(int elem_type, std::span<const std::byte> elements);

Bytes own_bytes(std::vector<std::byte> data);

// The tensor of `dims` with values[i] at indices[i] (positions when indices is [n], coordinates when [n,
// rank]) and zero elsewhere. Throws Error for positions outside and for results above kMaxDensified bytes.
inline constexpr uint64_t kMaxDensified = uint64_t{1} << 31;
Tensor densify(const Tensor& values, const Tensor& indices, std::vector<int64_t> dims);

}  // namespace stridec::onnx
