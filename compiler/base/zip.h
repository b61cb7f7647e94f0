// Reads zip archives: the central directory, zip64, stored and deflated members. Stored members point into
// the mapped file. Everything in the file is untrusted: every offset is checked against the file's size.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace stridec {

struct ZipEntry {
  std::string name;
  uint64_t header = 0;  // offset of the local header
  uint64_t compressed = 0, size = 0;
  uint32_t crc = 0;
  uint16_t method = 0, flags = 0;
};

// Bytes in memory, and what keeps them there.
struct ZipBytes {
  std::shared_ptr<const void> owner;
  const uint8_t* bytes = nullptr;
  size_t size = 0;
};

struct ZipFile {
  ZipBytes file;
  std::string help;               // of each Error about the archive: what to do about a damaged one
  std::vector<ZipEntry> entries;  // sorted by name; names are unique
};

bool is_zip(const uint8_t* bytes, size_t size);

// Throws Error kMalformed for a file that is truncated or that contradicts itself.
ZipFile open_zip(ZipBytes file, std::string help = {});

// Null if there is no member of this name.
const ZipEntry* find_entry(const ZipFile& zip, std::string_view name);

// Whether a stored member is compared with its CRC, which reads it. An inflated one always is.
enum class ZipCheck { kInflated, kAll };

// The bytes of a member. Throws Error for a damaged, encrypted or unknown kind of member, kOverBudget for one
// that inflates to more than `most` bytes.
ZipBytes read_entry(const ZipFile& zip, const ZipEntry& entry, ZipCheck check = ZipCheck::kInflated,
                    uint64_t most = uint64_t{1} << 36);

}  // namespace stridec
