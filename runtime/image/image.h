// Decodes images to pixels: JPEG, PNG, BMP, TIFF, WebP, JPEG 2000, PNM. Plain C, stateless, thread-safe. The
// compiler links it for its interpreter; an artifact gets it as one object if a model decodes images.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { STRIDEC_IMAGE_RGB = 0, STRIDEC_IMAGE_BGR = 1, STRIDEC_IMAGE_GRAYSCALE = 2 };

// Sets size[0] and size[1] to height and width: at most 65535 each and 2^27 pixels in total. Returns nonzero
// and sets both to -1 if the bytes are not an image, or an unsupported kind of image.
int32_t stridec_image_size(const uint8_t* bytes, int64_t count, int64_t size[2]);

// Writes height * width pixels of three bytes (one, for grayscale), row by row. The size must be that of
// stridec_image_size. Transparency is dropped. Returns nonzero if the bytes are damaged; the pixels are then
// unspecified.
int32_t stridec_image_decode(const uint8_t* bytes, int64_t count, int64_t height, int64_t width,
                             int32_t format, uint8_t* pixels);

#ifdef __cplusplus
}
#endif
