#include "compiler/train/update.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "compiler/base/diagnostic.h"
#include "compiler/base/pattern.h"
#include "compiler/base/text.h"
#include "compiler/ops/nodes.h"
#include "compiler/train/learning_rate.h"
#include "compiler/train/narrow_states.h"
#include "compiler/train/optimizers.h"

namespace stridec::train {

using namespace ops;
using graph::ValueId;

namespace {

std::string state_name(std::string_view kind, const std::string& parameter) {
  return cat("optimizer.", kind, parameter.empty() ? "" : ".", parameter);
}

// Hyperparameters of one parameter: those of its group, of all, then the defaults.
struct Hyperparameters {
  const Settings& settings;
  const Optimizer& optimizer;
  const Group* group;

  double operator()(std::string_view name) const {
    const std::string key(name);
    if (group)
      if (const auto found = group->settings.find(key); found != group->settings.end()) return found->second;
    if (const auto found = settings.of_optimizer.find(key); found != settings.of_optimizer.end())
      return found->second;
    const auto row = std::ranges::find(optimizer.settings, name, &Setting::name);
    return row == optimizer.settings.end() ? 1 : std::stod(std::string(row->standard));  // lr_scale
  }
};

// Clips the gradients and updates the parameters by them.
class Updates {
 public:
  Updates(graph::Builder& b, const Settings& settings)
      : b_(b), settings_(settings), optimizer_(*find_optimizer(settings.optimizer)) {}

  Updated run(const std::vector<Weight>& weights, std::vector<Term> gradients, LossScale* scale) {
    const Term count = state(b_, state_name("step", ""), {DType::kF64, {}});
    const Term step = count + 1.0;
    std::optional<Term> norm;
    if (settings_.grad_norm || settings_.clip_norm > 0 || scale) norm = norm_of(gradients);
    if (scale) {
      finite_ = less_equal(*norm, std::numeric_limits<float>::max());
      scale->advance(*finite_);
    }
    set(count, step);
    clip(gradients, norm);
    const Term rate = learning_rate(step);
    for (size_t i = 0; i < weights.size(); ++i) update_one(weights[i], gradients[i], rate, step);
    for (const auto& [old, now] : shared_) set({b_, old}, {b_, now});
    if (norm) norm = cast(*norm, DType::kF32);
    return {norm, finite_};
  }

 private:
  // Writes the new value of a state; a state keeps its value if the update is skipped (`finite_` is false).
  void set(Term of, Term to) {
    const bool at_random =
        !settings_.states.empty() && of.dtype() == DType::kBF16 && to.dtype() == DType::kF32;
    const Term stored = at_random ? round_at_random(to, kFirstSeed + rounded_++) : cast(to, of.dtype());
    update(b_, of, finite_ ? select(*finite_, stored, of) : stored);
  }

  // The dtype of a parameter's optimizer states: the parameter's, or bf16 for f32 parameters with
  // states=bf16.
  DType kept(Term parameter) const {
    return settings_.states.empty() || parameter.dtype() != DType::kF32 ? parameter.dtype() : DType::kBF16;
  }

  Term norm_of(const std::vector<Term>& gradients) {
    const bool wide = std::ranges::any_of(gradients, [](Term g) { return g.dtype() == DType::kF64; });
    std::optional<Term> sum;
    for (Term gradient : gradients) {
      const Term square_sum =
          gradient.rank() == 0 ? square(gradient) : reduce_sum(square(gradient), all_dims(gradient.rank()));
      const Term part = cast(square_sum, wide ? DType::kF64 : DType::kF32);
      sum = sum ? *sum + part : part;
    }
    return sqrt(*sum);
  }

  void clip(std::vector<Term>& gradients, std::optional<Term> norm) {
    for (Term& gradient : gradients) {
      if (settings_.clip_value > 0)
        gradient = maximum(minimum(gradient, settings_.clip_value), -settings_.clip_value);
      if (settings_.clip_norm > 0) {
        const Term factor = minimum(divide_into(settings_.clip_norm, *norm + 1e-6), 1);
        gradient = gradient * cast(factor, gradient.dtype());
      }
    }
  }

  Term learning_rate(Term step) {
    if (is_input(settings_.learning_rate) && std::ranges::count(b_.graph().input_names, "lr") > 0)
      fail(ErrorKind::kUsage, "bad-train", "--train: the model has an input 'lr' of its own",
           "write the rate as a number or a schedule");
    if (is_input(settings_.learning_rate)) return cast({b_, b_.input("lr", {DType::kF32, {}})}, DType::kF64);
    if (!settings_.learning_rate.empty()) return rate_at(settings_.learning_rate, step);
    return number_like(step, Hyperparameters{settings_, optimizer_, nullptr}("lr"));
  }

  void update_one(const Weight& weight, Term gradient, Term rate, Term step) {
    const Group* group = nullptr;
    for (const Group& each : settings_.groups)
      if (matches_any(each.patterns, weight.name)) group = &each;
    const Hyperparameters number{settings_, optimizer_, group};
    const Term parameter = wide_enough(weight.value);
    Update u{.rate = cast(rate * number("lr_scale"), parameter.dtype()),
             .step = step,
             .number = number,
             .parameter = parameter,
             .gradient = gradient,
             .states = {}};
    std::vector<Term> own;
    std::optional<Term> shared;
    for (const StateRow& row : optimizer_.states) {
      if (row.used && !row.used(number, parameter.shape())) continue;
      if (row.shared) {
        const Term old = shared_state(row, group);
        u.states.push_back(old);
        shared = old;
        continue;
      }
      const graph::Shape shape = row.shape ? row.shape(parameter.shape()) : parameter.shape();
      own.push_back(state(b_, state_name(row.name, weight.name), {kept(parameter), shape}, row.initial));
      u.states.push_back(cast(own.back(), parameter.dtype()));
    }
    const std::vector<Term> results = optimizer_.update(u);
    set(weight.value, results[0]);
    for (size_t i = 0; i < own.size(); ++i) set(own[i], results[1 + i]);
    if (shared) shared_.insert_or_assign(shared->id(), results.back().id());
    if (settings_.ema > 0) {
      const Term mean(b_,
                      b_.state(cat("ema.", weight.name), b_.type(weight.value), initial_of(weight.value)));
      const Term wide = wide_enough(mean);
      set(mean, wide * settings_.ema + results[0] * (1 - settings_.ema));
    }
  }

  // Scalars that all parameters of a group share.
  Term shared_state(const StateRow& row, const Group* group) {
    const std::string suffix = group ? cat("group", group - settings_.groups.data()) : std::string();
    const std::string name = state_name(row.name, suffix);
    for (const auto& known : b_.graph().states)
      if (known.name == name) return {b_, known.value};
    return state(b_, name, {DType::kF64, {}}, row.initial);
  }

  std::optional<graph::Data> initial_of(ValueId value) const {
    for (const graph::State& each : b_.graph().states)
      if (each.value == value) return each.initial;
    return std::nullopt;
  }

  graph::Builder& b_;
  const Settings& settings_;
  const Optimizer& optimizer_;
  std::optional<Term> finite_;  // none: the update is never skipped
  std::map<ValueId, ValueId> shared_;
  static constexpr int64_t kFirstSeed = 0x5eed0000;  // distinct from the seeds of dropout
  int64_t rounded_ = 0;
};

}  // namespace

Updated update_parameters(graph::Builder& b, const Settings& settings, const std::vector<Weight>& weights,
                          std::vector<Term> gradients, LossScale* scale) {
  b.set_origin("the update");
  return Updates(b, settings).run(weights, std::move(gradients), scale);
}

}  // namespace stridec::train
