// The host program of an artifact as text: stridec_module of abi.h, and the code that runs before and
// between the kernels.
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

// A CPU kernel: the symbol that launches call, and the scratch memory that they provide.
struct LaunchedKernel {
  std::string symbol;
  const Kernel* kernel = nullptr;
  schedule::Scratch scratch;
};

// A nest or routine on a GPU. `kernels`: for each choice of the nest, the indices of its kernels in the
// target's table.
struct LaunchedNest {
  const DeviceNest* nest = nullptr;
  std::vector<std::vector<int>> kernels;
};

// A row of a DeviceTable.
struct DeviceRow {
  std::string symbol;
  int threads = 0, cluster = 1;
  bool dynamic_shared = false, dependent = false;
};

// A program scheduled for one instruction set or one kind of GPU. All variants of a function have the same
// inputs, outputs, states, symbols and guards; steps and weight offsets may differ. Copy steps have been
// lowered to launches.
struct HostVariant {
  std::string name;    // CpuTarget::name, GpuTarget::name
  sym::Expr when = 1;  // over symbols of the inputs: the variant may run if it holds
  const loop::Program* program = nullptr;
  std::map<schedule::LaunchKey, LaunchedKernel> launches;  // kernels inside tiled groups have no entry

  // Computes the program's derived parameters (cpu/derive.h) on the host; null if there are none.
  const loop::Program* derivation = nullptr;
  std::map<schedule::LaunchKey, LaunchedKernel> derivation_launches;

  // Set for a GPU variant, which uses the fields below instead of `launches`.
  const GpuTarget* gpu = nullptr;
  std::map<loop::NestId, LaunchedNest> device_nests;
  std::map<const loop::Call*, LaunchedNest> device_routines;
};

// The variants of a function, best first. A general program (`when` is 1) is followed by programs of the same
// CPU for particular sizes. A run takes the first of these whose `when` holds, or else the general program.
// All functions have code for the same targets, in the same order.
using HostFunction = std::vector<HostVariant>;

// The kernels of a GPU target, which all functions launch by their index.
struct DeviceTable {
  std::string target;  // GpuTarget::name
  std::vector<DeviceRow> rows;
  int copy = 0;  // the row of the kernel that copies strided tensors
};

struct HostOptions {
  int spin_us = 0;           // stridec_abi_module.spin_us
  int thread_cost = 1;       // the grain of launches is divided by it: larger values use more threads
  int graphs = 0;            // stridec_abi_target.graphs
  std::string weights_file;  // "": within the artifact
  uint64_t weights_bytes = 0, weights_hash = 0;
  std::map<std::string, std::string> metadata;  // stridec_abi_module.metadata
  // Per function, the program whose parameters have the model's shapes; empty: those of the first variants.
  std::vector<const loop::Program*> declared;
};

// The text is self-contained. Functions are named after their programs, and share their states
// and parameters as loop/module_values.h says.
std::string host_text(const std::vector<HostFunction>& functions, const std::vector<DeviceTable>& tables = {},
                      const HostOptions& options = {});

// Prepares a program for its host text: converts copy steps to nests and launches.
void lower_copies(loop::Program& program);
// Adds symbols that only steps of the run define (loop counters) to the program's table.
void declare_symbols(loop::Program& program);

// A C string literal.
std::string c_string(std::string_view text);

}  // namespace stridec::codegen
