#include "compiler/codegen/cpu/kernel_object.h"

#include <elf.h>

#include <cstring>
#include <vector>

#include "compiler/base/check.h"
#include "compiler/base/text.h"

namespace stridec::codegen::cpu {
namespace {

template <class T>
T read(std::string_view object, uint64_t at) {
  STRIDEC_CHECK(at <= object.size() && object.size() - at >= sizeof(T));
  T out;
  std::memcpy(&out, object.data() + at, sizeof out);
  return out;
}

std::string_view name_at(std::string_view object, const Elf64_Shdr& names, uint64_t offset) {
  const uint64_t at = names.sh_offset + offset;
  STRIDEC_CHECK(at < object.size());
  return object.substr(at, object.find('\0', at) - at);
}

bool runs_when_loaded(const Elf64_Shdr& section, std::string_view name) {
  if (section.sh_type == SHT_INIT_ARRAY || section.sh_type == SHT_FINI_ARRAY ||
      section.sh_type == SHT_PREINIT_ARRAY)
    return true;
  for (const std::string_view each : {".init", ".fini", ".preinit", ".ctors", ".dtors"})
    if (name.starts_with(each)) return true;
  return false;
}

// Constants with addresses are written once, by the loader.
bool is_writable(const Elf64_Shdr& section, std::string_view name) {
  return (section.sh_flags & SHF_WRITE) != 0 && (section.sh_flags & SHF_ALLOC) != 0 && section.sh_size > 0 &&
         !name.starts_with(".data.rel.ro");
}

// The functions of libc that artifacts may call.
bool is_given(std::string_view name) {
  return name == "memcpy" || name == "memmove" || name == "memset" || name == "memcmp";
}

std::string changes(std::string_view variable) {
  return cat("has a variable ", variable.empty() ? "" : cat("'", variable, "' "),
             "that calls can change: a variable outside of functions, or a static one, must be const");
}

}  // namespace

std::string problem_of_kernel_object(std::string_view object) {
  const auto header = read<Elf64_Ehdr>(object, 0);
  std::vector<Elf64_Shdr> sections;
  for (uint64_t i = 0; i < header.e_shnum; ++i)
    sections.push_back(read<Elf64_Shdr>(object, header.e_shoff + i * header.e_shentsize));
  const Elf64_Shdr& names = sections.at(header.e_shstrndx);
  std::vector<bool> writable;
  std::string_view undefined;
  for (const Elf64_Shdr& section : sections) {
    const std::string_view name = name_at(object, names, section.sh_name);
    if (runs_when_loaded(section, name))
      return "has a function that runs when the library is loaded or unloaded: a kernel cannot have "
             "constructors and destructors";
    writable.push_back(is_writable(section, name));
  }
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_SYMTAB) continue;
    for (uint64_t at = 0; at < section.sh_size; at += sizeof(Elf64_Sym)) {
      const auto symbol = read<Elf64_Sym>(object, section.sh_offset + at);
      const std::string_view name = name_at(object, sections.at(section.sh_link), symbol.st_name);
      const int type = ELF64_ST_TYPE(symbol.st_info);
      if (type == STT_GNU_IFUNC)
        return cat("chooses the function '", name, "' when the library is loaded: a kernel cannot use ifunc");
      if (symbol.st_shndx == SHN_UNDEF && !name.empty() && name != "_GLOBAL_OFFSET_TABLE_" && !is_given(name))
        undefined = name;
      const bool object_or_tls = type == STT_OBJECT || type == STT_TLS || type == STT_COMMON;
      const bool writes =
          symbol.st_shndx == SHN_COMMON || (symbol.st_shndx < writable.size() && writable[symbol.st_shndx]);
      if (object_or_tls && writes) return changes(name);
    }
  }
  for (const bool each : writable)
    if (each) return changes("");
  return undefined.empty()
             ? ""
             : cat("refers to undefined names: '", undefined, "' is not a function that a kernel may call");
}

}  // namespace stridec::codegen::cpu
