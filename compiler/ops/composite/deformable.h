// Deformable convolution in two spatial dims. Zhu et al. 2018 (version 2), arXiv:1811.11168.
#pragma once

#include <optional>

#include "compiler/ops/composite/window.h"

namespace stridec::ops {

// A convolution whose taps are displaced: offset [n, offset groups * taps * 2, out...] holds (y, x) per tap,
// mask [n, offset groups * taps, out...] weights the samples. Samples outside of x are 0. x [n, channels, h,
// w], w [outputs, channels / groups, kh, kw].
struct DeformableOptions {
  Window window;
  int64_t groups = 1, offset_groups = 1;
};
Term deformable_convolution(Term x, Term w, Term offset, std::optional<Term> mask, std::optional<Term> bias,
                            const DeformableOptions& options);

}  // namespace stridec::ops
