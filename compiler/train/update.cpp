#include "compiler/train/update.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "compiler/base/diagnostic.h"
#include "compiler/base/pattern.h"
#include "compiler/base/text.h"
#include "compiler/ops/nodes.h"
#include "compiler/train/learning_rate.h"
#include "compiler/train/optimizers.h"

namespace stridec::train {

using namespace ops;
using graph::OpKind;
using graph::ValueId;

namespace {

std::string state_name(std::string_view kind, const std::string& parameter) {
  return cat("optimizer.", kind, parameter.empty() ? "" : ".", parameter);
}

graph::Data scalar_data(DType dtype, double value) {
  std::vector<uint8_t> bytes(static_cast<size_t>(byte_size(dtype)));
  if (dtype == DType::kF64) {
    std::memcpy(bytes.data(), &value, sizeof(value));
  } else {
    const float narrow = static_cast<float>(value);
    std::memcpy(bytes.data(), &narrow, sizeof(narrow));
  }
  return graph::own(std::move(bytes));
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

// Updates the parameters by their gradients, clipped. Returns the norm of the gradients before clipping.
class Updates {
 public:
  Updates(graph::Builder& b, const Settings& settings)
      : b_(b), settings_(settings), optimizer_(*find_optimizer(settings.optimizer)) {}

  Term run(const std::vector<Weight>& weights, std::vector<Term> gradients) {
    const Term count = state(b_, state_name("step", ""), {DType::kF64, {}});
    const Term step = count + 1.0;
    update(b_, count, step);
    const Term norm = norm_of(gradients);
    clip(gradients, norm);
    const Term rate = learning_rate(step);
    for (size_t i = 0; i < weights.size(); ++i) update_one(weights[i], gradients[i], rate, step);
    for (const auto& [old, now] : shared_) update(b_, {b_, old}, {b_, now});
    return cast(norm, DType::kF32);
  }

 private:
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

  void clip(std::vector<Term>& gradients, Term norm) {
    for (Term& gradient : gradients) {
      if (settings_.clip_value > 0)
        gradient = maximum(minimum(gradient, settings_.clip_value), -settings_.clip_value);
      if (settings_.clip_norm > 0) {
        const Term factor = minimum(divide_into(settings_.clip_norm, norm + 1e-6), 1);
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
      own.push_back(state(b_, state_name(row.name, weight.name), {parameter.dtype(), shape}, row.initial));
      u.states.push_back(own.back());
    }
    const std::vector<Term> results = optimizer_.update(u);
    update(b_, weight.value, cast(results[0], weight.value.dtype()));
    for (size_t i = 0; i < own.size(); ++i) update(b_, own[i], results[1 + i]);
    if (shared) shared_.insert_or_assign(shared->id(), results.back().id());
    if (settings_.ema > 0) {
      const Term mean(b_,
                      b_.state(cat("ema.", weight.name), b_.type(weight.value), initial_of(weight.value)));
      const Term wide = wide_enough(mean);
      update(b_, mean, cast(wide * settings_.ema + results[0] * (1 - settings_.ema), mean.dtype()));
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
  std::map<ValueId, ValueId> shared_;
};

}  // namespace

Term state(graph::Builder& b, const std::string& name, const graph::Type& type, double initial) {
  std::optional<graph::Data> data;
  if (initial != 0) data = scalar_data(type.dtype, initial);
  return {b, b.state(name, type, std::move(data))};
}

void update(graph::Builder& b, Term of, Term to) { b.add(OpKind::kUpdateState, {of, to}); }

Term wide_enough(Term x) { return x.dtype() == DType::kF64 ? x : cast(x, DType::kF32); }

Term update_parameters(graph::Builder& b, const Settings& settings, const std::vector<Weight>& weights,
                       std::vector<Term> gradients) {
  b.set_origin("the update");
  return Updates(b, settings).run(weights, std::move(gradients));
}

}  // namespace stridec::train
