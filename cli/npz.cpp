#include "cli/npz.h"

#include <zlib.h>

#include <cstring>
#include <limits>
#include <string_view>

#include "compiler/base/diagnostic.h"
#include "compiler/base/files.h"
#include "compiler/base/text.h"

namespace stridec::cli {
namespace {

[[noreturn]] void malformed(const std::string& path, const std::string& why) {
  fail(ErrorKind::kMalformed, "bad-npz", cat("'", path, "' is no .npz file that can be read: ", why));
}

// A little-endian number at a place that the file may lack.
template <class Number>
Number number_at(std::string_view file, uint64_t at, const std::string& path) {
  Number number;
  if (at > file.size() || file.size() - at < sizeof(number)) malformed(path, "it is cut short");
  std::memcpy(&number, file.data() + at, sizeof(number));
  return number;
}

constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50,
                   kLocator64 = 0x07064b50;
constexpr size_t kEndBytes = 22, kLocatorBytes = 20, kCentralBytes = 46, kLocalBytes = 30;

struct Member {
  std::string name;
  int method = 0;
  uint32_t crc = 0;
  uint64_t packed = 0, size = 0, at = 0;  // at: of the local header
};

struct Directory {
  uint64_t count, at;
};

Directory directory_of(std::string_view file, const std::string& path) {
  constexpr size_t kMostComment = 65535;
  if (file.size() < kEndBytes) malformed(path, "it is no zip archive");
  size_t at = file.size() - kEndBytes;
  const size_t last = at > kMostComment ? at - kMostComment : 0;
  while (number_at<uint32_t>(file, at, path) != kEnd) {
    if (at == last) malformed(path, "it is no zip archive, or it is cut short");
    --at;
  }
  Directory made{number_at<uint16_t>(file, at + 10, path), number_at<uint32_t>(file, at + 16, path)};
  if (at >= kLocatorBytes && number_at<uint32_t>(file, at - kLocatorBytes, path) == kLocator64) {
    const auto end = number_at<uint64_t>(file, at - kLocatorBytes + 8, path);
    if (number_at<uint32_t>(file, end, path) != kEnd64) malformed(path, "its zip64 directory is missing");
    made = {number_at<uint64_t>(file, end + 32, path), number_at<uint64_t>(file, end + 48, path)};
  }
  return made;
}

// Sizes and offset that do not fit 32 bits are in an extra field, in this order.
void read_zip64(std::string_view extra, Member& member, const std::string& path) {
  constexpr uint64_t kElsewhere = 0xFFFFFFFF;
  for (size_t at = 0; at + 4 <= extra.size();) {
    const auto id = number_at<uint16_t>(extra, at, path), bytes = number_at<uint16_t>(extra, at + 2, path);
    size_t field = at + 4;
    if (id == 1)
      for (uint64_t* value : {&member.size, &member.packed, &member.at})
        if (*value == kElsewhere) *value = number_at<uint64_t>(extra, field, path), field += 8;
    at += 4 + size_t{bytes};
  }
}

std::vector<Member> members_of(std::string_view file, const std::string& path) {
  const Directory directory = directory_of(file, path);
  std::vector<Member> members;
  uint64_t at = directory.at;
  for (uint64_t i = 0; i < directory.count; ++i) {
    if (number_at<uint32_t>(file, at, path) != kCentral) malformed(path, "its directory is damaged");
    Member member{.method = number_at<uint16_t>(file, at + 10, path),
                  .crc = number_at<uint32_t>(file, at + 16, path),
                  .packed = number_at<uint32_t>(file, at + 20, path),
                  .size = number_at<uint32_t>(file, at + 24, path),
                  .at = number_at<uint32_t>(file, at + 42, path)};
    const uint64_t name = number_at<uint16_t>(file, at + 28, path),
                   extra = number_at<uint16_t>(file, at + 30, path),
                   comment = number_at<uint16_t>(file, at + 32, path);
    if (file.size() - at < kCentralBytes + name + extra) malformed(path, "its directory is cut short");
    member.name = file.substr(at + kCentralBytes, name);
    read_zip64(file.substr(at + kCentralBytes + name, extra), member, path);
    if (member.name.ends_with(".npy")) {
      member.name.resize(member.name.size() - 4);
      members.push_back(std::move(member));
    }
    at += kCentralBytes + name + extra + comment;
  }
  return members;
}

std::string inflated(std::string_view packed, const Member& member, const std::string& path) {
  // Deflate does not compress by more than 1032: a size beyond that is false.
  constexpr uint64_t kMostRatio = 1100;
  if (member.size / kMostRatio > packed.size()) malformed(path, "a size in it is false");
  std::string out(member.size, '\0');
  z_stream stream = {};
  constexpr int kRawDeflate = -15;
  if (inflateInit2(&stream, kRawDeflate) != Z_OK) throw std::bad_alloc();
  int status = Z_OK;
  for (size_t read = 0, written = 0; status == Z_OK;) {
    constexpr size_t kMost = std::numeric_limits<uInt>::max();
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + read));
    stream.avail_in = static_cast<uInt>(std::min(packed.size() - read, kMost));
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + written);
    stream.avail_out = static_cast<uInt>(std::min(out.size() - written, kMost));
    const uInt in = stream.avail_in, room = stream.avail_out;
    status = inflate(&stream, Z_NO_FLUSH);
    read += in - stream.avail_in, written += room - stream.avail_out;
    if (status == Z_STREAM_END && written != out.size()) status = Z_DATA_ERROR;
  }
  inflateEnd(&stream);
  if (status != Z_STREAM_END) malformed(path, cat("array '", member.name, "' does not decompress"));
  return out;
}

std::string contents_of(std::string_view file, const Member& member, const std::string& path) {
  if (number_at<uint32_t>(file, member.at, path) != kLocal) malformed(path, "its directory is damaged");
  const uint64_t start = member.at + kLocalBytes + number_at<uint16_t>(file, member.at + 26, path) +
                         number_at<uint16_t>(file, member.at + 28, path);
  if (start > file.size() || file.size() - start < member.packed) malformed(path, "it is cut short");
  const std::string_view packed = file.substr(start, member.packed);
  if (member.method != 0 && member.method != 8)
    fail(ErrorKind::kUnsupported, "npz-compression",
         cat("'", path, "': array '", member.name, "' is compressed by method ", member.method),
         "save it by numpy.savez or numpy.savez_compressed");
  std::string contents = member.method == 8 ? inflated(packed, member, path) : std::string(packed);
  const uLong crc = crc32_z(0, reinterpret_cast<const Bytef*>(contents.data()), contents.size());
  if (contents.size() != member.size || crc != member.crc)
    malformed(path, cat("array '", member.name, "' is damaged"));
  return contents;
}

template <class Number>
void put(std::string& out, Number number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

// What the local header and the directory have in common.
std::string common_header(const std::string& name, const std::string& contents) {
  std::string out;
  put<uint16_t>(out, 20);       // version 2.0
  put<uint16_t>(out, 1 << 11);  // the name is UTF-8
  put<uint16_t>(out, 0);        // stored
  put<uint16_t>(out, 0);        // 00:00
  put<uint16_t>(out, 0x21);     // 1980-01-01: the same arrays give the same bytes
  put(out,
      static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(contents.data()), contents.size())));
  put(out, static_cast<uint32_t>(contents.size()));
  put(out, static_cast<uint32_t>(contents.size()));
  put(out, static_cast<uint16_t>(name.size()));
  put<uint16_t>(out, 0);  // extra
  return out;
}

}  // namespace

std::vector<std::string> npz_names(const std::string& path) {
  const std::string file = read_file(path);
  std::vector<std::string> names;
  for (const Member& member : members_of(file, path)) names.push_back(member.name);
  return names;
}

Array read_array(const std::string& given, DType expected) {
  constexpr std::string_view kArchive = ".npz:";
  const size_t colon = given.rfind(kArchive);
  if (colon == std::string::npos) return read_npy(given, expected);
  return read_npz(given.substr(0, colon + kArchive.size() - 1), given.substr(colon + kArchive.size()),
                  expected);
}

Array read_npz(const std::string& path, const std::string& name, DType expected) {
  const std::string file = read_file(path);
  std::vector<std::string> names;
  for (const Member& member : members_of(file, path)) {
    if (member.name == name)
      return parse_npy(contents_of(file, member, path), cat(path, ":", name), expected);
    names.push_back(member.name);
  }
  fail(ErrorKind::kUsage, "no-such-array", cat("'", path, "' has no array '", name, "'"),
       names.empty() ? "it is empty" : cat("it has ", join(names, ", ")));
}

void write_npz(const std::string& path, const std::vector<std::pair<std::string, Array>>& arrays) {
  std::string out, directory;
  for (const auto& [array_name, array] : arrays) {
    const std::string name = array_name + ".npy", contents = npy_text(array),
                      header = common_header(name, contents);
    const size_t at = out.size();
    constexpr uint64_t kMost = 0xFFFFFFFE;
    if (at + contents.size() + kLocalBytes + name.size() > kMost)
      fail(ErrorKind::kUnsupported, "npz-size", cat("the arrays of '", path, "' take more than 4 GB"),
           "write each into a .npy file: --output name=file.npy");
    put(out, kLocal);
    out += header + name + contents;
    put(directory, kCentral);
    put<uint16_t>(directory, 20);
    directory += header;
    put<uint16_t>(directory, 0);  // comment
    put<uint16_t>(directory, 0);  // disk
    put<uint16_t>(directory, 0);  // attributes
    put<uint32_t>(directory, 0);
    put(directory, static_cast<uint32_t>(at));
    directory += name;
  }
  const size_t at = out.size();
  out += directory;
  put(out, kEnd);
  put<uint32_t>(out, 0);  // disks
  for (int i = 0; i < 2; ++i) put(out, static_cast<uint16_t>(arrays.size()));
  put(out, static_cast<uint32_t>(directory.size()));
  put(out, static_cast<uint32_t>(at));
  put<uint16_t>(out, 0);  // comment
  write_file(path, out);
}

}  // namespace stridec::cli
