// WebP by libwebp, lossy and lossless, the first frame.
#include <webp/decode.h>

#include "formats.h"

namespace stridec::image {

bool webp_is(Bytes b) { return b.has(0, 12) && b.big32(0) == 0x52494646 && b.big32(8) == 0x57454250; }

bool webp_size(Bytes b, Size& size) {
  int width = 0, height = 0;
  if (!WebPGetInfo(b.data, static_cast<size_t>(b.size), &width, &height)) return false;
  size = {height, width};
  return true;
}

bool webp_decode(Bytes b, Canvas& canvas) {
  const int64_t stride = canvas.size.width * 3, total = stride * canvas.size.height;
  Block pixels(total);
  if (!pixels || !WebPDecodeRGBInto(b.data, static_cast<size_t>(b.size), pixels.get(),
                                    static_cast<size_t>(total), static_cast<int>(stride)))
    return false;
  for (int64_t y = 0; y < canvas.size.height; ++y)
    for (int64_t x = 0; x < canvas.size.width; ++x) {
      const uint8_t* const p = pixels.get() + y * stride + 3 * x;
      canvas.put(y, x, p[0], p[1], p[2]);
    }
  return true;
}

}  // namespace stridec::image
