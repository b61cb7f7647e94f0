// The text of graphs: what parses prints, and prints the same once it has been parsed again.
#include <string_view>

#include "compiler/graph/text.h"
#include "tests/fuzz/parsers/target.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return stridec::fuzz::refuse_or_take([&] {
    using namespace stridec::graph;
    const Graph graph = parse({reinterpret_cast<const char*>(data), size});
    const std::string text = to_string(graph);
    if (to_string(parse(text)) != text) std::abort();
  });
}
