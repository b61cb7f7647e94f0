// context_warm_up of compiled artifacts: weights mapped from the artifact, outputs owned by the context.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <cstring>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/ops/op_table.h"
#include "tests/unit/compiled_artifact/harness.h"

using namespace stridec;
using namespace stridec::testing;

namespace {

constexpr int64_t kCount = 4 << 20;

// y = x * w, of 16 MiB each.
graph::Graph scaled() {
  graph::Graph g;
  g.name = "scaled";
  graph::Builder b(g, ops::shape_table());
  std::vector<float> w(kCount, 3);
  std::vector<uint8_t> bytes(sizeof(float) * w.size());
  std::memcpy(bytes.data(), w.data(), bytes.size());
  const graph::ValueId x = b.input("x", {DType::kF32, {kCount}});
  b.output("y", b.add1(graph::OpKind::kMul,
                       {x, b.constant("w", {DType::kF32, {kCount}}, graph::own(std::move(bytes)))}));
  return g;
}

// Page faults of the first run, after a warm-up or a reservation.
long faults_of_first_run(const std::string& library, bool warm) {
  Loaded a(library);
  std::vector<float> data(kCount, 2);
  int64_t count = 0;
  const stridec_tensor x = tensor_of(data, count);
  stridec_tensor y{};
  REQUIRE((warm ? a.api->context_warm_up : a.api->context_reserve)(a.context, &x, 1, &y, 1) == STRIDEC_OK);
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  REQUIRE(a.api->context_run(a.context, &x, 1, &y, 1) == STRIDEC_OK);
  getrusage(RUSAGE_SELF, &after);
  for (int64_t i = 0; i < kCount; i += 4097) CHECK_UNARY(static_cast<float*>(y.data)[i] == 6);
  return after.ru_minflt + after.ru_majflt - before.ru_minflt - before.ru_majflt;
}

}  // namespace

TEST_CASE("the first run after a warm-up faults in hardly any page of weights and outputs") {
  const Folder folder;
  const Compilation made = compile({.model = write_graph(folder, scaled())});
  // The dynamic loader does not reload a path it has loaded before.
  for (const char* name : {"reserved.so", "warm.so"})
    package::StagedArtifact(made.artifact, made.programs(), folder.file(name)).publish();
  const long reserved = faults_of_first_run(folder.file("reserved.so"), false),
             warm = faults_of_first_run(folder.file("warm.so"), true);
  INFO("after a reservation ", reserved, ", after a warm-up ", warm);
  CHECK(warm < 32);
  CHECK(reserved > 2 * warm);
}
