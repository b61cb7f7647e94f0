// The runtime as linked into artifacts: one relocatable object, linked without the C library's startup files
// and loaded with dlopen. runtime/runtime.cmake builds STRIDEC_TEST_ARTIFACT from fake_programs.cpp.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>

#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "tests/unit/runtime/harness.h"

using namespace fake;

namespace {

struct Elf {
  std::string bytes;
  const Elf64_Shdr* sections;
  int count;

  explicit Elf(const char* path) {
    std::ifstream file(path, std::ios::binary);
    bytes = {std::istreambuf_iterator<char>(file), {}};
    auto* header = at<Elf64_Ehdr>(0);
    sections = at<Elf64_Shdr>(header->e_shoff);
    count = header->e_shnum;
  }
  template <class T>
  const T* at(uint64_t offset) const {
    return reinterpret_cast<const T*>(bytes.data() + offset);
  }
  const Elf64_Shdr* of_type(uint32_t type) const {
    for (int i = 0; i < count; ++i)
      if (sections[i].sh_type == type) return &sections[i];
    return nullptr;
  }
  const char* text(const Elf64_Shdr* table, uint64_t offset) const {
    return at<char>(sections[table->sh_link].sh_offset + offset);
  }
};

}  // namespace

TEST_CASE("an artifact exports one symbol and needs libc alone, of 2012") {
  Elf elf(STRIDEC_TEST_ARTIFACT);
  const Elf64_Shdr* symbols = elf.of_type(SHT_DYNSYM);
  std::set<std::string> exported;
  for (uint64_t i = 1; i < symbols->sh_size / sizeof(Elf64_Sym); ++i) {
    auto* symbol = elf.at<Elf64_Sym>(symbols->sh_offset) + i;
    if (symbol->st_shndx != SHN_UNDEF) exported.insert(elf.text(symbols, symbol->st_name));
  }
  CHECK(exported == std::set<std::string>{"stridec_get_api"});

  const Elf64_Shdr* dynamic = elf.of_type(SHT_DYNAMIC);
  std::set<std::string> needed;
  for (auto* entry = elf.at<Elf64_Dyn>(dynamic->sh_offset); entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_NEEDED) needed.insert(elf.text(dynamic, entry->d_un.d_val));
    CHECK(entry->d_tag != DT_TEXTREL);
  }
  CHECK(needed == std::set<std::string>{"libc.so.6"});

  const Elf64_Shdr* versions = elf.of_type(SHT_GNU_verneed);
  auto* need = elf.at<Elf64_Verneed>(versions->sh_offset);
  auto* aux = reinterpret_cast<const Elf64_Vernaux*>(reinterpret_cast<const char*>(need) + need->vn_aux);
  for (int i = 0; i < need->vn_cnt; ++i) {
    int minor = 0;
    CHECK(sscanf(elf.text(versions, aux->vna_name), "GLIBC_2.%d", &minor) == 1);
    CHECK(minor <= 17);
    aux = reinterpret_cast<const Elf64_Vernaux*>(reinterpret_cast<const char*>(aux) + aux->vna_next);
  }
  CHECK(elf.bytes.size() < 174'000);
}

TEST_CASE("an artifact is loaded, runs and is unloaded; two copies live side by side") {
  std::string copy = std::string(STRIDEC_TEST_ARTIFACT) + ".copy.so";
  std::ofstream(copy, std::ios::binary) << std::ifstream(STRIDEC_TEST_ARTIFACT, std::ios::binary).rdbuf();
  for (int round = 0; round < 3; ++round) {
    std::vector<void*> libraries;
    for (const char* path : {STRIDEC_TEST_ARTIFACT, copy.c_str()}) {
      void* library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
      REQUIRE_MESSAGE(library, dlerror());
      libraries.push_back(library);
      auto get_api = reinterpret_cast<stridec_get_api_fn>(dlsym(library, "stridec_get_api"));
      bool found = get_api != nullptr;
      REQUIRE(found);
      const stridec_api* api = get_api(STRIDEC_API_VERSION);
      REQUIRE(api);
      CHECK(api != &fake::api());
      stridec_model* model = nullptr;
      char message[256];
      REQUIRE(api->model_open(nullptr, &model, message, sizeof message) == STRIDEC_OK);
      stridec_context_options options = {.struct_size = sizeof options, .threads = 3};
      stridec_context* context = nullptr;
      REQUIRE(api->context_create(model, &options, &context, message, sizeof message) == STRIDEC_OK);
      Array<float> table({3, 4});
      for (size_t i = 0; i < 12; ++i) table.data[i] = static_cast<float>(i);
      Array<int64_t> index({50}, -1);
      stridec_tensor inputs[] = {table.tensor(), index.tensor()}, output = {};
      REQUIRE(api->context_run(context, inputs, 2, &output, 1) == STRIDEC_OK);
      CHECK(elements<float>(output)[199] == 11);
      index.data[40] = 3;
      CHECK(api->context_run(context, inputs, 2, &output, 1) == STRIDEC_BAD_DATA);
      CHECK(std::string(api->context_error(context)) ==
            "Gather 'g': index 3 at position 40 is outside [-3, 3)");
      api->model_close(model);
      api->context_destroy(context);
    }
    for (void* library : libraries) CHECK(dlclose(library) == 0);
    CHECK(dlopen(STRIDEC_TEST_ARTIFACT, RTLD_NOW | RTLD_NOLOAD) == nullptr);
  }
}
