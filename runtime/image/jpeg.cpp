// JPEG by libjpeg-turbo, with its most accurate transform. Errors leave the library through the compiler's
// built-in setjmp, so that libc's is not needed.
#include <stddef.h>
#include <stdio.h>

#include <jpeglib.h>

#include "formats.h"

namespace stridec::image {
namespace {

struct Decoder {
  jpeg_decompress_struct info;
  jpeg_error_mgr errors;
  void* back[5];
};

void jump_back(j_common_ptr info) {
  Decoder* const d = static_cast<Decoder*>(info->client_data);
  __builtin_longjmp(d->back, 1);
}
void be_quiet(j_common_ptr) {}
void count_warning(j_common_ptr info, int level) {
  if (level < 0) ++info->err->num_warnings;
}

void begin(Decoder& d, Bytes b) {
  d.info.err = jpeg_std_error(&d.errors);
  d.errors.error_exit = jump_back;
  d.errors.output_message = be_quiet;
  d.errors.emit_message = count_warning;
  d.info.client_data = &d;
  jpeg_create_decompress(&d.info);
  d.info.mem->max_memory_to_use = 1 << 30;
  jpeg_mem_src(&d.info, b.data, static_cast<unsigned long>(b.size));
  jpeg_read_header(&d.info, TRUE);
}

bool read_size(Decoder& d, Bytes b, Size& size) {
  if (__builtin_setjmp(d.back)) return false;
  begin(d, b);
  size = {d.info.image_height, d.info.image_width};
  return true;
}

bool read_pixels(Decoder& d, Bytes b, Canvas& canvas, uint8_t* row) {
  if (__builtin_setjmp(d.back)) return false;
  begin(d, b);
  const bool ink = d.info.jpeg_color_space == JCS_CMYK || d.info.jpeg_color_space == JCS_YCCK;
  d.info.out_color_space = ink ? JCS_CMYK : JCS_RGB;
  d.info.dct_method = JDCT_ISLOW;
  jpeg_start_decompress(&d.info);
  const bool inverted = d.info.saw_Adobe_marker;
  while (d.info.output_scanline < d.info.output_height) {
    const int64_t y = d.info.output_scanline;
    if (jpeg_read_scanlines(&d.info, &row, 1) != 1) return false;
    for (int64_t x = 0; x < canvas.size.width; ++x) {
      const uint8_t* const p = row + x * (ink ? 4 : 3);
      if (!ink) {
        canvas.put(y, x, p[0], p[1], p[2]);
        continue;
      }
      const auto light = [&](int i) -> uint32_t { return inverted ? p[i] : 255 - p[i]; };
      canvas.put(y, x, light(0) * light(3) / 255, light(1) * light(3) / 255, light(2) * light(3) / 255);
    }
  }
  // Missing data decode as gray, with a warning.
  return d.errors.num_warnings == 0;
}

}  // namespace

bool jpeg_is(Bytes b) { return b.has(0, 3) && b.u8(0) == 0xff && b.u8(1) == 0xd8 && b.u8(2) == 0xff; }

bool jpeg_size(Bytes b, Size& size) {
  Decoder d{};
  const bool ok = read_size(d, b, size);
  jpeg_destroy_decompress(&d.info);
  return ok;
}

bool jpeg_decode(Bytes b, Canvas& canvas) {
  Block row(canvas.size.width * 4);
  if (!row) return false;
  Decoder d{};
  const bool ok = read_pixels(d, b, canvas, row.get());
  jpeg_destroy_decompress(&d.info);
  return ok;
}

}  // namespace stridec::image
