// Prints and parses graphs as text, for people, golden files and tests.
//
//   graph mlp
//     symbol batch 1..64 multiple 8 = input 0 dim 0
//     guard $(batch < 65): "batch is {0}" $[batch]
//     input %0 "x" : f32[batch, 784]
//     state %1 "sum" : f32[10]
//     %2 "fc.weight" : f32[784, 10] = constant 31360 bytes
//     %3 : f32[] = constant [0.5]
//     %4 : f32[batch, 10] = dot_general %0 %2 {contract_a=[1], contract_b=[0], accumulate=f32} from "node 3"
//     %5 : f32[batch, 10] = if {condition=$(batch == 1)}
//       region
//         yield %4
//       region (%6 : f32[2], ...)
//         ...
//         yield %7
//     output "y" %5
//
// Attributes: 3, 0.5, "text", f32, [1, 2], #[0.5, 1.0], $(an expression), $[expressions]. Known elements
// follow the type: `%8 : i64[2] $[batch, 4] = ...`. Values are numbered in order of appearance.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "compiler/graph/graph.h"

namespace stridec::graph {

std::string to_string(const Graph& graph);

// Names the contents of a constant that is not printed as numbers: `constant 31360 bytes @sha256:9f86...`.
// Contents that numbers do not give back (NaN) are named, too.
using NameContents = std::function<std::string(const Data& data)>;
std::string to_string(const Graph& graph, const NameContents& name_contents);

// Supplies the contents of constants whose text gives only the size, and their name. Empty: zeros.
using Contents = std::function<Data(const Value& value, size_t bytes, const std::string& name)>;
// Throws Error kMalformed, code "bad-graph", with the line. to_string(parse(text)) == text for any text that
// to_string produced.
Graph parse(std::string_view text, const Contents& contents = {});

}  // namespace stridec::graph
