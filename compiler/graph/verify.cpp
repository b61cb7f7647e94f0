#include "compiler/graph/verify.h"

#include <unordered_set>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/graph/text.h"
#include "compiler/sym/text.h"

namespace stridec::graph {

namespace {

constexpr size_t kMaxProblems = 20;
constexpr int kMaxNesting = 100;  // of regions; passes recurse over them, and a file may be hostile

std::optional<int64_t> constant_count(const Shape& shape) {
  int64_t count = 1;
  for (sym::Expr dim : shape) {
    const auto size = sym::as_const(dim);
    if (!size || *size < 0 || (*size > 0 && count > (int64_t{1} << 46) / *size)) return std::nullopt;
    count *= *size;
  }
  return count;
}

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph) {
    for (const Symbol& s : graph.symbols) symbols_.insert(s.var);
  }

  std::vector<std::string> structure() {
    if (graph_.top.parameters.size() != graph_.input_names.size() + graph_.states.size())
      say("parameters are not the inputs and the states");
    if (graph_.top.results.size() != graph_.output_names.size())
      say("results and output names differ in number");
    region(graph_.top, "the graph");
    for (size_t i = 0; i < graph_.states.size(); ++i) {
      const size_t at = graph_.input_names.size() + i;
      const ValueId value = graph_.states[i].value;
      if (at >= graph_.top.parameters.size() || value != graph_.top.parameters[at])
        say(cat("state '", graph_.states[i].name, "' is not its parameter"));
      else if (graph_.states[i].initial && valid(value))
        contents(graph_[value], *graph_.states[i].initial);
    }
    for (const Symbol& s : graph_.symbols) {
      const bool bound =
          s.input < 0 ||
          (static_cast<size_t>(s.input) < graph_.input_names.size() &&
           static_cast<size_t>(s.input) < graph_.top.parameters.size() && s.dim >= 0 && s.multiple >= 1 &&
           static_cast<size_t>(s.dim) < rank(graph_.top.parameters[static_cast<size_t>(s.input)]));
      if (!bound) say(cat("symbol ", sym::to_string(s.var), " comes from no dim of an input"));
    }
    for (const sym::Guard& guard : graph_.guards)
      exprs({guard.condition}, "a guard"), exprs(guard.values, "a guard");
    return std::move(problems_);
  }

 private:
  void say(std::string problem) {
    if (problems_.size() < kMaxProblems) problems_.push_back(std::move(problem));
  }
  bool valid(ValueId id) const {
    return id.value >= 0 && static_cast<size_t>(id.value) < graph_.values.size();
  }
  bool valid(NodeId id) const { return id.value >= 0 && static_cast<size_t>(id.value) < graph_.nodes.size(); }
  size_t rank(ValueId id) const { return valid(id) ? graph_[id].type.shape.size() : 0; }

  void exprs(const std::vector<sym::Expr>& list, const std::string& where) {
    for (sym::Expr e : list)
      for (sym::Expr v : sym::free_vars(e))
        if (!symbols_.contains(v))
          say(cat(where, " mentions ", sym::to_string(v), ", which is not a symbol of the graph"));
  }

  void contents(const Value& value, const Data& data) {
    const auto count = constant_count(value.type.shape);
    if (!count || static_cast<size_t>(*count) * static_cast<size_t>(byte_size(value.type.dtype)) != data.size)
      say(cat("a constant of ", to_string(value.type), " has ", data.size, " bytes"));
  }

  // Defines a value. Each value may be defined only once.
  void define(ValueId id, NodeId producer, int output, const std::string& where) {
    if (!valid(id)) return say(cat(where, " makes value %", id.value, ", which does not exist"));
    const Value& value = graph_[id];
    if (!made_.insert(id).second) say(cat("value %", id.value, " is made twice"));
    visible_.insert(id);
    if (value.producer != producer || (producer.valid() && value.output != output))
      say(cat("value %", id.value, " names another producer"));
    exprs(value.type.shape, cat("the shape of %", id.value));
    if (value.type.shape.size() > kMaxRank)
      say(cat("value %", id.value, " has ", value.type.shape.size(), " dims; this build knows up to ",
              kMaxRank));
    for (sym::Expr dim : value.type.shape)
      if (const auto size = sym::as_const(dim); size && *size < 0)
        say(cat("value %", id.value, " has a dim of size ", *size));
    if (value.elements) {
      exprs(*value.elements, cat("an element of %", id.value));
      if (is_float(value.type.dtype) ||
          constant_count(value.type.shape) != static_cast<int64_t>(value.elements->size()))
        say(cat("value %", id.value, " of ", to_string(value.type), " has ", value.elements->size(),
                " known elements"));
    }
    if (value.data) contents(value, *value.data);
  }
  void use(ValueId id, const std::string& where) {
    if (!valid(id) || !visible_.contains(id)) say(cat(where, " uses %", id.value, " before it is made"));
  }

  void region(const Region& region, const std::string& where) {
    if (depth_ == kMaxNesting) return say(cat(where, " has regions nested more than ", kMaxNesting, " deep"));
    ++depth_;
    const std::unordered_set<ValueId> outside = visible_;
    for (ValueId parameter : region.parameters) define(parameter, NodeId(), 0, where);
    for (NodeId id : region.nodes) {
      if (!valid(id) || !seen_.insert(id).second) {
        say(cat(where, " has node ", id.value, ", which does not exist or stands elsewhere"));
        continue;
      }
      const Node& node = graph_[id];
      const std::string what = cat("node ", id.value, " (", name(node), ")");
      for (ValueId input : node.inputs) use(input, what);
      for (const auto& [key, value] : node.attributes.items()) {
        if (const auto* e = std::get_if<sym::Expr>(&value)) exprs({*e}, what);
        if (const auto* list = std::get_if<std::vector<sym::Expr>>(&value)) exprs(*list, what);
      }
      for (const Region& inner : node.regions) this->region(inner, what);
      for (size_t i = 0; i < node.outputs.size(); ++i) define(node.outputs[i], id, static_cast<int>(i), what);
      if (node.kind == OpKind::kConstant &&
          (node.outputs.size() != 1 || (valid(node.outputs[0]) && !graph_[node.outputs[0]].data)))
        say(cat(what, " has no contents"));
    }
    for (ValueId result : region.results) use(result, where);
    if (&region != &graph_.top) visible_ = outside;
    --depth_;
  }

  const Graph& graph_;
  std::vector<std::string> problems_;
  int depth_ = 0;
  std::unordered_set<sym::Expr, sym::ExprHash> symbols_;
  std::unordered_set<ValueId> made_, visible_;
  std::unordered_set<NodeId> seen_;
};

// Infers the types of every node again, on a copy of the graph, which receives the guards that this adds.
struct Retyper {
  Graph scratch;
  Builder builder;
  const ShapeTable& shapes;
  const bool proves_branches;
  std::vector<std::string> problems;

  Retyper(const Graph& graph, const ShapeTable& shapes, bool proves_branches)
      : scratch(graph), builder(scratch, shapes), shapes(shapes), proves_branches(proves_branches) {}

  void region(const Graph& graph, const Region& region) {
    for (NodeId id : region.nodes) {
      if (problems.size() >= kMaxProblems) return;
      const Node& node = graph[id];
      for (size_t r = 0; r < node.regions.size(); ++r) {
        sym::Expr assumption = 1;
        if (node.kind == OpKind::kIf && node.attributes.find("condition")) {
          assumption = node.attributes.expr("condition");
          if (r == 1) assumption = sym::logical_not(assumption);
        }
        builder.begin_region({}, assumption);
        this->region(graph, node.regions[r]);
        if (node.kind == OpKind::kIf && proves_branches) branch(graph, node, id, r, assumption);
        builder.end_region({});
      }
      if (node.kind != OpKind::kConstant && node.kind != OpKind::kElements) check(graph, node, id);
    }
  }

  // Whether the branch that is open has the node's results. An unproved size is not an error of one of our
  // passes, but of a file: nothing later compares the branch with the node.
  void branch(const Graph& graph, const Node& node, NodeId id, size_t r, sym::Expr assumption) {
    if (node.regions.size() != 2) return;  // the shape function says so
    const auto &results = node.regions[r].results, &others = node.regions[1 - r].results;
    if (results.size() != node.outputs.size() || others.size() != results.size() ||
        builder.prove(assumption) == sym::Answer::kNo)
      return;
    for (size_t i = 0; i < results.size(); ++i) {
      const graph::Shape &made = graph[results[i]].type.shape, &other = graph[others[i]].type.shape,
                         &given = graph[node.outputs[i]].type.shape;
      if (made.size() != given.size() || other.size() != given.size()) return;
      bool same = true;
      for (size_t d = 0; d < given.size(); ++d)
        same = same && (given[d] == made[d] || given[d] == sym::select(assumption, made[d], other[d]) ||
                        builder.holds(sym::eq(given[d], made[d])));
      if (!same)
        problems.push_back(cat("node ", id.value, " (if): result ", i, " is ",
                               to_string(graph[node.outputs[i]].type), ", and ",
                               to_string(graph[results[i]].type), " in branch ", r));
    }
  }

  void check(const Graph& graph, const Node& node, NodeId id) {
    const std::string what = cat("node ", id.value, " (", name(node), ")");
    std::vector<Type> types;
    try {
      types = shapes.fns[static_cast<int>(node.kind)](builder, node).types;
    } catch (const Error& error) {
      // Here a broken invariant of a shape function is an error of the node.
      std::string_view why = error.diagnostic.message;
      if (error.diagnostic.kind == ErrorKind::kInternal) why.remove_prefix(why.find(": ") + 2);
      problems.push_back(cat(what, ": ", why));
      return;
    }
    bool same = types.size() == node.outputs.size();
    for (size_t i = 0; same && i < types.size(); ++i) {
      const Type& given = graph[node.outputs[i]].type;
      same = types[i].dtype == given.dtype && types[i].shape.size() == given.shape.size();
      for (size_t d = 0; same && d < given.shape.size(); ++d)
        same = types[i].shape[d] == given.shape[d] ||
               builder.prove(sym::eq(types[i].shape[d], given.shape[d])) != sym::Answer::kNo;
    }
    if (same) return;
    auto list = [](const std::vector<Type>& all) {
      return join(all, ", ", [](const Type& t) { return to_string(t); });
    };
    std::vector<Type> given;
    for (ValueId output : node.outputs) given.push_back(graph[output].type);
    problems.push_back(
        cat(what, " has results ", list(given), " where ", list(types), " follows from its inputs"));
  }
};

}  // namespace

namespace {

std::vector<std::string> find_problems(const Graph& graph, const ShapeTable& shapes, bool proves_branches) {
  std::vector<std::string> found = Verifier(graph).structure();
  if (!found.empty()) return found;
  Retyper retyper(graph, shapes, proves_branches);
  retyper.region(graph, graph.top);
  return std::move(retyper.problems);
}

}  // namespace

std::vector<std::string> problems(const Graph& graph, const ShapeTable& shapes) {
  return find_problems(graph, shapes, true);
}

void verify(const Graph& graph, const ShapeTable& shapes, std::string_view stage) {
  const std::vector<std::string> found = find_problems(graph, shapes, false);
  STRIDEC_CHECK(found.empty(),
                cat("the graph after ", stage, ": ", join(found, "; "), "\n", to_string(graph)));
}

}  // namespace stridec::graph
