#include "compiler/frontend/torchscript/archive.h"

#include <algorithm>
#include <charconv>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"

namespace stridec::torchscript {
namespace {

constexpr int kOldest = 1, kNewest = 10;
constexpr uint64_t kLongestText = uint64_t{1} << 28;  // of a source or a pickle
constexpr const char* kExport =
    "export the module: torch.export.save(torch.export.export(module, inputs), 'model.pt2'), or "
    "torch.jit.script(module).save('model.pt')";

std::string_view text_of(const ZipBytes& data) {
  return {reinterpret_cast<const char*>(data.bytes), data.size};
}
std::string_view text_of(const graph::Data& file, size_t most) {
  return {reinterpret_cast<const char*>(file.bytes), std::min<size_t>(file.size, most)};
}

std::string trimmed(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  return std::string(text);
}

// The folder of a member; none if the archive has no such member. A nested one of the same name loses.
std::optional<std::string> folder_of(const ZipFile& zip, std::string_view member) {
  std::optional<std::string> out;
  for (const ZipEntry& entry : zip.entries) {
    const std::string_view name = entry.name;
    const bool is_it =
        name == member || (name.ends_with(member) && name[name.size() - member.size() - 1] == '/');
    if (!is_it) continue;
    const std::string_view folder = name.substr(0, name.size() - member.size());
    if (std::ranges::count(folder, '/') > 1) continue;
    if (!out || folder.size() < out->size()) out = std::string(folder);
  }
  return out;
}

ZipFile open(const graph::Data& file) {
  return open_zip({file.owner, file.bytes, file.size},
                  "save the module again; a copy that was interrupted leaves a truncated file");
}

bool has_sources(const ZipFile& zip, const std::string& root) {
  return std::ranges::any_of(zip.entries, [&](const ZipEntry& e) {
    return e.name.starts_with(root + "code/") && e.name.ends_with(".py");
  });
}

// A pickle of torch.save before 1.6 starts with its magic number, 0x1950a86a20f9469cfc6c.
constexpr std::string_view kOldCheckpoint("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 14);
// Flatbuffers have their file identifier after the offset of the root.
bool is_mobile_flatbuffer(const graph::Data& file) { return text_of(file, 8).substr(4) == "PTMF"; }

[[noreturn]] void refuse_checkpoint() {
  fail(ErrorKind::kUnsupported, "checkpoint",
       "the file is a checkpoint of torch.save, which has weights and no program", kExport);
}

int version_of(const ZipFile& zip, const std::string& root) {
  for (const char* name : {".data/version", "version"}) {
    const ZipEntry* entry = find_entry(zip, root + name);
    if (!entry) continue;
    const std::string text = trimmed(text_of(read_entry(zip, *entry, ZipCheck::kInflated, 64)));
    int version = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version);
    if (error == std::errc() && end == text.data() + text.size()) return version;
    fail(ErrorKind::kMalformed, "bad-archive", "the version of the archive is not a number");
  }
  fail(ErrorKind::kMalformed, "bad-archive", "the archive has no version");
}

ItemRef read_member(const ZipFile& zip, const std::string& name) {
  const ZipEntry* entry = find_entry(zip, name);
  if (!entry) return nullptr;
  return read_pickle(text_of(read_entry(zip, *entry, ZipCheck::kAll, kLongestText)), cat("'", name, "'"));
}

std::optional<std::string> read_text(const Archive& archive, const std::string& module, const char* suffix) {
  const std::string path = cat(archive.root, "code/", replaced(module, ".", "/"), suffix);
  const ZipEntry* entry = find_entry(archive.zip, path);
  if (!entry) return std::nullopt;
  return std::string(text_of(read_entry(archive.zip, *entry, ZipCheck::kInflated, kLongestText)));
}

}  // namespace

bool is_of_pytorch(const graph::Data& file) {
  if (text_of(file, kOldCheckpoint.size()) == kOldCheckpoint) return true;
  if (file.size >= 8 && is_mobile_flatbuffer(file)) return true;
  if (!is_zip(file.bytes, file.size)) return false;
  try {
    const ZipFile zip = open(file);
    return folder_of(zip, "data.pkl") || folder_of(zip, "bytecode.pkl") || folder_of(zip, "model.json");
  } catch (const Error&) {
    // Damaged: the names of the first and the last members are all there is.
    constexpr size_t kEnds = size_t{1} << 16;
    const std::string_view all = text_of(file, file.size);
    const std::string_view ends[] = {all.substr(0, kEnds),
                                     all.substr(all.size() - std::min(all.size(), kEnds))};
    return std::ranges::any_of(ends, [](std::string_view text) {
      return text.find("/data.pkl") != std::string_view::npos ||
             text.find("/code/__torch__") != std::string_view::npos;
    });
  }
}

Archive read_archive(const graph::Data& file) {
  if (text_of(file, kOldCheckpoint.size()) == kOldCheckpoint) refuse_checkpoint();
  if (is_mobile_flatbuffer(file))
    fail(ErrorKind::kUnsupported, "mobile-file",
         "the file is a flatbuffer of PyTorch Mobile, without sources",
         "save the module with torch.jit.save");
  Archive out;
  out.zip = open(file);
  const auto root = folder_of(out.zip, "data.pkl");
  if (!root) {
    if (folder_of(out.zip, "model.json"))
      fail(ErrorKind::kUnsupported, "old-archive", "the file is of a PyTorch before 1.4",
           "load it and save it again in PyTorch 1.4 or later");
    fail(ErrorKind::kUnsupported, "mobile-file", "the file has bytecode of PyTorch Mobile, without sources",
         "save the module with torch.jit.save");
  }
  out.root = *root;
  if (!has_sources(out.zip, out.root)) {
    if (find_entry(out.zip, out.root + "bytecode.pkl"))
      fail(ErrorKind::kUnsupported, "mobile-file", "the file has bytecode of PyTorch Mobile, without sources",
           "save the module with torch.jit.save");
    refuse_checkpoint();
  }
  if (const ZipEntry* order = find_entry(out.zip, out.root + "byteorder"))
    if (trimmed(text_of(read_entry(out.zip, *order, ZipCheck::kInflated, 64))) == "big")
      fail(ErrorKind::kUnsupported, "byte-order", "the module's weights are big-endian",
           "save the module on a little-endian machine");
  out.version = version_of(out.zip, out.root);
  if (out.version < kOldest || out.version > kNewest)
    fail(ErrorKind::kUnsupported, "archive-version",
         cat("the file has version ", out.version, ", not ", kOldest, " to ", kNewest));
  out.module = read_member(out.zip, out.root + "data.pkl");
  out.constants = read_member(out.zip, out.root + "constants.pkl");
  if (out.constants && out.constants->kind != Item::Kind::kTuple)
    fail(ErrorKind::kMalformed, "bad-archive", "constants.pkl is not a tuple");
  try {
    out.traced_inputs = read_member(out.zip, out.root + "traced_inputs.pkl");
  } catch (const Error&) {
    out.traced_inputs = nullptr;  // samples of the user's own classes; the program itself may be sound
  }
  return out;
}

std::optional<std::string> read_source(const Archive& archive, const std::string& module) {
  return read_text(archive, module, ".py");
}
std::optional<std::string> read_debug(const Archive& archive, const std::string& module) {
  return read_text(archive, module, ".py.debug_pkl");
}

graph::Data read_storage(const Archive& archive, const std::string& folder, const std::string& name) {
  const ZipEntry* entry = find_entry(archive.zip, cat(archive.root, folder, "/", name));
  if (!entry)
    fail(ErrorKind::kMalformed, "bad-archive", cat("the archive has no member '", folder, "/", name, "'"),
         "save the module again with torch.jit.save");
  const ZipBytes data = read_entry(archive.zip, *entry);
  return {.owner = data.owner, .bytes = data.bytes, .size = data.size};
}

}  // namespace stridec::torchscript
