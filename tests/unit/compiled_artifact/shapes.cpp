// Artifacts called with shapes that no machine can handle.
#include <doctest/doctest.h>

#include "compiler/graph/builder.h"
#include "compiler/ops/helpers.h"
#include "compiler/ops/op_table.h"
#include "tests/unit/compiled_artifact/harness.h"

using namespace stridec;
using namespace stridec::testing;

namespace {

// y[n, n] = x[b, n] transposed times x.
graph::Graph gram() {
  graph::Graph g;
  g.name = "gram";
  graph::Builder b(g, ops::shape_table());
  const graph::ValueId x = b.input("x", {DType::kF32, {sym::var("b"), sym::var("n")}});
  b.output("y", ops::matmul(b, ops::permute(b, x, {1, 0}), x));
  return g;
}

}  // namespace

TEST_CASE("an empty tensor of an absurd extent is refused where sizes derived from it overflow") {
  const Folder folder;
  const Compilation made = compile({.model = write_graph(folder, gram())});
  const std::string library = folder.file("gram.so");
  package::StagedArtifact(made.artifact, made.programs(), library).publish();
  Loaded loaded(library);
  for (const int64_t n : {int64_t{3}, int64_t{1} << 31, int64_t{1} << 32, int64_t{1} << 61}) {
    CAPTURE(n);
    int64_t shape[] = {0, n};
    stridec_tensor in{}, out{};
    in.device = {STRIDEC_DEVICE_CPU, 0};
    in.ndim = 2;
    in.dtype = {STRIDEC_DTYPE_FLOAT, 32, 1};
    in.shape = shape;
    const auto status = loaded.api->context_run(loaded.context, &in, 1, &out, 1);
    CHECK((status == STRIDEC_OK) == (n == 3));
    if (n == 3) continue;
    CHECK(std::string(loaded.api->context_error(loaded.context)).find("bytes than can be addressed") !=
          std::string::npos);
  }
}
