// Makes the functions of a training artifact from a model's graph. They share states: the parameters, the
// statistics that the model updates itself, and the optimizer's.
//
//   train_step   inputs, targets -> loss, grad_norm; updates the parameters
//   accumulate   inputs, targets -> loss; adds gradients to states
//   apply        -> grad_norm; updates the parameters by the accumulated gradients, and clears these
//   eval         inputs, targets -> loss, and the model's outputs
//   predict      inputs -> the model's outputs
//
// Settings::grad_norm leaves grad_norm out.
//
// The whole step is one program: forward, backward and update are scheduled together. The graphs come from
// frontend::import_file with ImportOptions::training, so that the weights to train are replaceable constants.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/graph/graph.h"
#include "compiler/train/settings.h"

namespace stridec::train {

// The weights that training changes, by name, from the graph in its training form.
struct Plan {
  std::vector<std::string> parameters;  // by gradients
  std::vector<std::string> statistics;  // by the model itself: running means of batch normalization
  std::vector<std::string> adapted;     // stay constants, with trained adapters (lora.h)
  bool scales_loss = false;             // loss_scale.h
  std::vector<std::string> unreached;   // selected, but the loss does not depend on them: they stay constants
};
// Throws a usage Error if no weight is trained, or an output that the loss reads is missing.
Plan make_plan(const graph::Graph& model, const Settings& settings);

// An input of train_step that the model does not have.
struct AddedInput {
  std::string name;
  graph::Type type;
  std::string setting;  // that names it: "labels"
};

// What `check` says of a training.
struct Report {
  bool planned = false;  // false: `problems` says why there is no plan, and the rest is empty
  Plan plan;
  std::vector<AddedInput> inputs;
  int64_t elements = 0;      // of the parameters
  int64_t random_nodes = 0;  // dropout among them
  // Operators without a gradient between a parameter and the loss, all of them; or why no plan can be made.
  std::vector<Diagnostic> problems;
};
Report check_training(const graph::Graph& model, const Settings& settings);

// Whether a state of this name belongs to the training alone: the optimizer's, sums of gradients, moving
// averages, the generator of random numbers.
bool is_training_state(std::string_view name);
// The state of the weight's moving average.
std::string average_name(std::string_view weight);

// Whether the function runs the model in its training form.
bool uses_training_form(std::string_view function);

// `function`: one of Settings::functions. The result has no replaceable constants.
graph::Graph make_function(graph::Graph model, std::string_view function, const Plan& plan,
                           const Settings& settings);

}  // namespace stridec::train
