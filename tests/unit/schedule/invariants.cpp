#include "compiler/schedule/algebra/invariants.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "compiler/loop/build.h"
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

View numbers(Pieces& p, const std::string& name, const std::vector<Expr>& shape,
             std::vector<int64_t> values) {
  Buffer buffer{.name = name, .dtype = DType::kI64, .shape = shape, .storage = Storage::kParameter};
  auto bytes = std::make_shared<std::vector<uint8_t>>(values.size() * 8);
  std::memcpy(bytes->data(), values.data(), bytes->size());
  buffer.weight = {bytes, bytes->data(), bytes->size()};
  return whole(p.program, add_buffer(p.program, std::move(buffer)));
}

Program rewritten(const Program& before, const Bindings& sizes) {
  Program after = before;
  fold_constants(after);
  loop::eliminate_dead_code(after);
  fuse(after);
  fold_constants(after);
  loop::eliminate_dead_code(after);
  verify(after);
  plan_memory(after);
  CHECK(same_results(before, after, sizes));
  return after;
}

int count(const Program& program, const std::function<bool(const Stmt&)>& wanted) {
  int found = 0;
  for_each_step(program.steps, [&](const Step& step) {
    if (const auto* launch = std::get_if<Launch>(&step.node))
      for_each_stmt(program[launch->nest].body, [&](const Stmt& stmt) { found += wanted(stmt); });
  });
  return found;
}
int integer_loads(const Program& program) {
  return count(program, [&](const Stmt& stmt) {
    const auto* load = std::get_if<Load>(&stmt.node);
    return load && program[load->access.buffer].dtype == DType::kI64;
  });
}
int binds(const Program& program) {
  return count(program, [](const Stmt& stmt) { return std::holds_alternative<Bind>(stmt.node); });
}

// Positions broadcast over a batch, as exporters write them: running sums of `steps` along rows.
View spread(Pieces& p, const View& steps, int64_t size) {
  const View spread = p.temporary("spread", {p.n, size}, DType::kI64);
  NestBuilder nest(p.program, "cumsum");
  const auto at = nest.dims({p.n});
  nest.scan(size, false, {nest.constant(DType::kI64, 0)}, [&](Expr i, const std::vector<Value>& sum) {
    const Value next = sum[0] + nest.load(steps, {i});
    nest.store(spread, {at[0], i}, next);
    return std::vector{next};
  });
  nest.finish();
  return spread;
}

// y[b, i, j] = t[b, j] <= t[b, i] ? x[b, i, j] : 0
void output_masked(Pieces& p, const View& t, int64_t size) {
  const View x = p.input("x", {p.n, size, size}), y = p.temporary("y", {p.n, size, size});
  NestBuilder nest(p.program, "mask");
  const auto at = nest.dims(y.shape);
  nest.store(y, at,
             select(le(nest.load(t, {at[0], at[2]}), nest.load(t, {at[0], at[1]})), nest.load(x, at),
                    nest.constant(DType::kF32, 0)));
  nest.finish();
  p.output("out", y);
}

}  // namespace

TEST_CASE("a causal mask that is computed from positions, sequence by sequence, is a mask of indices") {
  for (int64_t step : {1, 0, 3}) {
    Pieces p("causal");
    output_masked(p, spread(p, numbers(p, "steps", {5}, std::vector<int64_t>(5, step)), 5), 5);
    for (int64_t n : {0, 1, 3}) {
      const Program after = rewritten(p.program, {{p.n, n}});
      CHECK(after.steps.size() == 1);
      CHECK(integer_loads(after) == 0);
    }
  }
}

TEST_CASE("positions that are not a formula are constants still") {
  Pieces p("packed");
  output_masked(p, spread(p, numbers(p, "steps", {5}, {1, 0, 1, 1, 0}), 5), 5);
  const Program after = rewritten(p.program, {{p.n, 3}});
  CHECK(after.steps.size() == 1);
  CHECK(integer_loads(after) == 2);
}

TEST_CASE("what depends on the dim, or on what is given, stays") {
  Pieces p("given");
  const View steps = p.input("steps", {5}, DType::kI64);
  output_masked(p, spread(p, steps, 5), 5);
  CHECK(integer_loads(rewritten(p.program, {{p.n, 3}})) > 0);

  Pieces q("numbered");
  const View t = q.temporary("t", {q.n, 5}, DType::kI64);
  NestBuilder nest(q.program, "iota");
  const auto at = nest.dims(t.shape);
  nest.store(t, at, nest.reduce(Combine::kSum, {at[0] + at[1]}, [&](const std::vector<Expr>& k) {
    return nest.index_value(k[0]);
  }));
  nest.finish();
  output_masked(q, t, 5);
  rewritten(q.program, {{q.n, 4}});
}

TEST_CASE("an index that is known to be inside is not checked") {
  Pieces p("rows");
  const View table = p.input("table", {6, 4});
  p.output("inside", p.gather(table, numbers(p, "ids", {3}, {1, 3, 5})));
  p.output("picked", p.gather(table, numbers(p, "some", {3}, {0, 4, 1})));
  const Program after = rewritten(p.program, {});
  CHECK(binds(after) == 1);
}

TEST_CASE("what constant indices pick is a constant, where it is larger than both as well") {
  Pieces p("lookup");
  std::vector<int64_t> places(5000);
  for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int64_t>(i * i % 4);
  const View x = p.input("x", {5000, 8});
  const View picked = p.gather(p.weight("table", {4, 8}, 1), numbers(p, "places", {5000}, places));
  p.output("y", p.map("add", {x, picked}, [](const auto& v) { return v[0] + v[1]; }));
  CHECK(binds(rewritten(p.program, {})) == 0);
}

TEST_CASE("what a loop makes of weights in every iteration is a constant, what it carries is not") {
  Pieces p("loop");
  const View x = p.input("x", {8}), w = p.weight("w", {8}, 1), twice = p.temporary("twice", {8}),
             carried = p.temporary("carried", {8});
  const auto nest = [&](const char* name, const View& to, Steps& steps, const auto& value) {
    NestBuilder n(p.program, name);
    const auto at = n.dims({8});
    n.store(to, at, value(n, at));
    n.finish(&steps);
  };
  nest("start", carried, p.program.steps, [&](NestBuilder& n, const auto& at) { return n.load(w, at); });
  While loop{
      .counter = sym::var("i"), .trip_count = 3, .condition = {}, .iterations = sym::var("done"), .body = {}};
  nest("scale", twice, loop.body,
       [&](NestBuilder& n, const auto& at) { return n.load(w, at) + n.load(w, at); });
  nest("step", carried, loop.body, [&](NestBuilder& n, const auto& at) {
    return n.load(carried, at) * n.load(twice, at) + n.load(x, at);
  });
  p.program.steps.push_back({std::move(loop)});
  p.output("y", carried);
  const Program after = rewritten(p.program, {});
  CHECK(after.prepack.size() == 1);
  CHECK(count(after, [&](const Stmt& stmt) {
          const auto* store = std::get_if<Store>(&stmt.node);
          return store && after[store->access.buffer].name == "twice";
        }) == 0);
}

TEST_CASE("floats that are all one number are constants, and what is added to a mask becomes part of it") {
  // y[i, j] = x[i, j] + f16(bias[at] + (j <= i ? 0 : -inf)), with a scalar bias or not
  const auto masked = [](std::vector<float> values) {
    Pieces p("biases");
    Buffer buffer{.name = "bias",
                  .dtype = DType::kF32,
                  .shape = values.size() == 1 ? std::vector<Expr>{} : std::vector<Expr>{4},
                  .storage = Storage::kParameter};
    auto bytes = std::make_shared<std::vector<uint8_t>>(values.size() * sizeof(float));
    std::memcpy(bytes->data(), values.data(), bytes->size());
    buffer.weight = {bytes, bytes->data(), bytes->size()};
    const View bias = whole(p.program, add_buffer(p.program, std::move(buffer)));
    const View x = p.input("x", {4, 4}), y = p.temporary("y", {4, 4});
    NestBuilder n(p.program, "mask");
    const auto at = n.dims({4, 4});
    const Value shown = le(n.index_value(at[1]), n.index_value(at[0]));
    const Value mask = select(shown, n.constant(DType::kF32, 0), n.constant(DType::kF32, -1000));
    const Value sum =
        n.load(bias, values.size() == 1 ? std::vector<Expr>{} : std::vector<Expr>{at[1]}) + mask;
    n.store(y, at, n.load(x, at) + n.cast(n.cast(sum, DType::kF16), DType::kF32));
    n.finish();
    p.output("out", y);
    return rewritten(p.program, {});
  };
  const auto lets = [](const Program& program) {
    return count(program, [](const Stmt& stmt) { return std::holds_alternative<Let>(stmt.node); });
  };
  const auto loads = [](const Program& program) {
    return count(program, [](const Stmt& stmt) { return std::holds_alternative<Load>(stmt.node); });
  };
  for (const std::vector<float>& same : {std::vector<float>{0}, {-0.0f}, {2.5f}, {3, 3, 3, 3}}) {
    const Program after = masked(same);
    CHECK(loads(after) == 1);
    CHECK(lets(after) == 2);  // the select and the sum
  }
  for (const std::vector<float>& other : {std::vector<float>{0, 0, 0, -0.0f}, {3, 3, 3, 4}, {NAN}})
    CHECK(loads(masked(other)) == 2);
}

TEST_CASE("two masks are one condition where one of them is enough") {
  for (const ScalarOp op : {ScalarOp::kMin, ScalarOp::kAdd}) {  // adding -1000 twice gives another value
    Pieces p("masks");
    const View x = p.input("x", {p.n, p.m}), y = p.temporary("y", {p.n, p.m});
    const View lengths = p.input("lengths", {p.n}, DType::kI64);
    NestBuilder n(p.program, "masks");
    const auto at = n.dims({p.n, p.m});
    const Value row = n.index_value(at[0]), key = n.index_value(at[1]);
    const Value zero = n.constant(DType::kF32, 0), hidden = n.constant(DType::kF32, -1000);
    const Value later = select(lt(row, key), hidden, zero);
    const Value padded = select(lt(key, n.load(lengths, {at[0]})), zero, hidden);
    n.store(y, at, n.load(x, at) + n.cast(n.cast(binary(op, later, padded), DType::kF16), DType::kF32));
    n.finish();
    p.output("out", y);
    const Program after = rewritten(p.program, {{p.n, 3}, {p.m, 5}});
    const int selects = count(after, [](const Stmt& stmt) {
      const auto* let = std::get_if<Let>(&stmt.node);
      return let && let->op == ScalarOp::kSelect;
    });
    CHECK(selects == (op == ScalarOp::kMin ? 1 : 2));
  }
}

TEST_CASE("the greatest and the least of one number are that number where there is a point") {
  for (const Combine combine : {Combine::kMax, Combine::kMin}) {
    Pieces p("one number");
    const View x = p.input("x", {p.n, p.m}), y = p.temporary("y", {p.n, p.m});
    const View tops = p.temporary("tops", {p.n});
    NestBuilder n(p.program, "tops");
    const auto at = n.dims({p.n});
    n.store(tops, at, n.reduce(combine, {p.m}, [&](const std::vector<Expr>&) {
      return n.constant(DType::kF32, 2) + n.constant(DType::kF32, 3);
    }));
    n.finish();
    NestBuilder sums(p.program, "sums");
    const auto points = sums.dims({p.n, p.m});
    sums.store(y, points, sums.load(x, points) + sums.load(tops, {points[0]}));
    sums.finish();
    p.output("out", y);
    // NaN if there are no points.
    p.output("all", p.map("own", {tops}, [](const std::vector<Value>& v) { return v[0] - v[0]; }));
    for (Nest& nest : p.program.nests) clean(p.program, nest);
    for (const int64_t m : {0, 1, 7}) {
      const Program after = rewritten(p.program, {{p.n, 3}, {p.m, m}});
      CHECK(count(after, [](const Stmt& stmt) { return std::holds_alternative<Reduce>(stmt.node); }) == 0);
    }
  }
}

TEST_CASE("the greatest and the least of what moves one way are its ends") {
  // Whether a row has no visible key among m, with f16 masks.
  struct Case {
    const char* what;
    bool known;
  };
  const Case cases[] = {{"to the row", true},
                        {"from the row", true},
                        {"to a length", true},
                        {"with a length", true},
                        {"to a row of those left", true},
                        {"one place", false},
                        {"by element", false},
                        {"opposite", false},
                        {"lost", false}};
  for (const Combine combine : {Combine::kMax, Combine::kMin})
    for (const auto& [what, known] : cases) {
      INFO(what, " ", static_cast<int>(combine));
      const std::string form = what;
      Pieces p("ends");
      const View lengths = p.input("lengths", {p.n}, DType::kI64), x = p.input("x", {p.n, p.m});
      const View of = p.input("of", {p.m}, DType::kI64);
      const View y = p.temporary("y", {p.n, p.m}), seen = p.temporary("seen", {p.n}, DType::kBool);
      NestBuilder n(p.program, "seen");
      const auto at = n.dims({p.n});
      const Value zero = n.constant(DType::kF32, 0), low = n.constant(DType::kF32, -HUGE_VAL);
      const Value most = n.reduce(combine, {p.m}, [&](const std::vector<Expr>& k) {
        const Value key = n.index_value(k[0]), row = n.index_value(at[0]);
        const Value length = n.load(lengths, {at[0]});
        const Value to = le(key, row), shorter = lt(key, length);
        if (form == "to a length") return n.cast(select(shorter, zero, low), DType::kF16);
        if (form == "from the row") return n.cast(select(le(row, key), zero, low), DType::kF16);
        if (form == "with a length")
          return n.cast(select(to, zero, low) + select(shorter, zero, low), DType::kF16);
        if (form == "to a row of those left")
          return n.cast(
              select(lt(row + (length - n.index_value(2)), key), low, zero) + select(shorter, zero, low),
              DType::kF16);
        if (form == "one place") return n.cast(select(eq(key, row), zero, low), DType::kF16);
        if (form == "by element") return n.cast(select(lt(key, n.load(of, k)), zero, low), DType::kF16);
        if (form == "opposite")
          return n.cast(select(to, zero, low) + select(le(row, key), zero, low), DType::kF16);
        if (form == "lost")
          return n.cast(select(to, low, zero) + select(shorter, n.constant(DType::kF32, HUGE_VAL), zero),
                        DType::kF16);
        return n.cast(select(to, zero, low), DType::kF16);
      });
      n.store(seen, at, eq(most, n.constant(DType::kF16, -HUGE_VAL)));
      n.finish();
      NestBuilder result(p.program, "result");
      const auto points = result.dims({p.n, p.m});
      result.store(
          y, points,
          select(result.load(seen, {points[0]}), result.constant(DType::kF32, 7), result.load(x, points)));
      result.finish();
      p.output("out", y);
      Program cleaned = p.program;
      for (Nest& nest : cleaned.nests) clean(cleaned, nest);
      const int reductions =
          count(cleaned, [](const Stmt& stmt) { return std::holds_alternative<Reduce>(stmt.node); });
      CHECK((reductions == 0) == known);
      plan_memory(cleaned);
      for (const int64_t m : {0, 1, 7}) CHECK(same_results(p.program, cleaned, {{p.n, 3}, {p.m, m}}));
    }
}

TEST_CASE("causal and padding masks of the model are comparisons of indices") {
  struct Case {
    const char* what;
    std::function<bool(int64_t batch, int64_t row, int64_t key)> shown;
    bool known;
  };
  const Case cases[] = {
      {"causal", [](int64_t, int64_t row, int64_t key) { return key <= row; }, true},
      {"after a cache", [](int64_t, int64_t row, int64_t key) { return key < row + 4; }, true},
      {"hidden", [](int64_t, int64_t row, int64_t key) { return key > row; }, true},
      {"later rows", [](int64_t, int64_t row, int64_t key) { return key < row - 2; }, true},
      {"padding", [](int64_t, int64_t, int64_t key) { return key < 5; }, true},
      {"all", [](int64_t, int64_t, int64_t) { return true; }, true},
      {"window", [](int64_t, int64_t row, int64_t key) { return key <= row && key > row - 3; }, false},
      {"by sequence", [](int64_t batch, int64_t, int64_t key) { return key < 3 + batch; }, false},
      {"one hole", [](int64_t, int64_t row, int64_t key) { return key <= row && (row != 6 || key != 2); },
       false},
  };
  for (const Case& c : cases) {
    INFO(c.what);
    Pieces p("masked");
    auto bytes = std::make_shared<std::vector<uint8_t>>();
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t row = 0; row < 7; ++row)
        for (int64_t key = 0; key < 9; ++key) bytes->push_back(c.shown(b, row, key) ? 1 : 0);
    const BufferId mask = add_buffer(p.program, {.name = "mask",
                                                 .dtype = DType::kBool,
                                                 .shape = {2, 1, 7, 9},
                                                 .strides = {},
                                                 .storage = Storage::kParameter,
                                                 .weight = {bytes, bytes->data(), bytes->size()}});
    const View x = p.input("x", {2, p.n, 7, 9}), y = p.temporary("y", {2, p.n, 7, 9});
    NestBuilder n(p.program, "masked");
    const auto at = n.dims({2, p.n, 7, 9});
    n.store(y, at,
            select(n.load(whole(p.program, mask), {at[0], 0, at[2], at[3]}), n.load(x, at),
                   n.constant(DType::kF32, -1)));
    n.finish();
    p.output("out", y);
    Program after = p.program;
    schedule::make_affine(after);
    loop::eliminate_dead_code(after);
    verify(after);
    CHECK((to_string(after).find("load mask") == std::string::npos) == c.known);
    schedule::plan_memory(after);
    CHECK(same_results(p.program, after, {{p.n, 2}}));
  }
}
