// RNN, GRU and LSTM: one loop per direction (ops/composite/recurrent.h), stacked in ONNX's layouts.
#include "compiler/ops/composite/recurrent.h"
#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"

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

// Of a direction's 8-bit weights: inputs i and i + 1, one value per direction or per gate row.
RecurrentScale scale_of(const Context& c, size_t i, int64_t direction) {
  const auto one = [&](Term t) { return squeeze(slice(t, 0, direction, 1), {0}); };
  return {one(c.in(i)), one(c.in(i + 1))};
}

// `quantized`: weights are [directions, input, gates], in 8-bit integers.
Outputs recurrent_layer(Context& c, Cell cell, bool quantized) {
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
    const auto rows_first = [&](Term t) { return quantized ? transpose(t, 0, 1) : t; };
    RecurrentWeights weights{.w = rows_first(one(w)),
                             .r = rows_first(one(r)),
                             .bias = of_direction(3, false),
                             .peepholes = lstm ? of_direction(7, false) : std::nullopt};
    if (quantized) weights.w_scale = scale_of(c, 8, d), weights.r_scale = scale_of(c, 10, d);
    const RecurrentState initial{.h = of_direction(5, true),
                                 .c = lstm ? of_direction(6, true) : std::nullopt};
    results.push_back(recurrent(cell, x, weights, c.optional(4), initial, options[static_cast<size_t>(d)]));
  }
  const RecurrentResult all = join_directions(results);
  Outputs out{batch_first ? permute(all.y, {2, 0, 1, 3}) : all.y, steps_first(all.h)};
  if (all.c) out.push_back(steps_first(*all.c));
  return out;
}

template <Cell cell>
Outputs op_recurrent(Context& c) {
  return recurrent_layer(c, cell, false);
}

Outputs dynamic_quantize_lstm(Context& c) { return recurrent_layer(c, Cell::kLstm, true); }

constexpr Row kRows[] = {
    {"DynamicQuantizeLSTM", dynamic_quantize_lstm, 1, kAnyLater, "com.microsoft"},
    {"GRU", op_recurrent<Cell::kGru>, 3},
    {"LSTM", op_recurrent<Cell::kLstm>},
    {"RNN", op_recurrent<Cell::kRnn>},
};

}  // namespace

std::span<const Row> recurrent_rows() { return kRows; }

}  // namespace stridec::onnx
