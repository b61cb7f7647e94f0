// What torch.jit.save writes: the archive and its import, a pickle alone, a source alone.
#include "compiler/frontend/torchscript/import.h"

#include "compiler/frontend/torchscript/parser.h"
#include "compiler/frontend/torchscript/pickle.h"
#include "tests/fuzz/parsers/target.h"

// The first byte chooses the parser.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  return stridec::fuzz::refuse_or_take([&] {
    using namespace stridec::torchscript;
    const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
    if (data[0] == 'p') {
      read_pickle(rest, "a pickle");
    } else if (data[0] == 's') {
      parse_source(rest, "__torch__");
    } else {
      const stridec::graph::Data file = stridec::graph::own({data, data + size});
      if (!is_module(file)) return;
      ImportOptions options;
      options.shapes["x"] = {.dtype = {}, .sizes = {"n", "3"}};
      import_module("fuzz", file, options);
    }
  });
}
