// Common code of the image decoders. Each format has two functions: `*_size` reads the header, and `*_decode`
// fills a canvas of the size in the header. They return false for input that they do not support, whatever
// the bytes are.
#pragma once

#include <stdint.h>
#include <stdlib.h>

namespace stridec::image {

struct Bytes {
  const uint8_t* data;
  int64_t size;

  bool has(int64_t at, int64_t count) const {
    return at >= 0 && count >= 0 && count <= size && at <= size - count;
  }
  // Returns 0 past the end. Decoders check the ranges that they rely on.
  uint32_t u8(int64_t at) const { return at >= 0 && at < size ? data[at] : 0; }
  uint32_t big16(int64_t at) const { return u8(at) << 8 | u8(at + 1); }
  uint32_t big32(int64_t at) const { return big16(at) << 16 | big16(at + 2); }
  uint32_t little16(int64_t at) const { return u8(at + 1) << 8 | u8(at); }
  uint32_t little32(int64_t at) const { return little16(at + 2) << 16 | little16(at); }
  Bytes from(int64_t at, int64_t count) const { return {data + at, count}; }  // requires has(at, count)
};

struct Size {
  int64_t height, width;
  bool operator==(const Size&) const = default;
};

struct Canvas {
  Size size;
  int32_t format;
  uint8_t* pixels;

  void put(int64_t y, int64_t x, uint32_t red, uint32_t green, uint32_t blue) {
    const int64_t at = y * size.width + x;
    if (format == 2) {
      // ITU-R 601-2 luma with 16 fractional bits, as in Pillow.
      pixels[at] = static_cast<uint8_t>((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16);
      return;
    }
    uint8_t* to = pixels + 3 * at;
    to[format == 0 ? 0 : 2] = static_cast<uint8_t>(red);
    to[1] = static_cast<uint8_t>(green);
    to[format == 0 ? 2 : 0] = static_cast<uint8_t>(blue);
  }
};

// A malloc buffer that frees itself; null: out of memory.
class Block {
 public:
  explicit Block(int64_t size)
      : bytes_(static_cast<uint8_t*>(calloc(size > 0 ? static_cast<size_t>(size) : 1, 1))) {}
  ~Block() { free(bytes_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  explicit operator bool() const { return bytes_ != nullptr; }
  uint8_t* get() const { return bytes_; }
  uint8_t& operator[](int64_t i) const { return bytes_[i]; }

 private:
  uint8_t* bytes_;
};

// Aborts the decoding on this thread: an assertion of a codec failed for these bytes.
[[noreturn]] void give_up();

#define STRIDEC_IMAGE_FORMAT(name)           \
  bool name##_is(Bytes bytes);               \
  bool name##_size(Bytes bytes, Size& size); \
  bool name##_decode(Bytes bytes, Canvas& canvas);
STRIDEC_IMAGE_FORMAT(bmp)
STRIDEC_IMAGE_FORMAT(pnm)
STRIDEC_IMAGE_FORMAT(png)
STRIDEC_IMAGE_FORMAT(tiff)
#ifdef STRIDEC_IMAGE_CODECS
STRIDEC_IMAGE_FORMAT(jpeg)
STRIDEC_IMAGE_FORMAT(jpeg2000)
STRIDEC_IMAGE_FORMAT(webp)
#endif
#undef STRIDEC_IMAGE_FORMAT

}  // namespace stridec::image
