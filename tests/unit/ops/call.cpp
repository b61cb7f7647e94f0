// The primitive `call`.
#include "compiler/ops/call.h"

#include <doctest/doctest.h>

#include "compiler/base/diagnostic.h"
#include "compiler/graph/builder.h"
#include "compiler/graph/text.h"
#include "compiler/loop/library.h"

using namespace stridec;
using namespace stridec::ops;

TEST_CASE("call: each routine that a graph can call is in the library") {
  for (const CallDef& each : call_defs()) {
    INFO(each.routine);
    CHECK(loop::find_routine(each.routine) != nullptr);
  }
}

TEST_CASE("call: a node has the name of its routine, and its text is read back") {
  graph::Graph g;
  graph::Builder b(g, shape_table());
  const graph::ValueId bytes = b.input("bytes", {DType::kU8, {8}});
  const std::vector<graph::ValueId> size = add_call(b, "image_size", {bytes});
  b.output("size", size[0]);
  CHECK(graph::name(g.nodes.back()) == "image_size");
  const std::string text = graph::to_string(g);
  CHECK(text.find("i64[2] = call %0 {routine=\"image_size\"}") != std::string::npos);
  CHECK(graph::to_string(graph::parse(text)) == text);
}

TEST_CASE("call: a routine that graphs cannot call is refused in a sentence") {
  graph::Graph g;
  graph::Builder b(g, shape_table());
  const graph::ValueId x = b.input("x", {DType::kF32, {8}});
  try {
    add_call(b, "sort", {x});
    FAIL_CHECK("sort is a primitive of its own");
  } catch (const Error& error) {
    CHECK(error.diagnostic.kind == ErrorKind::kDoesNotFit);
    CHECK(error.diagnostic.message == "call: a graph cannot call a routine 'sort'");
  }
}
