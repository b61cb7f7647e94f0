// Rounding slack: values whose every use rounds to f16 or bf16 may be computed with a relative error of
// 2^-17.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::codegen {

enum class Slack : uint8_t {
  kNone,  // exact to its dtype
  // A few units in the last place. Operands of sums get no more, since cancellation amplifies relative
  // errors.
  kFew,
  // A relative error up to 2^-17: all uses preserve relative errors, and then round.
  kCoarse,
};

// Per value of the nest. A value has slack if all of its uses reach, through continuous operations, roundings
// to storage floats (f16, bf16 and narrower) or a value of such a dtype, which is rounded when computed. A
// value that is stored or summed wider, compared, or converted to an integer has none.
std::vector<Slack> slack_of(const loop::Nest& nest);

}  // namespace stridec::codegen
