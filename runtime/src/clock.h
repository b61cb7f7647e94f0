#pragma once

#include <stdint.h>
#include <time.h>

namespace stridec::runtime {

inline int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * int64_t{1000000000} + t.tv_nsec;
}

}  // namespace stridec::runtime
