#include "compiler/loop/kernels.h"

#include <doctest/doctest.h>

#include "compiler/loop/provenance.h"

using namespace stridec;
using namespace stridec::loop;

TEST_CASE("nodes are listed in the model's order, each once, and of many only the first and the last") {
  std::vector<std::string> nodes = {"node 10 'b' (Add)", "node 9 'z' (Conv)",  "node 100 'a'",
                                    "node 9 'z' (Conv)", "node 2 'x/2' (Mul)", "node 2 'x/10' (Mul)"};
  sort_nodes(nodes);
  CHECK(nodes == std::vector<std::string>{"node 2 'x/2' (Mul)", "node 2 'x/10' (Mul)", "node 9 'z' (Conv)",
                                          "node 10 'b' (Add)", "node 100 'a'"});
  CHECK(nodes_of(nodes) == "node 2 'x/2' (Mul), 3 more, node 100 'a'");
  nodes.resize(3);
  CHECK(nodes_of(nodes) == "node 2 'x/2' (Mul), node 2 'x/10' (Mul), node 9 'z' (Conv)");
  CHECK(nodes_of(std::vector<std::string>()) == "");
}

TEST_CASE("what a run launches: strips are one kernel, routines count as steps and are none") {
  Program program;
  const auto nest = [&](const std::string& name, std::vector<std::string> nodes) {
    return add_nest(program, {.name = name,
                              .nodes = std::move(nodes),
                              .schedule = {.kernel = "", .directives = {{"tasks", {"%i"}}}}});
  };
  const NestId alone = nest("alone", {"node 0 'a'"}), rows = nest("rows", {"node 10 'c'", "node 9 'b'"}),
               product = nest("product", {"node 10 'c'"}), looped = nest("looped", {});
  const TiledGroup strips{.name = "product",
                          .first = {},
                          .size = {},
                          .points = 1,
                          .round = {},
                          .sizes = {},
                          .body = {{Launch{rows}}, {Launch{product}}},
                          .own = {}};
  const While loop{
      .counter = {}, .trip_count = 2, .condition = {}, .iterations = {}, .body = {{Launch{looped}}}};
  program.steps = {{Launch{alone}},
                   {Call{.routine = "sort", .reads = {}, .writes = {}, .arguments = {}, .nodes = {}}},
                   {strips},
                   {loop}};
  int steps = 5;
  const std::vector<Kernel> kernels = kernels_of(program, steps);
  CHECK(steps == 9);
  REQUIRE(kernels.size() == 3);
  CHECK(kernels[0].name == "alone");
  CHECK(kernels[0].step == 5);
  CHECK(!kernels[0].strips);
  CHECK(kernels[1].name == "product");
  CHECK(kernels[1].step == 7);
  CHECK(kernels[1].strips);
  CHECK(kernels[1].nests == std::vector{rows, product});
  CHECK(kernels[1].nodes == std::vector<std::string>{"node 9 'b'", "node 10 'c'"});
  CHECK(kernels[1].schedule == "tasks %i | tasks %i");
  CHECK(kernels[2].nests == std::vector{looped});
  CHECK(kernels[2].step == 8);
}
