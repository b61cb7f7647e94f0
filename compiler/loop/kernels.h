// What a run launches, as people are told of it: the manifest, `inspect` and `bench` have names, nodes and costs from here.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/loop/analysis.h"
#include "compiler/loop/program.h"

namespace stridec::loop {

// A launch, or all strips of a row, which are one kernel whatever they run.
struct Kernel {
  std::string name;                    // the run's profile has it too
  std::vector<NestId> nests;           // in order; more than one of strips alone
  std::vector<std::string> nodes;      // the model's that it computes, each once, in the model's order
  const TiledGroup* strips = nullptr;  // of the program; null: a launch
  std::string schedule;                // "a | b" of several nests
  int step = 0;                        // among all kernels and routines, as the profile counts
};

// In the order of the steps, those of branches and bodies too. `steps`: what the profile counted before; it is counted on.
std::vector<Kernel> kernels_of(const Program& program, int& steps);
std::vector<Kernel> kernels_of(const Program& program);

// Of one launch, of all its nests and of all strips together.
Cost cost_of(const Program& program, const Kernel& kernel);

// Kernels that are equal but for what they read and write.
struct KernelRow {
  std::vector<const Kernel*> launches;
  std::vector<std::string> nodes;  // of all of them, as those of a kernel
  Cost cost;                       // of each
  const Kernel& first() const { return *launches.front(); }
};
// In the order of the first of each, with pointers into `kernels`. `apart` says of a kernel what tells it from others of its
// name, schedule and cost.
std::vector<KernelRow> rows_of(const Program& program, const std::vector<Kernel>& kernels,
                               const std::function<std::string(const Kernel&)>& apart = {});

// Puts the nodes in the model's order, in which they are numbered, and leaves out what is there twice.
void sort_nodes(std::vector<std::string>& nodes);

}  // namespace stridec::loop
