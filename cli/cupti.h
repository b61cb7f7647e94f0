// Times of kernels by CUPTI, NVIDIA's library for tools, which is loaded when it is asked for. It has the
// times of kernels inside a replay of a recorded graph, where the driver's events do not reach.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stridec::cli {

class Cupti {
 public:
  // To be made before graphs are recorded. Throws Error where the library is not there or refuses to record.
  // One object of a process at a time.
  Cupti();
  ~Cupti();
  Cupti(const Cupti&) = delete;
  Cupti& operator=(const Cupti&) = delete;

  struct Kernel {
    std::string symbol;
    int64_t begin = 0, end = 0;  // nanoseconds of CUPTI's clock
    bool in_graph = false;
  };
  // The kernels that have ended since the last call, in the order in which they began. Waits for those that
  // the GPU has not done.
  std::vector<Kernel> take();

  // Nanoseconds to add to CUPTI's times to get those of CLOCK_MONOTONIC.
  int64_t to_host() const;

 private:
  struct Library;
  void check(int32_t status, const char* what) const;

  Library* library_;
};

}  // namespace stridec::cli
