// An ONNX file, read, checked and imported.
#include "compiler/frontend/onnx/import.h"
#include "compiler/frontend/onnx/read.h"
#include "tests/fuzz/parsers/target.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return stridec::fuzz::refuse_or_take([&] {
    const stridec::fuzz::MemoryFile file(data, size);
    const stridec::onnx::Model model = stridec::onnx::read_model(file.path());
    stridec::onnx::check_model(model);
    stridec::onnx::import_model(model);
  });
}
