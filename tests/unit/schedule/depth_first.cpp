#include "compiler/schedule/fusion/depth_first.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/algebra/split_reduction.h"
#include "compiler/schedule/algebra/winograd.h"
#include "compiler/schedule/fusion/depth_first_chain.h"
#include "compiler/schedule/fusion/depth_first_traffic.h"
#include "compiler/schedule/fusion/reduce_peak.h"
#include "compiler/schedule/fusion/tile_and_fuse.h"
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

int64_t arena(Program program, int64_t images, int64_t rows) {
  plan_memory(program, InPlace::kSums);
  return *sym::evaluate(program.arena_bytes, [&](Expr var) { return var == sym::var("m") ? images : rows; });
}

const TiledGroup& only_strips(const Program& program) {
  REQUIRE(tiled_groups_of(program).size() == 1);
  return *tiled_groups_of(program)[0];
}

}  // namespace

TEST_CASE("a convolution of a convolution works by strips of rows") {
  const Program before = convolutions(40, 4, {{64}, {64, 3, 2, 1, 1}, {8}});
  Program after = before;
  std::vector<Decision> decisions;
  fuse_depth_first(after, &decisions);
  verify(after);
  const TiledGroup& strips = only_strips(after);
  REQUIRE(strips.body.size() == 2);
  CHECK(sym::to_string(strips.points) == "(n + 1)//2");
  CHECK(sym::to_string(strips.rounds) == "m");
  CHECK(to_string(after, after[std::get<Launch>(strips.body[0].node).nest]) ==
        R"(nest conv1 (%i0<strip.rows0.0to21, %i1<40, %i2<64)
  %0 : f32 = reduce sum (%i3<4)
    %1 : f32 = load x[strip.round, %i0 + strip.at0, %i1, %i3]
    %2 : f32 = load w1[%i2, 0, 0, %i3]
    %3 : f32 = mul %1 %2
    yield %3
  %4 : f32 = constant 0
  %5 : f32 = max %0 %4
  store t1[%i0 + strip.at0 - 2*strip.first + 1, %i1, %i2] %5
)");
  CHECK(to_string(after, after[std::get<Launch>(strips.body[1].node).nest]) ==
        R"(nest conv2 (%i0<strip.1to10, %i1<20, %i2<64)
  %0 : f32 = reduce sum (%i3<64, %i4<3, %i5<3)
    %1 : f32 = load t1[2*%i0 + %i4, 2*%i1 + %i5 - 1, %i3] if 2*%i0 + %i4 + 2*strip.first <= n && 1 <= 2*%i0 + %i4 + 2*strip.first && 1 <= 2*%i1 + %i5 else 0
    %2 : f32 = load w2[%i2, %i4, %i5, %i3]
    %3 : f32 = mul %1 %2
    yield %3
  %4 : f32 = constant 0
  %5 : f32 = max %0 %4
  store t2[strip.round, %i0 + strip.first, %i1, %i2] %5
)");
  REQUIRE(decisions.size() == 1);
  CHECK(decisions[0].reason == "with the nest before it, 10 rows at a time, which lowers peak memory");
  CHECK(arena(after, 1, 200) < 0.6 * static_cast<double>(arena(before, 1, 200)));
}

TEST_CASE("rows of every kind lead to rows") {
  for (const std::vector<Layer>& layers : std::vector<std::vector<Layer>>{
           {{64}, {64, 3, 2, 1, 1}, {8}},
           {{64, 3, 1, 1, 1}, {64}, {8}},
           {{64}, {64, 5, 3, 1, 2}, {8}},
           {{64}, {64, 3, 1, 2, 2}, {8}},
           {{64}, {64, 3, 1, 1, 0}, {8}},
           {{64}, {64, 3, 1, 1, 4}, {8}},
           {{64, 3, 1, 1, 1}, {64}, {64, 3, 1, 1, 1}, {.out = 64, .adds = 1}, {8}},
       }) {
    const Program before = convolutions(24, 2, layers);
    Program after = before;
    fuse_depth_first(after);
    verify(after);
    CHECK(!tiled_groups_of(after).empty());
    const std::string text = to_string(after);
    const Program again = parse_program(text, [&](const Buffer& weight) {
      for (const Buffer& buffer : after.buffers)
        if (buffer.name == weight.name) return buffer.weight;
      return WeightData{};
    });
    CHECK(to_string(again) == text);
    plan_memory(after, InPlace::kSums);
    for (const auto& [images, rows] : {std::pair<int64_t, int64_t>{1, 5}, {1, 16}, {2, 37}, {0, 9}}) {
      CAPTURE(cat(layers.size(), " ", layers[1].taps, " ", images, " ", rows));
      CHECK(same_results(before, after, {{sym::var("m"), images}, {sym::var("n"), rows}}));
    }
  }
}

TEST_CASE("a sum is written over what it adds, strip by strip") {
  // A bottleneck: its last layer adds the input of its first one, which therefore stays live.
  const Program before = convolutions(24, 2, {{64}, {64}, {64, 3, 1, 1, 1}, {.out = 64, .adds = 1}, {8}});
  Program after = before;
  fuse_depth_first(after);
  const TiledGroup& strips = only_strips(after);
  CHECK(strips.body.size() == 2);
  const int64_t tensor = 400 * 24 * 64 * 4;
  CHECK(arena(before, 1, 400) == 3 * tensor);
  CHECK(arena(after, 1, 400) == 2 * tensor);
}

TEST_CASE("runs of few tiles have shorter ones") {
  Program program = convolutions(24, 2, {{64}, {64}, {64, 3, 1, 1, 1}, {.out = 64, .adds = 1}, {8}});
  fuse_depth_first(program);
  const TiledGroup& strips = only_strips(program);
  REQUIRE(strips.finest > 0);
  REQUIRE(strips.finest < strips.most);
  const auto tiles = [&](const TiledGroup& group, int64_t images, int64_t rows) {
    return *sym::evaluate(group.count(), [&](Expr var) { return var == sym::var("m") ? images : rows; });
  };
  TiledGroup longest = strips;
  longest.finest = 0;
  const int64_t rows = 4 * strips.most;
  CHECK(tiles(longest, 1, rows) == 4);
  CHECK(tiles(strips, 1, rows) > 8);  // of equal length, so not always kManyTiles
  CHECK(tiles(strips, 1, rows) <= TiledGroup::kManyTiles);
  CHECK(tiles(strips, 4, rows) == 16);
  CHECK(tiles(strips, 8, rows) == 32);
  CHECK(tiles(strips, 1, 1) == 1);
  CHECK(tiles(strips, 1, 0) == 0);
}

TEST_CASE("what is read of every other row and column alone is kept alone") {
  // The first block of a network's stage: two strided paths from one tensor.
  const auto stage = [](int64_t out) {
    return convolutions(40, 2,
                        {{64},
                         {64},
                         {64, 3, 2, 1, 1},
                         {.out = out, .stride = 2, .from = 1},
                         {.out = out, .from = 3, .adds = 4},
                         {1024}});
  };
  const int64_t tensor = 400 * 40 * 64 * 4;
  const auto same = [](const Program& before, Program after) {
    plan_memory(after, InPlace::kSums);
    for (const auto& [images, rows] : {std::pair<int64_t, int64_t>{1, 5}, {1, 16}, {2, 37}, {0, 9}})
      CHECK(same_results(before, after, {{sym::var("m"), images}, {sym::var("n"), rows}}));
  };
  {
    // The second path's result is as large as its input. A copy of a quarter of the input frees the rest
    // earlier.
    const Program before = stage(256);
    Program after = before;
    reduce_peak(after);
    verify(after);
    CHECK(only_strips(after).body.size() == 2);
    CHECK(after.steps.size() == before.steps.size());  // one more step for the copy; two layers are tiled
    CHECK(arena(before, 1, 400) == 2 * tensor + tensor / 4);
    CHECK(arena(after, 1, 400) == tensor + tensor / 2);
    same(before, after);
  }
  {
    // The second path is tiled to its end: only some rows of its results are live with its whole input. No
    // copy.
    const Program before = stage(64);
    Program after = before;
    reduce_peak(after);
    verify(after);
    const auto strips = tiled_groups_of(after);
    REQUIRE(strips.size() == 2);
    CHECK(strips[0]->body.size() == 2);
    CHECK(strips[1]->body.size() == 3);
    CHECK(after.steps.size() == 3);
    CHECK(arena(before, 1, 400) == 2 * tensor + tensor / 4);
    CHECK(arena(after, 1, 400) == tensor + tensor / 4);
    same(before, after);
  }
}

TEST_CASE("Winograd's transforms and what follows them") {
  Program before = convolutions(56, 2, {{64}, {64, 3, 1, 1, 1}, {64}, {8}});
  apply_winograd(before);
  loop::eliminate_dead_code(before);
  REQUIRE(before.steps.size() > 5);
  Program after = before;
  fuse_depth_first(after);
  verify(after);
  CHECK(only_strips(after).body.size() == 5);
  plan_memory(after, InPlace::kSums);
  for (const auto& [images, rows] : {std::pair<int64_t, int64_t>{1, 5}, {1, 16}, {2, 37}, {0, 9}})
    CHECK(same_results(before, after, {{sym::var("m"), images}, {sym::var("n"), rows}}));
}

TEST_CASE("no strips where they do not lower what is alive at once, or make too much work") {
  const auto reason = [](Program program) {
    std::vector<Decision> decisions;
    fuse_depth_first(program, &decisions);
    CHECK(tiled_groups_of(program).empty());
    REQUIRE(decisions.size() == 1);
    CHECK(!decisions[0].fused);
    return decisions[0].reason;
  };
  CHECK(reason(convolutions(24, 256, {{256}, {256, 3, 1, 1, 1}, {8}})) ==
        "not fused by rows: weights read again for each tile, and rows computed twice at tile borders, would "
        "take as long as the memory traffic; weights would be read again for each tile");
  CHECK(reason(convolutions(2, 2, {{4}, {4, 3, 1, 1, 1}, {512}})) ==
        "not fused by rows: the intermediates stay in caches anyway; weights would be read again for each "
        "tile");
  CHECK(reason(convolutions(4000, 2, {{64}, {64, 3, 1, 1, 1}, {8}})) ==
        "not fused by rows: there are too few rows, or one is too large for a cache");
  // GEMMs, which read no windows, are not convolutions.
  std::vector<Decision> decisions;
  Program products = convolutions(4, 4, {{8}, {8}, {8}});
  fuse_depth_first(products, &decisions);
  CHECK(std::all_of(decisions.begin(), decisions.end(), [](const Decision& d) { return d.fused; }));
}

TEST_CASE("convolutions work by strips of rows where memory traffic takes longer, and only there") {
  // A MobileNet block on a large image: the results of its first two layers are six times as large as its
  // input.
  const auto strips_after = [](const Program& before) {
    Program after = before;
    std::vector<Decision> decisions;
    lower_traffic(after, &decisions);
    verify(after);
    CHECK(decisions.size() == tiled_groups_of(after).size());
    return after;
  };
  const Program before = convolutions(200, 2, {{8}, {48}, {4, 3, 1, 1, 1}});
  Program after = strips_after(before);
  CHECK(tiled_groups_of(after).size() == 1);
  plan_memory(after, InPlace::kSums);
  for (const auto& [images, rows] : {std::pair<int64_t, int64_t>{1, 5}, {1, 13}, {2, 6}, {0, 9}})
    CHECK(same_results(before, after, {{sym::var("m"), images}, {sym::var("n"), rows}}));
  // Recomputation would cost more than memory traffic.
  CHECK(tiled_groups_of(strips_after(convolutions(200, 2, {{256, 3, 1, 1, 1}, {256, 3, 1, 1, 1}}))).empty());
  // The intermediates fit in a cache.
  CHECK(tiled_groups_of(strips_after(convolutions(4, 2, {{8}, {48}, {4, 3, 1, 1, 1}}))).empty());
}

// A convolution whose result is normalised per image to mean 0 and variance 1.
Program normalised(int64_t width, int64_t channels, const Layer& layer) {
  Program program = convolutions(width, 4, {layer});
  const BufferId made = program.outputs[0];
  program[made].storage = Storage::kArena;
  program[made].ordinal = -1;
  const View t = whole(program, made);
  const auto buffer = [&](const std::string& name, std::vector<Expr> shape, Storage storage) {
    return add_buffer(program, {.name = name, .shape = std::move(shape), .storage = storage});
  };
  const View mean = whole(program, buffer("mean", {t.shape[0], channels}, Storage::kArena));
  const View scale = whole(program, buffer("scale", {t.shape[0], channels}, Storage::kArena));
  {
    NestBuilder nest(program, "statistics");
    const auto at = nest.dims(mean.shape);
    const std::vector<Expr> image = {t.shape[1], t.shape[2]};
    const auto element = [&](const std::vector<Expr>& k) { return nest.load(t, {at[0], k[0], k[1], at[1]}); };
    const Value count = nest.index_value(t.shape[1] * t.shape[2], DType::kF32);
    const Value average = nest.reduce(Combine::kSum, image, element) / count;
    const Value squares = nest.reduce(Combine::kSum, image, [&](const std::vector<Expr>& k) {
      const Value away = element(k) - average;
      return away * away;
    });
    nest.store(mean, at, average);
    nest.store(scale, at, squares / count);
    nest.finish();
  }
  program.outputs = {buffer("out", t.shape, Storage::kOutput)};
  program[program.outputs[0]].ordinal = 0;
  NestBuilder nest(program, "apply");
  const auto at = nest.dims(t.shape);
  nest.store(whole(program, program.outputs[0]), at,
             (nest.load(t, at) - nest.load(mean, {at[0], at[3]})) / nest.load(scale, {at[0], at[3]}));
  nest.finish();
  split_reductions(program, Sharing::kThreads);
  return program;
}

TEST_CASE("statistics of rows are computed while the rows are in cache, and the rows are stored") {
  for (const Layer& layer : {Layer{32, 3, 1, 1, 1}, Layer{32, 3, 2, 1, 0}, Layer{32}}) {
    const Program before = normalised(600, 32, layer);
    REQUIRE(before.steps.size() == 4);
    Program after = before;
    std::vector<Decision> decisions;
    lower_traffic(after, &decisions);
    verify(after);
    const TiledGroup& strips = only_strips(after);
    REQUIRE(strips.body.size() == 2);
    CHECK(after[std::get<Launch>(strips.body[1].node).nest].name == "statistics");
    CHECK(strips.own.empty());
    REQUIRE(decisions.size() == 1);
    CHECK(decisions[0].fused);
    plan_memory(after, InPlace::kSums);
    for (const auto& [images, rows] : {std::pair<int64_t, int64_t>{1, 5}, {1, 33}, {2, 14}, {0, 9}})
      CHECK(same_results(before, after, {{sym::var("m"), images}, {sym::var("n"), rows}}));
  }
}

TEST_CASE("rows that others read as well are made once, all of them") {
  // The second layer reads rows of the first one, the third layer adds them.
  const auto chain_of = [](const Program& program) {
    const Flow flow(program, program.steps);
    std::string why;
    const auto rows_of_an_image = [](RowChain& chain, std::string&) {
      chain.most = 4;
      return chain.images.back().size() == 1;
    };
    return RowChains(program, flow).chain_of({0, 1}, rows_of_an_image, why);
  };
  const auto layers = [](const Layer& second) {
    return convolutions(24, 2, {{48}, second, {.out = 48, .from = 1, .adds = 1}});
  };
  const Program before = layers({8});
  const auto chain = chain_of(before);
  REQUIRE(chain);
  CHECK(chain->kept);
  Program after = before;
  make_depth_first(after, *chain);
  verify(after);
  CHECK(only_strips(after).own.empty());
  plan_memory(after, InPlace::kSums);
  for (const auto& [images, rows] : {std::pair<int64_t, int64_t>{1, 5}, {1, 33}, {2, 14}, {0, 9}})
    CHECK(same_results(before, after, {{sym::var("m"), images}, {sym::var("n"), rows}}));
  // Some rows are read twice, some only once, the last row of an odd number never.
  for (const Layer& second : {Layer{8, 3, 1, 1, 1}, Layer{8, 3, 1, 1, 0}, Layer{8, 2, 2, 1, 0}})
    CHECK(!chain_of(layers(second)));
}

TEST_CASE("a strip moves the rows that the one before has made") {
  Program program = convolutions(40, 4, {{64}, {64, 3, 1, 1, 1}, {64, 5, 1, 1, 2}, {8}});
  reduce_peak(program);
  const TiledGroup& strips = only_strips(program);
  REQUIRE(strips.carried.size() == 2);
  for (const TiledGroup::Carried& each : strips.carried)
    CHECK(std::count(strips.own.begin(), strips.own.end(), each.buffer) == 1);
  // Carried rows have their own memory, because they outlast a tile.
  const ArenaPlan own = own_memory(program, strips);
  std::vector<Expr> places = own.offsets;
  std::sort(places.begin(), places.end(), sym::ExprLess());
  CHECK(std::unique(places.begin(), places.end()) == places.end());
  // Rows that consecutive tiles do not share are computed only once anyway.
  Program apart = convolutions(40, 4, {{64}, {64}, {64, 2, 2, 1, 0}, {8}});
  reduce_peak(apart);
  for (const TiledGroup* each : tiled_groups_of(apart)) CHECK(each->carried.empty());
}

TEST_CASE("rows that no strip has made are not taken over") {
  const auto refused = [](const std::function<void(Program&, TiledGroup&)>& change) {
    Program program = convolutions(40, 4, {{64}, {64, 3, 1, 1, 1}, {64, 5, 1, 1, 2}, {8}});
    reduce_peak(program);
    for (Step& step : program.steps)
      if (auto* strips = std::get_if<TiledGroup>(&step.node)) change(program, *strips);
    try {
      verify(program);
    } catch (const Error& error) {
      return error.text.find("carries rows of ") != std::string::npos;
    }
    return false;
  };
  CHECK(!refused([](Program&, TiledGroup&) {}));
  // Rejected: a buffer shared by tiles, a buffer of no group, empty sizes, no rows, a dim that the buffer
  // does not have.
  CHECK(refused([](Program& p, TiledGroup& s) { s.carried[0].buffer = p.outputs[0]; }));
  CHECK(refused([](Program&, TiledGroup& s) { std::erase(s.own, s.carried[0].buffer); }));
  CHECK(refused([](Program&, TiledGroup& s) { s.carried[0].at = s.first; }));
  CHECK(refused([](Program&, TiledGroup& s) { s.carried[0].rows = s.points; }));
  CHECK(refused([](Program&, TiledGroup& s) { s.carried[0].per = 0; }));
  CHECK(refused([](Program& p, TiledGroup& s) { s.carried[0].dim = p[s.carried[0].buffer].shape.size(); }));
}

TEST_CASE("what works in strips anyway is not cut into others to lower peaks") {
  Program program = convolutions(128, 128, std::vector<Layer>(3, Layer{128, 3, 1, 1, 1}));
  apply_winograd(program);
  loop::eliminate_dead_code(program);
  reduce_peak(program);
  CHECK(tiled_groups_of(program).empty());
  tile_and_fuse(program);
  CHECK(tiled_groups_of(program).size() == 3);
}

TEST_CASE("a weight gradient does not work channel by channel") {
  // Each tile would be a GEMM of one column.
  Program program = parse_program(R"(program gradient
  input x f32 [8, 3, 225, 225]
  input dz f32 [8, 32, 112, 112]
  input z f32 [8, 32, 112, 112]
  arena dy f32 [8, 32, 112, 112] strides [401408, 1, 3584, 32]
  output dw f32 [32, 3, 3, 3] ordinal 0
  inputs (x, dz, z)
  outputs (dw)
  steps
    nest 0 of_norm (%i0<8, %i1<32, %i2<112, %i3<112)
      %0 : f32 = load dz[%i0, %i1, %i2, %i3]
      %1 : f32 = load z[%i0, %i1, %i2, %i3]
      %2 : f32 = mul %0 %1
      store dy[%i0, %i1, %i2, %i3] %2
    nest 1 of_weight (%i0<3, %i1<32, %i2<3, %i3<3)
      %0 : f32 = reduce sum (%i4<8, %i5<112, %i6<112)
        %1 : f32 = load x[%i4, %i0, %i2 + 2*%i5, %i3 + 2*%i6]
        %2 : f32 = load dy[%i4, %i1, %i5, %i6]
        %3 : f32 = mul %1 %2
        yield %3
      store dw[%i1, %i0, %i2, %i3] %0
)");
  verify(program);
  std::vector<Decision> decisions;
  fuse_depth_first(program, &decisions);
  CHECK(tiled_groups_of(program).empty());
}
