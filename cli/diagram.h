// Drawings of acyclic graphs as boxes in layers: text for Graphviz, or SVG by an own layout.
#pragma once

#include <string>
#include <vector>

#include "compiler/compilation.h"

namespace stridec::cli {

struct Diagram {
  struct Box {
    std::string label, detail;  // detail: shown when the pointer rests on the box
    enum class Kind { kPlain, kInput, kOutput } kind = Kind::kPlain;
  };
  struct Edge {
    size_t from, to;  // from < to
    std::string label;
  };
  std::string name;
  std::vector<Box> boxes;
  std::vector<Edge> edges;
};

// The graph as imported: a box for each operation but constants; edges have types.
Diagram diagram_of(const graph::Graph& graph);
// A box for each kernel and routine of a run; edges are the buffers that pass between them. Weights are not
// drawn.
Diagram diagram_of(const loop::Program& program);

std::string to_dot(const Diagram& diagram);
// Layers by longest paths, ordered by barycentres. Time and size grow linearly but for sorting, also for
// 20,000 boxes.
std::string to_svg(const Diagram& diagram);

// Text as part of HTML or SVG, also within an attribute's quotes. Control characters become spaces.
std::string escape_markup(std::string_view text);

}  // namespace stridec::cli
