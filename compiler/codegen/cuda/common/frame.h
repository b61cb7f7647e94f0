// The common frame of CUDA kernels: parameters, prelude and launch bounds.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "compiler/codegen/body.h"
#include "compiler/codegen/device_kernel.h"
#include "compiler/codegen/emit_text.h"

namespace stridec::codegen::cuda {

struct Geometry {
  std::array<sym::Expr, 3> grid = {1, 1, 1};
  int threads = 256;
  int blocks_sm = 0;  // for __launch_bounds__; 0: the compiler's choice
  int cluster = 1;
  sym::Expr shared_bytes = 0;
  std::vector<TensorMap> maps;  // parameters map0, map1, ... of type TensorMap (128 bytes, __grid_constant__)
  sym::Expr workspace_bytes = 0;  // adds a parameter char* workspace
  // Number of zero-initialised unsigned counters, parameter `counters`; the kernel resets them to zero.
  sym::Expr counters = 0;
  // KernelText::scratch is allocated in the workspace after workspace_bytes, once per owner; scratch_owner is
  // the owner's number. The plan says how many bytes an owner needs, and the text needs exactly these.
  sym::Expr scratch_bytes = 0;
  sym::Expr scratch_owners = 0;
  std::string scratch_owner = {};
  bool dependent_launch = false;  // the statements wait for the predecessor themselves
  bool waits = false;             // dependent launch that waits first
};

// Finishes the kernel. The statements may use the parameters p0.., s0.., m0.., map0.., failures, workspace
// and counters. `declarations` precede the kernel: shared types, device functions of a template.
DeviceKernel finish(KernelText& text, Geometry geometry, const std::string& declarations = {});

// Lets the next kernel start, and waits until the writes of the preceding kernels are visible. `ahead`, which
// must not load what they write, runs before the wait. Empty under emulation.
std::string wait_text(const std::string& ahead = {});

// Declares `name`, the dynamic shared memory of the launch (Geometry::shared_bytes), at most `most` bytes.
std::string dynamic_shared(std::string_view name, int64_t most, int alignment);

// Device functions arrive() and comes_last(), by which blocks count each other in Geometry::counters.
std::string_view arrive_declarations();

// Declares the dims' indices from the variable `rest`, a point's row-major number; the remaining quotient is
// the first dim's index.
void print_indices(KernelText& text, Body& body, const std::vector<loop::Dim>& dims);
void print_indices(KernelText& text, std::span<Body* const> bodies, const std::vector<loop::Dim>& dims);

// Whether the caller provides the buffer: it may then begin at any address, while buffers placed by memory
// planning begin at multiples of 64 bytes.
bool is_callers(const loop::Program& program, loop::BufferId id);

// A nest computed by a single kernel for all sizes.
DeviceNest only(DeviceKernel kernel);

}  // namespace stridec::codegen::cuda
