#include <doctest/doctest.h>

#include "compiler/base/text.h"
#include "compiler/loop/index_length.h"
#include "compiler/ops/helpers.h"
#include "compiler/ops/op_table.h"
#include "harness.h"

using namespace stridec;
using namespace stridec::ops::test;
using graph::OpKind;
using Ids = std::vector<ValueId>;

TEST_CASE("reshape keeps the order of elements") {
  for (const auto& [from, to] :
       std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>>{{{2, 6}, {3, 4}},
                                                                          {{2, 3, 4}, {24}},
                                                                          {{1}, {}},
                                                                          {{}, {1, 1}},
                                                                          {{0, 3}, {3, 0, 2}},
                                                                          {{4, 6}, {2, 2, 3, 2}}}) {
    HostTensor x = sample(DType::kF32, from), y = x;
    y.shape = to;
    graph::Shape shape(to.begin(), to.end());
    check({.name = "reshape",
           .inputs = {x},
           .build = [shape](Builder& b, const Ids& in) { return Ids{ops::reshape(b, in[0], shape)}; },
           .expected = {y}});
  }
}

TEST_CASE("views of views compose") {
  const HostTensor x = sample(DType::kF32, {2, 3, 4, 5});
  check({.name = "permute, reshape, slice",
         .inputs = {x},
         .build =
             [](Builder& b, const Ids& in) {
               ValueId v = ops::permute(b, in[0], {0, 2, 1, 3});
               v = ops::reshape(b, v, {b.shape(v)[0], b.shape(v)[1], b.shape(v)[2] * b.shape(v)[3]});
               return Ids{ops::slice(b, v, 1, 1, 2), v};
             },
         .expected = {compute(DType::kF32, {2, 2, 15},
                              [&](const At& i) { return at(x, {i[0], i[2] / 5, i[1] + 1, i[2] % 5}); }),
                      compute(DType::kF32, {2, 4, 15},
                              [&](const At& i) { return at(x, {i[0], i[2] / 5, i[1], i[2] % 5}); })}});
}

TEST_CASE("views compose as long as their index stays short") {
  for (const sym::Expr size : {sym::Expr(4), sym::var("n")}) {
    graph::Graph g;
    Builder b(g, ops::shape_table());
    ValueId v = b.input("x", {DType::kF32, {3, size}});
    for (int turn = 0; turn < 60; ++turn) v = ops::reshape(b, ops::permute(b, v, {1, 0}), {3, size});
    b.output("y", ops::reshape(b, v, {size, 3}));
    const loop::Program program = ops::lower(g);
    CHECK(program.nests.size() < 60);
    for (const loop::Nest& nest : program.nests)
      CHECK(loop::longest_index(nest).terms < 4 * loop::kLongestIndex);
  }
}

TEST_CASE("slices step, reverse and clamp") {
  const HostTensor x = sample(DType::kI64, {7, 3});
  struct Row {
    int64_t start, end, step;
    std::vector<int64_t> rows;
  };
  const int64_t least = std::numeric_limits<int64_t>::min(), most = std::numeric_limits<int64_t>::max();
  for (const Row& row : std::vector<Row>{{1, 5, 2, {1, 3}},
                                         {-3, most, 1, {4, 5, 6}},
                                         {-1, least, -1, {6, 5, 4, 3, 2, 1, 0}},
                                         {5, 1, -2, {5, 3}},
                                         {4, 2, 1, {}},
                                         {-100, 100, 3, {0, 3, 6}},
                                         {6, -8, -3, {6, 3, 0}}})
    check({.name = cat("slice ", row.start, ":", row.end, ":", row.step),
           .inputs = {x},
           .build =
               [row](Builder& b, const Ids& in) {
                 return Ids{ops::slice_clamped(b, in[0], 0, row.start, row.end, row.step)};
               },
           .expected = {compute(DType::kI64, {int64_t(row.rows.size()), 3},
                                [&](const At& i) { return at(x, {row.rows[size_t(i[0])], i[1]}); })}});
}

TEST_CASE("expand and concat") {
  const HostTensor x = sample(DType::kF32, {3, 1}), y = sample(DType::kF32, {3, 2}, 2),
                   empty = sample(DType::kF32, {3, 0});
  check({.name = "expand",
         .inputs = {x},
         .build = [](Builder& b, const Ids& in) { return Ids{ops::expand(b, in[0], {2, 3, 4})}; },
         .expected = {compute(DType::kF32, {2, 3, 4}, [&](const At& i) { return at_broadcast(x, i); })}});
  check({.name = "concat",
         .inputs = {x, empty, y, x},
         .build = [](Builder& b,
                     const Ids& in) { return Ids{ops::concat(b, {in[0], in[1], in[2], in[3]}, -1)}; },
         .expected = {compute(DType::kF32, {3, 4}, [&](const At& i) {
           return i[1] == 0 || i[1] == 3 ? at(x, {i[0], 0}) : at(y, {i[0], i[1] - 1});
         })}});
}

TEST_CASE("pieces of one tensor in another order are the tensor, read from another place on") {
  for (const auto& [dim, cut] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 3}, {1, 1}, {1, 6}, {0, 0}, {2, 1}}) {
    const HostTensor x = sample(DType::kF32, {5, 6, 4});
    const int64_t size = x.shape[static_cast<size_t>(dim)];
    check({.name = cat("turned by ", cut, " along ", dim),
           .inputs = {x},
           .build =
               [dim = dim, cut = cut, size](Builder& b, const Ids& in) {
                 const ValueId turned = ops::concat(
                     b, {ops::slice(b, in[0], dim, cut, size - cut), ops::slice(b, in[0], dim, 0, cut)}, dim);
                 return Ids{turned, ops::mul(b, turned, in[0])};
               },
           .expected = {compute(DType::kF32, x.shape,
                                [&, dim = dim, cut = cut](At i) {
                                  i[size_t(dim)] = (i[size_t(dim)] + cut) % size;
                                  return at(x, i);
                                }),
                        compute(DType::kF32, x.shape, [&, dim = dim, cut = cut](At i) {
                          const double here = at(x, i);
                          i[size_t(dim)] = (i[size_t(dim)] + cut) % size;
                          return here * at(x, i);
                        })}});
  }
}

TEST_CASE("pieces that change places") {
  // The pattern of rotary embeddings and rolled images: -x[cut:] before x[:cut], added to existing values.
  for (DType dtype : {DType::kF32, DType::kF16})
    for (const auto& [dim, width, cut] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
             {2, 64, 32}, {2, 32, 8}, {2, 24, 20}, {2, 7, 3}, {2, 1, 0}, {1, 9, 3}, {1, 2, 2}}) {
      std::vector<int64_t> shape = {3, 5, 16};
      shape[static_cast<size_t>(dim)] = width;
      const HostTensor x = sample(dtype, shape);
      const auto along = static_cast<size_t>(dim);
      const auto moved = [&, width = width, cut = cut](At i) {
        const bool first = i[along] < width - cut;
        i[along] += first ? cut : cut - width;
        return first ? -at(x, i) : at(x, i);
      };
      check({.name = cat("pieces of ", width, " along ", dim),
             .inputs = {x},
             .build =
                 [dim = dim, width = width, cut = cut](Builder& b, const Ids& in) {
                   const ValueId turned =
                       ops::concat(b,
                                   {ops::neg(b, ops::slice(b, in[0], dim, cut, width - cut)),
                                    ops::slice(b, in[0], dim, 0, cut)},
                                   dim);
                   const ValueId sum = ops::add(b, in[0], ops::mul(b, turned, 0.5));
                   return Ids{sum, ops::reduce_max(b, sum, {2})};
                 },
             .expected = {compute(dtype, shape, [&](const At& i) { return at(x, i) + 0.5 * moved(i); }),
                          compute(dtype, {shape[0], shape[1]}, [&](const At& i) {
                            double most = -1e30;
                            for (int64_t k = 0; k < shape[2]; ++k)
                              most = std::max(most, at(x, {i[0], i[1], k}) + 0.5 * moved({i[0], i[1], k}));
                            return most;
                          })}});
    }
}

TEST_CASE("pads of every mode, cropping too") {
  const HostTensor x = sample(DType::kF32, {2, 4});
  for (const char* mode : {"constant", "edge", "reflect", "wrap"})
    for (const auto& [before, after] :
         std::vector<std::pair<int64_t, int64_t>>{{2, 3}, {-1, 2}, {1, -2}, {0, 0}, {7, 9}}) {
      const std::string m = mode;
      check({.name = cat("pad ", mode, " ", before, " ", after),
             .inputs = {x},
             .build =
                 [m, before, after](Builder& b, const Ids& in) {
                   const auto value =
                       m == "constant" ? std::optional(b.scalar(DType::kF32, 7)) : std::nullopt;
                   return Ids{ops::pad(b, in[0], {0, before}, {1, after}, value, m)};
                 },
             .expected = {compute(DType::kF32, {3, 4 + before + after}, [&](const At& i) {
               auto source = [&](int64_t k, int64_t n) -> int64_t {
                 if (k >= 0 && k < n) return k;
                 if (m == "constant") return -1;
                 if (m == "edge") return k < 0 ? 0 : n - 1;
                 if (m == "wrap") return ((k % n) + n) % n;
                 while (k < 0 || k >= n) k = k < 0 ? -k : 2 * (n - 1) - k;
                 return k;
               };
               const int64_t r = source(i[0], 2), c = source(i[1] - before, 4);
               return r < 0 || c < 0 ? 7 : at(x, {r, c});
             })}});
    }
  check({.name = "pad with a value from data",
         .inputs = {x, sample(DType::kF32, {}, 5)},
         .build = [](Builder& b, const Ids& in) { return Ids{ops::pad(b, in[0], {0, 1}, {0, 0}, in[1])}; },
         .expected = {compute(DType::kF32, {2, 5}, [&](const At& i) {
           return i[1] == 0 ? at(sample(DType::kF32, {}, 5), {}) : at(x, {i[0], i[1] - 1});
         })}});
  check({.name = "pads of pads",
         .inputs = {x},
         .build =
             [](Builder& b, const Ids& in) {
               const ValueId one = ops::pad(b, in[0], {0, 1}, {0, 0}, b.scalar(DType::kF32, 1));
               return Ids{ops::pad(b, one, {1, 0}, {0, 1}, b.scalar(DType::kF32, 2))};
             },
         .expected = {compute(DType::kF32, {3, 6}, [&](const At& i) {
           return i[0] == 0 || i[1] == 5 ? 2 : i[1] == 0 ? 1 : at(x, {i[0] - 1, i[1] - 1});
         })}});
}

TEST_CASE("iota and random numbers") {
  check({.name = "iota",
         .inputs = {sample(DType::kF32, {2, 3})},
         .build = [](Builder& b, const Ids& in) { return Ids{ops::iota(b, b.shape(in[0]), 1, DType::kF32)}; },
         .expected = {compute(DType::kF32, {2, 3}, [](const At& i) { return double(i[1]); })}});
  // The first words of Philox 4x32-10 for counter 0 and key 0 (the Random123 distribution's known answers).
  check({.name = "random",
         .inputs = {},
         .build =
             [](Builder& b, const Ids&) {
               return Ids{b.add1(OpKind::kRandomUniform, {},
                                 {{"shape", graph::Shape{1}}, {"dtype", DType::kF32}, {"seed", int64_t{0}}})};
             },
         .expected = {tensor(DType::kF32, {1}, {double(0x6627e8d5u >> 8) * 0x1p-24})},
         .tolerance = 0});
}

TEST_CASE("shape arithmetic disappears at compile time") {
  // reshape(x, concat(shape(x)[:2], [-1 resolved])) as exporters write it
  graph::Graph g;
  Builder b(g, ops::shape_table());
  const ValueId x = b.input("x", {DType::kF32, {sym::var("batch"), sym::var("seq"), 12, 64}});
  const ValueId shape = ops::size_tensor(b, b.shape(x));
  const ValueId two = ops::slice(b, shape, 0, 0, 2);
  const ValueId rest =
      ops::mul(b, ops::gather(b, shape, b.integers({2}), 0), ops::gather(b, shape, b.integers({-1}), 0));
  const auto target = b.known(ops::concat(b, {two, rest}, 0));
  REQUIRE(target.has_value());
  const ValueId y = ops::reshape(b, x, *target);
  CHECK(graph::to_string(b.type(y)) == "f32[batch, seq, 768]");
  b.output("y", y);
  graph::eliminate_dead_code(g);
  CHECK(g.nodes.size() == 1);
  CHECK(g.guards.empty());
}

TEST_CASE("nodes without effect, views of views and special sizes add no nodes") {
  graph::Graph g;
  Builder b(g, ops::shape_table());
  const sym::Expr n = sym::var("n");
  const ValueId x = b.input("x", {DType::kF32, {n, 4, 6}}), i = b.input("i", {DType::kI64, {n}});
  CHECK(ops::mul(b, x, 1.0) == x);
  CHECK(ops::div(b, x, 1.0) == x);
  CHECK(ops::add(b, x, 0.0) != x);  // -0.0 + 0.0 is 0.0
  CHECK(ops::add(b, i, 0.0) == i);
  CHECK(ops::sub(b, b.scalar(DType::kI64, 0), i) != i);
  CHECK(ops::mul(b, i, b.constant("", {DType::kI64, {1, 1}}, graph::own({1, 0, 0, 0, 0, 0, 0, 0}))) !=
        i);  // another rank
  CHECK(ops::permute(b, ops::permute(b, x, {1, 2, 0}), {2, 0, 1}) == x);
  CHECK(ops::reshape(b, ops::reshape(b, x, {n, 24}), {n, 4, 6}) == x);
  CHECK(ops::where(b, b.scalar(DType::kBool, 0), i, x == i ? x : i) == i);
  // slice(concat(slice(i, :1), i), 1:) has the size of i, for n = 0 as well
  const ValueId longer = ops::concat(b, {ops::slice_clamped(b, i, 0, 0, 1), i}, 0);
  const ValueId again = ops::slice_clamped(b, longer, 0, 1, std::numeric_limits<int64_t>::max());
  CHECK(b.shape(again) == graph::Shape{n});
  CHECK(b.shape(ops::add(b, again, i)) == graph::Shape{n});
  CHECK(g.guards.empty());
  // A table cut at 512 rows: one guard, and no select in any size.
  const ValueId table = b.constant("", {DType::kI64, {512}}, graph::own(std::vector<uint8_t>(4096)));
  CHECK(b.shape(ops::add(b, i, ops::slice_clamped(b, table, 0, 0, n))) == graph::Shape{n});
  CHECK(g.guards.size() == 1);
}

TEST_CASE("copies for outputs are of the node that makes the output") {
  graph::Graph g;
  Builder b(g, ops::shape_table());
  const ValueId x = b.input("x", {DType::kF32, {2, 3}});
  const ValueId s = b.state("held", {DType::kF32, {3, 2}}, std::nullopt);
  b.set_origin("node 0 'turn' (Transpose)");
  const ValueId turned = ops::permute(b, x, {1, 0});
  b.add(OpKind::kUpdateState, {s, turned});
  b.output("y", turned);
  graph::eliminate_dead_code(g);
  const loop::Program program = ops::lower(g);
  REQUIRE(program.nests.size() == 2);  // one for the output, one for the state
  for (const loop::Nest& nest : program.nests)
    CHECK(nest.nodes == std::vector<std::string>{"node 0 'turn' (Transpose)"});
}
