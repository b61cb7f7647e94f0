// The low-rank adapters of a training (compiler/train/lora.h), merged into the weights or as PEFT's files.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/parameter_file.h"
#include "compiler/frontend/onnx/model.h"

namespace stridec::cli {

struct Adapter {
  std::string weight;       // the model's name
  FileTensor a, b;          // [rank, in, ...], [out, rank, ...]
  int64_t in = 0, out = 0;  // dims of the weight
  double scale = 1;         // alpha / rank
  bool quantised = false;   // the weight: it cannot take up the adapter
};

// Whether a tensor of this name is a weight of the model itself, whatever it is called.
using OwnNames = std::function<bool(const std::string&)>;

// Takes the tensors WEIGHT.lora_A and WEIGHT.lora_B out of the file; with `averages`, their moving averages
// if there are any. `alpha`: instead of that of the training, which the file's metadata has. Throws one Error
// for all adapters that do not fit the model.
std::vector<Adapter> take_adapters(ParameterFile& file, const std::string& model, const OwnNames& own,
                                   bool averages, std::optional<double> alpha);

// Throws a usage Error that names the adapters of quantised weights, if there are any.
void check_mergeable(const std::vector<Adapter>& adapters);
// weight + scale * B A, in the weight's type.
onnx::Bytes merged(const Adapter& adapter, const onnx::Bytes& weight, DType dtype);

// The paths of adapter_model.safetensors and adapter_config.json.
struct PeftFiles {
  std::string tensors, config;
};
PeftFiles peft_files(const std::string& folder);
// Writes them, as peft.PeftModel.from_pretrained reads them.
void write_peft(const std::string& folder, const std::vector<Adapter>& adapters);

}  // namespace stridec::cli
