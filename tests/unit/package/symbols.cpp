#include "compiler/package/symbols.h"

#include <doctest/doctest.h>
#include <elf.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "compiler/codegen/cpu/clang.h"
#include "compiler/codegen/cpu/link.h"

using namespace stridec;
using namespace stridec::package;

namespace {

std::string linked(codegen::Symbols symbols) {
  const std::string object = codegen::compile_to_object(
      "two.cpp",
      "extern \"C\" { __attribute__((noinline)) int k_0123(int x) { return 3 * x; }\n"
      "__attribute__((visibility(\"default\"))) int entry(int x) { return k_0123(x) + 1; }\n"
      "__attribute__((visibility(\"default\"))) extern const int table[2] = {1, 2}; }\n"
      "__attribute__((noinline)) int other(int x) { return x * x; }\n"
      "extern \"C\" __attribute__((visibility(\"default\"))) int second(int x) { return other(x) + 1; }",
      {.cpu = "x86-64", .optimize = 1});
  const codegen::LinkInput inputs[] = {{"two", object}};
  return codegen::link_shared(inputs, {.soname = "two.so", .symbols = symbols});
}

struct Named {
  std::string name;
  Elf64_Sym symbol;
};

// Of the table that has no effect on loading.
std::vector<Named> table_of(const std::string& file) {
  Elf64_Ehdr header;
  std::memcpy(&header, file.data(), sizeof header);
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  REQUIRE(header.e_shoff + sections.size() * sizeof(Elf64_Shdr) == file.size());
  std::memcpy(sections.data(), file.data() + header.e_shoff, sections.size() * sizeof(Elf64_Shdr));
  std::vector<Named> all;
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_SYMTAB) continue;
    const Elf64_Shdr& texts = sections.at(section.sh_link);
    for (uint64_t at = 0; at < section.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      std::memcpy(&symbol, file.data() + section.sh_offset + at, sizeof symbol);
      const uint64_t number = at / sizeof(Elf64_Sym);
      if (number > 0) CHECK((ELF64_ST_BIND(symbol.st_info) == STB_LOCAL) == (number < section.sh_info));
      all.push_back({file.c_str() + texts.sh_offset + symbol.st_name, symbol});
    }
  }
  return all;
}

}  // namespace

TEST_CASE("a kernel's name is an identifier with its number") {
  CHECK(function_name("conv+add+max", 3) == "conv_add_max_3");
  CHECK(function_name("", 1) == "k__1");
  CHECK(function_name("3d", 2) == "k_3d_2");
  CHECK(function_name("a\n\"b\xc3\xa4", 4) == "a__b___4");
  CHECK(function_name(std::string(5000, 'x'), 4).size() < 100);
}

TEST_CASE("the table of symbols has the functions alone, with the names that are given") {
  const std::string before = linked(codegen::Symbols::kNames);
  const std::string after = name_functions(before, {{"k_0123", "conv_add_1"}});
  std::vector<std::string> names;
  for (const Named& each : table_of(after)) {
    if (each.name.empty()) continue;
    names.push_back(each.name);
    CHECK(ELF64_ST_TYPE(each.symbol.st_info) == STT_FUNC);
    CHECK(each.symbol.st_size > 0);
  }
  std::sort(names.begin(), names.end());
  CHECK(names == std::vector<std::string>{"_Z5otheri", "conv_add_1", "entry", "second"});
  // Everything that is loaded lies before the table. There, only the offset of the section headers changes.
  Elf64_Ehdr header;
  std::memcpy(&header, after.data(), sizeof header);
  const auto loaded = [&](const std::string& file) {
    uint64_t end = 0;
    for (int i = 0; i < header.e_phnum; ++i) {
      Elf64_Phdr segment;
      std::memcpy(&segment, file.data() + header.e_phoff + i * sizeof segment, sizeof segment);
      if (segment.p_type == PT_LOAD) end = std::max<uint64_t>(end, segment.p_offset + segment.p_filesz);
    }
    return file.substr(sizeof header, end - sizeof header);
  };
  CHECK(loaded(before) == loaded(after));
  CHECK(after == name_functions(before, {{"k_0123", "conv_add_1"}}));
}

TEST_CASE("an object without a table of symbols stays as it is") {
  const std::string bare = linked(codegen::Symbols::kNone);
  CHECK(name_functions(bare, {{"k_0123", "conv_add_1"}}) == bare);
}
