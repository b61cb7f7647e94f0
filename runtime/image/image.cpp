#include "image.h"

#include "formats.h"

namespace stridec::image {
namespace {

struct Format {
  bool (*is)(Bytes);
  bool (*size)(Bytes, Size&);
  bool (*decode)(Bytes, Canvas&);
};

constexpr Format kFormats[] = {
    {png_is, png_size, png_decode},    {bmp_is, bmp_size, bmp_decode},
    {pnm_is, pnm_size, pnm_decode},    {tiff_is, tiff_size, tiff_decode},
#ifdef STRIDEC_IMAGE_CODECS
    {jpeg_is, jpeg_size, jpeg_decode}, {jpeg2000_is, jpeg2000_size, jpeg2000_decode},
    {webp_is, webp_size, webp_decode},
#endif
};

constexpr int64_t kMostPerDim = 65535, kMostPixels = int64_t{1} << 27;

const Format* find(Bytes bytes) {
  for (const Format& format : kFormats)
    if (format.is(bytes)) return &format;
  return nullptr;
}

bool size_of(const Format* format, Bytes bytes, Size& size) {
  return format && format->size(bytes, size) && size.height > 0 && size.width > 0 &&
         size.height <= kMostPerDim && size.width <= kMostPerDim && size.height * size.width <= kMostPixels;
}

// The jump target for a codec that wants to end the process.
thread_local void** way_out = nullptr;

bool decode(Bytes bytes, Canvas& canvas) {
  const Format* format = find(bytes);
  Size found{};
  return size_of(format, bytes, found) && found == canvas.size && format->decode(bytes, canvas);
}

// The frame must not contain anything that a jump would skip.
template <class Work>
__attribute__((noinline)) bool survives(Work&& work) {
  void* here[5];
  if (__builtin_setjmp(here)) {
    way_out = nullptr;
    return false;
  }
  way_out = here;
  const bool ok = work();
  way_out = nullptr;
  return ok;
}

}  // namespace

void give_up() {
  if (way_out) __builtin_longjmp(way_out, 1);
  abort();
}

}  // namespace stridec::image

int32_t stridec_image_size(const uint8_t* data, int64_t count, int64_t size[2]) {
  using namespace stridec::image;
  const Bytes bytes{data, count};
  Size found{};
  const bool ok = survives([&] { return size_of(find(bytes), bytes, found); });
  size[0] = ok ? found.height : -1;
  size[1] = ok ? found.width : -1;
  return ok ? 0 : 1;
}

int32_t stridec_image_decode(const uint8_t* data, int64_t count, int64_t height, int64_t width,
                             int32_t format, uint8_t* pixels) {
  using namespace stridec::image;
  Canvas canvas{{height, width}, format, pixels};
  return survives([&] { return decode({data, count}, canvas); }) ? 0 : 1;
}
