// Runs one test of the suite in one mode, that is, one way in which a model may be given.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tests/conformance/suite.h"

namespace stridec::conformance {

enum class Mode {
  kInterpreter,  // the model as given, interpreted
  kCompiled,     // the model as given, compiled
  // Every dim of every input is a symbol of its own, except those that a schema requires to be constant (the
  // length of a list of axes is a rank). The result runs at the test's sizes, and at other sizes in
  // comparison with the interpreter.
  kDynamic,
  kConstant,  // every input is an initializer
};
enum class Machine {
  kCpu,
  kGpu,  // this machine's GPU, a Hopper
  kEmulated,  // GPU kernels emulated on the CPU: results only; slow, and not all kernels
};
// Whether tests of kEmulated are also built completely, each kernel by NVRTC and the host program by clang:
// true if NVRTC is available. Loads NVRTC.
bool builds_for_gpus();
struct ModeInfo {
  std::string_view name;
  Mode mode;
  Machine machine = Machine::kCpu;
};
std::span<const ModeInfo> modes();

struct Outcome {
  std::string reason;      // why the test failed; empty: passed
  std::string bound;       // inputs that had to be constants for the test to pass, and why
  std::string one_shape;   // kDynamic: why only the test's sizes ran
  double seconds = 0;      // processor time of the longest compilation
};

struct RunOptions {
  int optimize = 3;               // LLVM optimisation level of kernels, 0 to 3
  size_t kernels_per_object = 1;  // codegen::cpu::BuildOptions
  bool bind_constants = true;     // retry failed tests with small inputs as constants
};

// A test without expected outputs compares compiled code with the interpreter.
Outcome run(const Test& test, const ModeInfo& mode, const RunOptions& options = {});

}  // namespace stridec::conformance
