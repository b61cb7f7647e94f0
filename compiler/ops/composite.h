// Operators made of primitives: shape, lowering and gradient follow from their expansion. A composite is a
// function over the Builder; frontends call it, nothing later knows that it was there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ops/term.h"

namespace stridec::ops {

// ---- contractions ----
// NumPy's matmul: batch dims broadcast, vectors are promoted. `to`: dtype of the result (none: the
// operands').
Term matmul(Term a, Term b, std::optional<DType> to = std::nullopt);
// Einstein summation, as NumPy writes it: "bij,bjk->bik", with "..." and repeated letters; "->" may be
// missing.
Term einsum(std::string equation, std::vector<Term> operands);

// ---- linear algebra; by elimination with row exchanges, in f32 or wider ----
Term determinant(Term x);  // of each [n, n] matrix at the end
Term inverse(Term x);

// ---- signals ----
// The discrete Fourier transform along n of [..., n, 2], f32 or f64: the sum over j of x[j] e^(-2 pi i j k / n), without the
// sign if backward; not divided by n. NumPy's result to the bit, where n has no large prime factor.
Term fourier(Term x, bool backward);

// ---- activations; narrow floats are computed in f32 ----
Term sigmoid(Term x);
Term relu(Term x);
Term gelu(Term x, bool tanh_form);
Term softplus(Term x);
Term silu(Term x, double alpha = 1);  // x * sigmoid(alpha x)
Term erf(Term x);
Term tanh(Term x);
Term pow(Term x, Operand y);

// ---- normalisations ----
Term softmax(Term x, const Dims& dims);
Term log_softmax(Term x, const Dims& dims);
struct Normalized {
  Term value, mean, inverse_deviation;  // the latter two keep the reduced dims as 1
};
// (x - mean) / sqrt(variance + epsilon) over dims, biased variance, computed in f32 or wider.
Normalized standardize(Term x, const Dims& dims, double epsilon);
Term rms_norm(Term x, const Dims& dims, double epsilon);  // x / sqrt(mean(x^2) + epsilon)

// ---- images ----
// u8 [n], an encoded image, to its pixels, u8 [height, width, channels], of the format "rgb", "bgr" or "grayscale".
// The size is bound during the run, which fails with a sentence where the bytes are no image or a damaged one.
Term decode_image(Term bytes, const std::string& format);

// ---- recurrent ----
struct RecurrentOptions {
  bool reverse = false;
  double clip = 0;                       // of gate inputs; 0: none
  std::vector<std::string> activations;  // ONNX's names: f g h (LSTM), f g (GRU), f (RNN)
  std::vector<double> alphas, betas;     // for the activations that have them, in order
  bool linear_before_reset = false;      // GRU
  bool input_forget = false;             // LSTM
};
// One direction. x [steps, batch, input]; w [gates*hidden, input], r [gates*hidden, hidden], bias of both
// [2*gates*hidden] or none; initial_h and initial_c [batch, hidden]; lengths [batch] i32 or none: rows end
// there, later steps give zeros. y [steps, batch, hidden], the last h (and c).
struct RecurrentResult {
  Term y, h;
  std::optional<Term> c;
};
RecurrentResult lstm(Term x, Term w, Term r, std::optional<Term> bias, std::optional<Term> lengths,
                     Term initial_h, Term initial_c, std::optional<Term> peepholes,
                     const RecurrentOptions& options);
RecurrentResult gru(Term x, Term w, Term r, std::optional<Term> bias, std::optional<Term> lengths,
                    Term initial_h, const RecurrentOptions& options);
RecurrentResult rnn(Term x, Term w, Term r, std::optional<Term> bias, std::optional<Term> lengths,
                    Term initial_h, const RecurrentOptions& options);

// ---- detection ----

// Which boxes greedy non-maximum suppression keeps: bool [rows, n]. corners f32 [rows, 4, n] (low x, low y, high x, high y)
// in order of preference, eligible bool [rows, n], most an i64 scalar, overlap an f32 scalar (loop/library.def).
Term suppress(Term corners, Term eligible, Term most, Term overlap);

}  // namespace stridec::ops
