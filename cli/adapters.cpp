#include "cli/adapters.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "compiler/base/diagnostic.h"
#include "compiler/base/files.h"
#include "compiler/base/number.h"
#include "compiler/base/text.h"
#include "compiler/frontend/import.h"
#include "compiler/frontend/onnx/tensor_data.h"
#include "compiler/train/lora.h"
#include "compiler/train/train.h"

namespace stridec::cli {
namespace {

constexpr std::string_view kA = ".lora_A", kB = ".lora_B";

std::optional<FileTensor> take(ParameterFile& file, const std::string& name, bool averages) {
  const auto found = file.tensors.find(name);
  if (found == file.tensors.end()) return std::nullopt;
  FileTensor tensor = found->second;
  file.tensors.erase(found);
  if (const auto average = file.tensors.find(train::average_name(name));
      averages && average != file.tensors.end()) {
    tensor = average->second;
    file.tensors.erase(average);
  }
  return tensor;
}

// The weights whose matrices the file has.
std::set<std::string> adapted_names(const ParameterFile& file, const OwnNames& own) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : file.tensors)
    for (const std::string_view suffix : {kA, kB})
      if (name.ends_with(suffix) && !own(name) && !train::is_training_state(name))
        names.insert(name.substr(0, name.size() - suffix.size()));
  return names;
}

double alpha_of(const ParameterFile& file, std::optional<double> given) {
  if (given) return *given;
  const auto train = file.metadata.find("train");
  if (train != file.metadata.end() && !train->second.empty())
    if (const train::Settings settings = train::parse_settings(train->second); settings.lora)
      return settings.lora->alpha;
  fail(ErrorKind::kUsage, "no-alpha",
       "the file has adapters but does not say which alpha they were trained with",
       "'stridec train --save' records it; give it for other files: --lora-alpha 16");
}

// The dims of each weight that its adapter's matrices belong to, from the model's graph.
std::map<std::string, train::Adapted> adapted_in(const std::string& model, const std::vector<Adapter>& all) {
  train::Lora lora;
  for (const Adapter& each : all) lora.targets.push_back(each.weight);
  frontend::ImportOptions options;
  options.training = frontend::TrainingImport{.trainable = {}, .frozen = {}, .apart = lora.targets};
  frontend::Imported imported = frontend::import_file(model, options);
  if (!imported.problems.empty()) throw frontend::as_error(imported.problems, model);
  std::map<std::string, train::Adapted> out;
  try {
    for (train::Adapted& each : train::find_adapted(imported.graph, lora)) out.emplace(each.name, each);
  } catch (Error& error) {
    error.diagnostic.kind = ErrorKind::kDoesNotFit;
    error.diagnostic.message = cat("the adapters do not fit the model: ", error.diagnostic.message);
    throw;
  }
  return out;
}

// Whether the tensor has the shape, whose dim `rank_dim` is the rank.
bool has_shape(const FileTensor& tensor, const graph::Shape& shape, size_t rank_dim, int64_t rank) {
  if (tensor.shape.size() != shape.size()) return false;
  for (size_t d = 0; d < shape.size(); ++d)
    if (tensor.shape[d] != (d == rank_dim ? rank : sym::as_const(shape[d]).value_or(-1))) return false;
  return is_float(tensor.dtype);
}

std::vector<double> numbers(DType dtype, const char* bytes, size_t size) {
  const auto width = static_cast<size_t>(byte_size(dtype));
  std::vector<double> out(size / width);
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = read_float(dtype, reinterpret_cast<const uint8_t*>(bytes) + i * width);
  return out;
}

// A module's name is its weight's without ".weight", ".qweight" or, of quantised weights, ".weight_...".
std::string module_of(const std::string& weight) {
  const size_t dot = weight.rfind('.');
  if (dot == std::string::npos || dot == 0) return weight;
  const std::string_view last = std::string_view(weight).substr(dot + 1);
  return last == "weight" || last == "qweight" || last.starts_with("weight_") ? weight.substr(0, dot)
                                                                              : weight;
}

Array to_array(const FileTensor& tensor) {
  return {.dtype = tensor.dtype, .shape = tensor.shape, .bytes = {tensor.bytes.begin(), tensor.bytes.end()}};
}

}  // namespace

std::vector<Adapter> take_adapters(ParameterFile& file, const std::string& model, const OwnNames& own,
                                   bool averages, std::optional<double> alpha) {
  std::vector<Adapter> all;
  std::vector<std::string> problems;
  for (const std::string& weight : adapted_names(file, own)) {
    const auto a = take(file, cat(weight, kA), averages), b = take(file, cat(weight, kB), averages);
    if (a.has_value() != b.has_value())
      problems.push_back(cat("'", weight, a ? kB : kA, "' is missing"));
    else
      all.push_back({.weight = weight, .a = *a, .b = *b});
  }
  if (all.empty() && problems.empty()) return all;
  const double given = alpha_of(file, alpha);
  const auto adapted = adapted_in(model, all);
  for (Adapter& each : all) {
    if (!adapted.contains(each.weight)) {
      problems.push_back(cat("the model has no weight '", each.weight, "'"));
      continue;
    }
    const train::Adapted& in_model = adapted.at(each.weight);
    const int64_t rank = each.a.shape.empty() ? 0 : each.a.shape[0];
    if (rank < 1 || !has_shape(each.a, in_model.a.shape, 0, rank) ||
        !has_shape(each.b, in_model.b.shape, 1, rank))
      problems.push_back(cat("the adapter of '", each.weight, "' has other shapes than the weight"));
    each.in = in_model.in, each.out = in_model.out, each.quantised = in_model.is_quantised();
    each.scale = given / static_cast<double>(std::max<int64_t>(rank, 1));
  }
  if (problems.empty()) return all;
  throw Error({.kind = ErrorKind::kDoesNotFit,
               .code = "other-weights",
               .message = problems.front(),
               .where = {},
               .notes = {problems.begin() + 1, problems.end()},
               .help = "name the model that was trained"});
}

void check_mergeable(const std::vector<Adapter>& adapters) {
  std::vector<std::string> names;
  for (const Adapter& each : adapters)
    if (each.quantised) names.push_back(cat("'", each.weight, "'"));
  if (names.empty()) return;
  fail(ErrorKind::kUsage, "quantised-weight",
       cat("adapters cannot be merged into quantised weights: ", join(names, ", ")),
       "write the adapters as files of PEFT: --lora-form peft -o FOLDER");
}

onnx::Bytes merged(const Adapter& adapter, const onnx::Bytes& weight, DType dtype) {
  std::vector<double> out = numbers(dtype, reinterpret_cast<const char*>(weight.data), weight.size);
  const std::vector<double> a = numbers(adapter.a.dtype, adapter.a.bytes.data(), adapter.a.bytes.size()),
                            b = numbers(adapter.b.dtype, adapter.b.bytes.data(), adapter.b.bytes.size());
  const auto rank = static_cast<size_t>(adapter.a.shape[0]);
  const size_t ins = a.size() / rank, outs = b.size() / rank;
  std::vector<double> row(ins);
  for (size_t o = 0; o < outs; ++o) {
    std::ranges::fill(row, 0);
    for (size_t r = 0; r < rank; ++r)
      for (size_t i = 0; i < ins; ++i) row[i] += b[o * rank + r] * a[r * ins + i];
    for (size_t i = 0; i < ins; ++i)
      out[adapter.in < adapter.out ? i * outs + o : o * ins + i] += adapter.scale * row[i];
  }
  const auto width = static_cast<size_t>(byte_size(dtype));
  std::vector<std::byte> bytes(weight.size);
  for (size_t i = 0; i < out.size(); ++i)
    write_float(dtype, out[i], reinterpret_cast<uint8_t*>(bytes.data()) + i * width);
  return onnx::own_bytes(std::move(bytes));
}

PeftFiles peft_files(const std::string& folder) {
  const std::filesystem::path path(folder);
  return {(path / "adapter_model.safetensors").string(), (path / "adapter_config.json").string()};
}

void write_peft(const std::string& folder, const std::vector<Adapter>& adapters) {
  std::vector<std::pair<std::string, Array>> tensors;
  nlohmann::ordered_json modules = nlohmann::json::array();
  for (const Adapter& each : adapters) {
    const std::string module = module_of(each.weight);
    tensors.emplace_back(cat("base_model.model.", module, kA, ".weight"), to_array(each.a));
    tensors.emplace_back(cat("base_model.model.", module, kB, ".weight"), to_array(each.b));
    modules.push_back(module);
  }
  const int64_t rank = adapters.front().a.shape[0];
  const nlohmann::ordered_json config = {{"peft_type", "LORA"},
                                         {"task_type", nullptr},
                                         {"base_model_name_or_path", nullptr},
                                         {"r", rank},
                                         {"lora_alpha", adapters.front().scale * static_cast<double>(rank)},
                                         {"target_modules", modules},
                                         {"lora_dropout", 0.0},
                                         {"bias", "none"},
                                         {"fan_in_fan_out", false},
                                         {"inference_mode", true},
                                         {"modules_to_save", nullptr}};
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const PeftFiles files = peft_files(folder);
  write_safetensors(files.tensors, tensors, {{"format", "pt"}});
  write_file(files.config, config.dump(2) + "\n");
}

}  // namespace stridec::cli
