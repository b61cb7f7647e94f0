// From scheduled programs to what the driver loads: the kernels of every GPU variant, each text once.
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

// The program as it is scheduled for one kind of GPU. Weights and memory are planned.
struct Variant {
  GpuTarget target;
  loop::Program program;
  schedule::Chosen chosen = {};  // schedules that replace the default ones
};

struct BuildOptions {
  int threads = 0;        // compilations at the same time; 0: as many as there are processors
  bool use_cache = true;  // of images, in $STRIDEC_CACHE/kernels
  int64_t cache_bytes = 256 << 20;
  std::string nvrtc;  // a library or its folder; "": where it usually is
  std::function<void(size_t done, size_t total)> progress;  // may be empty; called from any thread
};

struct BuiltKernel {
  std::string symbol;
  GpuTarget target;
  std::string text;                // as compiled, but for the definition of KERNEL
  std::string image;               // a cubin; PTX text ended by a zero for the target "ptx"
  Resources resources;             // of a cubin
  int threads = 0;                 // of a block
  sym::Expr dynamic_shared = 0;    // bytes of a block
  std::vector<std::string> nests;  // names of the nests that it computes
};

struct Built {
  std::vector<BuiltKernel> kernels;
  std::vector<HostVariant> host;  // for host_text(): points into the variants' programs and `launches`
  std::deque<DeviceNest> launches;
  std::vector<std::vector<int>> rows;  // per variant, its kernels in the order of HostVariant::rows
  // The oldest driver that does: it has the entry points of CUDA 12.0, for which the runtime asks, and loads the kernels.
  std::string driver = "525.60";
};

// Texts of all kernels and what the host program has to know. The programs have no copy steps (lower_copies).
Built emit(const std::vector<Variant>& variants);
// Finds NVRTC, so that one that is missing is told before anything is compiled, and with it the driver that kernels will want.
// Throws kToolchain Errors.
void prepare(Built& built, const BuildOptions& options = {});
// Their images. Throws kToolchain Errors.
void compile(Built& built, const BuildOptions& options = {});
// A kernel by itself, named after its text and target; its image is missing.
BuiltKernel named(const DeviceKernel& kernel, const GpuTarget& target);
// Images of kernels; for each why it has none, if so. Throws a kToolchain Error where there is no NVRTC.
std::vector<std::optional<Diagnostic>> compile_kernels(const std::vector<BuiltKernel*>& kernels,
                                                       const BuildOptions& options = {});
// The bytes that the artifact carries: stridec_abi_images.
std::string images(const Built& built);

}  // namespace stridec::codegen::cuda
