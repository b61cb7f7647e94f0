// The reader of zip archives: well-formed ones, and each way in which one may contradict itself.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/base/zip.h"

namespace stridec {
namespace {

std::string little(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}

struct Member {
  std::string name, bytes;
  uint64_t size = 0;  // 0: that of the bytes
  uint16_t method = 0, flags = 0;
};

struct Made {
  std::string bytes;
  size_t directory = 0, end = 0;  // offsets
};

Made make(const std::vector<Member>& members, bool zip64 = false) {
  Made out;
  std::string directory;
  for (const Member& m : members) {
    const uint64_t size = m.size ? m.size : m.bytes.size(), offset = out.bytes.size();
    out.bytes += "PK\3\4" + little(20, 2) + little(m.flags, 2) + little(m.method, 2) + std::string(16, '\0') +
                 little(m.name.size(), 2) + little(3, 2) + m.name + "pad" + m.bytes;
    directory += "PK\1\2" + little(20, 2) + little(20, 2) + little(m.flags, 2) + little(m.method, 2) +
                 std::string(4, '\0') + little(0, 4) + little(zip64 ? 0xffffffffu : m.bytes.size(), 4) +
                 little(zip64 ? 0xffffffffu : size, 4) + little(m.name.size(), 2) +
                 little(zip64 ? 20 : 0, 2) + std::string(10, '\0') + little(offset, 4) + m.name;
    if (zip64) directory += little(1, 2) + little(16, 2) + little(size, 8) + little(m.bytes.size(), 8);
  }
  out.directory = out.bytes.size();
  out.bytes += directory;
  if (zip64) {
    const size_t at = out.bytes.size();
    out.bytes += "PK\6\6" + little(44, 8) + std::string(12, '\0') + little(members.size(), 8) +
                 little(members.size(), 8) + little(directory.size(), 8) + little(out.directory, 8);
    out.bytes += "PK\6\7" + little(0, 4) + little(at, 8) + little(1, 4);
  }
  out.end = out.bytes.size();
  const uint64_t all = zip64 ? 0xffff : members.size();
  out.bytes += "PK\5\6" + little(0, 4) + little(all, 2) + little(all, 2) +
               little(zip64 ? 0xffffffffu : directory.size(), 4) +
               little(zip64 ? 0xffffffffu : out.directory, 4) + little(0, 2);
  return out;
}

ZipFile open(const std::string& bytes) {
  const auto owner = std::make_shared<const std::string>(bytes);
  return open_zip({owner, reinterpret_cast<const uint8_t*>(owner->data()), owner->size()});
}
std::string text(const ZipFile& zip, const char* name) {
  const ZipEntry* entry = find_entry(zip, name);
  REQUIRE(entry);
  const ZipBytes data = read_entry(zip, *entry);
  return {reinterpret_cast<const char*>(data.bytes), data.size};
}
ErrorKind kind_of(const std::string& bytes, const char* member = "a") {
  try {
    text(open(bytes), member);
  } catch (const Error& e) {
    return e.diagnostic.kind;
  }
  return ErrorKind::kInternal;
}

TEST_CASE("zip: stored members are where the local header says") {
  for (bool zip64 : {false, true}) {
    const Made made = make({{"b", "second"}, {"a", "first"}}, zip64);
    const ZipFile zip = open(made.bytes);
    CHECK(text(zip, "a") == "first");
    CHECK(text(zip, "b") == "second");
    CHECK(find_entry(zip, "c") == nullptr);
    // Without a copy.
    CHECK(read_entry(zip, *find_entry(zip, "a")).bytes > zip.file.bytes);
  }
}

TEST_CASE("zip: deflated members") {
  // zlib's raw deflate of "aaaaaaaaaa", whose checksum is 0x4c11cdf0.
  Made made = make({{"a", std::string("\x4b\x4c\x84\x01\x00", 5), 10, 8}});
  made.bytes.replace(made.directory + 16, 4, little(0x4c11cdf0, 4));
  CHECK(text(open(made.bytes), "a") == "aaaaaaaaaa");
  made.bytes[made.directory + 16] ^= 1;
  CHECK(kind_of(made.bytes) == ErrorKind::kMalformed);
  CHECK(kind_of(make({{"a", std::string("\x4b\x4c\x84\x01\x00", 5), 11, 8}}).bytes) == ErrorKind::kMalformed);
  CHECK(kind_of(make({{"a", "xx", uint64_t{1} << 31, 8}}).bytes) == ErrorKind::kMalformed);
}

TEST_CASE("zip: damaged archives are refused") {
  const Made good = make({{"a", "first"}});
  CHECK(kind_of("") == ErrorKind::kMalformed);
  CHECK(kind_of("PK\3\4") == ErrorKind::kMalformed);
  for (size_t size = 0; size < good.bytes.size(); ++size)
    CHECK(kind_of(good.bytes.substr(0, size)) == ErrorKind::kMalformed);
  const auto with = [&](size_t at, const std::string& bytes) {
    std::string out = good.bytes;
    out.replace(at, bytes.size(), bytes);
    return kind_of(out);
  };
  CHECK(with(good.end + 16, little(0x7fffffff, 4)) == ErrorKind::kMalformed);        // the directory's offset
  CHECK(with(good.end + 12, little(0x7fffffff, 4)) == ErrorKind::kMalformed);        // its size
  CHECK(with(good.end + 10, little(9, 2)) == ErrorKind::kMalformed);                 // the number of members
  CHECK(with(good.directory + 42, little(0x7fffffff, 4)) == ErrorKind::kMalformed);  // a member's offset
  CHECK(with(good.directory + 20, little(0x7ffffff0, 4)) == ErrorKind::kMalformed);  // its size
  CHECK(with(good.directory + 28, little(0xfff0, 2)) == ErrorKind::kMalformed);      // the length of its name
  CHECK(kind_of(make({{"a", "x", 0, 0, 1}}).bytes) == ErrorKind::kMalformed);        // encrypted
  CHECK(kind_of(make({{"a", "x", 0, 12}}).bytes) == ErrorKind::kUnsupported);        // bzip2
  CHECK(kind_of(make({{"a", "x"}, {"a", "y"}}).bytes) == ErrorKind::kMalformed);     // twice the same name
}

}  // namespace
}  // namespace stridec
