#include "cli/trained_weights.h"

#include <algorithm>

#include "compiler/base/diagnostic.h"
#include "compiler/base/numeric.h"
#include "compiler/base/text.h"
#include "compiler/frontend/onnx/tensor_data.h"
#include "compiler/train/train.h"

namespace stridec::cli {
namespace {

using Weight = onnx::WeightEditor::Weight;

std::string type_text(const std::string& dtype, const std::vector<int64_t>& shape) {
  return cat(dtype, "[", join(shape, ", ", [](int64_t dim) { return std::to_string(dim); }), "]");
}

// Why the tensor cannot be the value of the weight; "": it can.
std::string misfit(const std::string& name, const FileTensor& tensor, const Weight& weight) {
  const auto wanted = dtype_from_onnx(weight.elem_type);
  const bool converts =
      wanted && (*wanted == tensor.dtype || (is_float(*wanted) && is_float(tensor.dtype) &&
                                             byte_size(*wanted) > 1 && byte_size(tensor.dtype) > 1));
  if (converts && weight.dims == tensor.shape) return "";
  return cat("'", name, "' is ", type_text(std::string(stridec::name(tensor.dtype)), tensor.shape),
             ", the model's is ", type_text(onnx::elem_type_name(weight.elem_type), weight.dims));
}

uint64_t load_bits(const char* at, int64_t bytes) {
  uint64_t bits = 0;
  std::copy_n(at, bytes, reinterpret_cast<char*>(&bits));
  return bits;
}

// A float tensor in another float type, rounded to nearest.
onnx::Bytes convert(const FileTensor& tensor, DType to) {
  const int64_t from_size = byte_size(tensor.dtype), to_size = byte_size(to);
  const size_t count = tensor.bytes.size() / static_cast<size_t>(from_size);
  std::vector<std::byte> out(count * static_cast<size_t>(to_size));
  for (size_t i = 0; i < count; ++i) {
    const double value = decode_float(
        tensor.dtype, load_bits(tensor.bytes.data() + i * static_cast<size_t>(from_size), from_size));
    const uint64_t bits = encode_float(to, value);
    std::copy_n(reinterpret_cast<const std::byte*>(&bits), to_size,
                out.data() + i * static_cast<size_t>(to_size));
  }
  return onnx::own_bytes(std::move(out));
}

[[noreturn]] void refuse(const std::vector<std::string>& problems) {
  constexpr size_t kMostNotes = 20;
  Diagnostic all{
      .kind = ErrorKind::kDoesNotFit,
      .code = "other-weights",
      .message = problems.front(),
      .help = "name the model that was trained; 'stridec inspect MODEL --stage=graph' lists its weights"};
  for (size_t i = 1; i < problems.size() && i <= kMostNotes; ++i) all.notes.push_back(problems[i]);
  if (problems.size() > 1) all.notes.push_back(cat(problems.size(), " problems in all"));
  throw Error(std::move(all));
}

}  // namespace

TrainedWeights match_weights(const ParameterFile& file, const std::map<std::string, Weight>& model,
                             bool averages) {
  TrainedWeights out;
  std::vector<std::string> problems;
  for (const auto& [name, given] : file.tensors) {
    const auto found = model.find(name);
    if (found == model.end()) {
      if (train::is_training_state(name))
        ++out.skipped;
      else
        problems.push_back(cat("the model has no weight '", name, "'"));
      continue;
    }
    const auto average = file.tensors.find(train::average_name(name));
    const bool averaged = averages && average != file.tensors.end() && !model.contains(average->first);
    const FileTensor& tensor = averaged ? average->second : given;
    if (std::string problem = misfit(name, tensor, found->second); !problem.empty()) {
      problems.push_back(std::move(problem));
      continue;
    }
    const DType wanted = *dtype_from_onnx(found->second.elem_type);
    if (wanted != tensor.dtype)
      out.converted.push_back(
          cat("'", name, "' from ", stridec::name(tensor.dtype), " to ", stridec::name(wanted)));
    out.averages += averaged;
    out.skipped -= averaged;
    const auto* bytes = reinterpret_cast<const std::byte*>(tensor.bytes.data());
    out.values[name] = wanted == tensor.dtype ? onnx::Bytes{file.owner, bytes, tensor.bytes.size()}
                                              : convert(tensor, wanted);
  }
  if (!problems.empty()) refuse(problems);
  return out;
}

}  // namespace stridec::cli
