// JPEG 2000 by OpenJPEG: files (JP2) and bare codestreams of gray and RGB, one size for all components.
#include <string.h>

#include <openjpeg.h>

#include "formats.h"

namespace stridec::image {
namespace {

struct Source {
  Bytes bytes;
  int64_t at = 0;
};

OPJ_SIZE_T read_some(void* to, OPJ_SIZE_T count, void* user) {
  Source& s = *static_cast<Source*>(user);
  const int64_t left = s.bytes.size - s.at;
  if (left <= 0) return static_cast<OPJ_SIZE_T>(-1);
  const int64_t taken = static_cast<int64_t>(count) < left ? static_cast<int64_t>(count) : left;
  memcpy(to, s.bytes.data + s.at, static_cast<size_t>(taken));
  s.at += taken;
  return static_cast<OPJ_SIZE_T>(taken);
}
OPJ_OFF_T skip(OPJ_OFF_T count, void* user) {
  Source& s = *static_cast<Source*>(user);
  if (count < 0 || count > s.bytes.size - s.at) return -1;
  s.at += count;
  return count;
}
OPJ_BOOL seek(OPJ_OFF_T to, void* user) {
  Source& s = *static_cast<Source*>(user);
  if (to < 0 || to > s.bytes.size) return OPJ_FALSE;
  s.at = to;
  return OPJ_TRUE;
}

struct Decoder {
  Source source;
  opj_codec_t* codec = nullptr;
  opj_stream_t* stream = nullptr;
  opj_image_t* image = nullptr;

  explicit Decoder(Bytes b) : source{b} {
    codec = opj_create_decompress(b.u8(0) == 0xff ? OPJ_CODEC_J2K : OPJ_CODEC_JP2);
    stream = opj_stream_create(1 << 16, OPJ_TRUE);
  }
  ~Decoder() {
    if (image) opj_image_destroy(image);
    if (stream) opj_stream_destroy(stream);
    if (codec) opj_destroy_codec(codec);
  }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  bool header() {
    if (!codec || !stream) return false;
    opj_dparameters_t parameters;
    opj_set_default_decoder_parameters(&parameters);
    if (!opj_setup_decoder(codec, &parameters)) return false;
    opj_decoder_set_strict_mode(codec, OPJ_TRUE);
    opj_stream_set_user_data(stream, &source, nullptr);
    opj_stream_set_user_data_length(stream, static_cast<OPJ_UINT64>(source.bytes.size));
    opj_stream_set_read_function(stream, read_some);
    opj_stream_set_skip_function(stream, skip);
    opj_stream_set_seek_function(stream, seek);
    return opj_read_header(stream, codec, &image) && image && image->numcomps >= 1;
  }
  Size size() const { return {int64_t{image->y1} - image->y0, int64_t{image->x1} - image->x0}; }
};

}  // namespace

bool jpeg2000_is(Bytes b) {
  return b.has(0, 12) && ((b.big32(0) == 12 && b.big32(4) == 0x6a502020) || b.big32(0) == 0xff4fff51);
}

bool jpeg2000_size(Bytes b, Size& size) {
  Decoder d(b);
  if (!d.header()) return false;
  size = d.size();
  return true;
}

bool jpeg2000_decode(Bytes b, Canvas& canvas) {
  Decoder d(b);
  if (!d.header() || !opj_decode(d.codec, d.stream, d.image) || !opj_end_decompress(d.codec, d.stream))
    return false;
  const opj_image_t& image = *d.image;
  const bool colour = image.numcomps >= 3;
  if (image.color_space == OPJ_CLRSPC_SYCC || image.color_space == OPJ_CLRSPC_EYCC ||
      image.color_space == OPJ_CLRSPC_CMYK)
    return false;
  for (uint32_t c = 0; c < (colour ? 3u : 1u); ++c) {
    const opj_image_comp_t& part = image.comps[c];
    if (!part.data || part.w != canvas.size.width || part.h != canvas.size.height || part.prec < 1 ||
        part.prec > 31)
      return false;
  }
  const auto value = [&](int64_t at, uint32_t c) -> uint32_t {
    const opj_image_comp_t& part = image.comps[c];
    int64_t v = part.data[at];
    if (part.sgnd) v += int64_t{1} << (part.prec - 1);
    v = part.prec > 8 ? v >> (part.prec - 8) : part.prec < 8 ? v * 255 / ((1 << part.prec) - 1) : v;
    return static_cast<uint32_t>(v < 0 ? 0 : v > 255 ? 255 : v);
  };
  for (int64_t y = 0; y < canvas.size.height; ++y)
    for (int64_t x = 0; x < canvas.size.width; ++x) {
      const int64_t at = y * canvas.size.width + x;
      canvas.put(y, x, value(at, 0), value(at, colour ? 1 : 0), value(at, colour ? 2 : 0));
    }
  return true;
}

}  // namespace stridec::image
