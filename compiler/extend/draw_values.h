// Draws the values of a rule's variables: small numbers, and those at which sides that look equal differ.
#pragma once

#include <vector>

#include "compiler/extend/draws.h"
#include "compiler/extend/landmarks.h"
#include "compiler/extend/rule.h"
#include "compiler/graph/graph.h"
#include "compiler/loop/interpret.h"

namespace stridec::extend {

// What the values of an instance are like. kSpecial: zeros of both signs, infinities, NaN, the largest and
// the smallest numbers; those that are finite, if the rule assumes so. kNearLargest and kExtreme are finite
// and positive, so that sums of them overflow however they are associated: tensors near the largest number or
// plain ones, and tensors of large, of tiny or of plain numbers. Sums of squares of kSquarable do not
// overflow.
enum class Values { kPlain, kLarge, kNan, kPositiveInfinity, kSpecial, kNearLargest, kExtreme, kSquarable };

// Whether intermediate results overflow or underflow for most such values.
bool is_extreme(Values values);

std::vector<Values> kinds_of_values(const Check& check);
// Other than kPlain, for inputs of operators: what a body and its reference have to agree on.
std::vector<Values> unusual_inputs(const Check& check);

// `near`: numbers at and next to these are drawn too, and numbers next to the ties of its float types.
loop::HostTensor draw_tensor(Draws& draws, const graph::Type& type, const Check& check, Values values,
                             bool constant, const Landmarks& near = {});

// Whether a condition of the rule is about the size of the constant's elements: is_power_of_two(c),
// normal(1 / c).
bool bounds_contents(const Rule& rule, const std::string& constant);
// The numbers at the ends of what a type has, which such conditions let through or not: powers of two, the
// least one first.
std::vector<double> limits_of(DType dtype);
// The tensor with this number in all elements.
loop::HostTensor filled(loop::HostTensor tensor, double number);
loop::HostTensor negated(loop::HostTensor tensor);  // of floats; others stay

}  // namespace stridec::extend
