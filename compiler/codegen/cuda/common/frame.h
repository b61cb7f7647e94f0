// The frame of every CUDA kernel: parameters, prelude, launch bounds.
#pragma once

#include <string>
#include <string_view>

#include "compiler/codegen/body.h"
#include "compiler/codegen/device_kernel.h"
#include "compiler/codegen/emit_text.h"

namespace stridec::codegen::cuda {

struct Geometry {
  std::array<sym::Expr, 3> grid = {1, 1, 1};
  int threads = 256;
  int blocks_sm = 0;  // of __launch_bounds__; 0: the compiler's choice
  int cluster = 1;
  sym::Expr shared_bytes = 0;
  std::vector<TensorMap> maps;  // parameters map0, map1, ... of type TensorMap (128 bytes, __grid_constant__)
  sym::Expr workspace_bytes = 0;  // a parameter char* workspace
  sym::Expr counters = 0;  // a parameter unsigned* counters: so many zeros, which the kernel leaves zero
  // KernelText::scratch is cut out of the workspace, behind workspace_bytes, for so many owners; the owner's number.
  sym::Expr scratch_owners = 0;
  std::string scratch_owner = {};
  bool dependent_launch = false;  // the statements wait for the predecessor by themselves
  bool waits = false;             // dependent launch that waits before all else
};

// The finished kernel. In the statements the parameters p0.., s0.., m0.., map0.., failures, workspace and counters are in
// scope.
// `declarations` go before the kernel: shared types, device functions of a template.
DeviceKernel finish(KernelText& text, Geometry geometry, const std::string& declarations = {});

// Lets the kernel behind this one start, and waits until what the kernels in front wrote is there; `ahead`, which loads none
// of that, is done meanwhile. Emulated, it is nothing.
std::string wait_text(const std::string& ahead = {});

// Declares `name`, the shared memory that the launch asks for (Geometry::shared_bytes), `most` bytes at most.
std::string dynamic_shared(std::string_view name, int64_t most, int alignment);

// Device functions of blocks that count each other in Geometry::counters: arrive() and comes_last().
std::string_view arrive_declarations();

// The dims' indices out of the variable `rest`, a point's number with the last dim fastest; what is left in it is the first's.
void print_indices(KernelText& text, Body& body, const std::vector<loop::Dim>& dims);

// The caller's tensors need not lie on multiples of 16 bytes; what memory planning places lies on multiples of 64.
bool is_callers(const loop::Program& program, loop::BufferId id);

// A nest that is done by one kernel, whatever the sizes.
DeviceNest only(DeviceKernel kernel);

}  // namespace stridec::codegen::cuda
