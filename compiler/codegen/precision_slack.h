// How exact the values of a nest have to be: what nobody sees but rounded to 11 bits need not have 24.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::codegen {

enum class Slack : uint8_t {
  kNone,  // as exact as its dtype
  kFew,  // off by a few units in the last place: sums may cancel what is in front of them, but not these errors alone
  kCoarse,  // off by 2^-17 of itself: what follows keeps relative errors as they are, and rounds
};

// By value of the nest. A value has slack where all that uses it does, through operations without jumps, to roundings to
// storage floats (f16, bf16 and less), or to a value of such a dtype, which is rounded as it is made. What is stored or
// summed wider, compared or made an integer has none.
std::vector<Slack> slack_of(const loop::Nest& nest);

}  // namespace stridec::codegen
