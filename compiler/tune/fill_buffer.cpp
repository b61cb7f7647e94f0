#include "compiler/tune/fill_buffer.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "compiler/base/number.h"

namespace stridec::tune {

Memory filled(int64_t bytes, DType dtype, int64_t least, int64_t most) {
  const size_t size = static_cast<size_t>((bytes + 4095) / 4096 * 4096 + 4096);
  Memory memory(static_cast<char*>(std::aligned_alloc(4096, size)));
  if (!memory) return memory;
  const size_t pattern = std::min<size_t>(size, size_t{1} << 20);
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  if (dtype == DType::kF32 || dtype == DType::kTF32) {
    for (size_t i = 0; i + 4 <= pattern; i += 4) {
      const float value = uniform(random);
      std::memcpy(memory.get() + i, &value, 4);
    }
  } else if (dtype == DType::kF64) {
    for (size_t i = 0; i + 8 <= pattern; i += 8) {
      const double value = uniform(random);
      std::memcpy(memory.get() + i, &value, 8);
    }
  } else if (dtype == DType::kF16 || dtype == DType::kBF16) {
    // 1 to 2 in exactly representable steps, with both signs.
    const unsigned one = dtype == DType::kF16 ? 0x3c00 : 0x3f80;
    for (size_t i = 0; i + 2 <= pattern; i += 2) {
      const unsigned bits = random();
      const auto value = static_cast<uint16_t>(one | (bits & 0x8000u) | (bits & 0x7fu));
      std::memcpy(memory.get() + i, &value, 2);
    }
  } else if (is_integer(dtype) && least <= most && (least != 0 || most != 0)) {
    const auto item = static_cast<size_t>(byte_size(dtype));
    std::uniform_int_distribution<int64_t> integers(least, most);
    for (size_t i = 0; i + item <= pattern; i += item)
      write_integer(dtype, integers(random), reinterpret_cast<uint8_t*>(memory.get()) + i);
  } else {
    std::memset(memory.get(), 0, pattern);
  }
  for (size_t at = pattern; at < size; at += pattern)
    std::memcpy(memory.get() + at, memory.get(), std::min(pattern, size - at));
  return memory;
}

}  // namespace stridec::tune
