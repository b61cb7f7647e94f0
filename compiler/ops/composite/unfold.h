// Sliding blocks as columns.
#pragma once

#include "compiler/ops/term.h"

namespace stridec::ops {

// The inverse of taking blocks: sums the blocks of x [n, channels * elements of a block, places] where they
// overlap: [n, channels, image...]. Sizes may be known only at run time. A guard checks that a block fits.
struct FoldOptions {
  Shape image, block;
  Dims strides, dilations;
  Dims before, after;  // padding of the image
};
Term fold_blocks(Term x, const FoldOptions& options);

}  // namespace stridec::ops
