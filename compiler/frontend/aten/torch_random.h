// Rows of random draws with the bits of PyTorch's generators, for graphs that keep one
// (ops/composite/torch_random.h), and what they share with the other rows of random.cpp.
#pragma once

#include <optional>

#include "compiler/frontend/aten/context.h"

namespace stridec::aten {

// Whether the operator may draw random numbers.
bool may_draw(const Schema& schema);

// The dtype and the shape of what is drawn: those of the arguments, or of the tensor `self`.
struct Drawn {
  Shape shape;
  DType dtype;
};
Drawn drawn(const Context& c);
void refuse_generator(const Context& c);
double given(const Context& c, const char* name, double otherwise);
const char* input_of(const Context& c);
// The result of a dropout in training. The in-place forms write their input.
Results dropped(Context& c, Term value);
// The result of a dropout that draws nothing: in inference the input itself, as in PyTorch, and of the
// probabilities 0 and 1.
std::optional<Results> undrawn_dropout(Context& c);
// Which elements a dropout keeps, drawn for each element or, with `whole_channels`, for each channel.
using KeptMask = Term (*)(Context& c, Term x, double p, bool whole_channels);
Results native_dropout_by(Context& c, KeptMask kept_mask);

Results torch_rand(Context& c);
Results torch_randn(Context& c);
Results torch_normal_of(Context& c);
Results torch_log_normal(Context& c);
Results torch_randint(Context& c);
Results torch_random_whole(Context& c);
Results torch_randperm(Context& c);
Results torch_bernoulli(Context& c);
Results torch_exponential(Context& c);
Results torch_geometric(Context& c);
Results torch_cauchy(Context& c);
Results torch_multinomial(Context& c);
// `whole_channels`: an element is drawn for each channel.
template <bool whole_channels>
Results torch_dropout(Context& c);
template <bool whole_channels>
Results torch_alpha_dropout(Context& c);
Results torch_native_dropout(Context& c);

}  // namespace stridec::aten
