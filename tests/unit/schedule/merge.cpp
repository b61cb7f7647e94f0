// Merged dims: reads by a remainder stay correct over the range of both dims.
#include <doctest/doctest.h>

#include "compiler/loop/walk.h"
#include "compiler/schedule/directives/schedule.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::testing;

namespace {

loop::Access& load_of(loop::Nest& nest) {
  loop::Access* found = nullptr;
  loop::for_each_stmt(nest.body, [&](loop::Stmt& stmt) {
    if (std::holds_alternative<loop::Load>(stmt.node)) found = loop::access_of(stmt);
  });
  REQUIRE(found);
  return *found;
}

// A copy of x [2, 3], whose nest reads column mod(j, 3).
Pieces copy_by_remainder() {
  Pieces p("m");
  p.output("y", p.input("x", {2, 3}));
  loop::Nest& nest = p.program.nests[0];
  REQUIRE(nest.dims.size() == 2);
  load_of(nest).index[1] = sym::mod(nest.dims[1].var, 3);
  return p;
}

}  // namespace

TEST_CASE(
    "a merged dim reads the address that a remainder simplifies to, not the remainder over its longer "
    "range") {
  const Pieces p = copy_by_remainder();
  const loop::Nest& nest = p.program.nests[0];
  const sym::Expr a = nest.dims[0].var, b = nest.dims[1].var;
  REQUIRE(schedule::can_merge(p.program, nest, a, b));
  loop::Nest merged = schedule::with_merged(p.program, nest, {{a, b}});
  REQUIRE(merged.dims.size() == 1);
  CHECK(merged.dims[0].extent == 6);
  CHECK(load_of(merged).index == std::vector<sym::Expr>{0, b});
}

TEST_CASE("a remainder is merged only where an address can be an index") {
  Pieces p = copy_by_remainder();
  const loop::Nest& nest = p.program.nests[0];
  const sym::Expr a = nest.dims[0].var, b = nest.dims[1].var;
  loop::Buffer& x = p.program[load_of(p.program.nests[0]).buffer];
  x.strides = {6, 2};
  CHECK_FALSE(schedule::can_merge(p.program, nest, a, b));
  load_of(p.program.nests[0]).index[1] = b;
  CHECK(schedule::can_merge(p.program, nest, a, b));
}
