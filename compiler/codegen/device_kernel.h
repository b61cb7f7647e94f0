// What a GPU backend makes out of a nest, and what the host program needs in order to launch it.
//
// A kernel's parameters are 8-byte words in the order of KernelText::arguments(): tensor maps first (128 bytes
// each), then buffers, sizes, numbers of messages, and, where it has them, the failure slot, the workspace and
// the counters.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "compiler/codegen/backend.h"

namespace stridec::codegen {

// A tile descriptor of the tensor memory accelerator, encoded by the runtime when the kernel is launched and kept
// while its pointer and sizes stay the same. Dims are innermost first, as cuTensorMapEncodeTiled and ..Im2col
// want them; strides are in bytes, of dims 1 and up.
struct TensorMap {
  loop::BufferId buffer;
  sym::Expr offset = 0;              // bytes from the buffer's start
  DType dtype = DType::kF16;         // of the elements as the copy sees them
  std::vector<sym::Expr> dims;       // up to 5
  std::vector<sym::Expr> strides;    // one less
  std::vector<int> box;              // tiled: elements of a tile per dim; im2col: {channels, pixels}
  std::vector<int> element_strides;  // 1 where empty
  std::vector<int> lower, upper;     // im2col alone: corners of the box in the spatial dims
  int swizzle = 0;                   // bytes: 0, 32, 64, 128
  int l2_promotion = 128;            // bytes: 0, 64, 128, 256
};

// The driver's words for it, of cuda.h: CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion.
int driver_dtype(const TensorMap& map);
int driver_swizzle(const TensorMap& map);
int driver_promotion(const TensorMap& map);

struct DeviceKernel {
  Kernel code;  // text, buffers, sizes, messages; tasks, grain and scratch_bytes mean nothing here
  std::array<sym::Expr, 3> grid = {1, 1, 1};  // blocks; none of them if one is 0
  int threads = 256;                          // of a block
  int cluster = 1;                            // blocks of a cluster, along x
  sym::Expr shared_bytes = 0;                 // dynamic shared memory of a block
  std::vector<TensorMap> maps;
  sym::Expr workspace_bytes = 0;  // private global memory of the launch; contents unspecified
  sym::Expr counter_bytes = 0;    // global memory of zeros, which the launch leaves as zeros
  bool fails = false;             // has a failure slot: the parameter before these two
  bool dependent_launch = false;  // starts before its predecessor ends, and waits with griddepcontrol
};

// One way to do a nest: taken where `condition` holds and the buffers lie on multiples of 16 bytes.
struct DeviceChoice {
  sym::Expr condition = 1;
  std::vector<loop::BufferId> aligned;
  std::vector<DeviceKernel> launches;  // one after the other
};

// All ways, the best first; the last one's condition is 1 and it asks for no alignment.
struct DeviceNest {
  std::vector<DeviceChoice> choices;
  // Whether a choice after these would never be taken.
  bool is_complete() const {
    return !choices.empty() && choices.back().condition.is_const(1) && choices.back().aligned.empty();
  }
};

}  // namespace stridec::codegen
