// RNN, GRU and LSTM: one loop per direction (ops/composite_recurrent.cpp), combined to ONNX's layouts.
#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/ops/quantization.h"
#include "compiler/ops/composite.h"

namespace stridec::onnx {
namespace {

using namespace ops;

enum class Cell { kRnn, kGru, kLstm };

template <Cell cell>
Outputs recurrent(Context& c) {
  const bool batch_first = c.integer("layout", 0) != 0;
  const Term x = batch_first ? transpose(c.in(0), 0, 1) : c.in(0);
  const std::string direction = c.text("direction", "forward");
  const int64_t directions = direction == "bidirectional" ? 2 : 1;
  const Term w = c.in(1), r = c.in(2);
  const sym::Expr hidden = r.dim(2), batch = x.dim(1);
  c.b.require(sym::eq(w.dim(0), directions),
              "direction '" + direction + "' does not fit weights for {0} directions", {w.dim(0)});

  // The lists hold activations and their parameters for one direction after the other.
  const size_t per_direction = cell == Cell::kLstm ? 3 : cell == Cell::kGru ? 2 : 1;
  std::vector<std::string> activations = c.texts("activations");
  if (activations.empty())
    for (int64_t d = 0; d < directions; ++d) {
      if (cell != Cell::kRnn) activations.push_back("Sigmoid");
      activations.push_back("Tanh");
      if (cell == Cell::kLstm) activations.push_back("Tanh");
    }
  if (activations.size() != per_direction * static_cast<size_t>(directions))
    c.does_not_fit(
        cat(activations.size(), " activations are given for ", directions, " directions of ", per_direction));
  const std::vector<double> alphas = c.numbers("activation_alpha"), betas = c.numbers("activation_beta");

  const auto one = [&](Term t, int64_t d) { return squeeze(slice(t, 0, d, 1), {0}); };
  const auto of_direction = [&](size_t input, int64_t d) -> std::optional<Term> {
    return c.has(input) ? std::optional(one(c.in(input), d)) : std::nullopt;
  };
  const auto initial = [&](size_t input, int64_t d) {
    if (!c.has(input)) return filled(c.b, {batch, hidden}, x.dtype(), 0);
    return one(batch_first ? transpose(c.in(input), 0, 1) : c.in(input), d);
  };
  std::vector<Term> ys, hs, cs;
  for (int64_t d = 0; d < directions; ++d) {
    const auto first = static_cast<int64_t>(per_direction) * d;
    RecurrentOptions options{
        .reverse = direction == "reverse" || d == 1,
        .clip = c.number("clip", 0),
        .activations = {activations.begin() + first,
                        activations.begin() + first + static_cast<int64_t>(per_direction)},
        .alphas = d == 0 || alphas.size() < activations.size()
                      ? alphas
                      : std::vector<double>(alphas.begin() + first, alphas.end()),
        .betas = d == 0 || betas.size() < activations.size()
                     ? betas
                     : std::vector<double>(betas.begin() + first, betas.end()),
        .linear_before_reset = c.integer("linear_before_reset", 0) != 0,
        .input_forget = c.integer("input_forget", 0) != 0,
    };
    const auto run = [&] {
      const Term wd = one(w, d), rd = one(r, d);
      const auto bias = of_direction(3, d);
      if constexpr (cell == Cell::kLstm)
        return lstm(x, wd, rd, bias, c.optional(4), initial(5, d), initial(6, d), of_direction(7, d),
                    options);
      else if constexpr (cell == Cell::kGru)
        return gru(x, wd, rd, bias, c.optional(4), initial(5, d), options);
      else
        return rnn(x, wd, rd, bias, c.optional(4), initial(5, d), options);
    };
    const RecurrentResult result = run();
    ys.push_back(unsqueeze(result.y, {1}));
    hs.push_back(unsqueeze(result.h, {0}));
    if (result.c) cs.push_back(unsqueeze(*result.c, {0}));
  }
  const auto last = [&](const std::vector<Term>& parts) {
    return batch_first ? transpose(concat(parts, 0), 0, 1) : concat(parts, 0);
  };
  const Term y = concat(ys, 1);  // [steps, directions, batch, hidden]
  Outputs out{batch_first ? permute(y, {2, 0, 1, 3}) : y, last(hs)};
  if (!cs.empty()) out.push_back(last(cs));
  return out;
}

// Weights [directions, in, gates] are 8-bit, with a scale and a zero point per direction or per gate row. X
// and H, which onnxruntime quantises at every step, are not quantised.
Outputs dynamic_quantize_lstm(Context& c) {
  const auto weights = [&](size_t input, size_t scale) {
    const Term w = c.in(input);
    const auto beside = [&](Term t) {
      return reshape(t, {t.dim(0), 1, t.rank() == 2 ? t.dim(1) : sym::Expr(1)});
    };
    return transpose(dequantize(w, beside(c.in(scale)), beside(c.in(scale + 1))), 1, 2);
  };
  Node lstm = c.node;
  lstm.op_type = "LSTM";
  lstm.domain = "";
  lstm.version = 14;
  lstm.inputs.resize(8);
  std::vector<Slot> inputs{c.slot(0), Slot(weights(1, 8)), Slot(weights(2, 10))};
  for (size_t i = 3; i < 8; ++i) inputs.push_back(c.has(i) ? c.slot(i) : Slot());
  return c.importer().import_as(c, std::move(lstm), std::move(inputs));
}

constexpr Row kRows[] = {
    {"DynamicQuantizeLSTM", dynamic_quantize_lstm, 1, kAnyLater, "com.microsoft"},
    {"GRU", recurrent<Cell::kGru>, 3},
    {"LSTM", recurrent<Cell::kLstm>},
    {"RNN", recurrent<Cell::kRnn>},
};

}  // namespace

std::span<const Row> recurrent_rows() { return kRows; }

}  // namespace stridec::onnx
