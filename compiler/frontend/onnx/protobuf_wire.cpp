#include "compiler/frontend/onnx/protobuf_wire.h"

#include <limits>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"

namespace stridec::onnx {
namespace {

// The messages on the path from a model to its tensors. Other fields are copied without parsing.
enum class Message : uint8_t {
  kModel,
  kGraph,
  kNode,
  kAttribute,
  kTensor,
  kSparseTensor,
  kFunction,
  kTraining,
  kOpaque
};

Message child(Message parent, uint64_t field) {
  switch (parent) {
    case Message::kModel:
      return field == 7    ? Message::kGraph
             : field == 25 ? Message::kFunction
             : field == 20 ? Message::kTraining
                           : Message::kOpaque;
    case Message::kTraining: return field == 1 || field == 2 ? Message::kGraph : Message::kOpaque;
    case Message::kGraph:
      return field == 1    ? Message::kNode
             : field == 5  ? Message::kTensor
             : field == 15 ? Message::kSparseTensor
                           : Message::kOpaque;
    case Message::kFunction:
      return field == 7 ? Message::kNode : field == 11 ? Message::kAttribute : Message::kOpaque;
    case Message::kNode: return field == 5 ? Message::kAttribute : Message::kOpaque;
    case Message::kAttribute:
      if (field == 5 || field == 10) return Message::kTensor;
      if (field == 6 || field == 11) return Message::kGraph;
      return field == 22 || field == 23 ? Message::kSparseTensor : Message::kOpaque;
    case Message::kSparseTensor: return field == 1 || field == 2 ? Message::kTensor : Message::kOpaque;
    case Message::kTensor:
    case Message::kOpaque: return Message::kOpaque;
  }
  return Message::kOpaque;
}

constexpr uint64_t kTensorSegment = 3, kTensorRawData = 9;

size_t varint_size(uint64_t v) {
  size_t n = 1;
  for (; v >= 0x80; v >>= 7) ++n;
  return n;
}

void put_varint(std::string& out, uint64_t v) {
  for (; v >= 0x80; v >>= 7) out.push_back(static_cast<char>(v | 0x80));
  out.push_back(static_cast<char>(v));
}

// TensorProto.Segment{begin, end} as a field of TensorProto.
std::string segment_field(uint64_t begin, uint64_t end) {
  std::string body;
  put_varint(body, 1 << 3);
  put_varint(body, begin);
  put_varint(body, 2 << 3);
  put_varint(body, end);
  std::string out;
  put_varint(out, kTensorSegment << 3 | 2);
  put_varint(out, body.size());
  return out + body;
}

// Walks the file twice: the first pass computes the new length of every entered message, in order of entry;
// the second pass writes.
class Splitter {
 public:
  explicit Splitter(std::span<const std::byte> file) : file_(file) {}

  std::string run() {
    uint64_t total = walk(0, file_.size(), Message::kModel, 0);
    if (total >= static_cast<uint64_t>(std::numeric_limits<int32_t>::max()))
      fail(ErrorKind::kOverBudget, "model-too-large",
           cat("the model's structure takes ", total, " bytes without its raw weights; protobuf allows 2 GB"),
           "save it with external data, or with weights as raw_data");
    output_.reserve(total);
    writing_ = true;
    next_ = 0;
    walk(0, file_.size(), Message::kModel, 0);
    return std::move(output_);
  }

 private:
  [[noreturn]] void malformed(size_t at, std::string_view what) {
    fail(ErrorKind::kMalformed, "malformed-model",
         cat("the file is not a valid ONNX model: ", what, " at byte ", at));
  }

  uint64_t varint(size_t& at, size_t end) {
    const size_t start = at;
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (at == end)
        malformed(start,
                  end == file_.size() ? "the file ends inside a number" : "a number crosses its field's end");
      const auto byte = static_cast<uint64_t>(file_[at++]);
      if (shift == 63 && byte > 1) break;
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    malformed(start, "a number has more than 64 bits");
  }

  void copy(size_t from, size_t to) {
    if (writing_) output_.append(reinterpret_cast<const char*>(file_.data()) + from, to - from);
  }

  // Walks the message in bytes [at, end). Returns its size without large weights.
  uint64_t walk(size_t at, size_t end, Message message, int depth) {
    if (depth > kMaxNesting) malformed(at, cat("messages are nested more than ", kMaxNesting, " deep"));
    uint64_t size = 0;
    bool has_raw = false;
    while (at < end) {
      const size_t field_start = at;
      const uint64_t tag = varint(at, end);
      const uint64_t field = tag >> 3;
      if (field == 0 || field > 0x1fffffff) malformed(field_start, "there is no field with this number");
      switch (tag & 7) {
        case 0: varint(at, end); break;
        case 1: skip(at, end, 8); break;
        case 5: skip(at, end, 4); break;
        case 2: {
          const uint64_t length = varint(at, end);
          const size_t body = at;
          skip(at, end, length);
          if (message == Message::kTensor && field == kTensorSegment)
            fail(ErrorKind::kUnsupported, "segmented-tensor",
                 cat("a tensor is stored in segments (at byte ", field_start, ")"));
          if (message == Message::kTensor && field == kTensorRawData) {
            if (has_raw) malformed(field_start, "a tensor has raw_data twice");
            has_raw = true;
            if (length > kInlineWeightBytes) {
              const std::string segment = segment_field(body, at);
              if (writing_) output_ += segment;
              size += segment.size();
              continue;
            }
          }
          if (Message inner = child(message, field); inner != Message::kOpaque) {
            const size_t slot = next_++;
            if (!writing_) sizes_.push_back(0);
            if (writing_) {
              put_varint(output_, tag);
              put_varint(output_, sizes_[slot]);
            }
            const uint64_t inner_size = walk(body, at, inner, depth + 1);
            sizes_[slot] = inner_size;
            size += varint_size(tag) + varint_size(inner_size) + inner_size;
            continue;
          }
          break;
        }
        default: malformed(field_start, "there is a field of unknown kind");
      }
      copy(field_start, at);
      size += at - field_start;
    }
    return size;
  }

  void skip(size_t& at, size_t end, uint64_t length) {
    if (length > end - at) {
      if (end == file_.size() || at + length > file_.size() || at + length < at)
        fail(ErrorKind::kMalformed, "truncated-model",
             cat("the file is truncated: at byte ", at, " ", length,
                 " bytes should follow, but the file has ", file_.size()),
             "copy or download it again");
      malformed(at, "a field is longer than the message around it");
    }
    at += length;
  }

  std::span<const std::byte> file_;
  std::vector<uint64_t> sizes_;
  size_t next_ = 0;
  bool writing_ = false;
  std::string output_;
};

}  // namespace

std::string split_weights(std::span<const std::byte> file) { return Splitter(file).run(); }

}  // namespace stridec::onnx
