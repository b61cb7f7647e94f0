// Launches of a run as a graph, recorded once for each shape and enqueued by one call.
//
// A run computes the parameters of all its launches. They wait in a list; graphs_end() compares it with what the shape's
// graph was last given, changes the nodes that differ (buffers that moved), and launches the graph. A graph is recorded
// when a shape comes for the second time, and anew where the kernels are others; the least recently used one goes. So a
// graph never decides what runs: it is another way to enqueue the same list. Launches that cannot wait (graphs_flush) go
// straight to the stream, as all do after the driver has refused to record.
//
// A list that waited to its end depends on the run's symbols and addresses alone (whatever reads data, or gets memory,
// flushes). Where both are those that the graph was last given, graphs_replay() launches it and the run is spared.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace stridec::runtime {

struct KernelLaunch {
  void* function;
  uint32_t grid[3];
  uint32_t threads, shared_bytes;
  bool dependent;  // may start before its predecessor ends
  void** parameters;
  int32_t map_count, count;  // parameters: maps of 128 bytes first, then words
};

int32_t launch_kernel(const KernelLaunch& launch, void* stream);  // a CUresult

// What the launches of a run depend on.
struct RunKey {
  const int64_t* symbols;
  const void* const* addresses;  // of inputs, outputs, states and workspaces
  int32_t symbol_count, address_count;
};

struct CudaGraphs;
CudaGraphs* graphs_create(int32_t room);  // null: no memory
void graphs_destroy(CudaGraphs* graphs);

// The key's arrays stay as they are until graphs_end().
void graphs_begin(CudaGraphs& graphs, const RunKey& key, bool record);
// After graphs_begin(): true if this run's launches are enqueued, and there is nothing left to do.
bool graphs_replay(CudaGraphs& graphs, void* stream);
// Copies the launch to the list; false: it is the caller's to enqueue.
bool graphs_add(CudaGraphs& graphs, const KernelLaunch& launch);
int32_t graphs_flush(CudaGraphs& graphs, void* stream);  // CUresults
int32_t graphs_end(CudaGraphs& graphs, void* stream);

}  // namespace stridec::runtime
