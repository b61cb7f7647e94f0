// Scatter with a combining update at data-dependent indices, by a stable sort of the updates.
//
//   for i: out[index[i], j] += update[i, j]
//
//   keys[i] = index[i]; (keys, ids) sorted by key, equal keys in order of i       radix sort, 8 bits a pass
//   a thread per j and run of equal keys, cut every 64 updates: sums, in order
//   the partial sums of cut runs are added, in order
//
// An element's result depends only on its updates and their order, not on timing. A run of up to 64 updates
// that is not cut gives bit for bit what a loop over i gives. Counts are integers, whose order does not
// matter. Source: D. Merrill, A. Grimshaw, "High performance and scalable radix sorting" (2011), without its
// look-back.
#pragma once

#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/codegen/device_kernel.h"
#include "compiler/loop/program.h"

namespace stridec::codegen::cuda {

// Choices for a nest that is a single update and its operands, for many updates; none if the nest has another
// form. Points that differ in a `parallel` dim never update the same element.
std::vector<DeviceChoice> sorted_updates(const loop::Program& program, const loop::Nest& nest,
                                         const std::vector<loop::Dim>& parallel,
                                         const std::vector<loop::Dim>& serial, const GpuTarget& target);

}  // namespace stridec::codegen::cuda
