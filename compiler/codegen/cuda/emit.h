// A scheduled nest as CUDA C++.
//
// Where a template plugs in. emit_nest() looks at nest.schedule.kernel and calls a function of this shape:
//
//   DeviceNest emit_<template>(const loop::Program&, const loop::Nest&, const GpuTarget&);
//
// It classifies the nest (loop/analysis.h), writes its main loop as text into a Frame's KernelText, prints what
// follows the sum (bias, activation, residual, casts, stores) with a Body whose index variables and result values
// it has set, and answers with the launches: grid, threads, shared memory, tensor maps, workspace (device_kernel.h).
// The epilogue is never special: body.h says how to set indices and values before print(). schedule/heuristics/choose_gpu.cpp
// decides which nest gets which template; kernels/ holds plans (a Schedule's directives as a struct) and their text
// form. Templates decline by leaving the schedule empty: the emitters here take every legal nest.
//
// Templates have folders of their own: matrix/ (products and convolutions), words/ (products by weights of few bits),
// attention/ and teams/ (rows and columns that are reduced or summed up). Here are the emitters of all other nests, and what
// all kernels share: their frame, NVRTC, what a cubin says of itself.
#pragma once

#include <string_view>

#include "compiler/base/gpu_target.h"
#include "compiler/codegen/device_kernel.h"
#include "compiler/loop/program.h"

namespace stridec::codegen::cuda {

DeviceNest emit_nest(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target);

// A thread per point of the parallel dims; loops inside a point run in the thread.
DeviceNest emit_points(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target);

// A thread per block of neighbouring points, of nests of small windows; where that does not fit, a thread per point.
DeviceNest emit_windows(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target);

// A team of threads (a warp, or a block) per point: the loops of a point are dealt out to its threads, sums meet by
// shuffles, and what several loops read stays in registers between them.
DeviceNest emit_cooperative(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target);

// A team of threads per point of a nest whose only loop is a running sum or the like (loop::accumulation_of).
DeviceNest emit_scans(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target);

// A block per tile of points: for nests that load along one dim of memory and store along another.
DeviceNest emit_tiles(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target);

// The runtime library's routines (loop/library.def): whether there is one for GPUs, and its kernel.
bool has_routine(std::string_view routine);
DeviceNest emit_routine(const loop::Program& program, const loop::Call& call, const GpuTarget& target);

}  // namespace stridec::codegen::cuda
