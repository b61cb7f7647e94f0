#include "compiler/frontend/pt2/archive.h"

#include <algorithm>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/base/zip.h"
#include "compiler/frontend/pt2/json.h"
#include "compiler/frontend/pt2/pickle.h"

namespace stridec::pt2 {
namespace {

constexpr const char* kOldProgram = "serialized_exported_program.json";
constexpr const char* kSaveAgain = "save it again with torch.export.save of PyTorch 2.9 or later";

// The folder that all members are in, with its slash; empty for archives without one.
std::string root_of(const ZipFile& zip) {
  for (const ZipEntry& entry : zip.entries) {
    const size_t slash = entry.name.find('/');
    if (entry.name.substr(slash == std::string::npos ? 0 : slash + 1) == "archive_format")
      return slash == std::string::npos ? "" : entry.name.substr(0, slash + 1);
  }
  return "";
}

ZipFile open(const graph::Data& file) {
  return open_zip({file.owner, file.bytes, file.size},
                  "save the program again; an export that fails leaves a truncated file");
}

std::string_view text_of(const ZipBytes& data) {
  return {reinterpret_cast<const char*>(data.bytes), data.size};
}

std::string trimmed(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  return std::string(text);
}

void read_payloads(const ZipFile& zip, const std::string& folder, const std::string& config, Archive& out) {
  const ZipEntry* list = find_entry(zip, config);
  if (!list) return;
  for (auto& [name, payload] : decode_payloads(text_of(read_entry(zip, *list)))) {
    if (payload.pickled) {
      out.refused[name] = "it is a pickled Python object, not a plain tensor";
      continue;
    }
    if (!payload.meta) malformed(cat("'", name, "' has no tensor_meta"));
    const ZipEntry* entry = find_entry(zip, folder + payload.path);
    if (!entry) malformed(cat("the archive has no member '", folder, payload.path, "' for '", name, "'"));
    const ZipBytes data = read_entry(zip, *entry);
    // All fake tensors are written as one empty storage, though each has its own.
    out.tensors[name] = {std::move(*payload.meta),
                         data.size == 0 ? cat(entry->name, "/", name) : entry->name,
                         {data.owner, data.bytes, data.size}};
  }
}

// A dict of tensors as torch.save writes it: an archive in the archive.
void read_saved_tensors(const ZipFile& zip, const ZipEntry& entry, Archive& out) {
  const Saved saved = read_saved(read_entry(zip, entry), cat("'", entry.name, "'"));
  if (saved.value->kind != Item::Kind::kDict) malformed(cat("'", entry.name, "' is not a dict of tensors"));
  const auto& items = saved.value->items;
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    const std::string& name = items[i]->text;
    const Item& value = *items[i + 1];
    if (items[i]->kind != Item::Kind::kString)
      malformed(cat("'", entry.name, "' has a key that is not a name"));
    if (value.kind != Item::Kind::kTensor) {
      out.refused[name] = value.text.empty() ? "it is not a tensor" : cat("it is an object of ", value.text);
      continue;
    }
    const ZipEntry* storage = find_storage(saved, value.text);
    if (!storage) malformed(cat("'", entry.name, "' has no storage for '", name, "'"));
    const ZipBytes data = read_entry(saved.zip, *storage);
    out.tensors[name] = {
        value.meta, cat(entry.name, "/", storage->name), {data.owner, data.bytes, data.size}};
  }
}

// The program of the name; with "", the archive's only one.
std::string chosen(const std::vector<std::string>& names, const std::string& name) {
  if (name.empty() && names.size() > 1)
    fail(ErrorKind::kUsage, "several-programs",
         cat("the archive holds ", names.size(), " programs: ", join(names, ", ")),
         cat("--method ", names[0],
             " compiles one; --function NAME=FILE and --method NAME:PROGRAM make "
             "functions of several"));
  if (!name.empty() && std::ranges::count(names, name) == 0)
    fail(ErrorKind::kUsage, "no-method",
         cat("the archive has no program '", name, "' but ", join(names, ", ")),
         "--method NAME compiles another one");
  return name.empty() ? names[0] : name;
}

std::vector<std::string> program_names(const ZipFile& zip, const std::string& folder) {
  std::vector<std::string> names;
  for (const ZipEntry& entry : zip.entries)
    if (entry.name.starts_with(folder) && entry.name.ends_with(".json"))
      names.push_back(entry.name.substr(folder.size(), entry.name.size() - folder.size() - 5));
  if (names.empty())
    fail(ErrorKind::kMalformed, "no-program", "the archive has no exported program (no models/*.json)",
         "an AOTInductor package holds compiled code only: save the program with torch.export.save");
  return names;
}

// PyTorch 2.1 to 2.7.
Archive read_old_archive(const ZipFile& zip, const ZipEntry& program, const std::string& name) {
  Archive out;
  out.model = chosen({"model"}, name);
  out.program = decode_program(text_of(read_entry(zip, program)));
  for (const char* name : {"serialized_state_dict.pt", "serialized_constants.pt"})
    if (const ZipEntry* saved = find_entry(zip, name)) read_saved_tensors(zip, *saved, out);
  return out;
}

}  // namespace

bool holds_program(const graph::Data& file) {
  const ZipFile zip = open(file);
  return find_entry(zip, kOldProgram) || find_entry(zip, root_of(zip) + "archive_format");
}

Archive read_archive(const graph::Data& file, const std::string& program_name) {
  const ZipFile zip = open(file);
  if (const ZipEntry* program = find_entry(zip, kOldProgram))
    return read_old_archive(zip, *program, program_name);
  const std::string root = root_of(zip);
  const ZipEntry* format = find_entry(zip, root + "archive_format");
  if (!format || trimmed(text_of(read_entry(zip, *format))) != "pt2")
    fail(
        ErrorKind::kMalformed, "unknown-format", "the zip archive holds no exported program",
        "a TorchScript file or a state dict is a zip archive too: export the module with torch.export.export "
        "and save it with torch.export.save");
  if (const ZipEntry* version = find_entry(zip, root + "archive_version"))
    if (const std::string text = trimmed(text_of(read_entry(zip, *version))); text != "0")
      fail(ErrorKind::kUnsupported, "archive-version", cat("the archive has version ", text, ", not 0"));
  if (const ZipEntry* order = find_entry(zip, root + "byteorder"))
    if (trimmed(text_of(read_entry(zip, *order))) == "big")
      fail(ErrorKind::kUnsupported, "byte-order", "the program's weights are big-endian", kSaveAgain);

  const std::string folder = root + "models/";
  Archive out;
  out.model = chosen(program_names(zip, folder), program_name);
  out.program = decode_program(text_of(read_entry(zip, *find_entry(zip, folder + out.model + ".json"))));
  // PyTorch 2.8 pickles the weights.
  for (const char* kind : {"weights", "constants"})
    if (const ZipEntry* saved = find_entry(zip, cat(root, "data/", kind, "/", out.model, ".pt")))
      read_saved_tensors(zip, *saved, out);
  read_payloads(zip, root + "data/weights/", root + "data/weights/" + out.model + "_weights_config.json",
                out);
  read_payloads(zip, root + "data/constants/",
                root + "data/constants/" + out.model + "_constants_config.json", out);
  return out;
}

}  // namespace stridec::pt2
