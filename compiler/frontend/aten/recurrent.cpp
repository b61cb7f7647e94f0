// LSTM, GRU and RNN in PyTorch's layouts.
#include "compiler/ops/composite/recurrent.h"
#include "compiler/base/text.h"
#include "compiler/frontend/aten/call.h"

namespace stridec::aten {
namespace {

using namespace ops;

enum class Layer { kRnnTanh, kRnnRelu, kGru, kLstm };

// Blocks of rows in another order.
Term reordered(Term t, const Dims& order) {
  const int64_t gates = std::ssize(order);
  const sym::Expr rows = t.builder().simplify(sym::floordiv(t.dim(0), gates));
  std::vector<Term> parts;
  for (int64_t gate : order) parts.push_back(slice(t, 0, rows * gate, rows));
  return concat(parts, 0);
}

// PyTorch's gates to those of ops::recurrent: input, output, forget, cell (LSTM); update, reset, hidden
// (GRU).
Term gates(Term t, Layer layer) {
  if (layer == Layer::kLstm) return reordered(t, {0, 3, 1, 2});
  if (layer == Layer::kGru) return reordered(t, {1, 0, 2});
  return t;
}

RecurrentResult direction(Layer layer, Term x, const std::vector<Term>& p, Term h, std::optional<Term> state,
                          bool reverse) {
  const Cell cell = layer == Layer::kLstm ? Cell::kLstm : layer == Layer::kGru ? Cell::kGru : Cell::kRnn;
  RecurrentOptions options{.reverse = reverse,
                           .activations = default_activations(cell),
                           .alphas = {},
                           .betas = {},
                           .linear_before_reset = true};
  if (layer == Layer::kRnnRelu) options.activations = {"Relu"};
  RecurrentWeights weights{
      .w = gates(p[0], layer), .r = gates(p[1], layer), .bias = std::nullopt, .peepholes = std::nullopt};
  if (p.size() % 2 == 1) weights.projection = p.back();
  if (p.size() >= 4) weights.bias = concat({gates(p[2], layer), gates(p[3], layer)}, 0);
  return ops::recurrent(cell, x, weights, std::nullopt, {.h = h, .c = state}, options);
}

template <Layer layer>
Results recurrent(Context& c) {
  if (!c.names("input")) c.unsupported("recurrent layers over packed sequences");
  if (c.number("dropout") != 0 && c.flag("train"))
    c.unsupported("dropout in training draws random numbers",
                  "export the module in eval mode: module.eval()");
  Term x = c.in("input");
  const bool first = c.flag("batch_first"), unbatched = x.rank() == 2;
  if (unbatched) c.unsupported("recurrent layers without a batch dim");
  if (first) x = transpose(x, 0, 1);
  const std::vector<Term> params = c.terms("params");
  const std::vector<Term> given = layer == Layer::kLstm ? c.terms("hx") : std::vector<Term>{c.in("hx")};
  const int64_t layers = c.integer("num_layers"), directions = c.flag("bidirectional") ? 2 : 1;
  // An LSTM's last parameter of each direction is the projection, if it has one.
  const bool projects = std::ssize(params) == (c.flag("has_biases") ? 5 : 3) * layers * directions;
  const size_t each = (c.flag("has_biases") ? 4 : 2) + (projects ? 1 : 0);
  if (layer == Layer::kLstm && given.size() != 2) c.does_not_fit("hx is not a pair");
  if (params.size() != each * static_cast<size_t>(layers * directions))
    c.does_not_fit("the number of parameters is not that of the layers");
  std::vector<Term> hs, cs;
  for (int64_t level = 0; level < layers; ++level) {
    std::vector<Term> outputs;
    for (int64_t d = 0; d < directions; ++d) {
      const int64_t at = level * directions + d;
      const auto start = params.begin() + at * static_cast<int64_t>(each);
      const auto state = [&](size_t i) { return squeeze(slice(given[i], 0, at, 1), {0}); };
      const RecurrentResult r =
          direction(layer, x, {start, start + static_cast<int64_t>(each)}, state(0),
                    layer == Layer::kLstm ? std::optional(state(1)) : std::nullopt, d == 1);
      outputs.push_back(squeeze(r.y, {1}));
      hs.push_back(r.h);
      if (r.c) cs.push_back(*r.c);
    }
    x = concat(outputs, 2);
  }
  Results out{first ? transpose(x, 0, 1) : x, concat(hs, 0)};
  if (!cs.empty()) out.push_back(concat(cs, 0));
  return out;
}

// One step: (input, hx, w_ih, w_hh, b_ih, b_hh).
template <Layer layer>
Results cell(Context& c) {
  Term x = c.in("input");
  const bool single = x.rank() == 1;
  const std::vector<Term> given = layer == Layer::kLstm ? c.terms("hx") : std::vector<Term>{c.in("hx")};
  if (layer == Layer::kLstm && given.size() != 2) c.does_not_fit("hx is not a pair");
  const auto row = [&](Term t) { return single ? unsqueeze(t, {0}) : t; };
  std::vector<Term> params{c.in("w_ih"), c.in("w_hh")};
  if (c.has("b_ih") && c.has("b_hh")) params.insert(params.end(), {c.in("b_ih"), c.in("b_hh")});
  const RecurrentResult r =
      direction(layer, unsqueeze(row(x), {0}), params, row(given[0]),
                layer == Layer::kLstm ? std::optional(row(given[1])) : std::nullopt, false);
  const auto state = [&](Term t) { return squeeze(t, single ? Dims{0, 1} : Dims{0}); };
  if (r.c) return {state(r.h), state(*r.c)};
  return {state(r.h)};
}

constexpr Row kRows[] = {
    {"gru_cell", cell<Layer::kGru>},          {"lstm_cell", cell<Layer::kLstm>},
    {"rnn_relu_cell", cell<Layer::kRnnRelu>}, {"rnn_tanh_cell", cell<Layer::kRnnTanh>},
    {"gru", recurrent<Layer::kGru>},          {"lstm", recurrent<Layer::kLstm>},
    {"rnn_relu", recurrent<Layer::kRnnRelu>}, {"rnn_tanh", recurrent<Layer::kRnnTanh>},
};

}  // namespace

std::span<const Row> recurrent_rows() { return kRows; }

}  // namespace stridec::aten
