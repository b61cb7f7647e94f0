#include "compiler/ops/composite/recurrent.h"

#include <functional>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/ops/composite/activations.h"
#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/composite/quantization.h"
#include "compiler/ops/helpers.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {
namespace {

// Activations by their ONNX names. They take their parameters from the lists in order.
class Activations {
 public:
  explicit Activations(const RecurrentOptions& options) : options_(options) {}

  std::function<Term(Term)> next() {
    const std::string name = options_.activations.at(position_++);
    const auto take = [](const std::vector<double>& list, size_t& at, double otherwise) {
      return at < list.size() ? list[at++] : otherwise;
    };
    if (name == "Sigmoid") return [](Term x) { return sigmoid(x); };
    if (name == "Tanh") return [](Term x) { return tanh(x); };
    if (name == "Relu") return [](Term x) { return relu(x); };
    if (name == "Softsign") return [](Term x) { return x / (abs(x) + 1.0); };
    if (name == "Softplus") return [](Term x) { return softplus(x); };
    const double defaults_alpha = name == "LeakyRelu" ? 0.01 : name == "HardSigmoid" ? 0.2 : 1;
    const double a = take(options_.alphas, alpha_, defaults_alpha);
    if (name == "LeakyRelu") return [a](Term x) { return leaky_relu(x, a); };
    if (name == "ThresholdedRelu") return [a](Term x) { return thresholded_relu(x, a); };
    if (name == "Elu") return [a](Term x) { return elu(x, a); };
    const double b = take(options_.betas, beta_, name == "HardSigmoid" ? 0.5 : name == "Affine" ? 0 : 1);
    if (name == "Affine") return [a, b](Term x) { return x * a + b; };
    if (name == "ScaledTanh") return [a, b](Term x) { return tanh(x * b) * a; };
    if (name == "HardSigmoid") return [a, b](Term x) { return hard_sigmoid(x, a, b); };
    fail(ErrorKind::kUnsupported, "unsupported", "activation '" + name + "' is unknown");
  }

 private:
  const RecurrentOptions& options_;
  size_t position_ = 0, alpha_ = 0, beta_ = 0;
};

// Computes one step: returns the new states, of which the first is h.
using Step = std::function<std::vector<Term>(Term projected, const std::vector<Term>& states)>;

// Runs the cell over the steps of `projected` [steps, batch, gates]. After its length, a row keeps its state
// and outputs zeros.
std::vector<Term> run(Term projected, std::vector<Term> states, std::optional<Term> lengths, bool reverse,
                      const Step& step) {
  graph::Builder& b = projected.builder();
  const sym::Expr steps = projected.dim(0);
  const LoopResult result =
      loop(b, steps, std::nullopt, {states.begin(), states.end()}, [&](const LoopState& state) {
        const sym::Expr at = reverse ? steps - 1 - state.counter : state.counter;
        std::vector<Term> before;
        for (ValueId v : state.carried) before.emplace_back(b, v);
        std::vector<Term> after = step(squeeze(slice(projected, 0, at, 1), {0}), before);
        Term y = after[0];
        if (lengths) {
          Term time(b, state.counter_value);
          if (reverse) time = size_as(b, DType::kI64, steps) - time - 1.0;
          const Term active = unsqueeze(less(time, cast(*lengths, DType::kI64)), {1});
          y = select(active, y, 0);
          for (size_t i = 0; i < after.size(); ++i) after[i] = select(active, after[i], before[i]);
        }
        return LoopStep{
            .condition = std::nullopt, .carried = {after.begin(), after.end()}, .stacked = {y.id()}};
      });
  Term y(b, result.stacked.at(0));
  std::vector<Term> out{reverse ? flip(y, {0}) : y};
  for (ValueId v : result.carried) out.emplace_back(b, v);
  return out;
}

// The right operand of the products: a transposed weight, in floats or in scaled 8-bit integers.
struct Matrix {
  Term values;  // [input, gates * hidden]
  std::optional<RecurrentScale> scale;

  Term product(Term x) const {
    if (!scale) return matmul(x, values);
    const Quantized q = quantize_dynamically(x);
    return quantized_matmul({q.value, q.scale, q.zero}, {values, scale->scale, scale->zero});
  }
  Matrix columns(sym::Expr from, sym::Expr count) const {
    const auto part = [&](Term v) {
      return v.rank() == 1 && !v.dim(0).is_const(1) ? slice(v, 0, from, count) : v;
    };
    Matrix out{slice(values, 1, from, count), {}};
    if (scale) out.scale = RecurrentScale{part(scale->scale), part(scale->zero)};
    return out;
  }
};

Matrix matrix(Term weights, const std::optional<RecurrentScale>& scale) {
  return {transpose(weights, 0, 1), scale};
}

// x W^T, plus the part of the bias that can be added before the loop.
Term project(Term x, const RecurrentWeights& weights, std::optional<Term> bias) {
  const Term out = matrix(weights.w, weights.w_scale).product(x);
  return bias ? out + *bias : out;
}

Term part(Term gates, int64_t index, sym::Expr hidden) {
  return slice(gates, gates.rank() - 1, hidden * index, hidden);
}

Term clipped(Term x, double clip) { return clip > 0 ? minimum(maximum(x, -clip), clip) : x; }

RecurrentResult lstm(Term x, const RecurrentWeights& weights, std::optional<Term> lengths, Term initial_h,
                     Term initial_c, const RecurrentOptions& options) {
  const Term r = weights.r;
  const std::optional<Term>&bias = weights.bias, &peepholes = weights.peepholes;
  const sym::Expr hidden = weights.projection ? weights.projection->dim(1) : r.dim(1);
  Activations activations(options);
  const auto f = activations.next(), g = activations.next(), h = activations.next();
  std::optional<Term> both;
  if (bias) both = slice(*bias, 0, 0, hidden * 4) + slice(*bias, 0, hidden * 4, hidden * 4);
  const Term projected = project(x, weights, both);
  const Matrix recurrent = matrix(r, weights.r_scale);
  // Gate order: input, output, forget, cell.
  const auto peep = [&](Term gate, int64_t index, Term c) {
    return peepholes ? gate + slice(*peepholes, 0, hidden * index, hidden) * c : gate;
  };
  const auto out = run(
      projected, {initial_h, initial_c}, lengths, options.reverse,
      [&](Term input, const std::vector<Term>& state) {
        const Term gates = input + recurrent.product(state[0]), c = state[1];
        const Term i = f(clipped(peep(part(gates, 0, hidden), 0, c), options.clip));
        const Term keep = options.input_forget ? subtract_from(1, i)
                                               : f(clipped(peep(part(gates, 2, hidden), 2, c), options.clip));
        const Term now = keep * c + i * g(clipped(part(gates, 3, hidden), options.clip));
        const Term o = f(clipped(peep(part(gates, 1, hidden), 1, now), options.clip));
        const Term full = o * h(now);
        return std::vector<Term>{
            weights.projection ? matmul(full, transpose(*weights.projection, 0, 1)) : full, now};
      });
  return {out[0], out[1], out[2]};
}

RecurrentResult gru(Term x, const RecurrentWeights& weights, std::optional<Term> lengths, Term initial_h,
                    const RecurrentOptions& options) {
  const Term r = weights.r;
  const std::optional<Term>& bias = weights.bias;
  const sym::Expr hidden = r.dim(1);
  Activations activations(options);
  const auto f = activations.next(), g = activations.next();
  std::optional<Term> input_bias, state_bias;
  if (bias) {
    // With linear_before_reset, the recurrent bias of the hidden gate is multiplied by the reset gate. The
    // other biases are added before the loop.
    const Term wb = slice(*bias, 0, 0, hidden * 3), rb = slice(*bias, 0, hidden * 3, hidden * 3);
    const Term rzr = slice(rb, 0, 0, hidden * 2), rh = slice(rb, 0, hidden * 2, hidden);
    const Term none = filled(x.builder(), {hidden}, x.dtype(), 0);
    input_bias = wb + concat({rzr, options.linear_before_reset ? none : rh}, 0);
    state_bias = rh;
  }
  const Term projected = project(x, weights, input_bias);
  const Matrix recurrent = matrix(r, weights.r_scale);
  // Gate order: update, reset, hidden.
  const auto out =
      run(projected, {initial_h}, lengths, options.reverse, [&](Term input, const std::vector<Term>& state) {
        const Term h = state[0];
        const auto columns = [&](int64_t from, int64_t count) {
          return recurrent.columns(hidden * from, hidden * count);
        };
        const Term sums = options.linear_before_reset ? recurrent.product(h) : columns(0, 2).product(h);
        const Term z = f(clipped(part(input, 0, hidden) + part(sums, 0, hidden), options.clip));
        const Term reset = f(clipped(part(input, 1, hidden) + part(sums, 1, hidden), options.clip));
        Term inner = reset;
        if (options.linear_before_reset) {
          const Term state_part = part(sums, 2, hidden);
          inner = reset * (state_bias ? state_part + *state_bias : state_part);
        } else {
          inner = columns(2, 1).product(reset * h);
        }
        const Term candidate = g(clipped(part(input, 2, hidden) + inner, options.clip));
        return std::vector<Term>{subtract_from(1, z) * candidate + z * h};
      });
  return {out[0], out[1], std::nullopt};
}

RecurrentResult rnn(Term x, const RecurrentWeights& weights, std::optional<Term> lengths, Term initial_h,
                    const RecurrentOptions& options) {
  const Term r = weights.r;
  const std::optional<Term>& bias = weights.bias;
  const sym::Expr hidden = r.dim(1);
  const auto f = Activations(options).next();
  std::optional<Term> both;
  if (bias) both = slice(*bias, 0, 0, hidden) + slice(*bias, 0, hidden, hidden);
  const Term projected = project(x, weights, both);
  const Matrix recurrent = matrix(r, weights.r_scale);
  const auto out =
      run(projected, {initial_h}, lengths, options.reverse, [&](Term input, const std::vector<Term>& state) {
        return std::vector<Term>{f(clipped(input + recurrent.product(state[0]), options.clip))};
      });
  return {out[0], out[1], std::nullopt};
}

}  // namespace

RecurrentResult recurrent(Cell cell, Term x, const RecurrentWeights& weights, std::optional<Term> lengths,
                          const RecurrentState& initial, const RecurrentOptions& options) {
  const auto start = [&](const std::optional<Term>& given) {
    return given ? *given : filled(x.builder(), {x.dim(1), weights.r.dim(1)}, x.dtype(), 0);
  };
  const size_t wanted = default_activations(cell).size();
  if (options.activations.size() != wanted)
    does_not_fit(cat(options.activations.size(), " activations are given for a direction of ", wanted));
  const Term h = start(initial.h);
  const RecurrentResult one = cell == Cell::kLstm  ? lstm(x, weights, lengths, h, start(initial.c), options)
                              : cell == Cell::kGru ? gru(x, weights, lengths, h, options)
                                                   : rnn(x, weights, lengths, h, options);
  const Term y = unsqueeze(one.y, {1}), last = unsqueeze(one.h, {0});
  return {y, last, one.c ? std::optional(unsqueeze(*one.c, {0})) : std::nullopt};
}

RecurrentResult join_directions(const std::vector<RecurrentResult>& directions) {
  std::vector<Term> ys, hs, cs;
  for (const RecurrentResult& one : directions) {
    ys.push_back(one.y);
    hs.push_back(one.h);
    if (one.c) cs.push_back(*one.c);
  }
  const Term y = concat(ys, 1), h = concat(hs, 0);
  return {y, h, cs.empty() ? std::nullopt : std::optional(concat(cs, 0))};
}

std::vector<std::string> default_activations(Cell cell) {
  switch (cell) {
    case Cell::kLstm: return {"Sigmoid", "Tanh", "Tanh"};
    case Cell::kGru: return {"Sigmoid", "Tanh"};
    case Cell::kRnn: break;
  }
  return {"Tanh"};
}

}  // namespace stridec::ops
