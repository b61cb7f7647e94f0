#include "compiler/frontend/onnx/inline_functions.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"

namespace stridec::onnx {
namespace {

using Names = std::unordered_map<std::string, std::string>;

std::string function_id(const std::string& domain, const std::string& name, const std::string& overload) {
  return domain + ":" + name + (overload.empty() ? "" : ":" + overload);
}

// Substitutes the names of values and the references to the call's attributes in a function body.
struct Substitution {
  const Function& function;
  const Node& call;
  const std::string& prefix;

  std::string value(const Names& names, const std::string& name) const {
    auto it = names.find(name);
    return it == names.end() ? name : it->second;
  }

  const Attribute* attribute(const std::string& name) const {
    if (const Attribute* given = call.find(name)) return given;
    for (const Attribute& a : function.attribute_defaults)
      if (a.name == name) return &a;
    return nullptr;
  }

  Graph graph(const Graph& in, Names names) const {
    for (const auto& v : in.inputs) names[v.name] = prefix + v.name;
    for (const auto& t : in.initializers) names[t.name] = prefix + t.name;
    for (const auto& n : in.nodes)
      for (const auto& o : n.outputs)
        if (!o.empty()) names[o] = prefix + o;
    Graph out = in;
    for (auto* list : {&out.inputs, &out.outputs, &out.value_infos})
      for (auto& v : *list) v.name = value(names, v.name);
    for (auto& t : out.initializers) t.name = value(names, t.name);
    for (auto& n : out.nodes) n = node(n, names);
    return out;
  }

  // Bodies of ONNX's own functions are not in the file: their nodes stand where the call does.
  std::string place(const std::string& in_function) const {
    return call.place.empty() || in_function.empty() ? call.place : cat(call.place, ".", in_function);
  }

  Node node(const Node& in, const Names& names) const {
    Node out{.name = prefix + (in.name.empty() ? in.op_type : in.name),
             .op_type = in.op_type,
             .domain = in.domain,
             .overload = in.overload,
             .version = in.version,
             .metadata = in.metadata.empty() ? call.metadata : in.metadata,
             .index = call.index,
             .place = place(in.place)};
    for (const auto& i : in.inputs) out.inputs.push_back(value(names, i));
    for (const auto& o : in.outputs) out.outputs.push_back(value(names, o));
    for (const Attribute& a : in.attributes) {
      if (a.reference.empty()) {
        out.attributes.push_back(a);
        for (Graph& g : out.attributes.back().graphs) g = graph(g, names);
      } else if (const Attribute* given = attribute(a.reference)) {
        out.attributes.push_back(*given);
        out.attributes.back().name = a.name;
      }  // an attribute that references one omitted by the call is omitted too
    }
    return out;
  }
};

class Inliner {
 public:
  explicit Inliner(Model& model) : model_(model) {
    for (const Function& f : model.functions)
      if (!functions_.emplace(function_id(f.domain, f.name, f.overload), &f).second)
        fail(ErrorKind::kMalformed, "duplicate-function", "function '" + f.name + "' is defined twice");
  }

  void run() {
    collect_names(model_.graph);
    graph(model_.graph, model_.opsets);
    model_.node_count = nodes_;
  }

 private:
  void collect_names(const Graph& g) {
    for (const auto& v : g.inputs) names_.insert(v.name);
    for (const auto& t : g.initializers) names_.insert(t.name);
    for (const auto& n : g.nodes) {
      names_.insert(n.outputs.begin(), n.outputs.end());
      for (const auto& a : n.attributes)
        for (const auto& inner : a.graphs) collect_names(inner);
    }
  }

  void graph(Graph& g, const std::map<std::string, int>& opsets) {
    std::vector<Node> out;
    std::vector<ValueInfo> outer = std::exchange(declared_, {});
    out.reserve(g.nodes.size());
    for (Node& n : g.nodes) node(std::move(n), opsets, out);
    g.nodes = std::move(out);
    for (ValueInfo& v : declared_) g.value_infos.push_back(std::move(v));
    declared_ = std::move(outer);
  }

  void node(Node n, const std::map<std::string, int>& opsets, std::vector<Node>& out) {
    if (++nodes_ > kMaxNodes)
      fail(ErrorKind::kOverBudget, "model-too-large",
           cat("the model has more than ", kMaxNodes, " nodes with its functions inlined"));
    auto function = functions_.find(function_id(n.domain, n.op_type, n.overload));
    if (function != functions_.end()) return call(*function->second, n, out);

    auto version = opsets.find(n.domain);
    if (version == opsets.end()) version = model_.opsets.find(n.domain);
    n.version = version == opsets.end() || version == model_.opsets.end() ? 0 : version->second;
    if (n.version == 0) {
      // Only a missing import of ONNX's own operators is an error: models with contrib operators often omit
      // theirs.
      if (n.domain.empty() && !opsets.empty())
        throw Error({.kind = ErrorKind::kMalformed,
                     .code = "opset-missing",
                     .message = "the model does not import the ai.onnx operators that it uses",
                     .where = {.node = describe(n), .op = n.op_type}});
      n.version = 1;
    }
    for (Attribute& a : n.attributes)
      for (Graph& inner : a.graphs) graph(inner, opsets);
    out.push_back(std::move(n));
  }

  void call(const Function& f, const Node& n, std::vector<Node>& out) {
    const Location where{.node = describe(n), .op = "function " + function_id(f.domain, f.name, f.overload)};
    const auto bad = [&](std::string code, std::string message) {
      throw Error({.kind = ErrorKind::kMalformed,
                   .code = std::move(code),
                   .message = std::move(message),
                   .where = where});
    };
    if (std::find(active_.begin(), active_.end(), &f) != active_.end())
      bad("recursive-function", "function '" + f.name + "' calls itself");
    if (n.inputs.size() > f.inputs.size() || n.outputs.size() > f.outputs.size())
      bad("function-arity", cat("the call has ", n.inputs.size(), " inputs and ", n.outputs.size(),
                                " outputs; the function has ", f.inputs.size(), " and ", f.outputs.size()));
    active_.push_back(&f);
    const std::string prefix = unique_prefix(f, n);
    declare_values(f, n, prefix);
    for (Node& inner : instantiate(f, n, prefix)) {
      names_.insert(inner.outputs.begin(), inner.outputs.end());
      node(std::move(inner), f.opsets, out);
    }
    active_.pop_back();
  }

  // Declares the function's value_infos under the names that the values have in the caller.
  void declare_values(const Function& f, const Node& call, const std::string& prefix) {
    for (const ValueInfo& v : f.value_infos) {
      if (std::find(f.inputs.begin(), f.inputs.end(), v.name) != f.inputs.end()) continue;
      const auto output = std::find(f.outputs.begin(), f.outputs.end(), v.name);
      const auto at = static_cast<size_t>(output - f.outputs.begin());
      const bool is_output = at < call.outputs.size() && !call.outputs[at].empty();
      declared_.push_back({is_output ? call.outputs[at] : prefix + v.name, v.type});
    }
  }

  std::string unique_prefix(const Function& f, const Node& n) {
    const std::string base = n.name.empty() ? cat(f.name, n.index >= 0 ? cat("_", n.index) : "") : n.name;
    for (int attempt = 1;; ++attempt) {
      std::string prefix = attempt == 1 ? base + "/" : cat(base, "#", attempt, "/");
      bool taken = !prefixes_.insert(prefix).second;
      for (const Node& inner : f.nodes)
        for (const auto& o : inner.outputs) taken = taken || names_.count(prefix + o) > 0;
      if (!taken) return prefix;
    }
  }

  Model& model_;
  std::unordered_map<std::string, const Function*> functions_;
  std::vector<const Function*> active_;
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> prefixes_;
  std::vector<ValueInfo> declared_;  // value_infos from functions, for the graph being inlined
  uint64_t nodes_ = 0;
};

}  // namespace

std::vector<Node> instantiate(const Function& f, const Node& call, const std::string& prefix) {
  Names names;
  for (const Node& n : f.nodes)
    for (const auto& o : n.outputs)
      if (!o.empty()) names[o] = prefix + o;
  for (size_t i = 0; i < f.inputs.size(); ++i)
    names[f.inputs[i]] = i < call.inputs.size() ? call.inputs[i] : "";

  const Substitution substitution{f, call, prefix};
  // An output is renamed to the caller's name. If it is also an input or is listed twice, it is copied
  // instead.
  std::vector<Node> copies;
  std::unordered_set<std::string> renamed(f.inputs.begin(), f.inputs.end());
  for (size_t i = 0; i < f.outputs.size() && i < call.outputs.size(); ++i) {
    if (call.outputs[i].empty()) continue;
    if (renamed.insert(f.outputs[i]).second) {
      names[f.outputs[i]] = call.outputs[i];
      continue;
    }
    copies.push_back({.name = prefix + "Identity",
                      .op_type = "Identity",
                      .inputs = {names[f.outputs[i]]},
                      .outputs = {call.outputs[i]},
                      .index = call.index,
                      .place = substitution.place(std::to_string(f.nodes.size() + copies.size()))});
  }
  std::vector<Node> out;
  out.reserve(f.nodes.size() + copies.size());
  for (const Node& n : f.nodes) out.push_back(substitution.node(n, names));
  for (Node& n : copies) out.push_back(std::move(n));
  return out;
}

void inline_functions(Model& model) {
  Inliner(model).run();
  model.functions.clear();
}

}  // namespace stridec::onnx
