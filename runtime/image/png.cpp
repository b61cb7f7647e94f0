// PNG (W3C recommendation, third edition): every colour type, depth and interlace. Checksums are not
// verified.
#include <zlib.h>

#include "formats.h"

namespace stridec::image {
namespace {

struct Header {
  int64_t width, height;
  int depth, type, interlaced, samples;
};

bool read(Bytes b, Header& h) {
  if (!b.has(0, 33) || b.big32(12) != 0x49484452) return false;  // IHDR
  h.width = b.big32(16), h.height = b.big32(20);
  h.depth = static_cast<int>(b.u8(24)), h.type = static_cast<int>(b.u8(25));
  h.interlaced = static_cast<int>(b.u8(28));
  if (b.u8(26) || b.u8(27) || h.interlaced > 1) return false;
  const bool whole = h.depth == 8 || h.depth == 16, small = h.depth == 1 || h.depth == 2 || h.depth == 4;
  switch (h.type) {
    case 0: h.samples = 1; return whole || small;
    case 2: h.samples = 3; return whole;
    case 3: h.samples = 1; return small || h.depth == 8;
    case 4: h.samples = 2; return whole;
    case 6: h.samples = 4; return whole;
    default: return false;
  }
}

// Inflates the bytes of all IDAT chunks on demand.
class Stream {
 public:
  Stream(Bytes b, int64_t chunk) : bytes_(b), chunk_(chunk) { ok_ = inflateInit(&z_) == Z_OK; }
  ~Stream() { inflateEnd(&z_); }
  bool take(uint8_t* to, int64_t count) {
    if (!ok_) return false;
    z_.next_out = to, z_.avail_out = static_cast<uInt>(count);
    while (z_.avail_out) {
      if (!z_.avail_in && !next_chunk()) return false;
      const int status = inflate(&z_, Z_NO_FLUSH);
      if (status == Z_STREAM_END) return z_.avail_out == 0;
      if (status != Z_OK && !(status == Z_BUF_ERROR && !z_.avail_in)) return false;
    }
    return true;
  }

 private:
  bool next_chunk() {
    if (!bytes_.has(chunk_, 8) || bytes_.big32(chunk_ + 4) != 0x49444154) return false;  // IDAT
    const int64_t count = bytes_.big32(chunk_);
    if (!bytes_.has(chunk_ + 8, count)) return false;
    z_.next_in = const_cast<uint8_t*>(bytes_.data + chunk_ + 8), z_.avail_in = static_cast<uInt>(count);
    chunk_ += count + 12;
    return true;
  }
  Bytes bytes_;
  int64_t chunk_;
  z_stream z_{};
  bool ok_;
};

int distance(int a, int b) { return a < b ? b - a : a - b; }

int paeth(int a, int b, int c) {
  const int p = a + b - c, pa = distance(p, a), pb = distance(p, b), pc = distance(p, c);
  return pa <= pb && pa <= pc ? a : pb <= pc ? b : c;
}

bool unfilter(uint8_t filter, uint8_t* row, const uint8_t* above, int64_t count, int64_t step) {
  if (filter > 4) return false;
  for (int64_t i = 0; i < count; ++i) {
    const int left = i >= step ? row[i - step] : 0, up = above[i], corner = i >= step ? above[i - step] : 0;
    const int add = filter == 1   ? left
                    : filter == 2 ? up
                    : filter == 3 ? (left + up) / 2
                    : filter == 4 ? paeth(left, up, corner)
                                  : 0;
    row[i] = static_cast<uint8_t>(row[i] + add);
  }
  return true;
}

}  // namespace

bool png_is(Bytes b) { return b.has(0, 8) && b.big32(0) == 0x89504e47 && b.big32(4) == 0x0d0a1a0a; }

bool png_size(Bytes b, Size& size) {
  Header h;
  if (!read(b, h)) return false;
  size = {h.height, h.width};
  return true;
}

bool png_decode(Bytes b, Canvas& canvas) {
  Header h;
  if (!read(b, h)) return false;
  int64_t chunk = 33, palette = -1, colors = 0;
  for (; b.has(chunk, 12) && b.big32(chunk + 4) != 0x49444154; chunk += int64_t{b.big32(chunk)} + 12)
    if (b.big32(chunk + 4) == 0x504c5445) palette = chunk + 8, colors = b.big32(chunk) / 3;  // PLTE
  if (h.type == 3 && (palette < 0 || !b.has(palette, 3 * colors))) return false;
  Stream stream(b, chunk);
  const int64_t bits = int64_t{h.samples} * h.depth, step = bits < 8 ? 1 : bits / 8;
  const int64_t longest = (h.width * bits + 7) / 8;
  Block first(longest), second(longest);
  if (!first || !second) return false;
  // Adam7: start and pixel spacing of each pass.
  static constexpr int kPasses[7][4] = {{0, 0, 8, 8}, {0, 4, 8, 8}, {4, 0, 8, 4}, {0, 2, 4, 4},
                                        {2, 0, 4, 2}, {0, 1, 2, 2}, {1, 0, 2, 1}};
  for (int pass = 0; pass < (h.interlaced ? 7 : 1); ++pass) {
    const int64_t top = h.interlaced ? kPasses[pass][0] : 0, left = h.interlaced ? kPasses[pass][1] : 0,
                  down = h.interlaced ? kPasses[pass][2] : 1, right = h.interlaced ? kPasses[pass][3] : 1;
    if (left >= h.width) continue;
    const int64_t count = (h.width - left + right - 1) / right, length = (count * bits + 7) / 8;
    uint8_t *row = first.get(), *above = second.get();
    for (int64_t i = 0; i < length; ++i) above[i] = 0;
    for (int64_t y = top; y < h.height; y += down) {
      uint8_t filter;
      if (!stream.take(&filter, 1) || !stream.take(row, length) ||
          !unfilter(filter, row, above, length, step))
        return false;
      for (int64_t i = 0; i < count; ++i) {
        uint32_t v[3];
        for (int s = 0; s < (h.samples >= 3 ? 3 : 1); ++s) {
          const int64_t bit = i * bits + s * h.depth;
          v[s] = row[bit / 8];  // of 16 bits, the upper 8
          if (h.depth < 8) v[s] = v[s] >> (8 - h.depth - bit % 8) & ((1u << h.depth) - 1);
        }
        const int64_t x = left + i * right;
        if (h.type == 3) {
          if (v[0] >= colors) return false;
          const int64_t at = palette + 3 * static_cast<int64_t>(v[0]);
          canvas.put(y, x, b.u8(at), b.u8(at + 1), b.u8(at + 2));
        } else if (h.samples >= 3) {
          canvas.put(y, x, v[0], v[1], v[2]);
        } else {
          const uint32_t gray = h.depth < 8 ? v[0] * 255 / ((1u << h.depth) - 1) : v[0];
          canvas.put(y, x, gray, gray, gray);
        }
      }
      uint8_t* const used = row;
      row = above, above = used;
    }
  }
  return true;
}

}  // namespace stridec::image
