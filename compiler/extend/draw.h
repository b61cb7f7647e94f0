// Draws instances of rules: types and attributes.
#pragma once

#include <string>
#include <vector>

#include "compiler/extend/draws.h"
#include "compiler/extend/evaluate.h"
#include "compiler/extend/landmarks.h"
#include "compiler/extend/rule.h"

namespace stridec::extend {

// The types of a rule's variables, in order; shapes are constant. `size`: 0 for the smallest instances.
// `near`: sizes that are drawn more often.
std::vector<graph::Type> draw_types(Draws& draws, const Rule& rule, int size, const Landmarks& near);

Attr draw_attribute(Draws& draws, const graph::Builder& builder, graph::OpKind kind,
                    const std::string& attribute, const std::vector<graph::ValueId>& inputs);
Attr draw_parameter(Draws& draws, const std::string& parameter, int rank);

}  // namespace stridec::extend
