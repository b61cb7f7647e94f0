// Executes the launches of a run as a CUDA graph, which is recorded once per shape and enqueued by one call.
//
// A run computes the parameters of all its launches, which are collected in a list. graphs_end() compares the
// list with the parameters in the shape's graph, updates the nodes that differ (buffers that moved), and
// launches the graph. A graph is recorded when a shape occurs for the second time, and recorded again if
// the kernels differ. The least recently used graph is evicted. A graph never decides what runs: it is
// another way to enqueue the same list. graphs_flush() directly enqueues the launches that cannot
// wait for the end of the run. After the driver has refused to record, all launches are enqueued directly.
//
// A list that is complete at the end of the run depends only on the symbols and addresses of the run, because
// everything that reads data or allocates memory flushes the list. If both equal those of the graph's last
// launch, graphs_replay() launches the graph and run() is skipped.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "cuda_stamps.h"

namespace stridec::runtime {

struct KernelLaunch {
  void* function;
  uint32_t grid[3];
  uint32_t threads, shared_bytes;
  bool dependent;   // may start before its predecessor has finished
  bool concurrent;  // as in stridec_abi_device_launch, where launches that do nothing do not count
  void** parameters;
  int32_t map_count, count;  // parameters: map_count maps of 128 bytes, then words
  int32_t tag;               // of its stamp
};

// With stamps before and after it, unless `stamps` is null. Returns a CUresult.
int32_t launch_kernel(const KernelLaunch& launch, void* stream, Stamps* stamps);

// The inputs that the launches of a run depend on.
struct RunKey {
  const int64_t* symbols;
  const void* const* addresses;  // of inputs, outputs, states and workspaces
  int32_t symbol_count, address_count;
};

struct CudaGraphs;
CudaGraphs* graphs_create(int32_t room);  // null: out of memory
void graphs_destroy(CudaGraphs* graphs);

// The key's arrays must stay unchanged until graphs_end(). `stamps`: take the times of launches and replays;
// null: take none.
void graphs_begin(CudaGraphs& graphs, const RunKey& key, bool record, Stamps* stamps);
// Call after graphs_begin(). Returns true if this run's launches are enqueued and no work is left.
bool graphs_replay(CudaGraphs& graphs, void* stream);
// Copies the launch to the list. Returns false if the caller must enqueue it.
bool graphs_add(CudaGraphs& graphs, const KernelLaunch& launch);
// These return a CUresult.
int32_t graphs_flush(CudaGraphs& graphs, void* stream);
int32_t graphs_end(CudaGraphs& graphs, void* stream);

}  // namespace stridec::runtime
