#include "cli/verify_steps.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "cli/compare.h"
#include "cli/npz.h"
#include "cli/random_inputs.h"
#include "cli/random_values.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/number.h"
#include "compiler/base/text.h"
#include "compiler/loop/context_sizes.h"
#include "compiler/loop/interpret.h"
#include "compiler/loop/walk.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;
using loop::HostTensor;

constexpr const char* kRate = "lr";
constexpr double kUsualRate = 1e-3;
// How far a state is moved, as a part of the tolerance: several roundings of f32, or one of a 16-bit type,
// whose tolerance is kNarrow or more.
constexpr double kMoved = 1.0 / 64, kMovedNarrow = 1.0 / 16, kNarrow = 0.01;
constexpr double kAmplified = 4;  // the allowed difference, as a multiple of what that changes
constexpr int kMoves = 12;        // of such moves: each flips other roundings, and signs that decide a relu
constexpr double kNoise = 0.05;   // a state that changes so much by that is rounding errors alone

// What one step computes: outputs, then states, in the order of the reference.
struct StepResult {
  Tensors outputs, states;
};

Tensors initial_states(const loop::Program& program, const Sizes& sizes) {
  Tensors out;
  for (loop::BufferId id : program.states) {
    const loop::Buffer& buffer = program[id];
    std::vector<int64_t> shape;
    for (sym::Expr dim : buffer.shape)
      shape.push_back(sym::evaluate(dim, [&](sym::Expr symbol) -> std::optional<int64_t> {
                        const auto found = sizes.find(symbol.name());
                        return found == sizes.end() ? std::nullopt : std::optional(found->second);
                      }).value());
    HostTensor& tensor = out.emplace_back(loop::make_tensor(buffer.dtype, shape));
    if (buffer.weight.bytes)
      std::copy_n(buffer.weight.bytes, std::min(buffer.weight.size, tensor.bytes.size()),
                  tensor.bytes.begin());
  }
  return out;
}

double largest_of(const HostTensor& tensor) {
  double most = 0;
  for (int64_t i = 0; i < loop::element_count(tensor); ++i)
    if (const double value = std::abs(loop::get_number(tensor, i)); std::isfinite(value))
      most = std::max(most, value);
  return most;
}

// Whether states of this kind are weights, or moving averages of weights: they move as far as a step does.
bool is_weight(const std::string& kind) { return kind.empty() || kind == "ema"; }

// Whether they are squares of gradients or of changes: the square of a factor that is off by t is off by
// 2 t + t^2.
bool has_squares(const std::string& kind) {
  static constexpr std::string_view kSquares[] = {"exp_avg_sq", "max_exp_avg_sq", "square_avg", "sum",
                                                  "acc_delta",  "row_var",        "col_var",    "variance"};
  const size_t dot = kind.rfind('.');
  return dot != std::string::npos && std::ranges::count(kSquares, std::string_view(kind).substr(dot + 1)) > 0;
}

class Steps {
 public:
  Steps(const StepsToVerify& what, ProgressPrinter& progress)
      : what_(what), progress_(progress), ranges_(loop::input_ranges(what.reference)), dims_(what.dims) {
    // Every step has the sizes of the context.
    const Sizes first = choose_sizes(what.reference, dims_, 0);
    for (const loop::Symbol& symbol : what.reference.symbols)
      if (loop::is_context_size(what.reference, symbol.var)) {
        const int64_t size = context_[symbol.var.name()] = first.at(symbol.var.name());
        std::erase_if(dims_, [&](const auto& dim) { return dim.name == symbol.var.name(); });
        dims_.push_back({.name = symbol.var.name(), .lower = size, .upper = size});
      }
    what.library.bind_context(context_);
    const auto declared = what.library.states();
    for (loop::BufferId id : what.reference.states) {
      const std::string& name = what.reference[id].name;
      const auto found = std::ranges::find(declared, name, &ValueDeclaration::name);
      if (found == declared.end())
        fail(ErrorKind::kMismatch, "state-missing", cat("the artifact has no state '", name, "'"));
      declared_.push_back(*found);
    }
    of_.resize(declared_.size());
    for (const StateOfWeight& state : states_in_order(what.graph))
      for (size_t i = 0; i < declared_.size(); ++i)
        if (declared_[i].name == state.name) {
          order_.push_back(i);
          of_[i] = state;
        }
    states_ = initial_states(what.reference, context_);
    what.library.reset_state();
  }

  // Compares the initial states; then steps. The failure is the first difference.
  VerifiedSteps run() {
    VerifiedSteps out;
    out.failure = differing_states(artifact_states(), states_, std::vector<double>(states_.size(), 0.0), {});
    if (!out.failure.empty()) out.failure = "before the first step, " + out.failure;
    for (int64_t step = 0; step < what_.steps && out.failure.empty(); ++step) {
      progress_.update("verifying", step, what_.steps, "steps");
      out.failure = one(step, out.steps);
      if (!out.failure.empty()) out.failure = cat("step ", step + 1, ": ", out.failure);
    }
    out.noisy = {noisy_.begin(), noisy_.end()};
    return out;
  }

 private:
  Tensors inputs_at(const Sizes& sizes, int64_t step, int draw) {
    Tensors out;
    for (size_t i = 0; i < what_.files.size(); ++i) {
      const loop::Buffer& buffer = what_.reference[what_.reference.inputs[i]];
      if (!what_.files[i].empty()) {
        Array array = read_array(what_.files[i], buffer.dtype);
        out.push_back({array.dtype, std::move(array.shape), std::move(array.bytes)});
      } else if (buffer.name == kRate && buffer.shape.empty()) {
        HostTensor rate = loop::make_tensor(buffer.dtype, {});
        loop::set_number(rate, 0, kUsualRate);
        out.push_back(std::move(rate));
      } else {
        const uint64_t seed = i + 100 * static_cast<uint64_t>(step) +
                              1'000'000 * static_cast<uint64_t>(draw) + 100'000'000 * what_.seed;
        out.push_back(random_input(what_.reference, i, ranges_[i], sizes, seed, draw));
      }
    }
    return out;
  }

  StepResult interpret(const Tensors& inputs, Tensors states) {
    Tensors outputs =
        loop::interpret(what_.reference, inputs, {.states = &states, .context_sizes = context_});
    return {std::move(outputs), std::move(states)};
  }

  // Inputs at which the interpreter finds no fault: single ranges do not say everything.
  std::pair<Tensors, StepResult> reference_step(const Sizes& sizes, int64_t step) {
    for (int draw = 0;; ++draw) {
      Tensors inputs = inputs_at(sizes, step, draw);
      try {
        StepResult result = interpret(inputs, states_);
        return {std::move(inputs), std::move(result)};
      } catch (const Error& error) {
        if (error.diagnostic.kind != ErrorKind::kDoesNotFit || draw + 1 == kDraws) throw;
      }
    }
  }

  Tensors artifact_states() const {
    Tensors out;
    for (const ValueDeclaration& state : declared_) {
      Array array = what_.library.read_state(state);
      out.push_back({array.dtype, std::move(array.shape), std::move(array.bytes)});
    }
    return out;
  }

  StepResult artifact_step(const Tensors& inputs) {
    std::vector<Array> arrays;
    for (const HostTensor& tensor : inputs) arrays.push_back({tensor.dtype, tensor.shape, tensor.bytes});
    StepResult out;
    for (Array& array : what_.library.run(arrays))
      out.outputs.push_back({array.dtype, array.shape, std::move(array.bytes)});
    out.states = artifact_states();
    return out;
  }

  // The states with every float moved by a part of the tolerance, up or down; other ones in each draw.
  Tensors moved_states(int draw) const {
    Tensors out = states_;
    const double part = what_.tolerance < kNarrow ? kMoved : kMovedNarrow;
    uint64_t random = 1 + static_cast<uint64_t>(draw);
    for (HostTensor& tensor : out) {
      if (!is_float(tensor.dtype)) continue;
      for (int64_t i = 0; i < loop::element_count(tensor); ++i) {
        random = random * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX
        const double by = (random >> 63 ? part : -part) * what_.tolerance;
        loop::set_number(tensor, i, loop::get_number(tensor, i) * (1 + by));
      }
    }
    return out;
  }

  static void widen(std::vector<double>& allowed, const std::vector<double>& more) {
    for (size_t i = 0; i < allowed.size(); ++i) allowed[i] = std::max(allowed[i], more[i]);
  }
  static bool fits(const Tensors& got, const Tensors& want, const std::vector<double>& allowed) {
    return std::ranges::all_of(compare(got, want),
                               [&](const Difference& d) { return d.error <= allowed[d.output]; });
  }
  bool within(const Tensors& got, const Tensors& want) const {
    return std::ranges::all_of(compare(got, want),
                               [&](const Difference& d) { return d.error <= what_.tolerance; });
  }
  std::vector<double> allowed(const Tensors& moved, const Tensors& want) const {
    std::vector<double> out;
    for (const Difference& d : compare(moved, want))
      out.push_back(std::max(what_.tolerance, std::isfinite(d.error) ? kAmplified * d.error : 0));
    return out;
  }
  // Notes the weights whose gradients are rounding errors alone, and allows for them what the header says.
  std::vector<double> allowed_of_states(const Tensors& moved, const Tensors& want) {
    std::vector<double> out = allowed(moved, want);
    std::map<std::string, double> of_kind;
    std::map<std::string, double> farthest;  // of any element of any weight, or average of one, in this step
    for (size_t i = 0; i < want.size(); ++i) {
      const std::string& kind = of_[i].kind;
      of_kind[kind] = std::max(of_kind[kind], largest_of(want[i]));
      if (is_weight(kind))
        farthest[kind] = std::max(farthest[kind], compare(states_[i], want[i]).error * largest_of(want[i]));
      else if (out[i] >= kAmplified * kNoise)
        noisy_.insert(of_[i].weight);
      if (has_squares(kind)) out[i] = std::max(out[i], what_.tolerance * (2 + what_.tolerance));
    }
    for (size_t i = 0; i < want.size(); ++i) {
      if (!noisy_.contains(of_[i].weight)) continue;
      const std::string& kind = of_[i].kind;
      const double most = is_weight(kind) ? kAmplified * farthest[kind] : what_.tolerance * of_kind[kind];
      out[i] = std::max(out[i], most / std::max(largest_of(want[i]), 1e-30));
    }
    return out;
  }

  // "state 'a' differs by ...; 3 of 7 states differ, 'b' is the last", in the order of the forward pass.
  std::string differing_states(const Tensors& got, const Tensors& want, const std::vector<double>& allowed,
                               const std::string& output) const {
    const std::vector<Difference> all = compare(got, want);
    std::vector<size_t> wrong;
    for (size_t i : order_)
      if (!(all[i].error <= allowed[i])) wrong.push_back(i);
    if (wrong.empty()) return output;
    const size_t first = wrong.front();
    const auto far = std::ranges::max_element(
        wrong, {}, [&](size_t i) { return all[i].error / std::max(allowed[i], 1e-30); });
    std::string text = output.empty() ? "" : output + "; ";
    text += cat("state '", declared_[first].name, "' differs: ", described(all[first], want[first]),
                "; allowed ", allowed[first]);
    if (wrong.size() > 1)
      text += cat("; ", wrong.size(), " of ", all.size(), " states differ, '", declared_[wrong.back()].name,
                  "' is the last; the largest difference is in '", declared_[*far].name,
                  "': ", described(all[*far], want[*far]));
    return text;
  }

  static std::string described(const Difference& d, const HostTensor& want) {
    if (!std::isfinite(d.error) && d.element == 0 && d.got == d.want) return "its shape or type differs";
    return cat(d.error, " at ", position(want, d.element), " (expected ", d.want, ", got ", d.got, ")");
  }

  std::string one(int64_t step, Json& rows) {
    const Sizes sizes = choose_sizes(what_.reference, dims_, static_cast<int>(step % 4));
    auto [inputs, want] = reference_step(sizes, step);
    const StepResult got = artifact_step(inputs);
    std::vector<double> of_outputs(want.outputs.size(), what_.tolerance),
        of_states(want.states.size(), what_.tolerance);
    if (!within(got.outputs, want.outputs) || !within(got.states, want.states)) {
      for (int draw = 0; draw < kMoves; ++draw) {
        const StepResult moved = interpret(inputs, moved_states(draw));
        widen(of_outputs, allowed(moved.outputs, want.outputs));
        widen(of_states, allowed_of_states(moved.states, want.states));
        if (fits(got.outputs, want.outputs, of_outputs) && fits(got.states, want.states, of_states)) break;
      }
    }
    const auto outputs = compare(got.outputs, want.outputs), states = compare(got.states, want.states);
    std::string output;
    for (const Difference& d : outputs)
      if (!(d.error <= of_outputs[d.output]) && output.empty())
        output = cat("output '", what_.reference[what_.reference.outputs[d.output]].name,
                     "' differs: ", described(d, want.outputs[d.output]), "; allowed ", of_outputs[d.output]);
    double of_output = 0, of_state = 0;
    for (const Difference& d : outputs) of_output = std::max(of_output, d.error);
    for (const Difference& d : states)
      if (!noisy_.contains(of_[d.output].weight)) of_state = std::max(of_state, d.error);
    rows.push_back({{"step", step + 1}, {"sizes", sizes}, {"outputs", of_output}, {"states", of_state}});
    const std::string failure = differing_states(got.states, want.states, of_states, output);
    states_ = std::move(want.states);
    for (size_t i = 0; i < states_.size(); ++i)
      what_.library.write_state(declared_[i].name, {states_[i].dtype, states_[i].shape, states_[i].bytes});
    return failure;
  }

  const StepsToVerify& what_;
  ProgressPrinter& progress_;
  std::vector<loop::ValueRange> ranges_;
  std::vector<frontend::DimRange> dims_;
  Sizes context_;                           // of the context, in all steps
  std::vector<ValueDeclaration> declared_;  // by position in the reference's states
  std::vector<StateOfWeight> of_;           // likewise
  std::vector<size_t> order_;               // of the forward pass
  std::set<std::string> noisy_;             // weights whose gradients are rounding errors alone
  Tensors states_;
};

}  // namespace

std::vector<StateOfWeight> states_in_order(const graph::Graph& graph) {
  std::map<graph::ValueId, size_t> first;  // position of the first reader
  size_t position = 0;
  const std::function<void(const graph::Region&)> visit = [&](const graph::Region& region) {
    for (graph::NodeId id : region.nodes) {
      for (graph::ValueId value : graph[id].inputs) first.emplace(value, position);
      ++position;
      for (const graph::Region& inner : graph[id].regions) visit(inner);
    }
  };
  visit(graph.top);
  const auto place = [&](const graph::State& state) {
    const auto found = first.find(state.value);
    return found == first.end() ? position : found->second;
  };
  std::vector<std::pair<size_t, StateOfWeight>> places;
  for (const graph::State& state : graph.states) {
    const graph::State* owner = nullptr;
    for (const graph::State& each : graph.states)
      if (state.name.ends_with("." + each.name) && (!owner || each.name.size() > owner->name.size()))
        owner = &each;
    StateOfWeight of{state.name, owner ? owner->name : state.name, ""};
    if (owner) of.kind = state.name.substr(0, state.name.size() - owner->name.size() - 1);
    places.emplace_back(place(owner ? *owner : state), std::move(of));
  }
  std::ranges::sort(places, {},
                    [](const auto& p) { return std::tuple(p.first, p.second.kind, p.second.name); });
  std::vector<StateOfWeight> out;
  for (auto& [at, state] : places) out.push_back(std::move(state));
  return out;
}

VerifiedSteps verify_steps(const StepsToVerify& what, ProgressPrinter& progress) {
  return Steps(what, progress).run();
}

}  // namespace stridec::cli
