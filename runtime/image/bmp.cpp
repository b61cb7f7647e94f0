// Windows bitmaps without run-length encoding: 1, 4 and 8 bits with a palette, 16, 24 and 32 bits
// (BITMAPINFOHEADER and later).
#include "formats.h"

namespace stridec::image {
namespace {

struct Header {
  int64_t pixels, info, bits, colors, width, height;
  bool upward;
  uint32_t masks[3];
};

bool read(Bytes b, Header& h) {
  if (!b.has(0, 54)) return false;
  h.pixels = b.little32(10);
  h.info = b.little32(14);
  const auto height = static_cast<int32_t>(b.little32(22));
  h.width = static_cast<int32_t>(b.little32(18));
  h.upward = height > 0;
  h.height = height < 0 ? -static_cast<int64_t>(height) : height;
  h.bits = b.little16(28);
  const uint32_t compression = b.little32(30);
  h.colors = b.little32(46) ? b.little32(46) : int64_t{1} << (h.bits <= 8 ? h.bits : 0);
  if (h.info < 40 || h.colors > 256) return false;
  if (compression != 0 && !(compression == 3 && (h.bits == 16 || h.bits == 32))) return false;
  if (compression == 3) {
    for (int i = 0; i < 3; ++i) h.masks[i] = b.little32(54 + 4 * i);
  } else if (h.bits == 16) {
    h.masks[0] = 0x7c00, h.masks[1] = 0x3e0, h.masks[2] = 0x1f;
  } else {
    h.masks[0] = 0xff0000, h.masks[1] = 0xff00, h.masks[2] = 0xff;
  }
  return h.bits == 1 || h.bits == 4 || h.bits == 8 || h.bits == 16 || h.bits == 24 || h.bits == 32;
}

// The bits under the mask, scaled to eight bits.
uint32_t channel(uint32_t pixel, uint32_t mask) {
  if (!mask) return 0;
  const int shift = __builtin_ctz(mask);
  const uint32_t most = mask >> shift;
  return static_cast<uint32_t>((uint64_t{(pixel & mask) >> shift} * 255 + most / 2) / most);
}

}  // namespace

bool bmp_is(Bytes b) { return b.has(0, 2) && b.u8(0) == 'B' && b.u8(1) == 'M'; }

bool bmp_size(Bytes b, Size& size) {
  Header h;
  if (!read(b, h)) return false;
  size = {h.height, h.width};
  return true;
}

bool bmp_decode(Bytes b, Canvas& canvas) {
  Header h;
  if (!read(b, h)) return false;
  const int64_t stride = (h.width * h.bits + 31) / 32 * 4;
  if (!b.has(h.pixels, stride * h.height)) return false;
  const int64_t palette = 14 + h.info;
  for (int64_t row = 0; row < h.height; ++row) {
    const int64_t y = h.upward ? h.height - 1 - row : row, from = h.pixels + row * stride;
    for (int64_t x = 0; x < h.width; ++x) {
      if (h.bits <= 8) {
        const int64_t bit = x * h.bits;
        const uint32_t index = b.u8(from + bit / 8) >> (8 - h.bits - bit % 8) & ((1u << h.bits) - 1);
        if (index >= h.colors) return false;
        const int64_t at = palette + 4 * index;
        canvas.put(y, x, b.u8(at + 2), b.u8(at + 1), b.u8(at));
      } else if (h.bits == 24) {
        const int64_t at = from + 3 * x;
        canvas.put(y, x, b.u8(at + 2), b.u8(at + 1), b.u8(at));
      } else {
        const uint32_t pixel = h.bits == 16 ? b.little16(from + 2 * x) : b.little32(from + 4 * x);
        canvas.put(y, x, channel(pixel, h.masks[0]), channel(pixel, h.masks[1]), channel(pixel, h.masks[2]));
      }
    }
  }
  return true;
}

}  // namespace stridec::image
