// Emits a scheduled nest as CUDA C++.
//
// How to add a template: emit_nest() looks at nest.schedule.kernel and calls a function of this shape:
//
//   DeviceNest emit_<template>(const loop::Program&, const loop::Nest&, const GpuTarget&);
//
// It classifies the nest (loop/analysis.h), writes the main loop as text into a Frame's KernelText, prints
// the epilogue (bias, activation, residual, casts, stores) with a Body whose index variables and result
// values it has set, and returns the launches: grid, threads, shared memory, tensor maps, workspace
// (device_kernel.h). Epilogues need no special code: body.h says how to set indices and values before
// print(). schedule/heuristics/choose_gpu.cpp decides which nest gets which template; kernels/ holds plans (a
// Schedule's directives as a struct) and their text form. A template declines a nest by leaving its schedule
// empty; the emitters here then handle it.
//
// copy.cpp has no nest: every artifact needs it for strided tensors of its caller.
//
// Folders: matrix/ (GEMM and convolution), packed_weights/ (GEMM with sub-byte weights), attention/,
// reduction/ (cooperative reductions and scans), points/ (all other nests), common/ (what every kernel text
// needs). dispatch.cpp picks the emitter.
#pragma once

#include <span>
#include <string_view>

#include "compiler/base/gpu_target.h"
#include "compiler/codegen/device_kernel.h"
#include "compiler/loop/program.h"

namespace stridec::codegen::cuda {

DeviceNest emit_nest(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target);

// The kernel that copies strided tensors. The runtime launches it, and chooses its grid; its parameters are
// the words STRIDEC_ABI_COPY_* of abi.h.
DeviceKernel emit_copy();

// A routine of the library; there is one for each row of loop/library.def.
struct Routine {
  std::string_view name;
  // Null if there is no GPU version, for the reason given.
  DeviceNest (*emit)(const loop::Program& program, const loop::Call& call, const GpuTarget& target);
  std::string_view reason = {};
};
std::span<const Routine> routines();

// Whether the routine, the library's or the user's (loop/user_kernel.h), has a GPU version, and its kernel.
bool has_routine(std::string_view routine);
DeviceNest emit_routine(const loop::Program& program, const loop::Call& call, const GpuTarget& target);

}  // namespace stridec::codegen::cuda
