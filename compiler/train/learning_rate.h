// Learning rates: a number, an input of the training step, or a schedule over steps.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "compiler/ops/term.h"

namespace stridec::train {

struct Schedule {
  std::string_view name;
  std::string_view form;     // how it is written: "cosine(RATE, total=N, warmup=N, min=RATE)"
  std::string_view formula;  // t: the updates so far
};
std::span<const Schedule> schedules();

// Whether the rate is an input of the step.
bool is_input(const std::string& rate);
// Throws a usage Error if the text is not a rate.
void check_rate(const std::string& rate);
// The rate in f64, from the number of this update, an f64 scalar that starts at 1.
ops::Term rate_at(const std::string& rate, ops::Term step);

}  // namespace stridec::train
