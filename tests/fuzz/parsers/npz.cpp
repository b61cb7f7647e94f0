// An archive of NumPy files.
#include "cli/npz.h"
#include "tests/fuzz/parsers/target.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return stridec::fuzz::refuse_or_take([&] {
    const stridec::fuzz::MemoryFile file(data, size);
    for (const std::string& name : stridec::cli::npz_names(file.path())) {
      const stridec::cli::Array array = stridec::cli::read_npz(file.path(), name, stridec::DType::kF32);
      if (array.bytes.size() != static_cast<size_t>(array.count() * stridec::byte_size(array.dtype)))
        std::abort();
    }
  });
}
