// The weights of a model in a file that `stridec train --save` wrote, or in any file with tensors of their
// names.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/parameter_file.h"
#include "compiler/frontend/onnx/weight_editor.h"

namespace stridec::cli {

struct TrainedWeights {
  std::map<std::string, onnx::Bytes> values;  // by the model's name, in the model's type
  std::vector<std::string> converted;         // "'fc.weight' from f32 to f16"
  size_t averages = 0;                        // of values: moving averages
  size_t skipped = 0;                         // tensors that belong to the training alone
};

// Throws one Error for all tensors that the model lacks, or has with another shape or no float type. With
// `averages`, a weight is replaced by its moving average if the file has one, as in `predict`.
TrainedWeights match_weights(const ParameterFile& file,
                             const std::map<std::string, onnx::WeightEditor::Weight>& model, bool averages);

}  // namespace stridec::cli
