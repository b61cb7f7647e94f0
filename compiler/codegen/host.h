// The host program of an artifact as text: stridec_program of abi.h, with what runs before and between the
// kernels.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/codegen/backend.h"
#include "compiler/codegen/device_kernel.h"
#include "compiler/loop/program.h"
#include "compiler/schedule/memory/memory_plan.h"

namespace stridec::codegen {

// A kernel as a launch names it.
struct LaunchedKernel {
  std::string symbol;
  const Kernel* kernel = nullptr;
  schedule::Scratch scratch;
};

// A nest or routine for a GPU: the number of each of its kernels in the variant's table, choice by choice.
struct LaunchedNest {
  const DeviceNest* nest = nullptr;
  std::vector<std::vector<int>> kernels;
};

// A row of the table.
struct DeviceRow {
  std::string symbol;
  int threads = 0, cluster = 1;
  bool dynamic_shared = false, dependent = false;
};

// A program scheduled for one instruction set, or for one kind of GPU. All variants of an artifact have the same inputs, outputs,
// states, symbols and guards; steps and weights' places may differ. Copy steps have become launches.
struct HostVariant {
  std::string name;    // CpuTarget::name, GpuTarget::name
  sym::Expr when = 1;  // over symbols of the inputs: this program runs where it holds
  const loop::Program* program = nullptr;
  std::map<schedule::LaunchKey, LaunchedKernel> launches;  // those of strips have no kernel of the host's

  const GpuTarget* gpu = nullptr;  // set: the fields above but the program are empty, and these hold
  std::map<loop::NestId, LaunchedNest> device_nests;
  std::map<const loop::Call*, LaunchedNest> device_routines;
  std::vector<DeviceRow> rows;
};

struct HostOptions {
  int spin_us = 0;           // stridec_abi_program.spin_us
  int thread_cost = 1;       // launches are shared where they are worth 1/thread_cost of what is usual
  int graphs = 0;            // stridec_abi_variant.graphs of GPU variants
  std::string weights_file;  // "": within the artifact
  uint64_t weights_bytes = 0, weights_hash = 0;
};

// Best variant first; behind a general program (`when` is 1) those of the same CPU for some sizes alone, which the run
// prefers in their order. The text stands alone.
std::string host_text(const std::vector<HostVariant>& variants, const HostOptions& options = {});

// What a program needs before its host text is made: copies become nests and launches,
void lower_copies(loop::Program& program);
// and symbols that only steps of the run mention (counters of loops) join the program's table.
void declare_symbols(loop::Program& program);

// A string literal of C.
std::string c_string(std::string_view text);

}  // namespace stridec::codegen
