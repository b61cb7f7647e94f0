// From scheduled programs to objects: the kernels of every variant, each text once, and the host program.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "compiler/base/target.h"
#include "compiler/codegen/backend.h"
#include "compiler/codegen/cpu/dispatch.h"
#include "compiler/codegen/host.h"
#include "compiler/loop/program.h"
#include "compiler/schedule/heuristics/choose.h"
#include "compiler/schedule/memory/memory_plan.h"

namespace stridec::codegen::cpu {

// The program as it is scheduled for one instruction set; nests without directives are compiled by the
// general emitter's defaults. Weights and memory are planned.
struct Variant {
  CpuTarget target;
  loop::Program program;
  schedule::Chosen chosen = {};  // schedules that replace the default ones
  sym::Expr when = 1;            // over symbols of the inputs: the sizes that the program is for
  // By emit(): keys point into the program's steps.
  std::map<schedule::LaunchKey, Kernel> kernels;
  std::vector<schedule::Scratch> scratch;  // one for each kernel, in the order of the steps
};

struct BuildOptions {
  int threads = 0;        // compilations at the same time; 0: as many as there are processors
  bool use_cache = true;  // objects of kernels, in $STRIDEC_CACHE/kernels (default ~/.cache/stridec)
  int64_t cache_bytes = 256 << 20;  // the oldest objects go when there are more
  int optimize = 3;                 // kernels; the host program no further than 1
  // More than one: what many small kernels have in common is compiled once for several, in about half the time without
  // optimisation; each object is then that of the list's next kernels too, whose own are empty. For tests that run the code
  // in this process: artifacts and the tuner want every kernel by itself, equal whatever stands beside it.
  size_t kernels_per_object = 1;
  // Before the text of every kernel: what stands in for instructions that a test's machine lacks.
  std::string prelude;
  HostOptions host;
  std::vector<HostVariant> devices;  // of other backends, which the runtime tries first
  std::function<void(size_t done, size_t total)> progress;  // may be empty; called from any thread
};

struct BuiltKernel {
  std::string symbol;
  std::string cpu, tune;  // CpuTarget::name and ::tune
  std::string text;       // as compiled, but for the ABI's header
  std::string object;
  std::vector<std::string> nests;  // names of the nests that it computes
};

struct Built {
  std::vector<BuiltKernel> kernels;
  std::string host_text, host_object;
  // Per variant and nest (by NestId) the kernel and its launch; index -1 where a nest is not launched.
  struct Launch {
    int kernel = -1;
    Kernel launch;
  };
  std::vector<std::vector<Launch>> launches;
};

// The texts of the variant's kernels and what they need for themselves; memory is planned afterwards. The
// program has no copy steps (lower_copies).
void emit(Variant& variant);

// The texts of all kernels, equal ones once, and of the host program; objects are empty. The variants are emitted, and their
// memory and weights are planned; the best variant comes first.
Built assemble(const std::vector<Variant>& variants, const BuildOptions& options = {});
// Compiles the texts. Throws kToolchain Errors.
void compile(Built& built, const BuildOptions& options = {});
// assemble(), then compile().
Built build(const std::vector<Variant>& variants, const BuildOptions& options = {});

// Kernels alone, with what they call. A text that does not compile has an error instead of an object.
struct KernelObjects {
  std::vector<BuiltKernel> kernels;
  std::vector<std::string> errors;     // of kernels, "": none
  std::vector<std::vector<int>> uses;  // of each given kernel: its own text, then what it calls
};
KernelObjects build_kernels(const std::vector<Kernel>& kernels, const CpuTarget& target,
                            const BuildOptions& options = {});

// Compiles and runs Program::prepack in this process: the prepacked weights' bytes are there afterwards.
void run_prepack(loop::Program& program, const CpuTarget& target, const BuildOptions& options = {});

}  // namespace stridec::codegen::cpu
