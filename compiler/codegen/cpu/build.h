// Builds scheduled programs into objects: the kernels of all variants, each text once, and the host program.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compiler/base/target.h"
#include "compiler/codegen/backend.h"
#include "compiler/codegen/cpu/dispatch.h"
#include "compiler/codegen/host.h"
#include "compiler/loop/program.h"
#include "compiler/schedule/heuristics/choose.h"
#include "compiler/schedule/memory/memory_plan.h"

namespace stridec::codegen::cpu {

// A program scheduled for one instruction set, with weights and memory planned. Nests without directives use
// the general emitter's defaults. Keys of launches point into the program's steps.
struct Variant {
  CpuTarget target;
  loop::Program program;
  schedule::Chosen chosen = {};  // schedules that replace the default ones
  sym::Expr when = 1;            // over symbols of the inputs: the sizes that the program is for
  std::vector<schedule::Scratch> scratch = {};  // by scratch_of(), then placed by schedule::plan_memory()
  std::map<schedule::LaunchKey, Kernel> kernels = {};  // by emit()
};

struct BuildOptions {
  int threads = 0;        // parallel compilations; 0: one per processor
  bool use_cache = true;  // cache kernel objects in $STRIDEC_CACHE/kernels (default ~/.cache/stridec)
  int64_t cache_bytes = 256 << 20;  // the least recently used objects are evicted beyond this size
  int optimize = 3;                 // level for kernels; the host program uses at most 1
  bool lines = false;               // kernels have tables of lines of source_file()
  // If greater than 1, an object holds several consecutive kernels of the list; their common preamble is
  // compiled once, which halves the time without optimisation. The object belongs to the first of them; the
  // others' objects are empty. For tests that run the code in this process: artifacts and the tuner need
  // every kernel separately, independent of its neighbours.
  size_t kernels_per_object = 1;
  // Nests of Program::prepack that run at most so many statements are interpreted, all others compiled.
  double interpreted_statements = 0;
  // Text inserted before every kernel: emulations of instructions that a test's machine lacks.
  std::string prelude;
  HostOptions host;
  // derive.h: of the programs of variants and devices that have derived parameters.
  std::map<const loop::Program*, const Variant*> derivations;
  std::function<void(size_t done, size_t total)> progress;  // may be empty; called from any thread
};

struct BuiltKernel {
  std::string symbol;
  std::string cpu, tune;  // CpuTarget::name and ::tune
  std::string text;       // as compiled, but without the ABI's header
  std::string object;
  std::vector<std::string> nests;  // names of the nests that it computes
  bool c = false;                  // the text is C, not C++
};

struct Built {
  std::vector<BuiltKernel> kernels;
  std::string host_text, host_object;
  // Per variant (of all functions, in order) and nest (by NestId): the kernel and its launch. The index is -1
  // if the nest is not launched.
  struct Launch {
    int kernel = -1;
    Kernel launch;
  };
  std::vector<std::vector<Launch>> launches;
};

// The private memory that the kernels' threads need, from the schedules alone: one entry for each kernel, in
// the order of the steps. The program must have no copy steps (lower_copies).
std::vector<schedule::Scratch> scratch_of(const loop::Program& program, const CpuTarget& target);
// Emits the kernels of Variant::scratch. Each needs exactly the scratch that its entry says.
std::map<schedule::LaunchKey, Kernel> emit(const Variant& variant);

// A function: its variants, best first, emitted, with memory and weights planned.
struct FunctionVariants {
  const std::vector<Variant>& cpu;
  std::vector<HostVariant> devices = {};  // of other backends, which the runtime tries first
};

// Collects the texts of all kernels, equal ones once, and of the host program; objects stay empty.
// `tables`: the kernels that the variants of other backends launch.
Built assemble(const std::vector<FunctionVariants>& functions, const std::vector<DeviceTable>& tables,
               const BuildOptions& options = {});
// Compiles the texts. Throws kToolchain Errors.
void compile(Built& built, const BuildOptions& options = {});
// assemble(), then compile(), of one function.
Built build(const std::vector<Variant>& variants, const BuildOptions& options = {});

// What the kernel's object is compiled from, by the name of the file in its tables of lines.
std::pair<std::string, std::string> source_file(const BuiltKernel& kernel);

// Kernels without a host program, with the supporting units they call. A kernel that does not compile has an
// error instead of an object.
struct KernelObjects {
  std::vector<BuiltKernel> kernels;
  std::vector<std::string> errors;  // by kernel; "": none
  // Per given kernel: the index of its own text, then those of its supporting units.
  std::vector<std::vector<int>> uses;
};
KernelObjects build_kernels(const std::vector<Kernel>& kernels, const CpuTarget& target,
                            const BuildOptions& options = {});

// Runs Program::prepack in this process, compiled or interpreted, which sets the bytes of prepacked weights.
void run_prepack(loop::Program& program, const CpuTarget& target, const BuildOptions& options = {});

}  // namespace stridec::codegen::cpu
