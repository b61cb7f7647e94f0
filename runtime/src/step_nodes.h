// The model's nodes that each step computes, and its hash, from the artifact's manifest.
#pragma once

#include "json.h"
#include "model.h"
#include "text.h"

namespace stridec::runtime {

// Of one function. `steps` has one entry per step, freed with free(); one that is invalid has no nodes.
struct StepNodes {
  struct Entry {
    Json nodes;    // texts
    Json indices;  // into them; invalid: all
  };
  Entry* steps;
  JsonString model;  // the SHA-256 of its file, in hexadecimal digits; without characters: not known
};

// False: out of memory. A manifest that cannot be read leaves all entries without nodes.
bool find_nodes(const stridec_model& model, int32_t function, StepNodes& nodes);

// "node 3 'a', node 5 'b', 7 more", as part of a JSON string.
void write_nodes(Text& line, const StepNodes& nodes, int32_t step);

}  // namespace stridec::runtime
