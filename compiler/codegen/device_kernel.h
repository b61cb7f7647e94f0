// The result of GPU code generation for one nest, with the data that the host program needs to launch it.
//
// A kernel's parameters are 8-byte words in the order of KernelText::arguments(): tensor maps first (128
// bytes each), then buffers, sizes, message numbers, and, if used, the failure slot, the workspace and the
// counters.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "compiler/codegen/backend.h"

namespace stridec::codegen {

// A descriptor of a tile for the tensor memory accelerator (TMA). The runtime encodes it at launch and reuses
// it while its pointer and sizes stay the same. Dims are innermost first, as cuTensorMapEncodeTiled and
// ..Im2col require; strides are in bytes, for dims 1 and up.
struct TensorMap {
  loop::BufferId buffer;
  sym::Expr offset = 0;              // bytes from the buffer's start
  DType dtype = DType::kF16;         // element type as the copy treats it
  std::vector<sym::Expr> dims;       // up to 5
  std::vector<sym::Expr> strides;    // one fewer than dims
  std::vector<int> box;              // tiled: elements of a tile per dim; im2col: {channels, pixels}
  std::vector<int> element_strides;  // empty: all 1
  std::vector<int> lower, upper;     // im2col only: corners of the box in the spatial dims
  int swizzle = 0;                   // bytes: 0, 32, 64, 128
  int l2_promotion = 128;            // bytes: 0, 64, 128, 256
};

// The driver's enumerators from cuda.h: CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion.
int driver_dtype(const TensorMap& map);
int driver_swizzle(const TensorMap& map);
int driver_promotion(const TensorMap& map);

struct DeviceKernel {
  Kernel code;  // text, buffers, sizes, messages; tasks, grain and scratch_bytes are unused
  // Grid size in blocks; nothing is launched if one is 0.
  std::array<sym::Expr, 3> grid = {1, 1, 1};
  int threads = 256;           // per block
  int cluster = 1;             // blocks per cluster, along x
  sym::Expr shared_bytes = 0;  // dynamic shared memory per block
  std::vector<TensorMap> maps;
  sym::Expr workspace_bytes = 0;  // private global memory of the launch; contents unspecified
  sym::Expr counter_bytes = 0;    // global memory of zeros, which the launch resets to zeros
  bool fails = false;             // has a failure slot: the parameter before the workspace and the counters
  bool dependent_launch = false;  // starts before its predecessor ends, and waits with griddepcontrol
};

// One implementation of a nest, used if `condition` holds and the buffers in `aligned` are 16-byte aligned.
struct DeviceChoice {
  sym::Expr condition = 1;
  std::vector<loop::BufferId> aligned;
  std::vector<DeviceKernel> launches;  // in order
};

// All implementations, best first; the last one has condition 1 and no alignment requirement.
struct DeviceNest {
  std::vector<DeviceChoice> choices;
  // Whether a further choice could never be used.
  bool is_complete() const {
    return !choices.empty() && choices.back().condition.is_const(1) && choices.back().aligned.empty();
  }
};

}  // namespace stridec::codegen
