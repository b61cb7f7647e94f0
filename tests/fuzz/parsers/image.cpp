// Encoded images: what has a size has pixels of that size, or is damaged.
#include <vector>

#include "runtime/image/image.h"
#include "tests/fuzz/parsers/target.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  int64_t found[2];
  const auto count = static_cast<int64_t>(size);
  if (stridec_image_size(data, count, found) != 0) return 0;
  if (found[0] * found[1] > 1 << 20) return 0;  // as much work as it says
  for (const int32_t format : {STRIDEC_IMAGE_BGR, STRIDEC_IMAGE_GRAYSCALE}) {
    std::vector<uint8_t> pixels(
        static_cast<size_t>(found[0] * found[1] * (format == STRIDEC_IMAGE_GRAYSCALE ? 1 : 3)));
    stridec_image_decode(data, count, found[0], found[1], format, pixels.data());
  }
  return 0;
}
