// Low-rank adapters (Hu et al. 2021, arXiv:2106.09685). A product x W with a frozen weight W gets a second
// one in parallel, with two small trained matrices: y = x W + (alpha / rank) (x A^T) B^T, A [rank, in],
// B [out, rank], as PEFT has them. W stays a constant, so that its product is laid out and packed as in
// inference. A convolution likewise: A is a convolution of `rank` channels with W's window, B one of 1x1.
// W may be quantised: then it is computed from constants alone, of which the largest has the adapter.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "compiler/train/settings.h"
#include "compiler/train/update.h"

namespace stridec::train {

// A weight with an adapter.
struct Adapted {
  // A dot_general or conv, and the operand that is the weight.
  struct Product {
    graph::NodeId node;
    size_t operand;
  };
  std::string name;
  graph::ValueId weight;
  graph::ValueId matrix;          // the weight in floats: itself, or what it is dequantised to
  int64_t in = 0, out = 0;        // the matrix's dims: of the input's channels, of the output's
  std::vector<Product> products;  // in execution order
  graph::Type a, b;               // of the adapter's matrices

  bool is_quantised() const { return matrix != weight; }
};

// The weights that the settings select, in execution order. A weight that a pattern with `*` matches is left
// out if other nodes than products read it, or if it is the scales or zero points of another one. Throws a
// usage Error if a whole name is such a weight, or no weight is left.
std::vector<Adapted> find_adapted(const graph::Graph& graph, const Lora& lora);

// The states of A and B, named after the weight with ".lora_A" and ".lora_B", with `prefix` before it. A's
// initial value is Kaiming-uniform from the seed and its name, B's is zero.
std::pair<Weight, Weight> adapter_states(graph::Builder& b, const Adapted& adapted, const Lora& lora,
                                         const std::string& prefix);
// Adds the adapters' products to the graph, and returns the states. Nodes have other numbers afterwards.
std::vector<std::pair<std::string, graph::ValueId>> add_adapters(graph::Graph& graph,
                                                                 const std::vector<Adapted>& all,
                                                                 const Lora& lora, const std::string& prefix);

}  // namespace stridec::train
