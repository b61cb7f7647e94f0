// Launches of a run as a graph, recorded once for each shape and enqueued by one call.
//
// Every run computes the parameters of all its launches anew. They wait in a list; graphs_end() compares it with what the
// shape's graph was last given, changes the nodes that differ (buffers that moved), and launches the graph. A graph is
// recorded when a shape comes for the second time, and anew where the kernels are others; the least recently used one
// goes. So a graph never decides what runs: it is another way to enqueue the same list. Launches that cannot wait
// (graphs_flush) go straight to the stream, as all do after the driver has refused to record.
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

struct CudaGraphs;
CudaGraphs* graphs_create(int32_t room);  // null: no memory
void graphs_destroy(CudaGraphs* graphs);

void graphs_begin(CudaGraphs& graphs, const int64_t* symbols, int32_t count, bool record);
// Copies the launch to the list; false: it is the caller's to enqueue.
bool graphs_add(CudaGraphs& graphs, const KernelLaunch& launch);
int32_t graphs_flush(CudaGraphs& graphs, void* stream);  // CUresults
int32_t graphs_end(CudaGraphs& graphs, void* stream);

}  // namespace stridec::runtime
