// The library routines that Call steps name: what each one means to every layer, in one table. The rows are
// in library.def.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "compiler/base/dtype.h"

namespace stridec::loop {

struct RoutineBuffer {
  DType dtype;
  uint8_t* data;
  int64_t elements;
};
using RunRoutine = void (*)(std::span<const RoutineBuffer> reads, std::span<const RoutineBuffer> writes,
                            std::span<const int64_t> arguments);

struct LibraryRoutine {
  std::string_view name;
  int reads, writes, arguments;
  RunRoutine run;            // the reference, which the interpreter runs
  bool selects = false;      // the elements of the first result are elements of the first read
  bool reads_image = false;  // the first read is an encoded image
  // The section of NOTICE with the license of the implementation; empty if it has the compiler's own.
  std::string_view part = {};
};
std::span<const LibraryRoutine> library_routines();
// Null if there is none. Kernels of users are not in the table (user_kernel.h).
const LibraryRoutine* find_routine(std::string_view name);

void run_routine(const LibraryRoutine& routine, std::span<const RoutineBuffer> reads,
                 std::span<const RoutineBuffer> writes, const std::vector<int64_t>& arguments);

}  // namespace stridec::loop
