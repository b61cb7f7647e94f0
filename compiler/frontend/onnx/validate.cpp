#include "compiler/frontend/onnx/validate.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"

namespace stridec::onnx {
namespace {

using NameSet = std::unordered_set<std::string>;

[[noreturn]] void bad(const Node* node, std::string code, std::string message, std::string tensor = {},
                      std::vector<std::string> notes = {}) {
  Diagnostic d{.kind = ErrorKind::kMalformed,
               .code = std::move(code),
               .message = std::move(message),
               .notes = std::move(notes)};
  if (node) d.where = {.node = describe(*node), .op = describe_op(*node)};
  d.where.tensor = std::move(tensor);
  throw Error(std::move(d));
}

// Names that a graph reads without defining them.
void collect_captures(const Graph& g, NameSet& out) {
  NameSet defined, read;
  for (const auto& v : g.inputs) defined.insert(v.name);
  for (const auto& t : g.initializers) defined.insert(t.name);
  for (const auto& n : g.nodes) {
    defined.insert(n.outputs.begin(), n.outputs.end());
    read.insert(n.inputs.begin(), n.inputs.end());
    for (const auto& a : n.attributes)
      for (const auto& inner : a.graphs) collect_captures(inner, read);
  }
  for (const auto& v : g.outputs) read.insert(v.name);
  for (const auto& name : read)
    if (!name.empty() && !defined.count(name)) out.insert(name);
}

// All names that a node depends on, including those its subgraphs read.
std::vector<std::string> reads_of(const Node& n) {
  NameSet captured;
  for (const auto& a : n.attributes)
    for (const auto& g : a.graphs) collect_captures(g, captured);
  std::vector<std::string> out = n.inputs;
  std::erase(out, "");
  std::vector<std::string> sorted(captured.begin(), captured.end());
  std::sort(sorted.begin(), sorted.end());
  out.insert(out.end(), sorted.begin(), sorted.end());
  return out;
}

class GraphValidator {
 public:
  GraphValidator(Graph& g, const std::vector<const NameSet*>& outer) : g_(g), scopes_(outer) {}

  void run() {
    define_all();
    sort();
    scopes_.push_back(&defined_);
    for (Node& n : g_.nodes)
      for (Attribute& a : n.attributes)
        for (Graph& inner : a.graphs) GraphValidator(inner, scopes_).run();
    for (const auto& v : g_.outputs)
      if (!visible(v.name))
        bad(nullptr, "undefined-name",
            "output '" + v.name + "' of graph '" + g_.name + "' is computed by no node", v.name);
  }

 private:
  bool visible(const std::string& name) const {
    return std::any_of(scopes_.begin(), scopes_.end(), [&](const NameSet* s) { return s->count(name) > 0; });
  }

  void define_all() {
    NameSet initializers;
    for (const auto& t : g_.initializers) {
      if (t.name.empty())
        bad(nullptr, "unnamed-tensor", "an initializer of graph '" + g_.name + "' has no name");
      if (!initializers.insert(t.name).second)
        bad(nullptr, "duplicate-name", "initializer '" + t.name + "' is given twice", t.name);
    }
    std::erase_if(g_.inputs, [&](const ValueInfo& v) { return initializers.count(v.name) > 0; });
    defined_ = std::move(initializers);
    for (const auto& v : g_.inputs)
      if (!defined_.insert(v.name).second)
        bad(nullptr, "duplicate-name", "input '" + v.name + "' is listed twice", v.name);
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
      for (const auto& o : g_.nodes[i].outputs) {
        if (o.empty()) continue;
        if (!defined_.insert(o).second) {
          auto other = producer_.find(o);
          bad(&g_.nodes[i], "duplicate-name",
              "'" + o + "' is computed here, but " +
                  (other == producer_.end() ? "is also an input or initializer of the graph"
                                            : describe(g_.nodes[other->second]) + " computes it too"),
              o);
        }
        producer_[o] = i;
      }
    }
  }

  void sort() {
    const size_t count = g_.nodes.size();
    std::vector<std::vector<size_t>> users(count);
    std::vector<size_t> waiting(count, 0);
    std::vector<std::vector<size_t>> needs(count);
    bool ordered = true;
    for (size_t i = 0; i < count; ++i) {
      for (const auto& name : reads_of(g_.nodes[i])) {
        auto it = producer_.find(name);
        if (it == producer_.end()) {
          if (!defined_.count(name) && !visible(name))
            bad(&g_.nodes[i], "undefined-name",
                "reads '" + name + "', which is not an input, no initializer and no node's output", name);
          continue;
        }
        ordered = ordered && it->second < i;
        needs[i].push_back(it->second);
        users[it->second].push_back(i);
        ++waiting[i];
      }
    }
    if (ordered) return;

    // Choose the smallest ready index first, to keep the file's order where possible.
    std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
    for (size_t i = 0; i < count; ++i)
      if (waiting[i] == 0) ready.push(i);
    std::vector<Node> sorted;
    sorted.reserve(count);
    std::vector<bool> done(count, false);
    while (!ready.empty()) {
      const size_t i = ready.top();
      ready.pop();
      done[i] = true;
      sorted.push_back(g_.nodes[i]);
      for (size_t u : users[i])
        if (--waiting[u] == 0) ready.push(u);
    }
    if (sorted.size() < count) report_cycle(needs, done);
    g_.nodes = std::move(sorted);
  }

  [[noreturn]] void report_cycle(const std::vector<std::vector<size_t>>& needs,
                                 const std::vector<bool>& done) {
    // Whatever a blocked node waits for is blocked too, so following these dependencies finds a cycle.
    size_t at = static_cast<size_t>(std::find(done.begin(), done.end(), false) - done.begin());
    std::vector<size_t> path;
    while (std::find(path.begin(), path.end(), at) == path.end()) {
      path.push_back(at);
      at = *std::find_if(needs[at].begin(), needs[at].end(), [&](size_t n) { return !done[n]; });
    }
    path.erase(path.begin(), std::find(path.begin(), path.end(), at));
    std::vector<std::string> notes;
    for (size_t i = 0; i < path.size() && i < 8; ++i)
      notes.push_back(describe(g_.nodes[path[i]]) + " " + g_.nodes[path[i]].op_type + " waits for " +
                      describe(g_.nodes[path[(i + 1) % path.size()]]));
    if (path.size() > 8) notes.push_back(cat("... ", path.size() - 8, " more"));
    bad(&g_.nodes[at], "cyclic-graph",
        cat("the graph has a cycle of ", path.size(), path.size() == 1 ? " node" : " nodes"), {},
        std::move(notes));
  }

  Graph& g_;
  std::vector<const NameSet*> scopes_;
  NameSet defined_;
  std::unordered_map<std::string, size_t> producer_;
};

}  // namespace

void validate(Model& model) {
  GraphValidator(model.graph, {}).run();
  for (const auto& v : model.graph.inputs)
    if (v.type.kind == Type::Kind::kNone ||
        (v.type.kind == Type::Kind::kTensor && v.type.elem_type == kElemUndefined))
      bad(nullptr, "missing-type", "input '" + v.name + "' has no element type", v.name);
}

}  // namespace stridec::onnx
