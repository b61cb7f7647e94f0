#include "compiler/frontend/pt2/liveness.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "compiler/frontend/aten/torch_random.h"
#include "compiler/frontend/pt2/argument_names.h"
#include "compiler/frontend/pt2/importer.h"
#include "compiler/frontend/pt2/size_ops.h"

namespace stridec::pt2 {
namespace {

// Values that may share a storage, as classes.
class Storages {
 public:
  const std::string& of(const std::string& name) {
    const std::string* at = &name;
    for (auto next = parent_.find(*at); next != parent_.end(); next = parent_.find(*at)) at = &next->second;
    return *at;
  }
  void join(const std::string& a, const std::string& b) {
    const std::string x = of(a), y = of(b);
    if (x != y) parent_[x] = y;
  }

 private:
  std::unordered_map<std::string, std::string> parent_;
};

class Liveness {
 public:
  Liveness(const Graph& graph, bool keep_draws) : graph_(graph), keep_draws_(keep_draws) {
    for (const Node& node : graph.nodes) join_aliases(node);
    const auto need = [&](const std::string& name) { needed_.insert(name); };
    for (const Argument& output : graph.outputs) for_names(output, need);
    for (const Argument& input : graph.inputs)
      for_names(input, [&](const std::string& name) { read_.insert(storages_.of(name)); });
    for (const std::string& name : needed_) read_.insert(storages_.of(name));
  }

  std::unordered_set<const Node*> dead() {
    std::unordered_set<const Node*> out;
    for (const Node& node : graph_.nodes) out.insert(&node);
    // A write may precede or follow the read that needs it, so one pass from the end may not be enough.
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = graph_.nodes.size(); i-- > 0;) {
        const Node& node = graph_.nodes[i];
        if (!out.contains(&node) || !is_needed(node)) continue;
        out.erase(&node);
        changed = true;
        for (const NamedArgument& input : node.inputs)
          for_names(input.value, [&](const std::string& name) {
            needed_.insert(name);
            read_.insert(storages_.of(name));
          });
      }
    }
    return out;
  }

 private:
  const aten::SchemaArgument* argument(const aten::Schema& schema, size_t position, const std::string& name) {
    if (name.empty()) return position < schema.arguments.size() ? &schema.arguments[position] : nullptr;
    const auto found = std::find_if(schema.arguments.begin(), schema.arguments.end(),
                                    [&](const auto& a) { return a.name == name; });
    return found == schema.arguments.end() ? nullptr : &*found;
  }
  template <class F>
  void for_aliased(const Node& node, F&& f) {
    const aten::Schema* schema = schema_of(node.target);
    if (!schema) return;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (const auto* a = argument(*schema, i, node.inputs[i].name); a && a->aliased)
        for_names(node.inputs[i].value, [&](const std::string& name) { f(name, *a); });
  }
  void join_aliases(const Node& node) {
    const auto join = [&](const std::string& name) {
      for (const Argument& output : node.outputs)
        for_names(output, [&](const std::string& result) { storages_.join(result, name); });
    };
    for_aliased(node, [&](const std::string& name, const aten::SchemaArgument&) { join(name); });
    // In inference the result is the argument itself, which the schema does not say.
    const aten::Schema* schema = schema_of(node.target);
    if (schema && schema->name.find("dropout") != std::string::npos && !node.inputs.empty())
      for_names(node.inputs[0].value, join);
  }
  bool is_needed(const Node& node) {
    const bool pure = schema_of(node.target) || is_size_op(node.target);
    if (!pure || node.outputs.empty()) return true;
    if (const aten::Schema* schema = schema_of(node.target); keep_draws_ && schema && aten::may_draw(*schema))
      return true;
    bool out = false;
    for (const Argument& output : node.outputs)
      for_names(output, [&](const std::string& name) { out = out || needed_.contains(name); });
    for_aliased(node, [&](const std::string& name, const aten::SchemaArgument& a) {
      out = out || (a.written && read_.contains(storages_.of(name)));
    });
    return out;
  }

  const Graph& graph_;
  bool keep_draws_;
  Storages storages_;
  std::unordered_set<std::string> needed_, read_;  // values, and storages of needed values
};

}  // namespace

std::unordered_set<const Node*> dead_nodes(const Graph& graph, bool keep_draws) {
  return Liveness(graph, keep_draws).dead();
}

}  // namespace stridec::pt2
