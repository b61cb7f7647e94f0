// Operators composed of primitives. Shape, lowering and gradient follow from the expansion. A composite is a
// function over the Builder that frontends call; later stages only see the primitives.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ops/term.h"

namespace stridec::ops {

// ---- contractions ----
// NumPy's matmul: batch dims broadcast, vectors are promoted to matrices. `to`: dtype of the result (none:
// that of the operands).
Term matmul(Term a, Term b, std::optional<DType> to = std::nullopt);
// Einstein summation in NumPy's notation: "bij,bjk->bik", with "..." and repeated letters. "->" is optional.
Term einsum(std::string equation, std::vector<Term> operands);

// ---- linear algebra: elimination with row exchanges, in f32 or wider ----
Term determinant(Term x);  // of each matrix [n, n] in the last two dims
Term inverse(Term x);

// ---- signals ----
// The discrete Fourier transform along n of [..., n, 2], f32 or f64: sum over j of x[j] e^(-2 pi i j k / n),
// not divided by n. `backward` uses the opposite sign. Bit-identical to NumPy unless n has a large prime
// factor.
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
  Term value, mean, inverse_deviation;  // these two keep the reduced dims with size 1
};
// (x - mean) / sqrt(variance + epsilon) over dims, biased variance, computed in f32 or wider.
Normalized standardize(Term x, const Dims& dims, double epsilon);
Term rms_norm(Term x, const Dims& dims, double epsilon);  // x / sqrt(mean(x^2) + epsilon)

// ---- images ----
// Decodes an encoded image, u8 [n], to pixels, u8 [height, width, channels]. `format` is "rgb", "bgr" or
// "grayscale". Height and width are bound at run time. The run fails with an error message if the bytes are
// no image or a damaged one.
Term decode_image(Term bytes, const std::string& format);

// ---- recurrent ----
struct RecurrentOptions {
  bool reverse = false;
  double clip = 0;                       // of gate inputs; 0: none
  std::vector<std::string> activations;  // ONNX's names: f g h (LSTM), f g (GRU), f (RNN)
  std::vector<double> alphas, betas;     // for the activations that take them, in order
  bool linear_before_reset = false;      // GRU
  bool input_forget = false;             // LSTM
};
// One direction. x [steps, batch, input]; w [gates*hidden, input], r [gates*hidden, hidden], bias of both
// [2*gates*hidden] or none; initial_h and initial_c [batch, hidden]; lengths [batch] i32 or none: the number
// of steps of each row, later outputs are zero. Results: y [steps, batch, hidden], the last h (and c).
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

// The boxes that greedy non-maximum suppression keeps: bool [rows, n]. corners: f32 [rows, 4, n] (low x, low
// y, high x, high y) in order of preference; eligible: bool [rows, n]; most: i64 scalar; overlap: f32 scalar
// (loop/library.def).
Term suppress(Term corners, Term eligible, Term most, Term overlap);

}  // namespace stridec::ops
