// Netpbm's P1 to P6: bitmaps, gray and colour, as text and as bytes.
#include "formats.h"

namespace stridec::image {
namespace {

struct Header {
  int kind;
  int64_t width, height, most, pixels;
};

bool is_space(uint32_t c) { return c == ' ' || (c >= 9 && c <= 13); }

// Parses a number after spaces and comments; -1: there is none.
int64_t number(Bytes b, int64_t& at) {
  while (at < b.size && (is_space(b.u8(at)) || b.u8(at) == '#')) {
    if (b.u8(at) == '#')
      while (at < b.size && b.u8(at) != '\n') ++at;
    else
      ++at;
  }
  int64_t value = -1;
  for (; at < b.size && b.u8(at) >= '0' && b.u8(at) <= '9'; ++at) {
    value = (value < 0 ? 0 : value * 10) + b.u8(at) - '0';
    if (value > 1 << 24) return -1;
  }
  return value;
}

bool read(Bytes b, Header& h) {
  int64_t at = 2;
  h.kind = static_cast<int>(b.u8(1) - '0');
  h.width = number(b, at);
  h.height = number(b, at);
  h.most = h.kind == 1 || h.kind == 4 ? 1 : number(b, at);
  if (h.width < 1 || h.height < 1 || h.most < 1 || h.most > 65535 || at >= b.size) return false;
  h.pixels = h.kind >= 4 ? at + 1 : at;  // one space ends the header of binary formats
  return true;
}

}  // namespace

bool pnm_is(Bytes b) {
  return b.has(0, 3) && b.u8(0) == 'P' && b.u8(1) >= '1' && b.u8(1) <= '6' && is_space(b.u8(2));
}

bool pnm_size(Bytes b, Size& size) {
  Header h;
  if (!read(b, h)) return false;
  size = {h.height, h.width};
  return true;
}

bool pnm_decode(Bytes b, Canvas& canvas) {
  Header h;
  if (!read(b, h)) return false;
  const bool text = h.kind <= 3, bits = h.kind == 1 || h.kind == 4, colour = h.kind == 3 || h.kind == 6;
  const int64_t wide = h.most > 255 ? 2 : 1, samples = colour ? 3 : 1;
  const int64_t stride = bits ? (h.width + 7) / 8 : h.width * samples * wide;
  if (!text && !b.has(h.pixels, stride * h.height)) return false;
  int64_t at = h.pixels;
  for (int64_t y = 0; y < h.height; ++y)
    for (int64_t x = 0; x < h.width; ++x) {
      uint32_t value[3];
      for (int64_t s = 0; s < samples; ++s) {
        int64_t v;
        if (h.kind == 1) {  // digits need not be separated
          while (at < b.size && is_space(b.u8(at))) ++at;
          v = at < b.size ? static_cast<int64_t>(b.u8(at++)) - '0' : -1;
        } else if (text) {
          v = number(b, at);
        } else if (bits) {
          v = b.u8(h.pixels + y * stride + x / 8) >> (7 - x % 8) & 1;
        } else {
          const int64_t place = h.pixels + y * stride + (x * samples + s) * wide;
          v = wide == 2 ? b.big16(place) : b.u8(place);
        }
        if (v < 0 || v > h.most) return false;
        if (bits) v = 1 - v;  // 1 is black
        value[s] = static_cast<uint32_t>((v * 255 + h.most / 2) / h.most);
      }
      canvas.put(y, x, value[0], value[colour ? 1 : 0], value[colour ? 2 : 0]);
    }
  return true;
}

}  // namespace stridec::image
