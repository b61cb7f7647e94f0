// Encoded images to pixels: JPEG, PNG, BMP, TIFF, WebP, JPEG 2000, PNM. Plain C, no state, no limits on who calls when.
// The compiler links it for its interpreter; an artifact gets it as one object where a model decodes images.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { STRIDEC_IMAGE_RGB = 0, STRIDEC_IMAGE_BGR = 1, STRIDEC_IMAGE_GRAYSCALE = 2 };

// size[0], size[1]: height and width, at most 65535 each and 2^27 pixels together. Not 0, and both -1: these bytes are no
// image, or one in a form that is not supported.
int32_t stridec_image_size(const uint8_t* bytes, int64_t count, int64_t size[2]);

// height * width pixels of three bytes (one, for grayscale), row by row; the size is the one that stridec_image_size
// tells. Transparency is left out. Not 0: the bytes are damaged, and the pixels are anything.
int32_t stridec_image_decode(const uint8_t* bytes, int64_t count, int64_t height, int64_t width,
                             int32_t format, uint8_t* pixels);

#ifdef __cplusplus
}
#endif
