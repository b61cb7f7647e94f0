// Decides which of the launches that a program marks as concurrent may run at the same time on a GPU.
#pragma once

#include "compiler/codegen/device_kernel.h"

namespace stridec::codegen {

// The launches that run at the same time as the last one. All launches of a context share one workspace, one
// set of counters and one failure slot, so each of these has at most one user in a group.
class LaunchGroup {
 public:
  // Adds the next launch. Returns whether it runs at the same time as the group; if not, it begins a new one.
  // A nest of several kernels begins a new group, because each of them depends on the one before.
  bool add(const DeviceNest& nest, bool concurrent);

 private:
  bool workspace_ = false, counters_ = false, fails_ = false;
};

}  // namespace stridec::codegen
