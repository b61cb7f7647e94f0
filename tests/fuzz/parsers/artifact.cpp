// A shared library: where an artifact's weights and manifest lie, and what it needs of the loader.
#include "compiler/package/elf.h"
#include "tests/fuzz/parsers/target.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  stridec::fuzz::refuse_or_take([&] { stridec::package::loader_needs(file); });
  return stridec::fuzz::refuse_or_take([&] {
    const auto layout = stridec::package::artifact_layout(file);
    if (layout.weights_offset > size || layout.weights_bytes > size - layout.weights_offset ||
        layout.manifest_offset > size || layout.manifest_bytes > size - layout.manifest_offset)
      std::abort();
  });
}
