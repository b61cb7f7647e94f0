// Separates a model's weights from its structure. The only code that parses protobuf bytes by hand.
//
// Protobuf copies every bytes field when it parses, and rejects messages of 2 GB or more. `split_weights`
// walks the file's bytes, normally mapped, without copying them. It returns the same ModelProto without the
// raw_data of large tensors; instead, TensorProto.segment, a field that ONNX reserves and no writer uses,
// holds the position of the data in the file. Protobuf then parses a small message, whatever the size of the
// weights.
//
// Input is untrusted: every length is checked against the enclosing message, nesting is limited as in
// protobuf, and files that already use `segment` are rejected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace stridec::onnx {

inline constexpr size_t kInlineWeightBytes = 1024;  // smaller raw_data stays in the message
inline constexpr int kMaxNesting = 100;

// Throws Error "truncated" or "malformed" (naming the offset), or "over-budget" if the structure alone
// exceeds 2 GB.
std::string split_weights(std::span<const std::byte> file);

}  // namespace stridec::onnx
