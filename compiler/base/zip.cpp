#include "compiler/base/zip.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"

namespace stridec {
namespace {

constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50,
                   kLocator64 = 0x07064b50;
constexpr size_t kEndSize = 22, kEnd64Size = 56, kLocatorSize = 20, kCentralSize = 46, kLocalSize = 30;
constexpr size_t kLongestComment = 65535;
constexpr uint64_t kMostEntries = 1'000'000;
// Deflate encodes at most 258 bytes in two bits.
constexpr uint64_t kLargestRatio = 1032;

[[noreturn]] void damaged(const ZipFile& zip, const std::string& what) {
  fail(ErrorKind::kMalformed, "bad-archive", cat("the zip archive is damaged: ", what), zip.help);
}

uint64_t number(const uint8_t* at, size_t bytes) {
  uint64_t out = 0;
  for (size_t i = 0; i < bytes; ++i) out |= uint64_t{at[i]} << (8 * i);
  return out;
}

struct Directory {
  uint64_t entries = 0, size = 0, offset = 0;
};

Directory find_directory(const ZipFile& zip) {
  const ZipBytes& file = zip.file;
  const uint8_t* bytes = file.bytes;
  if (file.size < kEndSize) damaged(zip, "it is shorter than an end record");
  const size_t last = file.size - kEndSize, first = last > kLongestComment ? last - kLongestComment : 0;
  std::optional<size_t> end;
  for (size_t at = last + 1; at-- > first && !end;)
    if (number(bytes + at, 4) == kEnd && at + kEndSize + number(bytes + at + 20, 2) <= file.size) end = at;
  if (!end) damaged(zip, "it has no end record");
  Directory out{.entries = number(bytes + *end + 10, 2),
                .size = number(bytes + *end + 12, 4),
                .offset = number(bytes + *end + 16, 4)};
  if (*end >= kLocatorSize && number(bytes + *end - kLocatorSize, 4) == kLocator64) {
    const uint64_t at = number(bytes + *end - kLocatorSize + 8, 8);
    if (at > file.size || file.size - at < kEnd64Size || number(bytes + at, 4) != kEnd64)
      damaged(zip, "its zip64 end record is not where the locator says");
    out = {.entries = number(bytes + at + 32, 8),
           .size = number(bytes + at + 40, 8),
           .offset = number(bytes + at + 48, 8)};
  }
  if (out.offset > file.size || out.size > file.size - out.offset)
    damaged(zip, "its central directory lies outside of the file");
  return out;
}

// Replaces the sizes and the offset that are all ones by those of the zip64 extra field.
void read_zip64(const ZipFile& zip, ZipEntry& entry, const uint8_t* extra, size_t size) {
  for (size_t at = 0; at + 4 <= size;) {
    const uint64_t id = number(extra + at, 2), length = number(extra + at + 2, 2);
    if (length > size - at - 4) return;
    if (id == 1) {
      size_t from = at + 4;
      const size_t end = from + length;
      for (uint64_t* value : {&entry.size, &entry.compressed, &entry.header}) {
        if (*value != 0xffffffffu) continue;
        if (from + 8 > end) damaged(zip, cat("the zip64 field of '", entry.name, "' is too short"));
        *value = number(extra + from, 8);
        from += 8;
      }
      return;
    }
    at += 4 + length;
  }
}

// Where the member's bytes start. The name and the extra field of the local header give the offset: they may
// be longer than those of the central directory.
uint64_t data_offset(const ZipFile& zip, const ZipEntry& entry) {
  const uint64_t size = zip.file.size;
  if (entry.header > size || size - entry.header < kLocalSize ||
      number(zip.file.bytes + entry.header, 4) != kLocal)
    damaged(zip, cat("member '", entry.name, "' has no header where the directory says"));
  const uint8_t* local = zip.file.bytes + entry.header;
  const uint64_t start = entry.header + kLocalSize + number(local + 26, 2) + number(local + 28, 2);
  if (start > size || entry.compressed > size - start)
    damaged(zip, cat("member '", entry.name, "' reaches beyond the end of the file"));
  return start;
}

uint32_t checksum(const uint8_t* bytes, uint64_t size) {
  return static_cast<uint32_t>(crc32_z(0, bytes, size));
}

ZipBytes inflate_member(const ZipFile& zip, const uint8_t* from, const ZipEntry& entry) {
  std::shared_ptr<uint8_t[]> bytes(new (std::nothrow) uint8_t[std::max<uint64_t>(entry.size, 1)]);
  if (!bytes)
    fail(ErrorKind::kOverBudget, "archive-size",
         cat("there is no memory for the ", entry.size, " bytes of member '", entry.name, "'"));
  z_stream stream = {};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) damaged(zip, "zlib cannot be initialised");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, inflateEnd);
  constexpr uint64_t kChunk = uint64_t{1} << 30;
  uint64_t read = 0, written = 0;
  int status = Z_OK;
  while (status == Z_OK) {
    stream.next_in = const_cast<uint8_t*>(from + read);
    stream.avail_in = static_cast<uInt>(std::min(kChunk, entry.compressed - read));
    stream.next_out = bytes.get() + written;
    stream.avail_out = static_cast<uInt>(std::min(kChunk, entry.size - written));
    const uInt in = stream.avail_in, out = stream.avail_out;
    status = inflate(&stream, Z_NO_FLUSH);
    read += in - stream.avail_in;
    written += out - stream.avail_out;
    if (status == Z_OK && in == stream.avail_in && out == stream.avail_out) break;
  }
  if (status != Z_STREAM_END || written != entry.size)
    damaged(zip, cat("member '", entry.name, "' does not inflate to its ", entry.size, " bytes"));
  return {.owner = bytes, .bytes = bytes.get(), .size = static_cast<size_t>(entry.size)};
}

}  // namespace

bool is_zip(const uint8_t* bytes, size_t size) {
  return size >= 4 && (number(bytes, 4) == kLocal || number(bytes, 4) == kEnd);
}

ZipFile open_zip(ZipBytes file, std::string help) {
  ZipFile zip{.file = std::move(file), .help = std::move(help), .entries = {}};
  const Directory directory = find_directory(zip);
  if (directory.entries > kMostEntries || directory.entries * kCentralSize > directory.size)
    damaged(zip, cat("its directory is too small for ", directory.entries, " members"));
  const uint8_t* at = zip.file.bytes + directory.offset;
  uint64_t left = directory.size;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    if (left < kCentralSize || number(at, 4) != kCentral) damaged(zip, cat("entry ", i, " of its directory"));
    const uint64_t name = number(at + 28, 2), extra = number(at + 30, 2), comment = number(at + 32, 2);
    if (left - kCentralSize < name + extra + comment) damaged(zip, cat("entry ", i, " of its directory"));
    ZipEntry entry{.name = std::string(reinterpret_cast<const char*>(at) + kCentralSize, name),
                   .header = number(at + 42, 4),
                   .compressed = number(at + 20, 4),
                   .size = number(at + 24, 4),
                   .crc = static_cast<uint32_t>(number(at + 16, 4)),
                   .method = static_cast<uint16_t>(number(at + 10, 2)),
                   .flags = static_cast<uint16_t>(number(at + 8, 2))};
    read_zip64(zip, entry, at + kCentralSize + name, extra);
    zip.entries.push_back(std::move(entry));
    at += kCentralSize + name + extra + comment;
    left -= kCentralSize + name + extra + comment;
  }
  std::sort(zip.entries.begin(), zip.entries.end(),
            [](const ZipEntry& a, const ZipEntry& b) { return a.name < b.name; });
  for (size_t i = 1; i < zip.entries.size(); ++i)
    if (zip.entries[i].name == zip.entries[i - 1].name)
      damaged(zip, cat("two members are named '", zip.entries[i].name, "'"));
  return zip;
}

const ZipEntry* find_entry(const ZipFile& zip, std::string_view name) {
  const auto found = std::lower_bound(zip.entries.begin(), zip.entries.end(), name,
                                      [](const ZipEntry& e, std::string_view n) { return e.name < n; });
  return found != zip.entries.end() && found->name == name ? &*found : nullptr;
}

ZipBytes read_entry(const ZipFile& zip, const ZipEntry& entry, ZipCheck check, uint64_t most) {
  if (entry.flags & 1) damaged(zip, cat("member '", entry.name, "' is encrypted"));
  const uint8_t* from = zip.file.bytes + data_offset(zip, entry);
  if (entry.method != 0 && entry.method != 8)
    fail(ErrorKind::kUnsupported, "archive-method",
         cat("member '", entry.name, "' is compressed by method ", entry.method),
         "stored and deflated members are read: save the program again with torch.export.save");
  const bool stored = entry.method == 0;
  if (stored && entry.compressed != entry.size)
    damaged(zip, cat("member '", entry.name, "' is stored, but its two sizes differ"));
  if (!stored && entry.size > (entry.compressed + 1) * kLargestRatio)
    damaged(zip,
            cat("member '", entry.name, "' of ", entry.compressed, " bytes cannot inflate to ", entry.size));
  if (!stored && entry.size > most)
    fail(ErrorKind::kOverBudget, "archive-size",
         cat("member '", entry.name, "' inflates to ", entry.size, " bytes, more than ", most));
  ZipBytes out = stored ? ZipBytes{zip.file.owner, from, static_cast<size_t>(entry.size)}
                        : inflate_member(zip, from, entry);
  if ((!stored || check == ZipCheck::kAll) && checksum(out.bytes, out.size) != entry.crc)
    damaged(zip, cat("the checksum of member '", entry.name, "' is wrong"));
  return out;
}

}  // namespace stridec
