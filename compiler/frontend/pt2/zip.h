// Reads zip archives: the central directory, zip64, stored and deflated members. Stored members point into
// the mapped file. Everything in the file is untrusted: every offset is checked against the file's size.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/graph/graph.h"

namespace stridec::pt2 {

struct ZipEntry {
  std::string name;
  uint64_t header = 0;  // offset of the local header
  uint64_t compressed = 0, size = 0;
  uint32_t crc = 0;
  uint16_t method = 0, flags = 0;
};

struct ZipFile {
  graph::Data file;
  std::vector<ZipEntry> entries;  // sorted by name; names are unique
};

bool is_zip(const graph::Data& file);

// Throws Error kMalformed for a file that is truncated or that contradicts itself.
ZipFile open_zip(graph::Data file);

// Null if there is no member of this name.
const ZipEntry* find_entry(const ZipFile& zip, std::string_view name);

// The bytes of a member. Throws Error for a damaged, encrypted or unknown kind of member, kOverBudget for one
// that inflates to more than `most` bytes. Only inflated members are checked against their CRC: a stored
// member is not read here.
graph::Data read_entry(const ZipFile& zip, const ZipEntry& entry, uint64_t most = uint64_t{1} << 36);

}  // namespace stridec::pt2
