// The text of a graph for passes of users, and the graph that such a text is.
//
// The text is that of compiler/graph/text.h after a first line "stridec-graph 1". Constants of more than 16
// elements are named by their SHA-256, as `constant 31360 bytes @sha256:9f86...`, and a pass may move, copy
// or drop them; for new ones it writes numbers, or `@file:PATH+OFFSET`.
#pragma once

#include <map>
#include <string>

#include "compiler/graph/graph.h"

namespace stridec::extend {

// The text of a graph for a pass, and the graph of a text that a pass made of it. `folder`: for @file.
class Exchange {
 public:
  explicit Exchange(const graph::Graph& graph, std::string folder = {});
  const std::string& text() const { return text_; }
  // The graph of a text, unchecked; values are numbered as in the text. Throws Error kMalformed.
  graph::Graph parse(const std::string& text) const;
  // The same, verified, without dead code. Throws Error kMalformed.
  graph::Graph read(const std::string& text) const;
  // Each constant that is named, by name.
  const std::map<std::string, graph::Data>& contents() const { return contents_; }
  void add(const std::map<std::string, graph::Data>& more) { contents_.insert(more.begin(), more.end()); }

 private:
  graph::Data find(const graph::Value& value, size_t bytes, const std::string& name) const;
  graph::Data from_file(size_t bytes, std::string path) const;

  const graph::Graph& graph_;
  std::string folder_, text_;
  std::map<std::string, graph::Data> contents_;
};

}  // namespace stridec::extend
