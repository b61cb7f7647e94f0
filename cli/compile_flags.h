// The flags that control how a model is compiled, shared by compile, check, inspect and verify.
#pragma once

#include <string>
#include <vector>

#include "cli/budget.h"
#include "compiler/compile.h"

namespace CLI {
class App;
}

namespace stridec::cli {

struct CompileFlags {
  std::string model, targets, cpus, gpus, nvrtc, dims, mode = "default", precision = "fp32",
                                                       weights = "embed";
  std::vector<std::string> weights_from;  // files
  std::string tune_db;
  std::vector<std::string> functions, methods, shapes, input_values, states, layouts, refit, specialize,
      tune_shapes, metadata;
  std::vector<std::string> rewrites, ops, kernels;  // kernels: folders
  bool check_ops = false;
  std::vector<std::pair<std::string, std::string>> passes, plugins;  // after=NAME, and a command or a file
  std::vector<std::string> training, trainable, frozen_weights;
  std::string train_config, lora, memory_budget;
  bool frozen = false;
  std::vector<std::string> settings;
  bool no_cache = false;
  double tune_seconds = 0;
  Budget budget;

  void declare(CLI::App& app, const std::string& what =
                                  "the model: .onnx, .pt2, .pt, or a graph of 'inspect --write-graph'");
  // Starts the budget. Throws a usage Error.
  CompileOptions options(const Globals& globals) const;
  // The model beside which a command without an output leaves its trace.
  std::string traced() const;
  // The files that the flags name, without those that the models refer to.
  std::vector<std::string> files() const;
};

// "prefill=prefill.onnx", each. Throws a usage Error.
std::vector<FunctionModel> parse_functions(const std::vector<std::string>& given);
std::vector<std::string> split_list(const std::string& text);  // "a,b"

}  // namespace stridec::cli
