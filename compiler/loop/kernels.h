// The kernels that a run launches, as the manifest, `inspect` and `bench` present them: names, nodes and
// costs.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/loop/analysis.h"
#include "compiler/loop/program.h"

namespace stridec::loop {

// A launch, or a tiled group, which is one kernel however many nests it runs.
struct Kernel {
  std::string name;                    // the same as in the run's profile
  std::vector<NestId> nests;           // in order; more than one only in a tiled group
  std::vector<std::string> nodes;      // the model's nodes that it computes, each once, in the model's order
  const TiledGroup* strips = nullptr;  // the program's tiled group; null: a launch
  std::string schedule;                // "a | b" for several nests
  int step = 0;                        // position among all kernels and routines, as the profile counts them
};

// All kernels in the order of the steps, including those of branches and bodies. `steps` is the number of
// kernels and routines counted so far; the call advances it.
std::vector<Kernel> kernels_of(const Program& program, int& steps);
std::vector<Kernel> kernels_of(const Program& program);

// A call of the library, which the profile counts like a kernel.
struct Routine {
  const Call* call;
  int step;
};
std::vector<Routine> routines_of(const Program& program);

// The cost of a launch, or of all nests and all tiles of a tiled group.
Cost cost_of(const Program& program, const Kernel& kernel);

// Of all nests and all tiles, with the nest of each.
std::vector<std::pair<const Nest*, Execution>> executions_of(const Program& program, const Kernel& kernel);

// Kernels that differ only in the buffers that they access.
struct KernelRow {
  std::vector<const Kernel*> launches;
  std::vector<std::string> nodes;  // those of all launches, sorted as in Kernel
  Cost cost;                       // per launch
  const Kernel& first() const { return *launches.front(); }
};
// Rows in the order of their first kernel, with pointers into `kernels`. `apart` returns a text that
// distinguishes a kernel from others of the same name, schedule and cost.
std::vector<KernelRow> rows_of(const Program& program, const std::vector<Kernel>& kernels,
                               const std::function<std::string(const Kernel&)>& apart = {});

// Sorts the nodes by their numbers, which gives the model's order, and removes duplicates.
void sort_nodes(std::vector<std::string>& nodes);

}  // namespace stridec::loop
