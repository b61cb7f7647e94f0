// The one place that walks protobuf bytes by hand: it separates a model's weights from its structure.
//
// Protobuf copies every bytes field when it parses, and refuses messages of 2 GB or more. `split_weights`
// walks the file's bytes (they stay where they are, normally mapped), and returns the same ModelProto with
// the raw_data of large tensors taken out; in its place TensorProto.segment, a field that ONNX reserves and
// nobody writes, says which bytes of the file they are. What protobuf then parses is small, whatever the size
// of the weights.
//
// Input is hostile until proven otherwise: every length is checked against the message around it, nesting is
// limited as protobuf limits it, and a file that already uses `segment` is refused.
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
