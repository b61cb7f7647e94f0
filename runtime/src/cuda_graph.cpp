#include "cuda_graph.h"

#include <stdlib.h>
#include <string.h>

#include "cuda_driver.h"
#include "memory.h"

namespace stridec::runtime {
namespace {

constexpr size_t kMapBytes = 128;

// A launch without the location of its parameters.
struct Node {
  void* function;
  uint32_t grid[3];
  uint32_t threads, shared_bytes;
  uint16_t dependent, concurrent;
  int32_t map_count, count;
  int32_t tag, unused;
  size_t offset;  // of its parameters in the list's bytes
};

struct List {
  Node* nodes;
  int32_t count, room;
  char* bytes;
  size_t used, bytes_room;
};

size_t parameter_bytes(const Node& node) {
  return static_cast<size_t>(node.map_count) * kMapBytes +
         static_cast<size_t>(node.count - node.map_count) * 8;
}

void free_list(List& list) {
  free(list.nodes);
  free(list.bytes);
  list = {};
}

// Grows to twice the wanted size; the contents are kept.
template <class T>
bool grow_array(T*& memory, size_t wanted, size_t& room) {
  if (wanted <= room) return true;
  void* more = nullptr;
  if (posix_memalign(&more, 64, 2 * wanted * sizeof(T)) != 0) return false;
  if (room) memcpy(more, memory, room * sizeof(T));
  free(memory);
  memory = static_cast<T*>(more);
  room = 2 * wanted;
  return true;
}

bool grow_list(List& list, int32_t nodes, size_t bytes) {
  auto room = static_cast<size_t>(list.room);
  const bool done = grow_array(list.nodes, static_cast<size_t>(nodes), room) &&
                    grow_array(list.bytes, bytes, list.bytes_room);
  list.room = static_cast<int32_t>(room);
  return done;
}

bool copy(List& to, const List& from) {
  if (!grow_list(to, from.count, from.used)) return false;
  if (from.count) memcpy(to.nodes, from.nodes, static_cast<size_t>(from.count) * sizeof(Node));
  if (from.used) memcpy(to.bytes, from.bytes, from.used);
  to.count = from.count;
  to.used = from.used;
  return true;
}

// Compares words: memcmp used only for equality becomes bcmp, which old C libraries lack.
bool equal(const void* a, const void* b, size_t bytes) {
  const char *x = static_cast<const char*>(a), *y = static_cast<const char*>(b);
  uint64_t differ = 0;
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    uint64_t u, v;
    memcpy(&u, x + i, 8);
    memcpy(&v, y + i, 8);
    differ |= u ^ v;
  }
  return !differ;
}

bool same_kernels(const List& a, const List& b) {
  if (a.count != b.count || a.used != b.used) return false;
  for (int32_t i = 0; i < a.count; ++i)
    if (a.nodes[i].function != b.nodes[i].function || a.nodes[i].count != b.nodes[i].count ||
        a.nodes[i].map_count != b.nodes[i].map_count || a.nodes[i].concurrent != b.nodes[i].concurrent)
      return false;
  return true;
}

struct Graph {  // for one shape
  int64_t* symbols;
  const void** addresses;  // of the run whose list the graph has
  uint64_t used;           // time of the last use; 0: never
  List list;               // the launches that the graph has
  void** nodes;            // the driver's nodes, one per launch
  void *graph, *exec;
};

void** parameters_of_node(const List& list, const Node& node, void** out) {
  char* at = list.bytes + node.offset;
  for (int32_t i = 0; i < node.count; ++i) {
    out[i] = at;
    at += i < node.map_count ? kMapBytes : 8;
  }
  return out;
}

}  // namespace

struct CudaGraphs {
  Graph* all;
  int32_t room;
  uint64_t clock;
  RunKey key;  // of the current run
  List waiting;
  void** parameters;  // as many as the largest launch has
  size_t parameter_room;
  void* stream;    // for recording
  bool waits;      // launches of this run are added to the list
  bool refused;    // the driver cannot record
  Stamps* stamps;  // of this run; null: none
};

namespace {

KernelLaunch launch_of(CudaGraphs& g, const List& list, const Node& node) {
  return {node.function,
          {node.grid[0], node.grid[1], node.grid[2]},
          node.threads,
          node.shared_bytes,
          node.dependent != 0,
          node.concurrent != 0,
          parameters_of_node(list, node, g.parameters),
          node.map_count,
          node.count,
          node.tag};
}

// Enqueues a recorded graph.
CUresult launch_graph(CudaGraphs& g, void* exec, void* stream) {
  CUresult status = g.stamps ? stamps_record(*g.stamps, kNobody, stream) : 0;
  if (!status) status = driver.GraphLaunch(exec, stream);
  if (!status && g.stamps) status = stamps_record(*g.stamps, kReplay, stream);
  return status;
}

void clear(Graph& graph) {
  if (graph.exec) driver.GraphExecDestroy(graph.exec);
  if (graph.graph) driver.GraphDestroy(graph.graph);
  graph.exec = graph.graph = nullptr;
}

size_t symbol_bytes(const CudaGraphs& g) { return static_cast<size_t>(g.key.symbol_count) * 8; }
size_t address_bytes(const CudaGraphs& g) { return static_cast<size_t>(g.key.address_count) * sizeof(void*); }

// The graph of the current shape, or null.
Graph* find(CudaGraphs& g) {
  for (int32_t i = 0; i < g.room; ++i)
    if (g.all[i].used && equal(g.all[i].symbols, g.key.symbols, symbol_bytes(g))) return &g.all[i];
  return nullptr;
}

// The least recently used graph, which is reset for a new shape.
Graph& replace_oldest(CudaGraphs& g) {
  Graph* oldest = g.all;
  for (int32_t i = 1; i < g.room; ++i)
    if (g.all[i].used < oldest->used) oldest = &g.all[i];
  clear(*oldest);
  if (g.key.symbol_count) memcpy(oldest->symbols, g.key.symbols, symbol_bytes(g));
  return *oldest;
}

CUresult record(CudaGraphs& g, Graph& graph) {
  clear(graph);
  const auto count = static_cast<size_t>(g.waiting.count);
  free(graph.nodes);
  graph.nodes = static_cast<void**>(calloc(count ? count : 1, sizeof(void*)));
  if (!graph.nodes || !copy(graph.list, g.waiting)) return 2;
  CUresult status = g.stream ? 0 : driver.StreamCreate(&g.stream, kStreamNonBlocking);
  if (!status) status = driver.StreamBeginCapture(g.stream, kCaptureThreadLocal);
  if (status) return status;
  // Every launch of a group gets edges from all launches of the group before it.
  int32_t group = 0, before = 0;  // where the two groups begin
  for (int32_t i = 0; i < graph.list.count && !status; ++i) {
    KernelLaunch launch = launch_of(g, graph.list, graph.list.nodes[i]);
    if (!launch.concurrent) before = group, group = i;
    const int32_t edges = group - before;
    if (launch.concurrent || edges > 1)
      status = driver.StreamUpdateCaptureDependencies(g.stream, graph.nodes + before,
                                                      static_cast<size_t>(edges), kCaptureSetDependencies);
    launch.dependent = launch.dependent && edges == 1;
    if (!status) status = launch_kernel(launch, g.stream, nullptr);
    int32_t state = 0;
    uint64_t id = 0;
    void* whole = nullptr;
    void* const* last = nullptr;
    size_t lasts = 0;
    if (!status) status = driver.StreamGetCaptureInfo(g.stream, &state, &id, &whole, &last, &lasts);
    if (!status && lasts != 1) status = 1;
    if (!status) graph.nodes[i] = last[0];
  }
  const CUresult ended = driver.StreamEndCapture(g.stream, &graph.graph);
  if (!status) status = ended;
  if (!status) status = driver.GraphInstantiate(&graph.exec, graph.graph, 0);
  if (status) clear(graph);
  return status;
}

// Updates the graph's nodes with the parameters of this run.
CUresult update(CudaGraphs& g, Graph& graph) {
  for (int32_t i = 0; i < g.waiting.count; ++i) {
    Node &old = graph.list.nodes[i], &now = g.waiting.nodes[i];
    char *from = g.waiting.bytes + now.offset, *to = graph.list.bytes + old.offset;
    if (equal(&old, &now, sizeof(Node)) && equal(to, from, parameter_bytes(now))) continue;
    const NodeParams params = {now.function,
                               {now.grid[0], now.grid[1], now.grid[2]},
                               {now.threads, 1, 1},
                               now.shared_bytes,
                               parameters_of_node(g.waiting, now, g.parameters),
                               nullptr,
                               nullptr,
                               nullptr};
    if (const CUresult status = driver.GraphSetParams(graph.exec, graph.nodes[i], &params)) return status;
    old = now;
    memcpy(to, from, parameter_bytes(now));
  }
  return 0;
}

}  // namespace

int32_t launch_kernel(const KernelLaunch& launch, void* stream, Stamps* stamps) {
  LaunchAttribute dependent = {kAttributeDependentLaunch, {}, {}};
  dependent.value.number = 1;
  const LaunchConfig config = {{launch.grid[0], launch.grid[1], launch.grid[2]},
                               {launch.threads, 1, 1},
                               launch.shared_bytes,
                               stream,
                               &dependent,
                               launch.dependent ? 1u : 0u};
  CUresult status = stamps ? stamps_record(*stamps, kNobody, stream) : 0;
  if (!status) status = driver.LaunchKernelEx(&config, launch.function, launch.parameters, nullptr);
  if (!status && stamps) status = stamps_record(*stamps, launch.tag, stream);
  return status;
}

CudaGraphs* graphs_create(int32_t room) {
  auto* g = static_cast<CudaGraphs*>(calloc(1, sizeof(CudaGraphs)));
  if (!g) return nullptr;
  g->all = make_array<Graph>(room);
  g->room = room;
  g->key.symbol_count = -1;
  if (g->all) return g;
  free(g);
  return nullptr;
}

void graphs_destroy(CudaGraphs* g) {
  if (!g) return;
  for (int32_t i = 0; i < g->room; ++i) {
    clear(g->all[i]);
    free_list(g->all[i].list);
    free(g->all[i].nodes);
    free(g->all[i].symbols);
    free(g->all[i].addresses);
  }
  if (g->stream) driver.StreamDestroy(g->stream);
  free_list(g->waiting);
  free(g->parameters);
  free(g->all);
  free(g);
}

void graphs_begin(CudaGraphs& g, const RunKey& key, bool record, Stamps* stamps) {
  const bool first = g.key.symbol_count < 0;
  g.waiting.count = 0;
  g.waiting.used = 0;
  g.key = key;
  for (int32_t i = 0; i < g.room && first; ++i) {
    g.all[i].symbols = make_array<int64_t>(key.symbol_count ? key.symbol_count : 1);
    g.all[i].addresses = make_array<const void*>(key.address_count ? key.address_count : 1);
    if (!g.all[i].symbols || !g.all[i].addresses) g.refused = true;
  }
  g.waits = record && !g.refused;
  g.stamps = stamps;
}

bool graphs_replay(CudaGraphs& g, void* stream) {
  Graph* graph = g.waits ? find(g) : nullptr;
  if (!graph || !graph->exec || !equal(graph->addresses, g.key.addresses, address_bytes(g))) return false;
  if (launch_graph(g, graph->exec, stream)) return false;  // the run reports the error
  graph->used = ++g.clock;
  return true;
}

bool graphs_add(CudaGraphs& g, const KernelLaunch& l) {
  if (!g.waits) return false;
  Node node = {l.function,
               {l.grid[0], l.grid[1], l.grid[2]},
               l.threads,
               l.shared_bytes,
               l.dependent,
               l.concurrent,
               l.map_count,
               l.count,
               l.tag,
               0,
               0};
  const size_t bytes = parameter_bytes(node);
  node.offset = g.waiting.used;
  if (!grow_list(g.waiting, g.waiting.count + 1, g.waiting.used + bytes) ||
      !grow_array(g.parameters, static_cast<size_t>(l.count), g.parameter_room))
    return false;
  g.waiting.nodes[g.waiting.count++] = node;
  char* to = g.waiting.bytes + g.waiting.used;
  for (int32_t i = 0; i < l.count; ++i) {
    const size_t size = i < l.map_count ? kMapBytes : 8;
    memcpy(to, l.parameters[i], size);
    to += size;
  }
  g.waiting.used += bytes;
  return true;
}

int32_t graphs_flush(CudaGraphs& g, void* stream) {
  for (int32_t i = 0; i < g.waiting.count; ++i)
    if (const CUresult status = launch_kernel(launch_of(g, g.waiting, g.waiting.nodes[i]), stream, g.stamps))
      return status;
  g.waiting.count = 0;
  g.waiting.used = 0;
  g.waits = false;  // later launches depend on data and may differ from run to run
  return 0;
}

int32_t graphs_end(CudaGraphs& g, void* stream) {
  if (!g.waits || g.waiting.count < 2) return graphs_flush(g, stream);
  Graph* known = find(g);
  Graph& graph = known ? *known : replace_oldest(g);
  graph.used = ++g.clock;
  if (!known) return graphs_flush(g, stream);
  CUresult status = graph.exec && same_kernels(graph.list, g.waiting) ? update(g, graph) : record(g, graph);
  if (status) {  // a driver that cannot record or update can still launch
    clear(graph);
    g.refused = true;
    return graphs_flush(g, stream);
  }
  if (g.key.address_count) memcpy(graph.addresses, g.key.addresses, address_bytes(g));
  status = launch_graph(g, graph.exec, stream);
  g.waiting.count = 0;
  return status;
}

}  // namespace stridec::runtime
