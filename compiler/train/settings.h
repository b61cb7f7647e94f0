// How a model is trained: the settings of `--train`, with their defaults.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/train/losses.h"

namespace stridec::train {

// Parameters that a group's patterns match have hyperparameters of their own.
struct Group {
  std::vector<std::string> patterns;       // names with `*`
  std::map<std::string, double> settings;  // of the optimizer, and lr_scale
};

// Low-rank adapters of frozen weights (lora.h).
struct Lora {
  std::vector<std::string> targets;  // names with `*`
  int64_t rank = 8;
  double alpha = 8;
  uint64_t seed = 0;  // of the initial values
};

struct Settings {
  std::string loss;                            // a row of losses()
  std::map<std::string, std::string> of_loss;  // its settings
  std::string optimizer = "adamw";             // a row of optimizers()
  std::map<std::string, double> of_optimizer;  // its settings
  std::vector<Group> groups;                   // the last one that matches a parameter applies
  // A number, "input" (the input `lr` of train_step), or a schedule (learning_rate.h); "": the optimizer's
  // default.
  std::string learning_rate;
  // Names with `*` of the weights that are trained; a weight that both lists match is frozen. `|` separates
  // them in the text. With adapters only they are trained, unless `trainable` is given.
  std::vector<std::string> trainable = {"*"}, frozen;
  std::optional<Lora> lora;
  bool grad_norm = true;   // whether a step returns the norm of all gradients
  double clip_norm = 0;    // limits the norm of all gradients together; 0: no limit
  double clip_value = 0;   // limits each element of a gradient; 0: no limit
  std::string loss_scale;  // none, dynamic (loss_scale.h); "": dynamic if a trained weight is f16
  std::string states;      // bf16: weights and states are kept in it (narrow_states.h); "": in their types
  double ema = 0;          // decay of a moving average of the parameters, which eval and predict use; 0: none
  std::vector<std::string> functions = {"train_step", "eval", "predict"};
};

// The settings that every training has, in addition to those of its loss and its optimizer.
std::span<const Setting> common_settings();

// Parses, for example, "loss=cross_entropy,logits=y,labels=t,optimizer=adamw,lr=cosine(3e-4, total=99)" and
// "group=*.bias|*norm*(weight_decay=0)".
// A setting that neither the loss nor the optimizer has is a usage Error that lists those there are. Of a
// setting that is given twice the last one counts; groups add up.
Settings parse_settings(std::string_view text);

// "key=value" for all settings, defaults included, in a fixed order. parse_settings reads it back.
std::string to_string(const Settings& settings);

// Throws a usage Error for unknown names, for numbers outside their ranges and for missing settings.
void check(const Settings& settings);

}  // namespace stridec::train
