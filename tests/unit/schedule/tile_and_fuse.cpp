#include "compiler/schedule/fusion/tile_and_fuse.h"

#include <doctest/doctest.h>

#include "compiler/base/text.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/cost/tile_cost.h"
#include "compiler/schedule/memory/memory_plan.h"
#include "compiler/schedule/memory/tiled_group_memory.h"
#include "compiler/sym/text.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using namespace stridec::schedule;
using namespace stridec::testing;
using sym::Expr;

namespace {

std::string reason_of(Program program) {
  std::vector<Decision> decisions;
  tile_and_fuse(program, &decisions);
  CHECK(tiled_groups_of(program).empty());
  return decisions.empty() ? "" : decisions[0].reason;
}

// Makes `nest` read the buffer too.
void read_elsewhere(Program& program, const std::string& name) {
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    if (program.buffers[i].name != name) continue;
    const View view = whole(program, BufferId(static_cast<int64_t>(i)));
    Buffer buffer{.name = "copy", .shape = view.shape, .storage = Storage::kOutput};
    buffer.ordinal = static_cast<int>(program.outputs.size());
    const BufferId copy = add_buffer(program, std::move(buffer));
    program.outputs.push_back(copy);
    NestBuilder nest(program, "copy");
    const std::vector<Expr> at = nest.dims(view.shape);
    nest.store(whole(program, copy), at, nest.load(view, at));
    nest.finish();
    return;
  }
}

}  // namespace

TEST_CASE("a product between two transforms works in strips") {
  const Program before = planes_of_products(48, 48);
  Program after = before;
  tile_and_fuse(after);
  verify(after);
  REQUIRE(tiled_groups_of(after).size() == 1);
  const TiledGroup* strips = tiled_groups_of(after)[0];
  CHECK(after.steps.size() == before.steps.size() - 2);
  CHECK(strips->name == "product");
  // The nest with most of the work.
  CHECK(name_of_tiled_group(before, {before.nests[1], before.nests[2]}) == "product");
  CHECK(strips->most == 14);
  CHECK(sym::to_string(strips->points) == "m*n - 5*m");
  REQUIRE(strips->body.size() == 3);
  CHECK(to_string(after, after[std::get<Launch>(strips->body[1].node).nest]) ==
        R"(nest product (%i0<6, %i1<strip.1to14, %i2<48)
  %0 : f32 = reduce sum (%i3<48)
    %1 : f32 = load v[%i0, %i1, %i3]
    %2 : f32 = load w[%i0, %i3, %i2]
    %3 : f32 = mul %1 %2
    yield %3
  store products[%i0, %i1, %i2] %0
)");
  plan_memory(after);
  for (const auto& [images, n] :
       {std::pair<int64_t, int64_t>{1, 6}, {1, 19}, {1, 20}, {3, 45}, {2, 200}, {0, 30}}) {
    CAPTURE(cat(images, " ", n));
    CHECK(same_results(before, after, {{sym::var("m"), images}, {sym::var("n"), n}}));
  }
}

TEST_CASE("strips that are placed are where they are made, and keep the same to themselves") {
  Program made = planes_of_products(48, 48), placed = made;
  const Nest product = placed.nests[1];
  tile_and_fuse(made);
  place_tiled_groups(placed);
  REQUIRE(tiled_groups_of(made).size() == 1);
  REQUIRE(tiled_groups_of(placed).size() == 1);
  const TiledGroup &x = *tiled_groups_of(made)[0], &y = *tiled_groups_of(placed)[0];
  CHECK(x.name == y.name);
  CHECK(x.most == y.most);
  CHECK(x.points == y.points);
  CHECK(x.own == y.own);
  CHECK(own_memory(made, x).bytes == own_memory(placed, y).bytes);
  CHECK(to_string(placed, placed.nests[1]) == to_string(placed, product));
  CHECK(to_string(made, made.nests[1]) != to_string(placed, product));
}

TEST_CASE("a program with strips reads back as it was printed") {
  Program program = planes_of_products(48, 48);
  tile_and_fuse(program);
  const std::string text = to_string(program);
  CHECK(text.find("strips product strip.first strip.1to14 in 1..14 of m*n - 5*m own (v, products)") !=
        std::string::npos);
  const Program again = parse_program(text, [&](const Buffer&) { return program.buffers[1].weight; });
  CHECK(to_string(again) == text);
  CHECK(again.facts.bounds(tiled_groups_of(again).at(0)->size).hi == 14);
}

TEST_CASE("what a strip owns takes no place in the arena") {
  Program whole_buffers = planes_of_products(48, 48), strips = planes_of_products(48, 48);
  tile_and_fuse(strips);
  plan_memory(whole_buffers);
  plan_memory(strips);
  const auto bytes = [](const Program& program) {
    return *sym::evaluate(program.arena_bytes, [](Expr) { return 105; });
  };
  CHECK(bytes(strips) == 105 * 100 * 48 * 4);
  CHECK(bytes(whole_buffers) >= 12 * bytes(strips));
}

TEST_CASE("left as they are") {
  CHECK(reason_of(planes_of_products(512, 512)) ==
        "not tiled: all weights would be read for 14 points at a time");
  CHECK(reason_of(planes_of_products(1280, 512)) ==
        "not tiled: the intermediates of 14 points are too large for a cache");
  CHECK(reason_of(planes_of_products(8, 8)).empty());  // small intermediates
  for (const std::string name : {"v", "products"}) {
    Program program = planes_of_products(48, 48);
    read_elsewhere(program, name);
    CHECK(reason_of(program).empty());
  }
}

TEST_CASE("strips are longer where weights come from further away for each of them") {
  constexpr int64_t kPassing = 2 * 36 * 128 * 4;  // of 4x4 tiles, 128 channels
  constexpr double kFar = 36 * 128 * 128 * 4, kNear = 36 * 32 * 32 * 4;
  CHECK(points_of_tile(1000, kPassing, kNear) == 14);
  CHECK(points_of_tile(1000, kPassing, kFar) == 22);
  CHECK(points_of_tile(150, kPassing, kFar) == 14);
  CHECK(points_of_tile(100, kPassing, kFar) == 0);
  CHECK(points_of_tile(1000, kPassing * 4, kFar) == 0);
}
