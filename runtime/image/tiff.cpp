// TIFF 6.0, the first image of a file: gray, palette and RGB of 1, 4, 8 and 16 bits in strips or tiles,
// uncompressed, PackBits, LZW or deflate, with the horizontal predictor (8 bits). TIFF variants of faxes,
// cameras and printers are not supported.
#include <string.h>
#include <zlib.h>

#include "formats.h"

namespace stridec::image {
namespace {

struct File {
  Bytes bytes;
  bool big;
  uint32_t u16(int64_t at) const { return big ? bytes.big16(at) : bytes.little16(at); }
  uint32_t u32(int64_t at) const { return big ? bytes.big32(at) : bytes.little32(at); }
};

struct Field {
  int64_t count = 0, at = 0;
  int bytes = 0;
  int64_t get(const File& f, int64_t i) const {
    const int64_t place = at + i * bytes;
    return bytes == 1 ? f.bytes.u8(place) : bytes == 2 ? f.u16(place) : f.u32(place);
  }
};

struct Header {
  File file;
  int64_t width, height, bits, compression, photometric, samples, planes, predictor, fill;
  int64_t chunk_width, chunk_height;
  Field offsets, counts, colors;
};

Field field(const File& f, int64_t directory, uint32_t tag) {
  const int64_t entries = f.u16(directory);
  for (int64_t i = 0; i < entries; ++i) {
    const int64_t at = directory + 2 + 12 * i;
    if (!f.bytes.has(at, 12)) break;
    if (f.u16(at) != tag) continue;
    const uint32_t type = f.u16(at + 2);
    Field out{.count = f.u32(at + 4), .at = 0, .bytes = type == 1 ? 1 : type == 3 ? 2 : type == 4 ? 4 : 0};
    if (!out.bytes) return {};
    out.at = out.count * out.bytes <= 4 ? at + 8 : f.u32(at + 8);
    return f.bytes.has(out.at, out.count * out.bytes) ? out : Field();
  }
  return {};
}

bool read(Bytes b, Header& h) {
  h.file = {b, b.u8(0) == 'M'};
  const File& f = h.file;
  const int64_t directory = f.u32(4);
  if (!b.has(directory, 2)) return false;
  const auto number = [&](uint32_t tag, int64_t otherwise) {
    const Field found = field(f, directory, tag);
    return found.count ? found.get(f, 0) : otherwise;
  };
  h.width = number(256, 0), h.height = number(257, 0);
  h.bits = number(258, 1), h.compression = number(259, 1), h.photometric = number(262, 1);
  h.samples = number(277, 1), h.predictor = number(317, 1), h.fill = number(266, 1);
  h.planes = number(284, 1) == 2 ? h.samples : 1;
  const bool tiled = number(322, 0) != 0;
  h.chunk_width = tiled ? number(322, 0) : h.width;
  h.chunk_height = tiled ? number(323, 0) : number(278, h.height);
  if (!tiled && h.chunk_height > h.height) h.chunk_height = h.height;
  h.offsets = field(f, directory, tiled ? 324 : 273), h.counts = field(f, directory, tiled ? 325 : 279);
  h.colors = field(f, directory, 320);
  const Field depths = field(f, directory, 258);
  for (int64_t i = 1; i < depths.count && i < 8; ++i)
    if (depths.get(f, i) != h.bits) return false;
  if (h.samples < 1 || h.samples > 8 || h.fill != 1 || h.chunk_width < 1 || h.chunk_height < 1 ||
      h.chunk_width > 65536 || h.chunk_height > 65536)
    return false;
  if (h.bits != 8 && h.bits != 16 && !((h.bits == 1 || h.bits == 4) && h.samples == 1)) return false;
  if (h.predictor != 1 && !(h.predictor == 2 && h.bits == 8)) return false;
  if (h.photometric == 2) return h.samples >= 3 && h.bits >= 8;
  if (h.photometric == 3) return h.bits <= 8 && h.colors.count >= 3 << h.bits;
  return h.photometric < 2;
}

bool unpack_bits(Bytes from, uint8_t* to, int64_t size) {
  int64_t at = 0, out = 0;
  while (out < size && at < from.size) {
    const int n = static_cast<int8_t>(from.u8(at++));
    if (n == -128) continue;
    const int64_t count = n >= 0 ? n + 1 : 1 - n;
    if (count > size - out || (n >= 0 && !from.has(at, count))) return false;
    for (int64_t i = 0; i < count; ++i) to[out++] = static_cast<uint8_t>(from.u8(at + (n >= 0 ? i : 0)));
    at += n >= 0 ? count : 1;
  }
  return out == size;
}

// Codes of 9 to 12 bits, most significant bit first; the width grows one code early.
bool unpack_lzw(Bytes from, uint8_t* to, int64_t size) {
  struct Entry {
    int16_t before;
    uint8_t first, last;
    int16_t length;
  };
  Block table(4096 * static_cast<int64_t>(sizeof(Entry)));
  if (!table) return false;
  Entry* const e = reinterpret_cast<Entry*>(table.get());
  for (int i = 0; i < 256; ++i) e[i] = {-1, static_cast<uint8_t>(i), static_cast<uint8_t>(i), 1};
  int next = 258, width = 9, previous = -1;
  int64_t bit = 0, out = 0;
  while (out < size && bit + width <= from.size * 8) {
    uint32_t code = 0;
    const int64_t at = bit / 8;
    code = (from.u8(at) << 16 | from.u8(at + 1) << 8 | from.u8(at + 2)) >> (24 - bit % 8 - width) &
           ((1u << width) - 1);
    bit += width;
    if (code == 257) break;
    if (code == 256) {
      next = 258, width = 9, previous = -1;
      continue;
    }
    const int known = static_cast<int>(code);
    if (known > next || (known == next && previous < 0) || known == 256) return false;
    if (previous >= 0 && next < 4096) {
      const uint8_t last = known == next ? e[previous].first : e[known].first;
      e[next] = {static_cast<int16_t>(previous), e[previous].first, last,
                 static_cast<int16_t>(e[previous].length + 1)};
      ++next;
    } else if (known >= next) {
      return false;
    }
    const int64_t length = e[known].length;
    if (length > size - out) return false;
    int64_t place = out + length;
    for (int c = known; c >= 0 && place > out; c = e[c].before) to[--place] = e[c].last;
    out += length;
    previous = known;
    if (next >= (1 << width) - 1 && width < 12) ++width;
  }
  return out == size;
}

bool inflate_all(Bytes from, uint8_t* to, int64_t size) {
  z_stream z{};
  if (inflateInit(&z) != Z_OK) return false;
  z.next_in = const_cast<uint8_t*>(from.data), z.avail_in = static_cast<uInt>(from.size);
  z.next_out = to, z.avail_out = static_cast<uInt>(size);
  inflate(&z, Z_FINISH);
  const bool all = z.avail_out == 0;
  inflateEnd(&z);
  return all;
}

bool unpack(const Header& h, Bytes from, uint8_t* to, int64_t size) {
  switch (h.compression) {
    case 1:
      if (from.size < size) return false;
      memcpy(to, from.data, static_cast<size_t>(size));
      return true;
    case 5: return unpack_lzw(from, to, size);
    case 8:
    case 32946: return inflate_all(from, to, size);
    case 32773: return unpack_bits(from, to, size);
    default: return false;
  }
}

}  // namespace

bool tiff_is(Bytes b) { return b.has(0, 8) && (b.big32(0) == 0x49492a00 || b.big32(0) == 0x4d4d002a); }

bool tiff_size(Bytes b, Size& size) {
  Header h;
  if (!read(b, h)) return false;
  size = {h.height, h.width};
  return true;
}

bool tiff_decode(Bytes b, Canvas& canvas) {
  Header h;
  if (!read(b, h)) return false;
  const int64_t across = (h.width + h.chunk_width - 1) / h.chunk_width,
                down = (h.height + h.chunk_height - 1) / h.chunk_height;
  const int64_t per_plane = h.planes > 1 ? 1 : h.samples, row = (h.chunk_width * per_plane * h.bits + 7) / 8;
  if (h.offsets.count < across * down * h.planes || h.counts.count < across * down * h.planes) return false;
  const bool strips = h.chunk_width == h.width;
  const int64_t size = row * h.chunk_height;
  if (size > int64_t{1} << 31) return false;
  // With separate planes each plane has one colour, and a pixel needs all of them.
  const int64_t used = h.planes > 1 ? (h.photometric == 2 ? 3 : 1) : 1;
  Block chunks(size * used);
  if (!chunks) return false;
  const auto sample = [&](int64_t y, int64_t x, int64_t s) -> uint32_t {
    const uint8_t* const line = chunks.get() + (h.planes > 1 ? s * size : 0) + y * row;
    const int64_t bit = (x * per_plane + (h.planes > 1 ? 0 : s)) * h.bits;
    if (h.bits < 8) return line[bit / 8] >> (8 - h.bits - bit % 8) & ((1u << h.bits) - 1);
    return line[bit / 8 + (h.bits == 16 && !h.file.big ? 1 : 0)];  // of 16 bits, the upper 8
  };
  for (int64_t cy = 0; cy < down; ++cy)
    for (int64_t cx = 0; cx < across; ++cx) {
      // The last strip may be shorter; tiles are always complete.
      const int64_t rows = strips && h.height - cy * h.chunk_height < h.chunk_height
                               ? h.height - cy * h.chunk_height
                               : h.chunk_height;
      for (int64_t p = 0; p < used; ++p) {
        const int64_t i = p * across * down + cy * across + cx;
        const int64_t at = h.offsets.get(h.file, i), count = h.counts.get(h.file, i);
        uint8_t* const to = chunks.get() + p * size;
        if (!b.has(at, count) || !unpack(h, b.from(at, count), to, row * rows)) return false;
        if (h.predictor == 2)
          for (int64_t y = 0; y < rows; ++y)
            for (int64_t x = per_plane; x < row; ++x)
              to[y * row + x] = static_cast<uint8_t>(to[y * row + x] + to[y * row + x - per_plane]);
      }
      for (int64_t y = 0; y < rows && cy * h.chunk_height + y < h.height; ++y)
        for (int64_t x = 0; x < h.chunk_width && cx * h.chunk_width + x < h.width; ++x) {
          const int64_t to_y = cy * h.chunk_height + y, to_x = cx * h.chunk_width + x;
          if (h.photometric == 2) {
            canvas.put(to_y, to_x, sample(y, x, 0), sample(y, x, 1), sample(y, x, 2));
            continue;
          }
          const uint32_t v = sample(y, x, 0);
          if (h.photometric == 3) {
            const int64_t n = int64_t{1} << h.bits;
            const auto part = [&](int64_t s) {
              return static_cast<uint32_t>(h.colors.get(h.file, s * n + v)) >> 8;
            };
            canvas.put(to_y, to_x, part(0), part(1), part(2));
            continue;
          }
          uint32_t gray = h.bits < 8 ? v * 255 / ((1u << h.bits) - 1) : v;
          if (h.photometric == 0) gray = 255 - gray;
          canvas.put(to_y, to_x, gray, gray, gray);
        }
    }
  return true;
}

}  // namespace stridec::image
