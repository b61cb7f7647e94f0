#include "compiler/package/symbols.h"

#include <elf.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <vector>

#include "compiler/base/check.h"
#include "compiler/base/text.h"

namespace stridec::package {
namespace {

constexpr size_t kMostCharacters = 80;  // of a name, without its number

template <class T>
T read(std::string_view file, uint64_t at) {
  STRIDEC_CHECK(at <= file.size() && file.size() - at >= sizeof(T));
  T out;
  std::memcpy(&out, file.data() + at, sizeof out);
  return out;
}

template <class T>
void append(std::string& file, const T& value) {
  file.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string_view text_at(std::string_view file, const Elf64_Shdr& texts, uint64_t offset) {
  const uint64_t at = texts.sh_offset + offset;
  STRIDEC_CHECK(at < file.size());
  return file.substr(at, file.find('\0', at) - at);
}

struct Table {
  std::string symbols, texts;
  uint32_t locals = 0;
};

Table function_table(std::string_view file, const Elf64_Shdr& symbols, const Elf64_Shdr& texts,
                     const std::map<std::string, std::string>& names) {
  Table table;
  append(table.symbols, Elf64_Sym{});
  table.texts += '\0';
  std::string kernel;  // of the source file whose local symbols follow
  for (uint64_t at = sizeof(Elf64_Sym); at < symbols.sh_size; at += sizeof(Elf64_Sym)) {
    auto symbol = read<Elf64_Sym>(file, symbols.sh_offset + at);
    std::string name(text_at(file, texts, symbol.st_name));
    if (ELF64_ST_TYPE(symbol.st_info) == STT_FILE) {
      const auto unit = names.find(name.substr(0, name.rfind('.')));
      kernel = unit == names.end() ? "" : unit->second;
    }
    if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_shndx == SHN_UNDEF) continue;
    if (const auto other = names.find(name); other != names.end())
      name = other->second;
    else if (!kernel.empty() && ELF64_ST_BIND(symbol.st_info) == STB_LOCAL)
      name = cat(kernel, ".part");
    symbol.st_name = static_cast<uint32_t>(table.texts.size());
    table.texts += name;
    table.texts += '\0';
    append(table.symbols, symbol);
    // The linker has local symbols first, as the format demands.
    if (ELF64_ST_BIND(symbol.st_info) == STB_LOCAL)
      table.locals = static_cast<uint32_t>(table.symbols.size() / sizeof(Elf64_Sym));
  }
  table.locals = std::max<uint32_t>(table.locals, 1);
  return table;
}

}  // namespace

std::string function_name(std::string_view kernel, size_t number) {
  std::string name(kernel.substr(0, kMostCharacters));
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name.front()))) name = cat("k_", name);
  return cat(name, "_", number);
}

std::string name_functions(std::string shared_object, const std::map<std::string, std::string>& names) {
  const auto header = read<Elf64_Ehdr>(shared_object, 0);
  std::vector<Elf64_Shdr> sections;
  for (uint64_t i = 0; i < header.e_shnum; ++i)
    sections.push_back(read<Elf64_Shdr>(shared_object, header.e_shoff + i * header.e_shentsize));
  const auto found = std::ranges::find(sections, SHT_SYMTAB, &Elf64_Shdr::sh_type);
  if (found == sections.end()) return shared_object;
  const uint64_t start = found->sh_offset;
  Table table = function_table(shared_object, *found, sections.at(found->sh_link), names);
  found->sh_info = table.locals;
  // The table, the texts of names and the headers of sections are the end of the file, which is written anew.
  std::string end;
  for (Elf64_Shdr& section : sections) {
    if (section.sh_type == SHT_NULL || section.sh_offset < start) continue;
    STRIDEC_CHECK((section.sh_flags & SHF_ALLOC) == 0);
    const bool is_texts = &section == &sections[found->sh_link];
    const std::string bytes = &section == &*found ? table.symbols
                              : is_texts          ? table.texts
                                                  : shared_object.substr(section.sh_offset, section.sh_size);
    while ((start + end.size()) % std::max<uint64_t>(section.sh_addralign, 1) != 0) end += '\0';
    section.sh_offset = start + end.size(), section.sh_size = bytes.size();
    end += bytes;
  }
  while ((start + end.size()) % alignof(Elf64_Shdr) != 0) end += '\0';
  Elf64_Ehdr moved = header;
  moved.e_shoff = start + end.size();
  for (const Elf64_Shdr& section : sections) append(end, section);
  shared_object.replace(start, std::string::npos, end);
  std::memcpy(shared_object.data(), &moved, sizeof moved);
  return shared_object;
}

}  // namespace stridec::package
