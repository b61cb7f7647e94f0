#include "cli/npz.h"

#include <zlib.h>

#include <string_view>

#include "compiler/base/diagnostic.h"
#include "compiler/base/files.h"
#include "compiler/base/text.h"
#include "compiler/base/zip.h"
#include "compiler/frontend/common/mapped_file.h"

namespace stridec::cli {
namespace {

constexpr std::string_view kEnding = ".npy";  // of a member

[[noreturn]] void malformed(const std::string& path, const std::string& why) {
  fail(ErrorKind::kMalformed, "bad-npz", cat("'", path, "' is not a readable .npz file: ", why));
}

ZipFile open_archive(const std::string& path) {
  const auto file = frontend::map_file(path);
  try {
    return open_zip({file, reinterpret_cast<const uint8_t*>(file->bytes.data()), file->bytes.size()});
  } catch (const Error& error) {
    malformed(path, error.diagnostic.message);
  }
}

std::vector<std::string> names_in(const ZipFile& zip) {
  std::vector<std::string> names;
  for (const ZipEntry& entry : zip.entries)
    if (entry.name.ends_with(kEnding))
      names.push_back(entry.name.substr(0, entry.name.size() - kEnding.size()));
  return names;
}

std::string contents_of(const ZipFile& zip, const ZipEntry& entry, const std::string& path) {
  try {
    const ZipBytes contents = read_entry(zip, entry, ZipCheck::kAll);
    return {reinterpret_cast<const char*>(contents.bytes), contents.size};
  } catch (const Error& error) {
    if (error.diagnostic.kind == ErrorKind::kMalformed) malformed(path, error.diagnostic.message);
    if (error.diagnostic.kind == ErrorKind::kUnsupported)
      fail(ErrorKind::kUnsupported, "npz-compression", cat("'", path, "': ", error.diagnostic.message),
           "save it by numpy.savez or numpy.savez_compressed");
    throw;
  }
}

constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50;
constexpr size_t kLocalBytes = 30;

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

std::vector<std::string> npz_names(const std::string& path) { return names_in(open_archive(path)); }

std::string file_of(const std::string& given) {
  constexpr std::string_view kArchive = ".npz:";
  const size_t colon = given.rfind(kArchive);
  return colon == std::string::npos ? given : given.substr(0, colon + kArchive.size() - 1);
}

Array read_array(const std::string& given, DType expected) {
  const std::string file = file_of(given);
  return file == given ? read_npy(given, expected) : read_npz(file, given.substr(file.size() + 1), expected);
}

Array read_npz(const std::string& path, const std::string& name, DType expected) {
  const ZipFile zip = open_archive(path);
  if (const ZipEntry* entry = find_entry(zip, cat(name, kEnding)))
    return parse_npy(contents_of(zip, *entry, path), cat(path, ":", name), expected);
  const std::vector<std::string> names = names_in(zip);
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
