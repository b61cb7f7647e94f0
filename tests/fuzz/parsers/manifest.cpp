// A manifest: what is taken has everything that readers use, and no text in it breaks them.
#include "compiler/package/read_manifest.h"
#include "compiler/sym/phrase.h"
#include "compiler/sym/text.h"
#include "tests/fuzz/parsers/target.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return stridec::fuzz::refuse_or_take([&] {
    const auto manifest =
        stridec::package::read_manifest({reinterpret_cast<const char*>(data), size}, "input");
    for (const char* values : {"inputs", "outputs", "states"})
      for (const auto& value : manifest[values]) value["name"].get<std::string>();
    for (const auto& guard : manifest["guards"])
      stridec::sym::phrase(stridec::sym::parse(guard["condition"].get<std::string>()));
    for (const auto& kernel : manifest["kernels"])
      for (const auto& step : kernel["steps"]) step.get<size_t>();
  });
}
