// The reference implementations of the runtime library's routines, which the interpreter runs. See
// library.def.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "compiler/base/dtype.h"

namespace stridec::loop {

struct RoutineContract {
  std::string_view name;
  int reads, writes, arguments;
};
// Nothing if there is none. Kernels of users are not in the table (user_kernel.h).
std::optional<RoutineContract> find_routine(std::string_view name);

struct RoutineBuffer {
  DType dtype;
  uint8_t* data;
  int64_t elements;
};
void run_routine(const RoutineContract& routine, std::span<const RoutineBuffer> reads,
                 std::span<const RoutineBuffer> writes, const std::vector<int64_t>& arguments);

}  // namespace stridec::loop
