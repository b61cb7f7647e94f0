// The reference implementations of the runtime library's routines, which the interpreter runs. See
// library.def.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "compiler/base/dtype.h"

namespace stridec::loop {

struct Routine {
  std::string_view name;
  int reads, writes, arguments;
};
const Routine* find_routine(std::string_view name);  // null if there is none

struct RoutineBuffer {
  DType dtype;
  uint8_t* data;
  int64_t elements;
};
void run_routine(const Routine& routine, std::span<const RoutineBuffer> reads,
                 std::span<const RoutineBuffer> writes, const std::vector<int64_t>& arguments);

}  // namespace stridec::loop
