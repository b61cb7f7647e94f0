// One test of the suite, run in one of the ways in which a model may arrive.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tests/conformance/suite.h"

namespace stridec::conformance {

enum class Mode {
  kInterpreter,  // as the file says, on the interpreter
  kCompiled,     // as the file says, compiled
  // Every dim of every input is a symbol of its own, but for those that a schema wants known (the length of a list of
  // axes is a rank). What was compiled runs at the test's sizes, and at others against the interpreter.
  kDynamic,
  kConstant,  // every input is an initializer
};
enum class Machine {
  kCpu,
  kGpu,  // of this machine, a Hopper
  kEmulated,  // the GPU's kernels on the CPU: what has to be seen of them without one, not fast and not all of them
};
// Whether tests of kEmulated are built as a whole as well, every kernel by NVRTC and the host's program by clang: where
// there is an NVRTC. Loads it.
bool builds_for_gpus();
struct ModeInfo {
  std::string_view name;
  Mode mode;
  Machine machine = Machine::kCpu;
};
std::span<const ModeInfo> modes();

struct Outcome {
  std::string reason;      // why it failed; empty: passed
  std::string bound;       // the inputs that had to be given as constants for it to pass, and why
  std::string one_shape;   // kDynamic: why it ran at the test's sizes alone
  double seconds = 0;      // of processor time for the longest of its compilations
};

struct RunOptions {
  int optimize = 3;               // how far LLVM goes with kernels, 0 to 3
  size_t kernels_per_object = 1;  // codegen::cpu::BuildOptions
  bool bind_constants = true;     // what fails is tried again with its small inputs as constants
};

// A test without expected outputs: compiled code is compared with the interpreter.
Outcome run(const Test& test, const ModeInfo& mode, const RunOptions& options = {});

}  // namespace stridec::conformance
