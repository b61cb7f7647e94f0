#include "compiler/schedule/layout/concat_aliasing.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <stdexcept>

#include "compiler/base/text.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/fusion/fusion.h"
#include "compiler/schedule/memory/memory_plan.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using namespace stridec::schedule;
using namespace stridec::testing;
using sym::Expr;

namespace {

Value bend(const std::vector<Value>& v) { return unary(ScalarOp::kTanh, v[0]); }

// Sums the columns of `x` per row and broadcasts the sums to `columns` columns, so that layers are not
// copies.
View layer(Pieces& p, const View& x, int64_t columns) {
  const View sums = p.reduce_last(x, Combine::kSum);
  const View wide = expand(sums, {x.shape[0], columns}, p.program.facts);
  return p.map("layer", {wide}, bend);
}

// Stores the value into columns of an existing buffer.
void store_over(Pieces& p, const View& to, const View& value) {
  NestBuilder nest(p.program, "over");
  const auto at = nest.dims(value.shape);
  nest.store(to, at, nest.load(value, at));
  nest.finish();
}

size_t arena_buffers(const Program& program) {
  size_t count = 0;
  for (const Buffer& buffer : program.buffers) count += buffer.storage == Storage::kArena;
  return count;
}

// The program after the pass, verified and compared with the original.
Program shared(const Pieces& p, std::vector<Decision>* decisions = nullptr) {
  Program after = p.program;
  alias_concats(after, decisions);
  loop::eliminate_dead_code(after);
  verify(after);
  Program planned = after;
  plan_memory(planned);
  for (const auto& [n, m] : {std::pair<int64_t, int64_t>{1, 1}, {3, 2}, {7, 5}}) {
    CAPTURE(to_string(after));
    CHECK(same_results(p.program, planned, {{p.n, n}, {p.m, m}}));
  }
  return after;
}

bool refuses(const Pieces& p) {
  const Program after = shared(p);
  return after.steps.size() == p.program.steps.size() && after.buffers.size() == p.program.buffers.size();
}

}  // namespace

TEST_CASE("of a chain of concatenations the last one owns the memory") {
  Pieces p("dense");
  const View x = p.input("x", {p.n, 4});
  // A DenseNet: each layer reads a concatenation of all earlier results.
  std::vector<View> made = {layer(p, x, 4)};
  View all = made[0];
  for (int64_t columns : {3, 2, 5}) {
    made.push_back(layer(p, all, columns));
    all = p.concat(made);
  }
  p.output("y", layer(p, all, 2));
  std::vector<Decision> decisions;
  const Program after = shared(p, &decisions);
  // Four layers, four sums, the output's layer, and one concatenation without copies.
  CHECK(after.steps.size() == 2 * 5 + 1);
  CHECK(arena_buffers(after) == 5 + 1 + 1);
  const std::string text = to_string(after);
  CHECK(text.find("copy") == text.rfind("copy"));  // only the output's copy
  CHECK(text.find("[%i0, %i1 + 9]") != std::string::npos);
  REQUIRE(decisions.size() == 6);
  CHECK(decisions[0].fused);
  CHECK(decisions[0].reason == "stored in it, without a copy");
}

TEST_CASE("slices begin at whole pieces, and so do their rows, where that is asked for") {
  for (const auto& [columns, own, buffers] :
       {std::tuple<int64_t, int64_t, size_t>{8, 4, 1}, {4, 8, 1}, {8, 3, 2}, {3, 4, 2}}) {
    CAPTURE(columns);
    CAPTURE(own);
    Pieces p("pieces");
    const View x = p.input("x", {p.n, 4});
    const View one = layer(p, x, columns), two = layer(p, one, own);
    p.output("y", layer(p, p.concat({one, two}), 2));
    Program after = p.program;
    alias_concats(after, nullptr, 16);
    loop::eliminate_dead_code(after);
    verify(after);
    const size_t others = 4;  // sums, and the output's layer
    CHECK(arena_buffers(after) >= others + buffers);
    CHECK((arena_buffers(after) == others + 1) == (buffers == 1));
    plan_memory(after);
    CHECK(same_results(p.program, after, {{p.n, 3}, {p.m, 1}}));
  }
}

TEST_CASE("so it is where each concatenation holds the one before") {
  Pieces p("nested");
  const View x = p.input("x", {p.n, 4});
  View all = layer(p, x, 4);
  for (int64_t columns : {3, 2}) all = p.concat({all, layer(p, all, columns)});
  p.output("y", layer(p, all, 2));
  const Program after = shared(p);
  CHECK(after.steps.size() == 2 * 4 + 1);
  CHECK(arena_buffers(after) == 4 + 1 + 1);
}

TEST_CASE("what fusion stores to several places is stored to one") {
  Pieces p("dense");
  const auto product = [&](const View& x, int64_t columns) {
    const uint32_t seed = static_cast<uint32_t>(p.program.buffers.size());
    return p.matmul(x, p.weight(cat("w", seed), {x.shape[1].value(), columns}, seed));
  };
  const View one = product(p.input("x", {p.n, 4}), 4), two = product(one, 3), both = p.concat({one, two});
  p.output("y", product(p.concat({one, two, product(both, 2)}), 2));
  fuse(p.program);
  const auto stores = [](const Program& program) {
    size_t count = 0;
    for (const Nest& nest : program.nests)
      for_each_stmt(nest.body, [&](const Stmt& stmt) { count += std::holds_alternative<Store>(stmt.node); });
    return count;
  };
  CHECK(stores(p.program) > 4);
  const Program after = shared(p);
  CHECK(stores(after) == 4);
  CHECK(after.steps.size() == 4);
}

TEST_CASE("both halves of a buffer, as adjacent pieces, alias the concatenation") {
  Pieces p("halves");
  const View x = p.input("x", {p.n, 4}), s = layer(p, x, 6);
  const View left = slice(s, 1, 0, 3, 1), right = slice(s, 1, 3, 3, 1), more = layer(p, right, 2);
  p.output("y", layer(p, p.concat({left, right, more}), 2));
  const Program after = shared(p);
  CHECK(after.steps.size() == 2 * 3 + 1);
  SUBCASE("but not in the other order") {
    Pieces q("swapped");
    const View y = q.input("x", {q.n, 4}), t = layer(q, y, 6);
    q.output("y", layer(q, q.concat({slice(t, 1, 3, 3, 1), slice(t, 1, 0, 3, 1)}), 2));
    CHECK(refuses(q));
  }
}

TEST_CASE("a buffer that is written after it was copied is not aliased") {
  for (const bool source : {false, true}) {
    CAPTURE(source);
    Pieces p("changed");
    const View x = p.input("x", {p.n, 4}), a = layer(p, x, 4), b = layer(p, x, 3);
    const View all = p.concat({a, b});
    store_over(p, source ? a : slice(all, 1, 0, 4, 1), layer(p, b, 4));
    p.output("y", layer(p, p.concat({all, a}), 2));
    std::vector<Decision> decisions;
    shared(p, &decisions);
    const std::string first = p.program[a.buffer].name, last = p.program[all.buffer].name;
    for (const Decision& decision : decisions)
      CHECK(!(decision.fused && decision.producer == first && decision.consumer == last));
  }
}

TEST_CASE(
    "buffers of another memory order, of states, and those used by more than launches are not aliased") {
  const auto program = [] {
    Pieces p("apart");
    const View x = p.input("x", {p.n, 4}), a = layer(p, x, 4), b = layer(p, a, 3);
    p.output("y", layer(p, p.concat({a, b}), 2));
    return p;
  };
  const auto concat = [](Program& p) -> Buffer& {
    for (Buffer& buffer : p.buffers)
      if (buffer.name.starts_with("concat")) return buffer;
    throw std::logic_error("no concatenation");
  };
  CHECK(!refuses(program()));
  Pieces columns = program();
  concat(columns.program).strides = {1, columns.n};
  CHECK(refuses(columns));
  Pieces kept = program();
  Buffer& state = concat(kept.program);
  for (size_t i = 0; i < kept.program.buffers.size(); ++i)
    if (&kept.program.buffers[i] == &state) {
      Buffer copy = state;
      copy.name = "copy";
      const BufferId id = add_buffer(kept.program, std::move(copy));
      kept.program.steps.push_back({Copy{BufferId(static_cast<int64_t>(i)), id}});
      break;
    }
  CHECK(refuses(kept));
}

TEST_CASE("nothing aliases a larger buffer where that would raise peak memory") {
  Pieces p("long");
  const View x = p.input("x", {p.n, 4}), a = layer(p, x, 4);
  // a is live throughout, and the last concatenation would be too if it held a; its other part is not.
  View y = a;
  for (int i = 0; i < 3; ++i) y = layer(p, layer(p, y, 3000), 4);
  p.output("y", layer(p, p.concat({a, layer(p, y, 1400)}), 2));
  std::vector<Decision> decisions;
  shared(p, &decisions);
  REQUIRE(decisions.size() == 2);
  CHECK(!decisions[0].fused);
  CHECK(decisions[0].producer == p.program[a.buffer].name);
  CHECK(decisions[0].reason == "not stored in it: peak memory would grow");
  CHECK(decisions[1].fused);
}

TEST_CASE("random chains of copies, also overlapping ones, give the same results afterwards") {
  size_t dropped = 0;
  for (uint32_t seed = 1; seed <= 120; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    Pieces p(cat("random", seed));
    std::vector<View> values = {layer(p, p.input("x", {p.n, 4}), 3)};
    std::vector<View> buffers = values;  // as stored in memory
    const auto pick = [&](const std::vector<View>& from) -> const View& {
      return from[random() % from.size()];
    };
    const int count = 4 + static_cast<int>(random() % 8);
    for (int i = 0; i < count; ++i) switch (random() % 8) {
        case 0:
        case 1:
        case 2:
          values.push_back(layer(p, pick(values), 1 + static_cast<int64_t>(random() % 4)));
          buffers.push_back(values.back());
          break;
        case 3:
        case 4:
          values.push_back(p.concat({pick(values), pick(values)}));
          buffers.push_back(values.back());
          break;
        case 5:
          values.push_back(p.concat({pick(values), pick(values), pick(values)}));
          buffers.push_back(values.back());
          break;
        case 6: {
          const View& whole = pick(values);
          const int64_t columns = whole.shape[1].value(), from = static_cast<int64_t>(random()) % columns;
          values.push_back(slice(whole, 1, from, 1 + static_cast<int64_t>(random()) % (columns - from), 1));
          break;
        }
        case 7: {
          const View &to = pick(buffers), &value = pick(values);
          const int64_t room = to.shape[1].value() - value.shape[1].value();
          if (room < 0) break;
          store_over(p, slice(to, 1, static_cast<int64_t>(random()) % (room + 1), value.shape[1], 1),
                     p.map("over", {value}, bend));
          break;
        }
      }
    p.output("y", layer(p, values.back(), 2));
    p.output("z", layer(p, pick(values), 2));
    if (seed % 2) fuse(p.program);
    dropped += p.program.steps.size() - shared(p).steps.size();
  }
  CHECK(dropped > 40);
}
