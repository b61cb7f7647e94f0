#include "compiler/extend/exchange.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "compiler/base/diagnostic.h"
#include "compiler/base/files.h"
#include "compiler/base/sha256.h"
#include "compiler/base/text.h"
#include "compiler/graph/builder.h"
#include "compiler/graph/text.h"
#include "compiler/graph/verify.h"
#include "compiler/ops/op_table.h"
#include "compiler/sym/text.h"

namespace stridec::extend {
namespace {

using graph::Data;
using graph::Graph;
using graph::ValueId;

constexpr std::string_view kHeader = "stridec-graph 1\n";
constexpr size_t kMostProblems = 5;

[[noreturn]] void bad_graph(const std::string& what, std::vector<std::string> notes = {}) {
  throw Error({.kind = ErrorKind::kMalformed,
               .code = "bad-pass",
               .message = cat("a pass wrote a graph that cannot be used: ", what),
               .notes = std::move(notes),
               .help = "docs/extending.md says what passes may change"});
}

// A pass may append outputs. "" if the others are still there.
std::string change_of_outputs(const Graph& was, const Graph& is) {
  const std::vector<std::string>& names = is.output_names;
  if (names.size() < was.output_names.size() ||
      !std::equal(was.output_names.begin(), was.output_names.end(), names.begin()))
    return "outputs were removed, renamed or moved";
  for (auto name = names.begin() + std::ssize(was.output_names); name != names.end(); ++name) {
    if (name->empty()) return "an output has no name";
    if (std::find(names.begin(), name, *name) != name) return cat("two outputs are named '", *name, "'");
  }
  return "";
}

// How the interface of two graphs differs; "" if it does not, or by outputs and guards that are appended.
std::string change_of_interface(const Graph& was, const Graph& is) {
  if (was.name != is.name) return "the graph has another name";
  if (was.input_names != is.input_names) return "inputs were added, removed or renamed";
  if (const std::string problem = change_of_outputs(was, is); !problem.empty()) return problem;
  if (was.states.size() != is.states.size()) return "states were added or removed";
  if (was.top.parameters.size() != is.top.parameters.size()) return "inputs were added or removed";
  const auto types = [](const Graph& x, const Graph& y, const auto& a, const auto& b) -> std::string {
    for (size_t i = 0; i < a.size(); ++i)
      if (x[a[i]].type != y[b[i]].type)
        return cat("'", x[a[i]].name, "' was ", graph::to_string(x[a[i]].type), " and is ",
                   graph::to_string(y[b[i]].type));
    return "";
  };
  if (auto problem = types(was, is, was.top.parameters, is.top.parameters); !problem.empty())
    return cat("input or state ", problem);
  if (auto problem = types(was, is, was.top.results, is.top.results); !problem.empty())
    return cat("output ", problem);
  for (size_t i = 0; i < was.states.size(); ++i)
    if (was.states[i].name != is.states[i].name) return "a state was renamed";
  const bool symbols = std::ranges::equal(was.symbols, is.symbols, [](const auto& a, const auto& b) {
    return a.var == b.var && a.input == b.input && a.dim == b.dim && a.multiple == b.multiple;
  });
  if (!symbols) return "symbols were added, removed or changed";
  if (is.guards.size() < was.guards.size()) return "a guard was removed";
  for (size_t i = 0; i < was.guards.size(); ++i)
    if (was.guards[i].condition != is.guards[i].condition) return "a guard was changed";
  return "";
}

using Elements = std::vector<sym::Expr>;

// Known elements that the shape function does not infer: contents that a run binds to symbols.
std::vector<Elements> bound_elements(const Graph& graph) {
  std::vector<Elements> all;
  for (const graph::Value& value : graph.values)
    if (value.elements) all.push_back(*value.elements);
  return all;
}

bool may_be_equal(const graph::Builder& builder, const Elements& a, const Elements& b) {
  return std::ranges::equal(a, b, [&](sym::Expr x, sym::Expr y) {
    return x == y || builder.prove(sym::eq(x, y)) != sym::Answer::kNo;
  });
}

// Known elements decide sizes, so they are inferred again, too. "" if they are right.
std::string wrong_elements(const Graph& was, const Graph& is) {
  const std::vector<Elements> bound = bound_elements(was);
  Graph scratch = is;
  graph::Builder builder(scratch, ops::shape_table());
  for (const graph::Node& node : is.nodes) {
    const bool listed =
        std::ranges::any_of(node.outputs, [&](ValueId id) { return is[id].elements.has_value(); });
    if (node.kind == graph::OpKind::kElements) {
      const graph::Value& value = is[node.outputs.at(0)];
      if (!value.elements || node.attributes.exprs("elements") != *value.elements ||
          node.attributes.exprs("shape") != value.type.shape ||
          node.attributes.dtype("dtype") != value.type.dtype)
        return "an 'elements' has another type, or other elements, than its attributes";
    } else if (listed) {
      const graph::Inferred inferred =
          node.kind == graph::OpKind::kConstant
              ? graph::Inferred()
              : ops::shape_table().fns[static_cast<int>(node.kind)](builder, node);
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        const auto& given = is[node.outputs[i]].elements;
        if (!given) continue;
        const bool known = i < inferred.elements.size() && inferred.elements[i];
        if (known ? !may_be_equal(builder, *inferred.elements[i], *given)
                  : std::ranges::count(bound, *given) == 0)
          return cat("the elements of a ", graph::name(node), " do not follow from its operands");
      }
    }
  }
  return "";
}

}  // namespace

Exchange::Exchange(const Graph& graph, std::string folder) : graph_(graph), folder_(std::move(folder)) {
  // Equal contents at several addresses keep their addresses: where weights are placed depends on them.
  std::map<const uint8_t*, std::string> names;
  std::map<std::string, int> copies;
  text_ = std::string(kHeader) + graph::to_string(graph, [&](const Data& data) {
            const auto known = names.find(data.bytes);
            if (known != names.end() && contents_.at(known->second).size == data.size) return known->second;
            std::string name = cat("sha256:", sha256(data.bytes, data.size));
            if (const int copy = copies[name]++; copy > 0) name += cat("#", copy);
            names[data.bytes] = name;
            contents_[name] = data;
            return name;
          });
}

Data Exchange::from_file(size_t bytes, std::string path) const {
  size_t offset = 0;
  if (const size_t plus = path.rfind('+'); plus != std::string::npos) {
    const char *begin = path.data() + plus + 1, *end = path.data() + path.size();
    const auto [at, status] = std::from_chars(begin, end, offset);
    if (status != std::errc() || at != end) bad_graph(cat("'", path, "' has no offset after '+'"));
    path.resize(plus);
  }
  const std::filesystem::path file = std::filesystem::path(folder_) / path;
  const bool inside = !folder_.empty() && std::filesystem::path(path).is_relative() &&
                      std::ranges::count(std::filesystem::path(path), std::filesystem::path("..")) == 0;
  std::error_code error;
  if (!inside || !std::filesystem::is_regular_file(std::filesystem::symlink_status(file, error)))
    bad_graph(cat("'@file:", path, "' is not a file in STRIDEC_PASS_DIR"));
  const std::string text = read_file(file.string());
  if (offset > text.size() || text.size() - offset < bytes)
    bad_graph(cat("'@file:", path, "' has ", text.size(), " bytes, but ", bytes, " are read at ", offset));
  return graph::own({text.begin() + static_cast<std::ptrdiff_t>(offset),
                     text.begin() + static_cast<std::ptrdiff_t>(offset + bytes)});
}

Data Exchange::find(const graph::Value& value, size_t bytes, const std::string& name) const {
  if (name.starts_with("file:")) return from_file(bytes, name.substr(5));
  const auto found = contents_.find(name);
  if (found == contents_.end())
    bad_graph(name.empty() ? cat("a constant of ", graph::to_string(value.type), " has no contents")
                           : cat("there are no contents '@", name, "'"));
  if (found->second.size != bytes)
    bad_graph(cat("'@", name, "' has ", found->second.size, " bytes, not ", bytes));
  return found->second;
}

Graph Exchange::parse(const std::string& text) const {
  if (!text.starts_with(kHeader))
    bad_graph(text.empty() ? "it wrote nothing" : "the first line is not 'stridec-graph 1'");
  Graph made;
  try {
    made = graph::parse(text, [&](const graph::Value& value, size_t bytes, const std::string& name) {
      return find(value, bytes, name);
    });
  } catch (Error& error) {
    if (error.diagnostic.code == "bad-pass") throw;
    bad_graph(error.diagnostic.message);
  }
  return made;
}

Graph Exchange::read(const std::string& text) const {
  Graph made = parse(text);
  if (const std::string change = change_of_interface(graph_, made); !change.empty()) bad_graph(change);
  // Facts are those of the model: the text has ranges and guards, not what else import knows.
  made.facts = graph_.facts;
  for (size_t i = graph_.guards.size(); i < made.guards.size(); ++i) {
    if (made.facts.prove(made.guards[i].condition) == sym::Answer::kNo)
      bad_graph(cat("no run meets the guard '", made.guards[i].sentence, "'"));
    made.facts.assume(made.guards[i].condition);
  }
  std::vector<std::string> problems = graph::problems(made, ops::shape_table());
  if (problems.size() > kMostProblems) problems.resize(kMostProblems);
  if (!problems.empty()) bad_graph("it breaks the rules of graphs", std::move(problems));
  try {
    if (const std::string wrong = wrong_elements(graph_, made); !wrong.empty()) bad_graph(wrong);
  } catch (Error& error) {
    if (error.diagnostic.kind != ErrorKind::kInternal) throw;
    bad_graph(error.diagnostic.message);  // an attribute that an operator needs is missing
  }
  graph::eliminate_dead_code(made);
  return made;
}

}  // namespace stridec::extend
