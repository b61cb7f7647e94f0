#include "compiler/frontend/onnx/import.h"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "compiler/base/at_exit.h"
#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/frontend/onnx/declared_ranks.h"
#include "compiler/frontend/onnx/declared_types.h"
#include "compiler/frontend/onnx/import_branches.h"
#include "compiler/frontend/onnx/import_inputs.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/frontend/onnx/node_list.h"
#include "compiler/frontend/onnx/schema.h"
#include "compiler/frontend/onnx/strings.h"
#include "compiler/frontend/onnx/user_call.h"
#include "compiler/graph/builder.h"
#include "compiler/graph/guards.h"
#include "compiler/graph/undo.h"
#include "compiler/ops/op_table.h"
#include "compiler/ops/unknowns.h"
#include "compiler/sym/text.h"

namespace stridec::onnx {
namespace {

using Scope = std::unordered_map<std::string, Slot>;

// The values that Gradient nodes differentiate with respect to or hold.
std::unordered_set<std::string> named_by_gradients(const Graph& top) {
  std::unordered_set<std::string> names;
  for (const Node& node : top.nodes) {
    if (node.op_type != "Gradient") continue;
    for (const Attribute& attribute : node.attributes)
      if (attribute.name == "xs" || attribute.name == "zs")
        names.insert(attribute.strings.begin(), attribute.strings.end());
  }
  return names;
}

class ModelImporter : public Importer, public BranchImporter {
 public:
  ModelImporter(const Model& model, const ImportOptions& options)
      : model_(model),
        options_(options),
        builder_(out_.graph, ops::shape_table()),
        unknowns_(named_by_gradients(model.graph)) {
    out_.nodes = list_nodes(model);
    for (graph::ModelNode& node : out_.nodes) listed_[node.text] = &node;
  }

  Imported run() {
    out_.graph.name = model_.graph.name;
    builder_.set_replaceable([this](std::string_view name, const graph::Type& type) {
      return unknowns_.has(name, type) || (options_.replaceable && options_.replaceable(name, type));
    });
    scopes_.emplace_back();
    levels_.emplace_back(model_.graph, nullptr);
    import_inputs(model_, options_, builder_, out_.problems, scopes_.back());
    const sym::Facts given = out_.graph.facts;
    add_initializers(model_.graph);
    add_nodes(model_.graph);
    add_outputs();
    check_inner_shapes(model_, builder_, [&](const std::string& name) { return find(name); }, out_.warnings);
    unknowns_.release(out_.graph, options_.replaceable);
    graph::drop_implied_guards(out_.graph, given);
    return std::move(out_);
  }

  std::vector<Slot> inline_graph(const Graph& graph, std::vector<Slot> parameters) override {
    if (parameters.size() != graph.inputs.size())
      fail(ErrorKind::kMalformed, "subgraph-arity",
           cat("graph '", graph.name, "' takes ", graph.inputs.size(), " inputs, but is given ",
               parameters.size()));
    scopes_.emplace_back();
    levels_.emplace_back(graph, node_);
    const AtExit leave([&] { scopes_.pop_back(), levels_.pop_back(); });
    for (size_t i = 0; i < parameters.size(); ++i)
      scopes_.back()[graph.inputs[i].name] = std::move(parameters[i]);
    add_initializers(graph);
    add_nodes(graph);
    std::vector<Slot> results;
    for (const ValueInfo& v : graph.outputs) {
      results.push_back(lookup(v.name));
      if (results.back().kind == Slot::Kind::kFailed) throw Skipped{};
    }
    return results;
  }

  std::optional<int64_t> declared_rank(const std::string& name) override {
    const auto imported = [&](const std::string& value) { return dims_of(value); };
    std::string wanted = name;
    for (size_t i = levels_.size(); i-- > 0;) {
      Level& level = levels_[i];
      if (const auto rank = level.ranks.of(wanted, imported)) return rank;
      // The result of a branch is declared as an output of the If, in the enclosing graph.
      if (!level.parent || level.parent->op_type != "If") continue;
      const auto& outputs = level.graph.outputs;
      for (size_t k = 0; k < outputs.size() && k < level.parent->outputs.size(); ++k)
        if (outputs[k].name == wanted) wanted = level.parent->outputs[k];
    }
    return std::nullopt;
  }

  Slot recompute(const std::string& name, const std::vector<std::pair<std::string, Slot>>& instead) override {
    const Slot y = lookup(name);
    if (y.kind == Slot::Kind::kFailed && find(name)) throw Skipped{};
    if (y.kind != Slot::Kind::kTensor) return y;
    std::vector<std::pair<ValueId, ValueId>> values;
    for (const auto& [key, slot] : instead)
      if (const Slot old = lookup(key); old.kind == Slot::Kind::kTensor)
        values.emplace_back(old.tensor, slot.tensor);
    return Term(builder_, unknowns_.recompute(builder_, y.tensor, values));
  }

  std::optional<Diagnostic> try_region(const std::function<void()>& build) override {
    const size_t before = out_.problems.size();
    const graph::Undo undo(out_.graph);
    const std::string origin = builder_.origin();
    std::optional<Diagnostic> problem;
    try {
      build();
      return std::nullopt;
    } catch (const Skipped&) {
      const auto first = out_.problems.begin() + static_cast<ptrdiff_t>(before);
      const bool fits = first == out_.problems.end() || std::any_of(first, out_.problems.end(), [](auto& p) {
                          return p.kind != ErrorKind::kDoesNotFit;
                        });
      if (fits) throw;
      problem = *first;
    } catch (const Error& error) {
      if (error.diagnostic.kind != ErrorKind::kDoesNotFit) throw;
      problem = error.diagnostic;
    }
    out_.problems.resize(before);
    undo();
    builder_.set_origin(origin);
    return problem;
  }

  std::optional<Choice> take_choice() override { return std::exchange(chosen_, std::nullopt); }

  bool training_form() const override { return options_.training_form; }

  std::vector<Slot> import_as(Context& context, Node node, std::vector<Slot> inputs) override {
    node.name = context.node.name;
    node.index = context.node.index;
    node.place = context.node.place;
    node.metadata = context.node.metadata;
    Context inner(*this, builder_, node, std::move(inputs));
    const Row* row = find_row(node);
    STRIDEC_CHECK(row, describe_op(node));
    return row->import(inner);
  }

 private:
  // Unwinds a node whose subgraph has problems; these are already reported.
  struct Skipped {};

  // A graph whose nodes are being imported, and the node that has it as a subgraph.
  struct Level {
    Level(const Graph& of, const Node* node) : graph(of), parent(node), ranks(of) {}
    const Graph& graph;
    const Node* parent;
    DeclaredRanks ranks;
  };

  // The dims of an imported value or of an initializer.
  std::optional<std::vector<Dim>> dims_of(const std::string& name) {
    const Slot* slot = find(name);
    if (!slot) return std::nullopt;
    if (slot->kind == Slot::Kind::kTensor) return type_of(*slot).shape;
    if (slot->kind != Slot::Kind::kInitializer) return std::nullopt;
    std::vector<Dim> out;
    for (int64_t d : slot->initializer->dims) out.push_back({.value = d, .param = ""});
    return out;
  }

  // Initializers become constants on first read, because many models have unused ones.
  void add_initializers(const Graph& g) {
    for (const Tensor& t : g.initializers) {
      Slot& slot = scopes_.back()[t.name];
      slot = Slot();
      slot.kind = Slot::Kind::kInitializer;
      slot.initializer = &t;
    }
  }

  Slot* find(const std::string& name) {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
      if (auto it = scope->find(name); it != scope->end()) return &it->second;
    return nullptr;
  }

  Slot lookup(const std::string& name) {
    Slot* slot = find(name);
    if (!slot) return Slot();
    if (slot->kind == Slot::Kind::kInitializer) *slot = constant(*slot->initializer);
    return *slot;
  }

  Slot constant(const Tensor& t) {
    if (t.elem_type == kElemString)
      return ops::constant_strings(builder_, t.strings, {t.dims.begin(), t.dims.end()});
    static const Node no_node;
    return Context(*this, builder_, no_node, {}).constant(t, t.name);
  }

  // Names that the node and its subgraphs read, including names defined inside the subgraphs.
  static std::vector<std::string> names_read(const Node& n) {
    std::vector<std::string> out;
    for (const auto& input : n.inputs)
      if (!input.empty()) out.push_back(input);
    for (const Attribute& a : n.attributes)
      for (const Graph& g : a.graphs) {
        for (const Node& inner : g.nodes)
          for (auto& read : names_read(inner)) out.push_back(std::move(read));
        for (const ValueInfo& result : g.outputs) out.push_back(result.name);
      }
    return out;
  }

  static bool reads_any(const Node& n, const std::unordered_set<std::string>& names) {
    const auto reads = names_read(n);
    return std::any_of(reads.begin(), reads.end(), [&](const auto& read) { return names.contains(read); });
  }

  void add_nodes(const Graph& g) {
    for (size_t i = 0; i < g.nodes.size(); ++i) {
      const size_t before = out_.problems.size();
      add_node(g.nodes[i]);
      if (out_.problems.size() == before || out_.problems[before].code != "unsupported-rank" ||
          g.nodes[i].op_type != "If" || trying_)
        continue;
      if (auto choice = only_fitting_branch(g, i)) {
        out_.problems.resize(before);
        chosen_ = std::move(choice);
        add_node(g.nodes[i]);
        chosen_.reset();
      }
    }
  }

  // For an If whose branches have different ranks: the branch whose result the reading nodes accept. It is
  // the only branch accepted, or the only one that is accepted for all sizes.
  std::optional<Choice> only_fitting_branch(const Graph& g, size_t at) {
    std::optional<Diagnostic> problems[2];
    size_t checks[2] = {};
    for (const bool then_branch : {false, true}) {
      const size_t before = out_.graph.nodes.size();
      problems[then_branch] = problem_after(g, at, then_branch);
      for (size_t n = before; n < out_.graph.nodes.size(); ++n)
        checks[then_branch] += out_.graph.nodes[n].attributes.integer_or("check", 0) != 0;
    }
    if (problems[0] && problems[1]) return std::nullopt;
    if (problems[0] || problems[1]) {
      const Diagnostic& why = *problems[problems[1].has_value()];
      return Choice{!problems[1], cat("its result does not fit ", why.where.node, ": ", why.message)};
    }
    if (checks[0] == checks[1]) return std::nullopt;
    return Choice{checks[1] < checks[0],
                  "its result has another rank, which its consumers accept only for some sizes"};
  }

  // The first problem in the nodes that depend on an If if the If is replaced by one of its branches.
  std::optional<Diagnostic> problem_after(const Graph& g, size_t at, bool then_branch) {
    constexpr size_t kMostNodes = 64;
    scopes_.emplace_back();
    trying_ = true;
    const AtExit leave([&] { scopes_.pop_back(), trying_ = false; });
    chosen_ = Choice{then_branch, ""};
    const size_t before = out_.problems.size();
    std::optional<Diagnostic> first;
    const graph::Undo undo(out_.graph);
    builder_.begin_region({});
    std::unordered_set<std::string> changed(g.nodes[at].outputs.begin(), g.nodes[at].outputs.end());
    add_node(g.nodes[at]);
    chosen_.reset();
    size_t count = 0;
    for (size_t i = at + 1; i < g.nodes.size() && count < kMostNodes && out_.problems.size() == before; ++i) {
      if (!reads_any(g.nodes[i], changed)) continue;
      changed.insert(g.nodes[i].outputs.begin(), g.nodes[i].outputs.end());
      add_node(g.nodes[i]);
      ++count;
    }
    builder_.end_region({});
    undo();
    if (out_.problems.size() > before && out_.problems[before].kind == ErrorKind::kDoesNotFit)
      first = out_.problems[before];
    out_.problems.resize(before);
    return first;
  }

  void add_node(const Node& n) {
    const std::string outer = builder_.origin();
    const Node* const outer_node = std::exchange(node_, &n);
    if (depth_ == 0 || outer.empty()) builder_.set_origin(origin_of(n));
    Outputs outputs;
    try {
      outputs = import_node(n);
    } catch (const Skipped&) {
    } catch (Error& e) {
      if (e.diagnostic.kind == ErrorKind::kInternal) throw;
      report(n, std::move(e.diagnostic));
    } catch (const std::out_of_range&) {  // a dim that does not exist
      report(n, {.kind = ErrorKind::kDoesNotFit,
                 .code = "does-not-fit",
                 .message = "an input has fewer dims, or fewer values, than the operator needs"});
    }
    if (depth_ == 0 && !trying_) note_outcome(n, outputs);
    builder_.set_origin(outer);
    node_ = outer_node;
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      if (n.outputs[i].empty()) continue;
      Slot slot = i < outputs.size() ? outputs[i] : Slot();
      if (slot.kind == Slot::Kind::kTensor)
        slot.tensor = unknowns_.apart(builder_, n.outputs[i], slot.tensor);
      if (slot.kind == Slot::Kind::kTensor && depth_ == 0) builder_.set_name(slot.tensor, n.outputs[i]);
      scopes_.back()[n.outputs[i]] = std::move(slot);
    }
  }

  static void add_tensors(const Slot& slot, std::vector<ValueId>& tensors) {
    if (slot.kind == Slot::Kind::kTensor || slot.kind == Slot::Kind::kStrings) tensors.push_back(slot.tensor);
    for (const Slot& item : slot.items) add_tensors(item, tensors);
  }

  void note_outcome(const Node& n, const Outputs& outputs) {
    const auto listed = listed_.find(builder_.origin());
    if (listed == listed_.end()) return;
    std::vector<ValueId> from, to;
    for (const auto& name : n.inputs)
      if (const Slot* slot = name.empty() ? nullptr : find(name)) add_tensors(*slot, from);
    for (const Slot& output : outputs) add_tensors(output, to);
    set_outcome(*listed->second, out_.graph, from, to);
  }

  std::vector<Slot> import_node(const Node& n) {
    std::vector<Slot> inputs;
    bool failed = false;
    for (const auto& name : n.inputs) {
      inputs.push_back(name.empty() ? Slot() : lookup(name));
      failed |= !name.empty() && inputs.back().kind == Slot::Kind::kFailed;
    }
    const bool of_user = options_.operators && options_.operators->has(user_name(n));
    if (failed) {  // unknown operators can still be reported
      if (!of_user && !find_row(n) && !find_schema(n.op_type, n.domain, n.version)) unknown_operator(n);
      throw Skipped{};
    }
    Context context(*this, builder_, n, std::move(inputs));
    if (of_user) return call_user(*options_.operators, context);
    // A row may cover versions before the operator existed.
    if (!has_schema(n.op_type, n.domain, n.version) &&
        has_schema(n.op_type, n.domain, newest_version(n.domain)))
      unknown_operator(n);
    if (const Row* row = find_row(n)) {
      const bool strings = std::any_of(n.inputs.begin(), n.inputs.end(), [&](const std::string& name) {
        return !name.empty() && find(name)->kind == Slot::Kind::kStrings;
      });
      auto moved = strings ? move_strings(context) : std::nullopt;
      std::vector<Slot> outputs = moved ? std::move(*moved) : row->import(context);
      for (size_t i = 0; i < n.outputs.size(); ++i)
        if (context.wants(i) && (i >= outputs.size() || outputs[i].kind == Slot::Kind::kFailed))
          context.unsupported(cat("output ", i, " of ", n.op_type, " is not supported"));
      return outputs;
    }
    return expand(context);
  }

  // Expands operators that have no row but that ONNX defines as functions.
  std::vector<Slot> expand(Context& context) {
    const Node& n = context.node;
    std::vector<Type> types;
    for (size_t i = 0; i < n.inputs.size(); ++i)
      types.push_back(context.has(i) ? type_of(context.slot(i)) : Type());
    const auto body =
        depth_ < 16 ? expand_function(n, types, cat("%", next_prefix_++, "/"), model_.opsets) : std::nullopt;
    if (!body) unknown_operator(n);
    ++depth_;
    const AtExit leave([&] { --depth_; });
    const size_t before = out_.problems.size();
    for (const Node& inner : *body) {
      add_node(inner);
      if (out_.problems.size() > before) throw Skipped{};
    }
    std::vector<Slot> outputs;
    for (const auto& name : n.outputs) outputs.push_back(name.empty() ? Slot() : lookup(name));
    return outputs;
  }

  Type type_of(const Slot& slot) const {
    if (slot.kind == Slot::Kind::kSequence) {
      const Type element =
          slot.items.empty() ? Type{.kind = Type::Kind::kTensor, .elem_type = 1} : type_of(slot.items[0]);
      return {.kind = Type::Kind::kSequence, .element = {element}};
    }
    if (slot.kind == Slot::Kind::kStrings) {
      Type out{.kind = Type::Kind::kTensor, .elem_type = kElemString, .shape = std::vector<Dim>()};
      for (sym::Expr d : builder_.shape(slot.tensor))
        out.shape->push_back({.value = sym::as_const(d), .param = ""});
      return out;
    }
    if (slot.kind != Slot::Kind::kTensor) return {};
    const graph::Type& t = builder_.type(slot.tensor);
    Type out{.kind = Type::Kind::kTensor, .elem_type = info(t.dtype).onnx_type, .shape = std::vector<Dim>()};
    for (sym::Expr d : t.shape)
      out.shape->push_back({.value = sym::as_const(d), .param = d.is_const() ? "" : sym::to_string(d)});
    return out;
  }

  // The types of the operands as they are imported or, where a node before it failed, as declared.
  void note_unknown(const Node& n) {
    constexpr size_t kMostCalls = 100;
    if (depth_ > 0 || trying_ || out_.unknown.size() >= kMostCalls) return;
    const auto type = [&](const std::string& name) -> std::optional<graph::Type> {
      const Slot slot = lookup(name);
      if (slot.kind == Slot::Kind::kTensor) return builder_.type(slot.tensor);
      return slot.kind == Slot::Kind::kFailed ? declared_type(model_.graph, name) : std::nullopt;
    };
    out_.unknown.push_back(unknown_call(n, type));
  }

  [[noreturn]] void unknown_operator(const Node& n) {
    const std::string name = n.domain.empty() ? n.op_type : n.domain + "." + n.op_type;
    if (find_schema(n.op_type, n.domain, n.version))
      fail(ErrorKind::kUnsupported, "unsupported-op",
           "operator '" + name + "' is not supported by this build",
           "'stridec ops' lists what is; cut the model before it or replace the operator");
    const auto newest = find_schema(n.op_type, n.domain, newest_version(n.domain));
    if (newest)
      fail(ErrorKind::kMalformed, "unknown-op",
           cat("operator '", name, "' does not exist in version ", n.version, " of ",
               n.domain.empty() ? "ai.onnx" : n.domain, "; it came with version ", newest->since_version),
           "export the model with that opset");
    note_unknown(n);
    fail(ErrorKind::kUnsupported, "unsupported-op", "operator '" + name + "' is unknown",
         "declare it by --ops FILE ('stridec check' prints a draft), or export it as a function of standard "
         "operators");
  }

  void report(const Node& n, Diagnostic d) {
    d.where.file = model_.file;
    d.where.node = describe(n);
    if (d.where.op.empty() || n.op_type.find(d.where.op) == std::string::npos) d.where.op = describe_op(n);
    if (const auto limits = limits_of(n.domain, n.op_type);
        d.kind == ErrorKind::kUnsupported && !limits.empty())
      d.notes.push_back(cat("limits of ", n.op_type, " here: ", limits));
    else if (d.notes.empty()) {
      for (size_t i = 0; i < n.inputs.size(); ++i) {
        if (n.inputs[i].empty()) continue;
        const Slot* slot = find(n.inputs[i]);
        if (!slot || slot->kind != Slot::Kind::kTensor) continue;
        d.notes.push_back("input '" + n.inputs[i] + "' " + graph::to_string(builder_.type(slot->tensor)));
      }
    }
    if (auto trace = n.metadata.find("pkg.torch.onnx.stack_trace"); trace != n.metadata.end()) {
      const std::string& text = trace->second;
      const size_t last = text.rfind("File \"");
      if (last != std::string::npos)
        d.notes.push_back("from " + text.substr(last, text.find('\n', last) - last));
    }
    out_.problems.push_back(std::move(d));
  }

  void add_outputs() {
    for (const ValueInfo& v : model_.graph.outputs) {
      const Slot slot = lookup(v.name);
      add_output(v.name, slot);
      if (slot.kind == Slot::Kind::kTensor) check_output(model_, builder_, v, slot.tensor, out_);
    }
  }

  // The tensors of a sequence are outputs `y[0]`, `y[1]`, ...; an empty optional adds no output.
  void add_output(const std::string& name, const Slot& slot) {
    if (slot.kind == Slot::Kind::kTensor) builder_.output(name, slot.tensor);
    if (slot.kind == Slot::Kind::kStrings) builder_.output(name, to_bytes(strings_of(builder_, slot)));
    for (size_t i = 0; i < slot.items.size(); ++i) add_output(cat(name, "[", i, "]"), slot.items[i]);
  }

  const Model& model_;
  const ImportOptions& options_;
  Imported out_;
  Builder builder_;
  ops::Unknowns unknowns_;
  std::vector<Scope> scopes_;
  std::vector<Level> levels_;
  const Node* node_ = nullptr;  // being imported
  int depth_ = 0;
  int next_prefix_ = 0;
  std::optional<Choice> chosen_;  // for the If imported next
  bool trying_ = false;           // the current nodes are imported only to see whether they fit
  std::unordered_map<std::string, graph::ModelNode*> listed_;  // out_.nodes by their text
};

}  // namespace

BranchImporter& branches_of(Importer& importer) { return static_cast<ModelImporter&>(importer); }

Imported import_model(const Model& model, const ImportOptions& options) {
  return ModelImporter(model, options).run();
}

}  // namespace stridec::onnx
