// Runs the kernels of users in C (loop/user_kernel.h) for the interpreter: compiled for this machine, in a
// process of their own, whose tensors are between guard pages.
#pragma once

#include <span>
#include <vector>

#include "compiler/loop/user_kernel.h"

namespace stridec::codegen::cpu {

struct UserRunOptions {
  bool at_start = false;   // the guard page is before each tensor's first byte; else after its last
  uint8_t fill = 0xa5;     // the bytes of outputs and of scratch memory before the run
  int64_t parts = 1;       // into which a parallel domain is cut, at most one for each point
  int64_t part = -1;       // the only one of these that runs; -1: all
  double max_seconds = 0;  // 0: no limit
};

// Throws Error (kDoesNotFit, "kernel-failed") in words if the kernel touches what is not its own, writes
// between the elements of an output, takes too long or returns what is not 0.
void run_user_kernel(const loop::UserKernel& kernel, std::span<const loop::RoutineBuffer> reads,
                     std::span<const loop::RoutineBuffer> writes, const std::vector<int64_t>& arguments,
                     const UserRunOptions& options = {});

// Throws Error (kMalformed, "bad-operator") with the compiler's messages if the text in C does not compile.
void check_user_kernel(const loop::UserKernel& kernel);

}  // namespace stridec::codegen::cpu
