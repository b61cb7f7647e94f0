// Losses: what a training step minimises, as a table.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "compiler/ops/term.h"

namespace stridec::train {

// A setting of a loss or an optimizer.
struct Setting {
  std::string_view name;
  std::string_view standard;  // its default; "": it must be given
  std::string_view meaning;
  std::string_view choices = {};  // "mean|sum": the texts that it takes; "": numbers, or names
};

// Gives a loss the model's outputs and the targets.
class LossInputs {
 public:
  virtual ~LossInputs() = default;
  virtual graph::Builder& builder() = 0;
  // The model's output that the setting names. Floats below 32 bits are widened.
  virtual ops::Term output(std::string_view setting) = 0;
  // The target that the setting names: an input of the model, or a new input of this type.
  virtual ops::Term target(std::string_view setting, const graph::Type& type) = 0;
  // A target of `count` rows of any one length.
  virtual ops::Term rows(std::string_view setting, DType dtype, sym::Expr count) = 0;
  virtual double number(std::string_view setting) const = 0;
  virtual const std::string& text(std::string_view setting) const = 0;  // "" if it is optional and not given
};

// The loss is total / weight, or 0 if the weight is 0. Both have rank 0. Batches can be accumulated: totals
// and weights add up, so that each sample or token counts once whatever batch it is in.
struct LossSum {
  ops::Term total, weight;
};

struct Loss {
  std::string_view name;
  std::string_view formula;  // per sample or element
  std::span<const Setting> settings;
  LossSum (*build)(LossInputs& in);
};
std::span<const Loss> losses();
const Loss* find_loss(std::string_view name);

}  // namespace stridec::train
