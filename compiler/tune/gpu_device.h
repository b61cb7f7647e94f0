// The GPU that `bench` runs an artifact on: device buffers, a clock, and peak rates.
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
  // `id`: in CUDA's numbering. Throws Error (kUsage) with the driver's message.
  explicit GpuDevice(int32_t id);
  ~GpuDevice();
  GpuDevice(const GpuDevice&) = delete;

  const std::string& name() const;
  // Allocates device memory with these contents, which lives as long as this object.
  void* copy(const void* from, size_t bytes);

  // The seconds, between two events, that the device needs for what `enqueue` adds to the default stream. The
  // stream starts when everything has been enqueued, so host time does not count. If the host waits for the
  // device meanwhile, the stream starts after a short time anyway.
  double time(const std::function<void()>& enqueue);

  // Peak rates. Bytes per second, read plus written, measured by a large copy. Flops per second at the
  // maximum clock that the driver reports: 16-bit tensor-core GEMM, and f32 multiply-adds.
  struct Peaks {
    double memory = 0, tensor = 0, scalar = 0;
    // For the kernel that the schedule's text names.
    double flops_of(std::string_view schedule) const;
  };
  Peaks measure_peaks(const GpuTarget& target);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace stridec::tune
