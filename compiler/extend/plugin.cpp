#include "compiler/extend/plugin.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <set>
#include <utility>

#include "compiler/base/diagnostic.h"
#include "compiler/base/sha256.h"
#include "compiler/base/text.h"
#include "compiler/extend/exchange.h"
#include "compiler/graph/text.h"
#include "compiler/loop/interpret.h"
#include "compiler/ops/op_table.h"
#include "compiler/sym/text.h"
#include "runtime/include/stridec/plugin.h"

// The graph of one call of a plug-in's run().
struct stridec_graph {
  const stridec::extend::Exchange& exchange;
  std::map<std::string, stridec::graph::Data> added;
  std::optional<stridec::graph::Graph> parsed;  // values are numbered as in the text
  std::optional<std::string> changed;
  std::deque<std::string> texts;
  std::deque<std::vector<uint8_t>> results;
  std::string message;
};

namespace stridec::extend {
namespace {

using graph::Graph;
using graph::ValueId;

// Calls `f`; no exception passes the C interface.
template <class F>
int guarded(stridec_graph* graph, F&& f) {
  try {
    return f();
  } catch (const std::exception& error) {
    graph->message = error.what();
    return -1;
  }
}

const Graph& parsed(stridec_graph* graph) {
  if (!graph->parsed) graph->parsed = graph->exchange.parse(graph->exchange.text());
  return *graph->parsed;
}

const char* text(stridec_graph* graph) { return graph->exchange.text().c_str(); }

int set_text(stridec_graph* graph, const char* text) {
  return guarded(graph, [&] {
    graph->changed = text ? text : "";
    return 0;
  });
}

int contents(stridec_graph* graph, const char* name, const void** bytes, size_t* size) {
  return guarded(graph, [&] {
    const std::map<std::string, graph::Data>* const tables[] = {&graph->exchange.contents(), &graph->added};
    for (const auto* table : tables)
      if (const auto found = table->find(name); found != table->end()) {
        *bytes = found->second.bytes;
        *size = found->second.size;
        return 0;
      }
    graph->message = cat("there are no contents '", name, "'");
    return -1;
  });
}

const char* add_contents(stridec_graph* graph, const void* bytes, size_t size) {
  const char* name = nullptr;
  guarded(graph, [&] {
    graph->texts.push_back(cat("sha256:", sha256(bytes, size)));
    const auto* first = static_cast<const uint8_t*>(bytes);
    if (!graph->exchange.contents().contains(graph->texts.back()))
      graph->added.emplace(graph->texts.back(), graph::own({first, first + size}));
    name = graph->texts.back().c_str();
    return 0;
  });
  return name;
}

// The nodes that a value is computed from, all of the top region and none of them an input.
void collect(const Graph& graph, ValueId value, std::set<int64_t>& nodes) {
  std::vector<ValueId> work = {value};
  while (!work.empty()) {
    const graph::NodeId producer = graph[work.back()].producer;
    work.pop_back();
    if (!producer.valid()) fail(ErrorKind::kDoesNotFit, "evaluate", "the value depends on an input");
    const graph::Node& node = graph[producer];
    if (!node.regions.empty() || node.kind == graph::OpKind::kRandomUniform)
      fail(ErrorKind::kDoesNotFit, "evaluate", "the value depends on a loop, a branch or random numbers");
    for (const ValueId output : node.outputs) {
      if (graph[output].replaceable)
        fail(ErrorKind::kDoesNotFit, "evaluate", "the value depends on a weight that may be replaced");
      for (const sym::Expr dim : graph[output].type.shape)
        if (!dim.is_const())
          fail(ErrorKind::kDoesNotFit, "evaluate", "the value depends on sizes of the run");
    }
    if (nodes.insert(producer.value).second) work.insert(work.end(), node.inputs.begin(), node.inputs.end());
  }
}

int64_t bytes_of(const graph::Type& type) {
  int64_t bytes = byte_size(type.dtype);
  for (const sym::Expr dim : type.shape) bytes *= dim.value();
  return bytes;
}

// A graph of these nodes alone, which are in the order of their numbers.
Graph extracted(const Graph& all, ValueId result, const std::set<int64_t>& nodes) {
  Graph part;
  graph::Builder builder(part, ops::shape_table());
  std::map<ValueId, ValueId> copies;
  for (const int64_t id : nodes) {
    const graph::Node& node = all.nodes[static_cast<size_t>(id)];
    std::vector<ValueId> inputs, outputs;
    for (const ValueId input : node.inputs) inputs.push_back(copies.at(input));
    if (node.kind == graph::OpKind::kConstant)
      outputs = {builder.constant("", all[node.outputs[0]].type, *all[node.outputs[0]].data)};
    else if (node.kind == graph::OpKind::kElements)
      outputs = {builder.elements(node.attributes.exprs("elements"), all[node.outputs[0]].type.shape,
                                  all[node.outputs[0]].type.dtype)};
    else
      outputs = builder.add(node.kind, inputs, node.attributes);
    for (size_t i = 0; i < node.outputs.size(); ++i) copies[node.outputs[i]] = outputs.at(i);
  }
  builder.output("y", copies.at(result));
  return part;
}

int evaluate(stridec_graph* graph, int64_t number, size_t most_bytes, const void** bytes, size_t* size) {
  return guarded(graph, [&] {
    const Graph& all = parsed(graph);
    if (number < 0 || number >= static_cast<int64_t>(all.values.size()))
      fail(ErrorKind::kDoesNotFit, "evaluate", cat("there is no value %", number));
    const ValueId value(number);
    std::set<int64_t> nodes;
    collect(all, value, nodes);
    // Other constants are there already.
    for (const int64_t node : nodes)
      for (const ValueId output : all.nodes[static_cast<size_t>(node)].outputs)
        if ((output == value || all.nodes[static_cast<size_t>(node)].kind != graph::OpKind::kConstant) &&
            std::cmp_greater(bytes_of(all[output].type), most_bytes))
          fail(ErrorKind::kOverBudget, "evaluate", "the value needs more memory than most_bytes");
    const Graph part = extracted(all, value, nodes);
    graph->results.push_back(std::move(loop::interpret(ops::lower(part), {}).at(0).bytes));
    *bytes = graph->results.back().data();
    *size = graph->results.back().size();
    return 0;
  });
}

int prove(stridec_graph* graph, const char* condition) {
  int answer = -1;
  guarded(graph, [&] {
    const sym::Answer proved = parsed(graph).facts.prove(sym::parse(condition));
    answer = proved == sym::Answer::kYes ? 1 : proved == sym::Answer::kNo ? 0 : -1;
    return 0;
  });
  return answer;
}

const char* message(stridec_graph* graph) { return graph->message.c_str(); }

constexpr stridec_host kHost = {.struct_size = sizeof(stridec_host),
                                .version = STRIDEC_VERSION,
                                .text = text,
                                .set_text = set_text,
                                .contents = contents,
                                .add_contents = add_contents,
                                .evaluate = evaluate,
                                .prove = prove,
                                .message = message};

const stridec_plugin& load(const UserPass& pass) {
  // dlopen searches the system's folders for a name without a slash.
  const std::string path = std::filesystem::absolute(pass.command).string();
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    fail(ErrorKind::kUnreadable, "no-plugin",
         cat("cannot load the plug-in '", pass.command, "': ", dlerror()));
  const auto entry = reinterpret_cast<stridec_plugin_fn>(dlsym(library, "stridec_plugin_v1"));
  if (!entry)
    fail(ErrorKind::kMalformed, "no-plugin", cat("'", pass.command, "' has no function stridec_plugin_v1"),
         "runtime/include/stridec/plugin.h says what a plug-in exports");
  const stridec_plugin* plugin = entry(&kHost);
  if (!plugin || plugin->struct_size < sizeof(stridec_plugin) || !plugin->name || !plugin->run)
    fail(ErrorKind::kMalformed, "no-plugin", cat("'", pass.command, "' does not describe its pass"));
  return *plugin;
}

}  // namespace

Graph run_plugin(const Graph& graph, const UserPass& pass) {
  const stridec_plugin& plugin = load(pass);
  Exchange exchange(graph);
  stridec_graph state{.exchange = exchange};
  if (const char* problem = plugin.run(&kHost, &state))
    fail(ErrorKind::kToolchain, "pass-failed", cat("the plug-in '", plugin.name, "': ", problem));
  if (!state.changed) return graph;
  exchange.add(state.added);
  try {
    return exchange.read(*state.changed);
  } catch (Error& error) {
    if (error.diagnostic.code == "bad-pass")
      error.diagnostic.message =
          cat("the plug-in '", plugin.name, "'", error.diagnostic.message.substr(std::strlen("a pass")));
    throw;
  }
}

}  // namespace stridec::extend
