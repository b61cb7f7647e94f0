// A serialized graph; what is taken has to be a graph that can be written again.
#include <cstring>

#include "compiler/graph/serialize.h"
#include "compiler/graph/text.h"
#include "compiler/ops/op_table.h"
#include "tests/fuzz/parsers/target.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return stridec::fuzz::refuse_or_take([&] {
    const stridec::graph::Data file = stridec::graph::own({data, data + size});
    if (!stridec::graph::is_serialized(file.bytes, file.size)) return;
    const stridec::graph::Graph graph = stridec::graph::deserialize(file, stridec::ops::shape_table());
    stridec::graph::serialize(graph, [](const uint8_t*, size_t) {});
    stridec::graph::to_string(graph);
  });
}
