// RNN, GRU and LSTM: one loop per direction (ops/composite/recurrent.h), stacked in ONNX's layouts.
#include "compiler/ops/composite/recurrent.h"
#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/ops/composite/quantization.h"

namespace stridec::onnx {
namespace {

using namespace ops;

// The node's lists of activations and their parameters hold one direction after the other.
std::vector<RecurrentOptions> options_of(const Context& c, Cell cell, int64_t directions) {
  const std::vector<std::string> defaults = default_activations(cell), given = c.texts("activations");
  const auto each = std::ssize(defaults);
  if (!given.empty() && std::ssize(given) != each * directions)
    c.does_not_fit(
        cat(given.size(), " activations are given for ", directions, " directions of ", defaults.size()));
  const auto later = [&](const std::vector<double>& all, int64_t first) {
    return first == 0 || std::ssize(all) < each * directions ? all
                                                             : std::vector(all.begin() + first, all.end());
  };
  std::vector<RecurrentOptions> out;
  for (int64_t d = 0; d < directions; ++d) {
    const int64_t first = each * d;
    out.push_back({.reverse = d == 1 || c.text("direction", "forward") == "reverse",
                   .clip = c.number("clip", 0),
                   .activations = given.empty()
                                      ? defaults
                                      : std::vector(given.begin() + first, given.begin() + first + each),
                   .alphas = later(c.numbers("activation_alpha"), first),
                   .betas = later(c.numbers("activation_beta"), first),
                   .linear_before_reset = c.integer("linear_before_reset", 0) != 0,
                   .input_forget = c.integer("input_forget", 0) != 0});
  }
  return out;
}

template <Cell cell>
Outputs op_recurrent(Context& c) {
  const bool batch_first = c.integer("layout", 0) != 0;
  const auto steps_first = [&](Term t) { return batch_first ? transpose(t, 0, 1) : t; };
  const Term x = steps_first(c.in(0)), w = c.in(1), r = c.in(2);
  const std::string direction = c.text("direction", "forward");
  const int64_t directions = direction == "bidirectional" ? 2 : 1;
  c.b.require(sym::eq(w.dim(0), directions),
              "direction '" + direction + "' does not fit weights for {0} directions", {w.dim(0)});
  const std::vector<RecurrentOptions> options = options_of(c, cell, directions);
  std::vector<RecurrentResult> results;
  for (int64_t d = 0; d < directions; ++d) {
    const auto one = [&](Term t) { return squeeze(slice(t, 0, d, 1), {0}); };
    const auto of_direction = [&](size_t input, bool state) -> std::optional<Term> {
      if (!c.has(input)) return std::nullopt;
      return one(state ? steps_first(c.in(input)) : c.in(input));
    };
    const bool lstm = cell == Cell::kLstm;
    const RecurrentWeights weights{.w = one(w),
                                   .r = one(r),
                                   .bias = of_direction(3, false),
                                   .peepholes = lstm ? of_direction(7, false) : std::nullopt};
    const RecurrentState initial{.h = of_direction(5, true),
                                 .c = lstm ? of_direction(6, true) : std::nullopt};
    results.push_back(recurrent(cell, x, weights, c.optional(4), initial, options[static_cast<size_t>(d)]));
  }
  const RecurrentResult all = join_directions(results);
  Outputs out{batch_first ? permute(all.y, {2, 0, 1, 3}) : all.y, steps_first(all.h)};
  if (all.c) out.push_back(steps_first(*all.c));
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
    {"GRU", op_recurrent<Cell::kGru>, 3},
    {"LSTM", op_recurrent<Cell::kLstm>},
    {"RNN", op_recurrent<Cell::kRnn>},
};

}  // namespace

std::span<const Row> recurrent_rows() { return kRows; }

}  // namespace stridec::onnx
