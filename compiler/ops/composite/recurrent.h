// Recurrent layers: LSTM, GRU and RNN. One GEMM before the loop computes the input projections of all steps;
// the loop multiplies the state.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/ops/term.h"

namespace stridec::ops {

enum class Cell { kRnn, kGru, kLstm };

struct RecurrentOptions {
  bool reverse = false;
  double clip = 0;                       // of gate inputs; 0: none
  std::vector<std::string> activations;  // ONNX's names: f g h (LSTM), f g (GRU), f (RNN)
  std::vector<double> alphas, betas;     // for the activations that take them, in order
  bool linear_before_reset = false;      // GRU
  bool input_forget = false;             // LSTM
};

// Of weights in 8-bit integers: a scalar, or one value per row.
struct RecurrentScale {
  Term scale, zero;
};
struct RecurrentWeights {
  Term w, r;                            // [gates * hidden, input], [gates * hidden, hidden]
  std::optional<Term> bias, peepholes;  // [2 * gates * hidden]: of w, then of r; [3 * hidden]
  // Of integers in w and r. x as a whole, and the state in every step, are quantised dynamically to u8.
  std::optional<RecurrentScale> w_scale = {}, r_scale = {};
  // [projected, hidden], LSTM: multiplies h, so that r is [gates * hidden, projected], h [batch, projected].
  std::optional<Term> projection = {};
};
// What a direction starts from: [batch, hidden]; one that is missing is zero. c: LSTM.
struct RecurrentState {
  std::optional<Term> h, c;
};
struct RecurrentResult {
  Term y, h;              // [steps, directions, batch, hidden]; the last h [directions, batch, hidden]
  std::optional<Term> c;  // the last c (LSTM)
};

// One direction (directions = 1) over x [steps, batch, input]. lengths [batch] or none: the number of steps
// of each row; later outputs are zero. Gates are in ONNX's order: input, output, forget, cell (LSTM;
// peepholes:
// input, output, forget), update, reset, hidden (GRU). Throws Error kUnsupported for an unknown activation.
RecurrentResult recurrent(Cell cell, Term x, const RecurrentWeights& weights, std::optional<Term> lengths,
                          const RecurrentState& initial, const RecurrentOptions& options);

RecurrentResult join_directions(const std::vector<RecurrentResult>& directions);

// The default activations of a direction: sigmoid for gates, tanh elsewhere.
std::vector<std::string> default_activations(Cell cell);

}  // namespace stridec::ops
