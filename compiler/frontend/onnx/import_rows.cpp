#include "compiler/frontend/onnx/import_rows.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "compiler/base/text.h"
#include "compiler/frontend/onnx/schema.h"

namespace stridec::onnx {
namespace {

std::vector<std::span<const Row>> families() {
  return {pointwise_rows(),
          shape_rows(),
          indexing_rows(),
          reduction_rows(),
          contraction_rows(),
          window_rows(),
          resize_rows(),
          normalization_rows(),
          quantization_rows(),
          recurrent_rows(),
          control_flow_rows(),
          sequence_rows(),
          vision_rows(),
          signal_rows(),
          training_rows(),
          contrib_rows(),
          contrib_attention_rows(),
          contrib_quantized_rows(),
          contrib_misc_rows(),
          contrib_moe_rows(),
          tree_rows(),
          ml_rows(),
          svm_rows(),
          map_rows(),
          string_rows()};
}

constexpr const char* kSignalParts = "the last dim of the signal (1 or 2) is known at compile time";
constexpr const char* kItems = "the lengths of sequences are known at compile time";
constexpr Limit kLimits[] = {
    {"", "BatchNormalization", "spatial = 1"},
    {"", "DFT", kSignalParts},
    {"", "DeformConv", "two spatial dims"},
    {"", "ImageDecoder", "RGB, BGR and grayscale"},
    {"", "Loop",
     "a carried sequence needs a known number of iterations; carried sizes change by the same amount in each "
     "iteration"},
    {"", "MaxUnpool",
     "indices of a MaxPool in the model count in output_shape; others count in the shape that the attributes "
     "give, unless output_shape is smaller in a dim"},
    {"", "RegexFullMatch", "RE2's syntax"},
    {"", "STFT", kSignalParts},
    {"", "SequenceAt", kItems},
    {"", "SequenceErase", kItems},
    {"", "SequenceInsert", kItems},
    {"", "SplitToSequence", kItems},
    {"", "Squeeze", "without axes, the sizes, --dim or a declared shape tell the rank of the result"},
    {"", "StringNormalizer", "upper and lower case of ASCII"},
    {"ai.onnx.ml", "CastMap", "no conversion between strings and numbers"},
    {"ai.onnx.ml", "TreeEnsembleClassifier",
     "where one of two classes has weights, scores and labels are onnxruntime's; where both have, the "
     "label is that of the larger sum, and base value i is class i's; a single label is every row's"},
    {"ai.onnx.ml", "TreeEnsembleRegressor",
     "0, without base value, for a target that no reached leaf has a weight for, as in onnxruntime"},
    {"ai.onnx.ml", "ZipMap", "gives the matrix of values: column i for class label i"},
    {"com.microsoft", "Attention", "no rotary embedding in it; past and present are tensors of their own"},
    {"com.microsoft", "CDist", "euclidean and sqeuclidean"},
    {"com.microsoft", "CausalConvWithState", "one spatial dim, the state after the last position"},
    {"com.microsoft", "DecoderMaskedMultiHeadAttention", "one beam"},
    {"com.microsoft", "GroupQueryAttention", "no quantised cache"},
    {"com.microsoft", "MRotaryEmbedding", "no packed batches"},
    {"com.microsoft", "MatMulNBits", "2, 4 and 8 bits"},
    {"com.microsoft", "MoE", "no sparse mixer"},
    {"com.microsoft", "MultiHeadAttention", "one beam"},
    {"com.microsoft", "QMoE", "2, 4 and 8 bits, not packed for a device"},
    {"com.microsoft", "RotaryEmbedding", "no packed batches"},
};

using RowTable = std::unordered_map<std::string, std::vector<const Row*>>;

std::string row_key(std::string_view domain, std::string_view op) { return cat(domain, ":", op); }

const RowTable& row_table() {
  static const RowTable table = [] {
    RowTable out;
    for (auto family : families())
      for (const Row& row : family) out[row_key(row.domain, row.op_type)].push_back(&row);
    return out;
  }();
  return table;
}

}  // namespace

const Row* find_row(const Node& node) {
  auto it = row_table().find(row_key(node.domain, node.op_type));
  if (it == row_table().end()) return nullptr;
  for (const Row* row : it->second)
    if (row->since <= node.version && node.version <= row->until) return row;
  return nullptr;
}

std::span<const Limit> limits() { return kLimits; }

std::string_view limits_of(std::string_view domain, std::string_view op_type) {
  for (const Limit& limit : kLimits)
    if (limit.domain == domain && limit.op_type == op_type) return limit.text;
  return {};
}

namespace {

// The types of the operator at that version. Omits types without a DType (complex).
std::string types_of(const std::string& op_type, const std::string& domain, int version) {
  std::string out;
  for (const TypeParameter& parameter : type_parameters(op_type, domain, version)) {
    std::string names;
    for (int type : parameter.elem_types)
      if (type == kElemString || dtype_from_onnx(type)) names += " " + elem_type_name(type);
    if (!names.empty()) out += cat(out.empty() ? "" : "; ", parameter.name, ":", names);
  }
  return out;
}

}  // namespace

std::vector<frontend::OperatorInfo> operators() {
  std::map<std::string, frontend::OperatorInfo> out;
  const auto name_of = [](std::string_view domain, std::string_view op_type) {
    return domain.empty() ? std::string(op_type) : cat(domain, ".", op_type);
  };
  for (const auto& family : families()) {
    for (const Row& row : family) {
      const std::string name = name_of(row.domain, row.op_type), domain(row.domain);
      frontend::OperatorInfo& info = out[name];
      info.name = name, info.through = "row", info.limits = limits_of(domain, row.op_type);
      if (!info.versions.empty()) info.versions += ", ";
      info.versions += row.until == kAnyLater ? cat(row.since, "-") : cat(row.since, "-", row.until);
      const std::string types =
          types_of(std::string(row.op_type), domain, std::min(row.until, newest_version(domain)));
      if (!types.empty()) info.types = types;
    }
  }
  for (const std::string domain : {"", "ai.onnx.ml", "ai.onnx.preview.training"}) {
    const int newest = newest_version(domain);
    for (const auto& [op_type, since] : operators_of(domain)) {
      const std::string name = name_of(domain, op_type);
      if (out.count(name) || !has_schema(op_type, domain, newest)) continue;
      frontend::OperatorInfo& info = out[name];
      info.name = name, info.types = types_of(op_type, domain, newest),
      info.limits = limits_of(domain, op_type);
      for (int version : since)
        if (info.through.empty() && find_schema(op_type, domain, version)->has_function)
          info.through = "function", info.versions = cat(version, "-");
    }
  }
  std::vector<frontend::OperatorInfo> list;
  for (auto& [name, info] : out) list.push_back(std::move(info));
  return list;
}

}  // namespace stridec::onnx
