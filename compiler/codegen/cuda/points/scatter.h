// Updates of elements that data tell (scatter with a sum), brought together by a stable sort.
//
//   for i: out[index[i], j] += update[i, j]
//
//   keys[i] = index[i]; (keys, ids) sorted by key, equal keys in order of i       radix sort, 8 bits a pass
//   a thread per j and run of equal keys, cut every 64 updates: sums, in order
//   sums of runs that were cut, in order
//
// What an element becomes depends on its updates and their order alone, not on which thread is when: a run of up to 64
// updates that is not cut gives what a loop over i gives, bit by bit. Counts are integers, whose order does not matter.
// Source: D. Merrill, A. Grimshaw, "High performance and scalable radix sorting" (2011), without its look-back.
#pragma once

#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/codegen/device_kernel.h"
#include "compiler/loop/program.h"

namespace stridec::codegen::cuda {

// Ways to do a nest of one update and what it takes, for many updates; none where the nest is another one. Of its dims,
// points that differ in a `parallel` one never meet in an element.
std::vector<DeviceChoice> sorted_updates(const loop::Program& program, const loop::Nest& nest,
                                         const std::vector<loop::Dim>& parallel,
                                         const std::vector<loop::Dim>& serial, const GpuTarget& target);

}  // namespace stridec::codegen::cuda
