// The functions that rules are written with: every primitive of the graph under its own name, and the
// operators of ops/composite in this file's table.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "compiler/extend/rule.h"
#include "compiler/graph/builder.h"

namespace stridec::extend {

// The value of an attribute or of an operand of a condition.
using Attr = std::variant<sym::Expr, std::vector<sym::Expr>, double, std::vector<double>, std::string, DType>;
std::string to_string(const Attr& value);
Attr from_graph(const graph::AttributeValue& value);
// Scalars and lists of integers are stored as the Builder's callers store attribute `name`.
graph::AttributeValue to_graph(std::string_view name, const Attr& value);

using Arguments = std::map<std::string, Attr, std::less<>>;

struct Composite {
  std::string_view name;
  int tensors;                               // number of leading arguments that are tensors
  std::vector<std::string_view> parameters;  // names of the arguments after these
  graph::ValueId (*build)(graph::Builder& b, const std::vector<graph::ValueId>& inputs,
                          const Arguments& arguments);
  // The type of the only input, if the result has this type; null: the operator is for replacements alone.
  std::optional<graph::Type> (*input_of)(const graph::Type& result) = nullptr;
};
const std::vector<Composite>& composites();
const Composite* find_composite(std::string_view name);

// The names of attributes that primitives accept as arguments after their tensor.
std::vector<std::string_view> positional(graph::OpKind kind);
// The tensors and the attributes of a call, whether they are given by position or by name.
struct Split {
  std::vector<const Term*> tensors;
  std::vector<std::pair<std::string, const Term*>> attributes;
};
Split split(const Term& call);

// Attributes that a primitive has where a rule does not name them.
graph::Attributes defaults(graph::OpKind kind, const std::vector<DType>& inputs);
// Attributes that do not change the result.
bool is_immaterial(graph::OpKind kind, std::string_view attribute, const graph::Node& node);
bool is_commutative(graph::OpKind kind);
// dims and dim count from the end if they are negative.
Attr normalized(std::string_view attribute, Attr value, int rank);

// Whether a name among attributes stands for itself: a dtype, or a text such as `edge`.
bool is_word(std::string_view name);

}  // namespace stridec::extend
