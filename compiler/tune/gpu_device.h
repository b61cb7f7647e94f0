// The GPU that an artifact runs on, for `bench`: inputs that lie there, a clock, and what the device can do at most.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "compiler/base/gpu_target.h"

namespace stridec::tune {

class GpuDevice {
 public:
  // As CUDA numbers it. Throws Error (kUsage) with the driver's sentence.
  explicit GpuDevice(int32_t id);
  ~GpuDevice();
  GpuDevice(const GpuDevice&) = delete;

  const std::string& name() const;
  // Memory of the device with this in it, until the device is gone.
  void* copy(const void* from, size_t bytes);

  // Seconds, by events around it, of what `enqueue` puts into the default stream. The stream starts when all of that is
  // there, so that the host's part does not count; where it waits for the device meanwhile the stream starts after a
  // moment all the same.
  double time(const std::function<void()>& enqueue);

  // At most: bytes a second read and written by a large copy, measured; flops a second at the clock that the driver
  // names as the highest, of 16-bit products of tensor cores and of f32 multiply-adds beside them.
  struct Peaks {
    double memory = 0, tensor = 0, scalar = 0;
    // Of the kernel that a schedule's text names.
    double flops_of(std::string_view schedule) const;
  };
  Peaks measure_peaks(const GpuTarget& target);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace stridec::tune
