// LSTM, GRU and RNN in PyTorch's layouts.
#include "compiler/base/text.h"
#include "compiler/frontend/aten/call.h"
#include "compiler/ops/composite/recurrent.h"

namespace stridec::aten {
namespace {

using namespace ops;

enum class Cell { kRnnTanh, kRnnRelu, kGru, kLstm };

// Blocks of rows in another order.
Term reordered(Term t, const Dims& order) {
  const int64_t gates = std::ssize(order);
  const sym::Expr rows = t.builder().simplify(sym::floordiv(t.dim(0), gates));
  std::vector<Term> parts;
  for (int64_t gate : order) parts.push_back(slice(t, 0, rows * gate, rows));
  return concat(parts, 0);
}

// PyTorch's gates to those of ops::lstm (input, output, forget, cell) and ops::gru (update, reset, hidden).
Term gates(Term t, Cell cell) {
  if (cell == Cell::kLstm) return reordered(t, {0, 3, 1, 2});
  if (cell == Cell::kGru) return reordered(t, {1, 0, 2});
  return t;
}

RecurrentResult direction(Cell cell, Term x, const std::vector<Term>& p, Term h, std::optional<Term> state,
                          bool reverse) {
  const bool biases = p.size() >= 4;
  std::optional<Term> bias;
  if (biases) bias = concat({gates(p[2], cell), gates(p[3], cell)}, 0);
  RecurrentOptions options{
      .reverse = reverse, .activations = {}, .alphas = {}, .betas = {}, .linear_before_reset = true};
  const Term w = gates(p[0], cell), r = gates(p[1], cell);
  switch (cell) {
    case Cell::kLstm:
      options.activations = {"Sigmoid", "Tanh", "Tanh"};
      return lstm(x, w, r, bias, std::nullopt, h, *state, std::nullopt, options);
    case Cell::kGru:
      options.activations = {"Sigmoid", "Tanh"};
      return gru(x, w, r, bias, std::nullopt, h, options);
    default:
      options.activations = {cell == Cell::kRnnRelu ? "Relu" : "Tanh"};
      return rnn(x, w, r, bias, std::nullopt, h, options);
  }
}

template <Cell cell>
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
  const std::vector<Term> given = cell == Cell::kLstm ? c.terms("hx") : std::vector<Term>{c.in("hx")};
  const int64_t layers = c.integer("num_layers"), directions = c.flag("bidirectional") ? 2 : 1;
  const size_t each = c.flag("has_biases") ? 4 : 2;
  if (cell == Cell::kLstm && given.size() != 2) c.does_not_fit("hx is not a pair");
  if (params.size() != each * static_cast<size_t>(layers * directions))
    c.unsupported("LSTM with projections", "proj_size=0 is supported");
  std::vector<Term> hs, cs;
  for (int64_t layer = 0; layer < layers; ++layer) {
    std::vector<Term> outputs;
    for (int64_t d = 0; d < directions; ++d) {
      const int64_t at = layer * directions + d;
      const auto start = params.begin() + at * static_cast<int64_t>(each);
      const auto state = [&](size_t i) { return squeeze(slice(given[i], 0, at, 1), {0}); };
      const RecurrentResult r =
          direction(cell, x, {start, start + static_cast<int64_t>(each)}, state(0),
                    cell == Cell::kLstm ? std::optional(state(1)) : std::nullopt, d == 1);
      outputs.push_back(r.y);
      hs.push_back(unsqueeze(r.h, {0}));
      if (r.c) cs.push_back(unsqueeze(*r.c, {0}));
    }
    x = concat(outputs, 2);
  }
  Results out{first ? transpose(x, 0, 1) : x, concat(hs, 0)};
  if (!cs.empty()) out.push_back(concat(cs, 0));
  return out;
}

constexpr Row kRows[] = {
    {"gru", recurrent<Cell::kGru>},
    {"lstm", recurrent<Cell::kLstm>},
    {"rnn_relu", recurrent<Cell::kRnnRelu>},
    {"rnn_tanh", recurrent<Cell::kRnnTanh>},
};

}  // namespace

std::span<const Row> recurrent_rows() { return kRows; }

}  // namespace stridec::aten
