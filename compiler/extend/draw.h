// Draws instances of rules: types, attributes and values.
#pragma once

#include <string>
#include <vector>

#include "compiler/extend/draw_rounding.h"
#include "compiler/extend/draws.h"
#include "compiler/extend/evaluate.h"
#include "compiler/extend/rule.h"
#include "compiler/loop/interpret.h"

namespace stridec::extend {

// The types of a rule's variables, in order; shapes are constant. `size`: 0 for the smallest instances.
std::vector<graph::Type> draw_types(Draws& draws, const Rule& rule, int size);

// What the values of an instance are like.
enum class Values { kPlain, kLarge, kNan, kPositiveInfinity, kSpecial };
std::vector<Values> kinds_of_values(const Check& check);
// `formats`: where a rule rounds to them, numbers next to their ties are drawn too.
loop::HostTensor draw_tensor(Draws& draws, const graph::Type& type, const Check& check, Values values,
                             bool constant, const std::vector<FloatFormat>& formats = {});

Attr draw_attribute(Draws& draws, const graph::Builder& builder, graph::OpKind kind,
                    const std::string& attribute, const std::vector<graph::ValueId>& inputs);
Attr draw_parameter(Draws& draws, const std::string& parameter, int rank);

}  // namespace stridec::extend
