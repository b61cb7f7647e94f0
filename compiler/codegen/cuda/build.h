// Builds the device code of scheduled programs: the kernels of every GPU variant, each distinct text once.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/base/gpu_target.h"
#include "compiler/codegen/cuda/cubin.h"
#include "compiler/codegen/device_kernel.h"
#include "compiler/codegen/host.h"
#include "compiler/loop/program.h"
#include "compiler/schedule/heuristics/choose.h"

namespace stridec::codegen::cuda {

// A program scheduled for one kind of GPU, with weights and memory planned.
struct Variant {
  GpuTarget target;
  loop::Program program;
  schedule::Chosen chosen = {};  // schedules that override the default ones
};

struct BuildOptions {
  int threads = 0;        // concurrent compilations; 0: one per processor
  bool use_cache = true;  // image cache in $STRIDEC_CACHE/kernels
  int64_t cache_bytes = 256 << 20;
  std::string nvrtc;                                        // the library or its folder; "": the usual places
  std::function<void(size_t done, size_t total)> progress;  // may be empty; called from any thread
};

struct BuiltKernel {
  std::string symbol;
  GpuTarget target;
  std::string text;                // as compiled, except for the definition of KERNEL
  std::string image;               // a cubin; for the target "ptx", zero-terminated PTX text
  Resources resources;             // of a cubin
  int threads = 0;                 // per block
  sym::Expr dynamic_shared = 0;    // bytes per block
  std::vector<std::string> nests;  // names of the nests that it computes
};

struct Built {
  std::vector<BuiltKernel> kernels;
  // Per given variant, for host_text(): points into its program and `launches`.
  std::vector<HostVariant> host;
  std::deque<DeviceNest> launches;
  // Per kind of GPU, in the order of the variants: the kernels of all variants for it, each once. `rows` has
  // their indices.
  std::vector<DeviceTable> tables;
  std::vector<std::vector<int>> rows;
  // Minimum driver version: it has the entry points of CUDA 12.0, which the runtime needs, and loads the
  // kernels.
  std::string driver = "525.60";
};

// Generates the texts of all kernels and what the host program needs, for the variants of one or several
// functions. The programs must not contain copy steps (lower_copies).
Built emit(const std::vector<const Variant*>& variants);
// Locates NVRTC, so that its absence is reported before anything is compiled, and sets the driver version
// that the kernels require. Throws kToolchain Errors.
void prepare(Built& built, const BuildOptions& options = {});
// Compiles the images of all kernels. Throws kToolchain Errors.
void compile(Built& built, const BuildOptions& options = {});
// A single kernel, named after its text and target, without its image.
BuiltKernel named(const DeviceKernel& kernel, const GpuTarget& target);
// Compiles kernels; returns for each the reason why it failed, if it did. Throws a kToolchain Error if there
// is no NVRTC.
std::vector<std::optional<Diagnostic>> compile_kernels(const std::vector<BuiltKernel*>& kernels,
                                                       const BuildOptions& options = {});
// The bytes of stridec_abi_images, as the artifact stores them.
std::string images(const Built& built);

}  // namespace stridec::codegen::cuda
