// The host program of an artifact as text: stridec_program of abi.h, with what runs before and between the
// kernels.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/codegen/backend.h"
#include "compiler/loop/program.h"

namespace stridec::codegen {

// A kernel as a launch names it.
struct LaunchedKernel {
  std::string symbol;
  const Kernel* kernel = nullptr;
};

// A program scheduled for one instruction set. All variants of an artifact have the same inputs, outputs,
// states, symbols and guards; steps and weights' places may differ. Copy steps have become launches.
struct HostVariant {
  std::string cpu;  // CpuTarget::name
  const loop::Program* program = nullptr;
  std::map<loop::NestId, LaunchedKernel> kernels;
  std::map<const loop::Call*, LaunchedKernel> routines;
};

struct HostOptions {
  std::string weights_file;  // "": within the artifact
  uint64_t weights_bytes = 0, weights_hash = 0;
};

// Best variant first. The text stands alone.
std::string host_text(const std::vector<HostVariant>& variants, const HostOptions& options = {});

// A string literal of C.
std::string c_string(std::string_view text);

}  // namespace stridec::codegen
