// Optimizers: how a training step changes a parameter, as a table. The formulas are PyTorch's
// (torch.optim 2.11, single-tensor implementations), in the
// parameter's dtype or f32, with bias corrections in f64; Lion's is that of
// Chen et al. 2023, arXiv:2302.06675.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "compiler/ops/term.h"
#include "compiler/train/losses.h"

namespace stridec::train {

// The update of one parameter. Numbers are rank-0 terms.
struct Update {
  ops::Term rate;                                  // in the parameter's dtype
  ops::Term step;                                  // f64: the number of this update, from 1 on
  std::function<double(std::string_view)> number;  // a setting of the optimizer
  ops::Term parameter, gradient;                   // f32 or f64
  std::vector<ops::Term> states;                   // those of the parameter, then the shared ones
};

// The state that belongs to a parameter, with the parameter's shape or a shape made from it.
struct StateRow {
  std::string_view name;                                    // of PyTorch: "exp_avg"
  graph::Shape (*shape)(const graph::Shape& of) = nullptr;  // null: the parameter's
  bool (*used)(const std::function<double(std::string_view)>& number, const graph::Shape& of) = nullptr;
  double initial = 0;
  bool shared = false;  // one f64 scalar for all parameters of a group
};

struct Optimizer {
  std::string_view name;
  std::string_view formula;
  std::span<const Setting> settings;
  std::span<const StateRow> states;
  // The new parameter, then the new states.
  std::vector<ops::Term> (*update)(const Update& u);
};
std::span<const Optimizer> optimizers();
const Optimizer* find_optimizer(std::string_view name);

}  // namespace stridec::train
