#include "compiler/package/elf.h"

#include <elf.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>

#include "compiler/base/check.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "runtime/include/stridec/abi.h"
#include "runtime/include/stridec/seal.h"

namespace stridec::package {
namespace {

constexpr uint64_t kPage = 4096;

// Large weights have the same offset modulo this size in memory and in the file. If the kernel keeps the file
// in huge pages, it can then map them as huge pages.
constexpr uint64_t kHugePage = 2 << 20;

constexpr uint64_t round_up(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

[[noreturn]] void malformed(const std::string& what) { fail(ErrorKind::kMalformed, "not-an-artifact", what); }

// Reads a file that may be hostile: everything is bounds-checked and copied.
struct Elf {
  std::string_view file;
  Elf64_Ehdr header;
  std::vector<Elf64_Phdr> segments;

  explicit Elf(std::string_view file) : file(file), header(read<Elf64_Ehdr>(0)) {
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_machine != EM_X86_64 || header.e_type != ET_DYN || header.e_phentsize != sizeof(Elf64_Phdr))
      malformed("the file is not an x86-64 shared object");
    if (header.e_phnum > STRIDEC_SEAL_MOST_SEGMENTS)
      malformed(cat("the file has ", header.e_phnum, " segments"));
    for (int i = 0; i < header.e_phnum; ++i)
      segments.push_back(read<Elf64_Phdr>(header.e_phoff + i * sizeof(Elf64_Phdr)));
  }

  std::string_view bytes(uint64_t offset, uint64_t size) const {
    if (offset > file.size() || size > file.size() - offset) malformed("the file is truncated");
    return file.substr(offset, size);
  }

  template <class T>
  T read(uint64_t offset) const {
    T value;
    std::memcpy(&value, bytes(offset, sizeof value).data(), sizeof value);
    return value;
  }

  std::string text(uint64_t offset) const {
    const std::string_view rest = bytes(offset, file.size() - std::min<uint64_t>(offset, file.size()));
    const size_t end = rest.find('\0');
    if (end == rest.npos) malformed("the file is truncated");
    return std::string(rest.substr(0, end));
  }

  uint64_t offset_of(uint64_t address) const {
    for (const Elf64_Phdr& s : segments)
      if (s.p_type == PT_LOAD && address >= s.p_vaddr && address - s.p_vaddr < s.p_filesz)
        return s.p_offset + (address - s.p_vaddr);
    malformed("an address is outside the file's segments");
  }

  bool is_note(uint64_t offset) const {
    const auto note = read<stridec_abi_note>(offset);
    return note.name_bytes == sizeof note.name &&
           std::memcmp(note.name, STRIDEC_ABI_NOTE_NAME, sizeof note.name) == 0;
  }

  // The file offset of the runtime's note. make_head() replaces the PT_NOTE segment; after that, the note is
  // found in the first PT_LOAD segment, where the linker placed its section.
  std::optional<uint64_t> find_note() const {
    for (const Elf64_Phdr& s : segments) {
      const bool holds_notes = s.p_type == PT_NOTE || (s.p_type == PT_LOAD && s.p_offset == 0);
      for (uint64_t at = 0; holds_notes && at + sizeof(stridec_abi_note) <= s.p_filesz; at += 4)
        if (is_note(s.p_offset + at)) return s.p_offset + at;
    }
    return std::nullopt;
  }
};

void check_seal(const Elf& elf) {
  switch (stridec_seal_check(elf.file.data(), elf.file.size())) {
    case STRIDEC_SEAL_INTACT: return;
    case STRIDEC_SEAL_CUT_SHORT: malformed("the file is truncated");
    default:
      malformed(
          "the file was altered since stridec wrote it: its contents do not have the hash that it names");
  }
}

template <class T>
void store(std::string& bytes, uint64_t offset, const T& value) {
  STRIDEC_CHECK(offset + sizeof value <= bytes.size());
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

// Recomputes the hash of a complete artifact.
void write_seal(std::string& file) {
  uint64_t hash = 0, seal = 0;
  STRIDEC_CHECK(stridec_seal_hash(file.data(), file.size(), nullptr, nullptr, &hash, &seal));
  store(file, seal + offsetof(stridec_abi_seal, hash), hash);
}

// The linked file, padded to the start of the payload that follows it. Its headers describe the payload.
struct Head {
  std::string bytes;
  uint64_t manifest_offset;  // in the payload
  uint64_t images_offset;
  uint64_t payload_bytes;
};

Head make_head(std::string_view shared_object, const Payload& payload) {
  const Elf elf(shared_object);
  const std::optional<uint64_t> note_offset = elf.find_note();
  STRIDEC_CHECK(note_offset,
                "the linked object has no note for the weights; is the runtime among its inputs?");
  const auto note_segment = std::find_if(elf.segments.begin(), elf.segments.end(), [&](const Elf64_Phdr& s) {
    return s.p_type == PT_NOTE && *note_offset >= s.p_offset && *note_offset < s.p_offset + s.p_filesz;
  });
  STRIDEC_CHECK(note_segment != elf.segments.end());

  Head head;
  head.bytes = shared_object;
  head.manifest_offset = round_up(payload.weights_bytes, 64);
  head.images_offset = round_up(head.manifest_offset + payload.manifest.size(), 64);
  const uint64_t end = payload.images.empty() ? head.manifest_offset + payload.manifest.size()
                                              : head.images_offset + payload.images.size();
  head.payload_bytes = round_up(end, 8) + sizeof(stridec_abi_seal);

  // The section headers move to the end of the file, with a new one as the last.
  const uint64_t table = round_up(shared_object.size(), 8);
  const uint64_t start = round_up(table + (elf.header.e_shnum + 1) * sizeof(Elf64_Shdr), kPage);
  uint64_t end_of_memory = 0;
  for (const Elf64_Phdr& s : elf.segments)
    if (s.p_type == PT_LOAD) end_of_memory = std::max(end_of_memory, s.p_vaddr + s.p_memsz);
  const uint64_t unit = payload.weights_bytes >= 2 * kHugePage ? kHugePage : kPage;
  const uint64_t behind = start % unit,
                 address = end_of_memory <= behind ? behind : round_up(end_of_memory - behind, unit) + behind;
  head.bytes.resize(start);

  uint32_t name = 0;
  for (int i = 0; i < elf.header.e_shnum; ++i) {
    const auto section = elf.read<Elf64_Shdr>(elf.header.e_shoff + i * sizeof(Elf64_Shdr));
    // ".stridec" is the suffix of the existing name ".note.stridec".
    if (section.sh_type == SHT_NOTE && section.sh_offset == *note_offset)
      name = section.sh_name + std::strlen(".note");
    store(head.bytes, table + i * sizeof section, section);
  }
  store(head.bytes, table + elf.header.e_shnum * sizeof(Elf64_Shdr),
        Elf64_Shdr{.sh_name = name,
                   .sh_type = SHT_PROGBITS,
                   .sh_flags = SHF_ALLOC,
                   .sh_addr = address,
                   .sh_offset = start,
                   .sh_size = head.payload_bytes,
                   .sh_link = 0,
                   .sh_info = 0,
                   .sh_addralign = kPage,
                   .sh_entsize = 0});
  Elf64_Ehdr header = elf.header;
  header.e_shoff = table;
  header.e_shnum += 1;
  store(head.bytes, 0, header);

  // Loadable segments must ascend by address, so the new one follows the last of them.
  std::vector<Elf64_Phdr> segments(elf.segments.begin(), note_segment);
  segments.insert(segments.end(), note_segment + 1, elf.segments.end());
  const auto last_load = std::find_if(segments.rbegin(), segments.rend(),
                                      [](const Elf64_Phdr& s) { return s.p_type == PT_LOAD; });
  segments.insert(last_load.base(), Elf64_Phdr{.p_type = PT_LOAD,
                                               .p_flags = PF_R,
                                               .p_offset = start,
                                               .p_vaddr = address,
                                               .p_paddr = address,
                                               .p_filesz = head.payload_bytes,
                                               .p_memsz = head.payload_bytes,
                                               .p_align = unit});
  for (size_t i = 0; i < segments.size(); ++i)
    store(head.bytes, elf.header.e_phoff + i * sizeof(Elf64_Phdr), segments[i]);

  auto note = elf.read<stridec_abi_note>(*note_offset);
  note.weights_address = payload.weights_bytes ? address : 0;
  note.weights_bytes = payload.weights_bytes;
  note.manifest_address = payload.manifest.empty() ? 0 : address + head.manifest_offset;
  note.manifest_bytes = payload.manifest.size();
  note.images_address = payload.images.empty() ? 0 : address + head.images_offset;
  note.images_bytes = payload.images.size();
  store(head.bytes, *note_offset, note);
  return head;
}

// Counts the bytes written, for progress, and hashes them while they are in the cache.
struct Writer {
  UnfinishedFile& file;
  const std::function<void(uint64_t, uint64_t)>& progress;
  uint64_t total, done = 0;
  stridec_xxh64_state hash = {};

  void write(std::string_view bytes) {
    constexpr size_t kChunk = 512 << 10;
    while (!bytes.empty()) {
      const std::string_view chunk = bytes.substr(0, kChunk);
      file.write(chunk.data(), chunk.size());
      stridec_xxh64_add(&hash, chunk.data(), chunk.size());
      done += chunk.size();
      bytes.remove_prefix(chunk.size());
      if (progress) progress(done, total);
    }
  }

  void write_zeros_until(uint64_t end) {
    static constexpr char kZeros[1 << 16] = {};
    while (done < end) write({kZeros, std::min<uint64_t>(sizeof kZeros, end - done)});
  }
};

// Writes the payload except the hash at its end.
void write_payload(Writer& writer, const Head& head, const Payload& payload) {
  const uint64_t start = head.bytes.size();
  for (const WeightPiece& piece : payload.weights) {
    STRIDEC_CHECK(start + piece.offset >= writer.done, "pieces of the weights overlap");
    STRIDEC_CHECK(piece.offset + piece.bytes.size() <= payload.weights_bytes);
    writer.write_zeros_until(start + piece.offset);
    writer.write(piece.bytes);
  }
  writer.write_zeros_until(start + head.manifest_offset);
  writer.write(payload.manifest);
  if (!payload.images.empty()) writer.write_zeros_until(start + head.images_offset);
  writer.write(payload.images);
  writer.write_zeros_until(start + head.payload_bytes - sizeof(stridec_abi_seal));
  writer.write({STRIDEC_ABI_SEAL_MARK, sizeof stridec_abi_seal::mark});
}

}  // namespace

void write_artifact(UnfinishedFile& file, std::string_view shared_object, const Payload& payload) {
  const Head head = make_head(shared_object, payload);
  Writer writer{file, payload.progress, head.bytes.size() + head.payload_bytes};
  writer.write(head.bytes);
  auto write_and_hash = [&](uint64_t seed) {
    writer.hash = stridec_xxh64_begin(seed);
    write_payload(writer, head, payload);
    return stridec_xxh64_end(&writer.hash);
  };
  const auto call = [](void* user, uint64_t seed) {
    return (*static_cast<decltype(write_and_hash)*>(user))(seed);
  };
  uint64_t hash = 0, seal = 0;
  const bool whole =
      stridec_seal_hash(head.bytes.data(), head.bytes.size(), call, &write_and_hash, &hash, &seal);
  STRIDEC_CHECK(whole);
  writer.write({reinterpret_cast<const char*>(&hash), sizeof hash});
}

ArtifactLayout artifact_layout(std::string_view file) {
  const Elf elf(file);
  const std::optional<uint64_t> offset = elf.find_note();
  if (!offset) malformed("the file is a shared object, but not one that stridec wrote");
  const auto note = elf.read<stridec_abi_note>(*offset);
  if (note.type < STRIDEC_ABI_OLDEST || note.type > STRIDEC_ABI_VERSION)
    malformed(cat("the artifact has format ", note.type, "; this stridec reads formats ", STRIDEC_ABI_OLDEST,
                  " to ", STRIDEC_ABI_VERSION));
  ArtifactLayout layout;
  if (note.weights_bytes) layout.weights_offset = elf.offset_of(note.weights_address);
  if (note.manifest_bytes) layout.manifest_offset = elf.offset_of(note.manifest_address);
  layout.weights_bytes = elf.bytes(layout.weights_offset, note.weights_bytes).size();
  layout.manifest_bytes = elf.bytes(layout.manifest_offset, note.manifest_bytes).size();
  if (note.images_bytes) layout.images_offset = elf.offset_of(note.images_address);
  layout.images_bytes = elf.bytes(layout.images_offset, note.images_bytes).size();
  check_seal(elf);
  return layout;
}

void replace_weights(std::string& file, const ArtifactLayout& layout, uint64_t offset,
                     std::string_view bytes) {
  STRIDEC_CHECK(offset <= layout.weights_bytes && bytes.size() <= layout.weights_bytes - offset);
  std::memcpy(file.data() + layout.weights_offset + offset, bytes.data(), bytes.size());
  write_seal(file);
}

void replace_weights_file(std::string& file, const ArtifactLayout& layout, const std::string& name,
                          uint64_t hash, std::string_view manifest) {
  STRIDEC_CHECK(!layout.weights_bytes && layout.manifest_bytes);
  constexpr std::string_view kMark(STRIDEC_ABI_WEIGHTS_MARK, sizeof stridec_abi_weights_file::mark);
  const uint64_t start = layout.manifest_offset;
  const size_t at = file.find(kMark);
  if (at >= start || start - at < sizeof(stridec_abi_weights_file) || file.find(kMark, at + 1) < start)
    fail(ErrorKind::kUnsupported, "external-weights",
         "the artifact was compiled by a stridec whose artifacts cannot rename the file of their weights",
         "compile it again");
  STRIDEC_CHECK(name.size() < sizeof stridec_abi_weights_file::name);
  stridec_abi_weights_file weights = {.mark = STRIDEC_ABI_WEIGHTS_MARK, .hash = hash, .name = {}};
  name.copy(weights.name, name.size());
  store(file, at, weights);

  // The payload is the last segment of the file: manifest, images and hash.
  const std::string images = file.substr(layout.images_offset, layout.images_bytes);
  file.resize(start);
  file += manifest;
  const uint64_t images_offset = round_up(manifest.size(), 64);
  if (!images.empty()) file.resize(start + images_offset), file += images;
  file.resize(start + round_up(file.size() - start, 8));
  stridec_abi_seal last = {.mark = STRIDEC_ABI_SEAL_MARK, .hash = 0};
  file.append(reinterpret_cast<const char*>(&last), sizeof last);

  const Elf elf(file);
  const uint64_t bytes = file.size() - start;
  uint64_t address = 0;
  for (size_t i = 0; i < elf.segments.size(); ++i) {
    Elf64_Phdr segment = elf.segments[i];
    if (segment.p_type != PT_LOAD || segment.p_offset != start) continue;
    address = segment.p_vaddr;
    segment.p_filesz = segment.p_memsz = bytes;
    store(file, elf.header.e_phoff + i * sizeof segment, segment);
  }
  for (int i = 0; i < elf.header.e_shnum; ++i) {
    const uint64_t place = elf.header.e_shoff + i * sizeof(Elf64_Shdr);
    auto section = elf.read<Elf64_Shdr>(place);
    if (section.sh_type != SHT_PROGBITS || section.sh_offset != start) continue;
    section.sh_size = bytes;
    store(file, place, section);
  }
  const uint64_t place = elf.find_note().value();
  auto note = elf.read<stridec_abi_note>(place);
  note.manifest_bytes = manifest.size();
  if (!images.empty()) note.images_address = address + images_offset;
  store(file, place, note);
  write_seal(file);
}

LoaderNeeds loader_needs(std::string_view file) {
  const Elf elf(file);
  std::vector<Elf64_Dyn> entries;
  for (const Elf64_Phdr& s : elf.segments) {
    if (s.p_type != PT_DYNAMIC) continue;
    for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= s.p_filesz; at += sizeof(Elf64_Dyn))
      entries.push_back(elf.read<Elf64_Dyn>(s.p_offset + at));
  }
  const auto value = [&](int64_t tag) -> std::optional<uint64_t> {
    for (const Elf64_Dyn& e : entries)
      if (e.d_tag == tag) return e.d_un.d_val;
    return std::nullopt;
  };
  if (!value(DT_STRTAB)) malformed("the file has no dynamic section");
  const uint64_t strings = elf.offset_of(*value(DT_STRTAB));

  LoaderNeeds needs;
  for (const Elf64_Dyn& e : entries) {
    if (e.d_tag == DT_NULL) break;
    if (e.d_tag == DT_NEEDED) needs.libraries.push_back(elf.text(strings + e.d_un.d_val));
    if (e.d_tag == DT_SONAME) needs.soname = elf.text(strings + e.d_un.d_val);
  }
  // Elf64_Verneed per library, each with a chain of Elf64_Vernaux.
  uint64_t library = value(DT_VERNEED) ? elf.offset_of(*value(DT_VERNEED)) : 0;
  for (uint64_t left = value(DT_VERNEEDNUM).value_or(0); left > 0 && library; --left) {
    const auto need = elf.read<Elf64_Verneed>(library);
    uint64_t version = library + need.vn_aux;
    for (int i = 0; i < need.vn_cnt; ++i) {
      const auto aux = elf.read<Elf64_Vernaux>(version);
      needs.versions.push_back(elf.text(strings + aux.vna_name));
      if (aux.vna_next == 0) break;
      version += aux.vna_next;
    }
    if (need.vn_next == 0) break;
    library += need.vn_next;
  }
  std::sort(needs.versions.begin(), needs.versions.end());
  const auto number = [](const std::string& v) {
    std::vector<int> parts(1);
    for (char c : v)
      if (c == '.')
        parts.push_back(0);
      else if (c >= '0' && c <= '9')
        parts.back() = parts.back() * 10 % 100000 + (c - '0');
    return parts;
  };
  for (const std::string& v : needs.versions) {
    if (!v.starts_with("GLIBC_2")) continue;
    const std::string plain = v.substr(std::strlen("GLIBC_"));
    if (needs.glibc.empty() || number(needs.glibc) < number(plain)) needs.glibc = plain;
  }
  return needs;
}

}  // namespace stridec::package
