// Matches a composite operator: builds it at the type of the place, and compares the two graphs.
#pragma once

#include <optional>
#include <vector>

#include "compiler/extend/vocabulary.h"
#include "compiler/graph/builder.h"

namespace stridec::extend {

// Stands for an unknown number among the arguments of a composite; the match finds it.
inline constexpr double kUnknownNumber = 0.012345678;

struct TemplateMatch {
  graph::ValueId input;
  std::vector<graph::NodeId> nodes;
  std::optional<double> number;  // in place of kUnknownNumber
};

// The number that all elements of a constant are.
std::optional<double> splat(const graph::Graph& graph, graph::ValueId value);

// The operations that the composite's result may come from, for every dtype and argument.
std::vector<graph::OpKind> template_kinds(const Composite& composite);

// Whether `value` is computed by the composite with these arguments from some input.
std::optional<TemplateMatch> match_template(graph::Builder& builder, const Composite& composite,
                                            const Arguments& arguments, graph::ValueId value);

}  // namespace stridec::extend
