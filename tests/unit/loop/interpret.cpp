#include "compiler/loop/interpret.h"

#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "compiler/base/diagnostic.h"
#include "compiler/loop/build.h"
#include "compiler/loop/library.h"
#include "tests/support/program_builder.h"

using namespace stridec;
using namespace stridec::loop;
using sym::Expr;

namespace {

HostTensor tensor(DType dtype, std::vector<int64_t> shape, const std::vector<double>& values) {
  HostTensor t = make_tensor(dtype, std::move(shape));
  REQUIRE(static_cast<int64_t>(values.size()) == element_count(t));
  for (size_t i = 0; i < values.size(); ++i) set_number(t, static_cast<int64_t>(i), values[i]);
  return t;
}

std::vector<double> numbers(const HostTensor& t) {
  std::vector<double> out;
  for (int64_t i = 0; i < element_count(t); ++i) out.push_back(get_number(t, i));
  return out;
}

std::vector<double> ramp(int64_t n, double step = 1) {
  std::vector<double> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(step * static_cast<double>(i));
  return out;
}

struct Builder : stridec::testing::ProgramBuilder {
  HostTensor run1(const std::vector<HostTensor>& inputs) {
    return interpret(program, inputs, {.poison = true})[0];
  }
};

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

constexpr DType kF32 = DType::kF32;

}  // namespace

TEST_CASE_FIXTURE(Builder, "a matrix product with a bias, at every size down to nothing") {
  Expr m = symbol("m", 0, 0, 0, 1000);
  View a = input("a", kF32, {m, 5}), b = input("b", kF32, {5, 7}), bias = input("bias", kF32, {7}),
       y = output("y", kF32, {m, 7});
  NestBuilder n = nest("matmul");
  std::vector<Expr> i = n.dims(y.shape);
  Value dot =
      n.reduce(Combine::kSum, {5}, [&](auto k) { return n.load(a, {i[0], k[0]}) * n.load(b, {k[0], i[1]}); });
  n.store(y, i, dot + n.load(bias, {i[1]}));
  n.finish();
  for (int64_t rows : {0, 1, 3, 40}) {
    HostTensor x = tensor(kF32, {rows, 5}, ramp(rows * 5, 0.5));
    HostTensor w = tensor(kF32, {5, 7}, ramp(35));
    HostTensor out = run1({x, w, tensor(kF32, {7}, ramp(7, 100))});
    CHECK(out.shape == std::vector<int64_t>{rows, 7});
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < 7; ++c) {
        double sum = 100.0 * static_cast<double>(c);
        for (int64_t k = 0; k < 5; ++k) sum += get_number(x, r * 5 + k) * get_number(w, k * 7 + c);
        CHECK(get_number(out, r * 7 + c) == sum);
      }
  }
}

TEST_CASE_FIXTURE(Builder, "softmax: two reductions and a loop in one nest") {
  Expr rows = symbol("rows", 0, 0, 0, 1000), cols = symbol("cols", 0, 1, 0, 1000);
  View x = input("x", kF32, {rows, cols}), y = output("y", kF32, {rows, cols});
  NestBuilder n = nest("softmax");
  Expr r = n.dim(rows);
  Value top = n.reduce(Combine::kMax, {cols}, [&](auto k) { return n.load(x, {r, k[0]}); });
  auto e = [&](Expr k) { return unary(ScalarOp::kExp, n.load(x, {r, k}) - top); };
  Value sum = n.reduce(Combine::kSum, {cols}, [&](auto k) { return e(k[0]); });
  n.loop({cols}, [&](auto k) { n.store(y, {r, k[0]}, e(k[0]) / sum); });
  n.finish();
  HostTensor out = run1({tensor(kF32, {300, 3}, ramp(900, 0.01))});
  for (int i = 0; i < 300; ++i)
    CHECK(get_number(out, 3 * i) + get_number(out, 3 * i + 1) + get_number(out, 3 * i + 2) ==
          doctest::Approx(1));
  CHECK(get_number(out, 0) == doctest::Approx(1 / (1 + std::exp(0.01) + std::exp(0.02))));
  CHECK(run1({make_tensor(kF32, {2, 0})}).bytes.empty());
}

TEST_CASE_FIXTURE(Builder, "rank 0, f16 rounding, and an average pool with masked loads") {
  View x = input("x", DType::kF16, {}), y = output("y", DType::kF16, {});
  NestBuilder n = nest("add");
  n.store(y, {}, n.load(x, {}) + n.constant(DType::kF16, 2048));
  n.finish();
  CHECK(numbers(run1({tensor(DType::kF16, {}, {1})})) == std::vector<double>{2048});
  CHECK(numbers(run1({tensor(DType::kF16, {}, {3})})) == std::vector<double>{2052});
}

TEST_CASE_FIXTURE(Builder, "a padded window sum") {
  View x = input("x", kF32, {6}), y = output("y", kF32, {6});
  View p = *pad(x, {1}, {1}, float_scalar(kF32, 0));
  NestBuilder n = nest("window");
  Expr i = n.dim(6);
  n.store(y, {i}, n.reduce(Combine::kSum, {3}, [&](auto r) { return n.load(p, {i + r[0]}); }));
  n.finish();
  CHECK(numbers(run1({tensor(kF32, {6}, {1, 2, 3, 4, 5, 6})})) == std::vector<double>{3, 6, 9, 12, 15, 11});
}

TEST_CASE_FIXTURE(Builder, "gather: negative indices, and the sentence where one is out of range") {
  Expr k = symbol("k", 1, 0, 0, 1000);
  View x = input("x", kF32, {4, 2}), at = input("at", DType::kI64, {k}), y = output("y", kF32, {k, 2});
  NestBuilder n = nest("gather");
  std::vector<Expr> i = n.dims(y.shape);
  Expr row =
      n.bind(n.load(at, {i[0]}), 4,
             {.wrap_negative = true, .sentence = "index {0} is out of range for dimension 0 of size {1}"});
  n.store(y, i, n.load(x, {row, i[1]}));
  n.finish();
  HostTensor data = tensor(kF32, {4, 2}, ramp(8));
  CHECK(numbers(run1({data, tensor(DType::kI64, {3}, {3, -1, 0})})) == std::vector<double>{6, 7, 6, 7, 0, 1});
  CHECK(error_of([&] { run1({data, tensor(DType::kI64, {2}, {0, 4})}); }) ==
        "index 4 is out of range for dimension 0 of size 4");
  CHECK(error_of([&] { run1({data, tensor(DType::kI64, {1}, {-5})}); }) ==
        "index -5 is out of range for dimension 0 of size 4");
}

TEST_CASE_FIXTURE(Builder, "scatter-add with duplicates, skipping what is out of range") {
  View at = input("at", DType::kI32, {5}), u = input("u", kF32, {5}), y = output("y", kF32, {3});
  NestBuilder zero = nest("zero");
  zero.store(y, {zero.dim(3)}, zero.constant(kF32, 0));
  zero.finish();
  NestBuilder n = nest("scatter");
  Expr i = n.dim(5);
  Expr row = n.bind(n.load(at, {i}), 3, {.mode = Bind::OutOfRange::kSkip});
  n.store_update(y, {row}, n.load(u, {i}), Combine::kSum);
  n.finish();
  CHECK(numbers(run1({tensor(DType::kI32, {5}, {0, 2, 0, 7, -1}), tensor(kF32, {5}, {1, 2, 4, 8, 16})})) ==
        std::vector<double>{5, 0, 2});
}

TEST_CASE_FIXTURE(Builder, "scan: exclusive cumulative sum from the end") {
  View x = input("x", DType::kI32, {2, 4}), y = output("y", DType::kI32, {2, 4});
  NestBuilder n = nest("cumsum");
  Expr r = n.dim(2);
  n.scan(4, true, {n.constant(DType::kI32, 0)}, [&](Expr k, const std::vector<Value>& carried) {
    n.store(y, {r, k}, carried[0]);
    return std::vector<Value>{carried[0] + n.load(x, {r, k})};
  });
  n.finish();
  CHECK(numbers(run1({tensor(DType::kI32, {2, 4}, {1, 2, 3, 4, 10, 20, 30, 40})})) ==
        std::vector<double>{9, 7, 4, 0, 90, 70, 40, 0});
}

TEST_CASE_FIXTURE(Builder, "argmax: first and last among equals, NaN wins") {
  View x = input("x", kF32, {4}), y = output("y", DType::kI64, {3});
  NestBuilder n = nest("argmax");
  int place = 0;
  for (Combine c : {Combine::kArgMax, Combine::kArgMaxLast, Combine::kArgMin}) {
    auto pair =
        n.reduce_many(c, {4}, [&](auto k) { return std::vector<Value>{n.load(x, k), n.index_value(k[0])}; });
    n.store(y, {place++}, pair[1]);
  }
  n.finish();
  CHECK(numbers(run1({tensor(kF32, {4}, {1, 5, 5, 1})})) == std::vector<double>{1, 2, 0});
  double nan = std::nan(""), inf = HUGE_VAL;
  CHECK(numbers(run1({tensor(kF32, {4}, {1, nan, 5, nan})})) == std::vector<double>{1, 3, 1});
  CHECK(numbers(run1({tensor(kF32, {4}, {-inf, -inf, -inf, -inf})})) == std::vector<double>{0, 3, 0});
}

TEST_CASE_FIXTURE(Builder, "triangular loops, reshaped loads, local rows") {
  View x = input("x", kF32, {3, 4}), y = output("y", kF32, {12});
  View row = buffer(Storage::kLocal, "row", kF32, {4});
  NestBuilder n = nest("prefix");
  Expr i = n.dim(12);
  View flat = reshape(x, {12}, program.facts);
  n.loop({4}, [&](auto j) { n.store(row, {j[0]}, n.load(flat, {i}) * n.constant(kF32, 2)); });
  Value s = n.reduce(Combine::kSum, {i + 1}, [&](auto k) { return n.load(flat, {k[0]}); });
  n.store(y, {i}, s + n.load(row, {3}));
  n.finish();
  HostTensor out = run1({tensor(kF32, {3, 4}, ramp(12))});
  for (int k = 0; k < 12; ++k) CHECK(get_number(out, k) == k * (k + 1) / 2 + 2 * k);
}

TEST_CASE_FIXTURE(Builder, "integers wrap, divide by zero to zero, and saturate on demand") {
  View x = input("x", DType::kI8, {4}), y = output("y", DType::kI8, {4, 4});
  NestBuilder n = nest("int");
  Expr i = n.dim(4);
  Value v = n.load(x, {i});
  n.store(y, {0, i}, v + v);
  n.store(y, {1, i}, v / n.constant(DType::kI8, 0));
  n.store(y, {2, i}, n.cast(n.cast(v, DType::kI32) * n.constant(DType::kI32, 3), DType::kI8, true));
  n.store(y, {3, i}, binary(ScalarOp::kMod, v, n.constant(DType::kI8, 7)));
  n.finish();
  CHECK(numbers(run1({tensor(DType::kI8, {4}, {100, -100, 5, -5})})) ==
        std::vector<double>{-56, 56, 10, -10, 0, 0, 0, 0, 127, -128, 15, -15, 2, 5, 5, 2});
}

TEST_CASE_FIXTURE(Builder, "shapes that contradict, guards and ranges answer with sentences") {
  Expr b = symbol("batch", 0, 0, 1, 8);
  View x = input("x", kF32, {b, 2}), z = input("z", kF32, {b}), y = output("y", kF32, {b});
  program.guards.push_back({sym::eq(sym::mod(b, 2), 0), "batch must be even, not {0}", {b}});
  NestBuilder n = nest("copy");
  Expr i = n.dim(b);
  n.store(y, {i}, n.load(z, {i}));
  n.finish();
  auto run = [&](int64_t bx, int64_t bz) {
    return error_of([&] { run1({make_tensor(kF32, {bx, 2}), make_tensor(kF32, {bz})}); });
  };
  CHECK(run(4, 4) == "no error");
  CHECK(run(3, 3) == "batch must be even, not 3");
  CHECK(run(4, 6) == "input 'z': dim 0 (batch) is 6, expected 4");
  CHECK(run(10, 10) == "input 'x' dim 0 (batch) is 10; the program supports 1..8");
  CHECK(error_of([&] { run1({make_tensor(kF32, {4, 2})}); }) == "the program takes 2 inputs, not 1");
}

TEST_CASE_FIXTURE(Builder, "an access out of bounds is caught") {
  View x = input("x", kF32, {4}), y = output("y", kF32, {4});
  NestBuilder n = nest("bad");
  Expr i = n.dim(4);
  n.store(y, {i}, n.load(x, {i + 1}));
  n.finish();
  CHECK(error_of([&] { run1({make_tensor(kF32, {4})}); }) ==
        "nest bad: index 4 in dim 0 of x, whose extent is 4");
}

TEST_CASE_FIXTURE(Builder, "control flow: a while loop with a condition, an if on a symbol bound from data") {
  // y doubles while it is below 100, at most 10 times; after more than 3 iterations, 1 is added.
  View x = input("x", DType::kI32, {}), y = output("y", DType::kI32, {}),
       go = arena("go", DType::kBool, {});
  auto test = [&](Steps* steps) {
    NestBuilder n = nest("test");
    n.store(go, {}, lt(n.load(y, {}), n.constant(DType::kI32, 100)));
    n.finish(steps);
  };
  NestBuilder init = nest("init");
  init.store(y, {}, init.load(x, {}));
  init.finish();
  test(&program.steps);
  While loop{.counter = sym::var("i"),
             .trip_count = 10,
             .condition = go.buffer,
             .iterations = sym::var("n"),
             .body = {}};
  NestBuilder twice = nest("twice");
  twice.store(y, {}, twice.load(y, {}) + twice.load(y, {}));
  twice.finish(&loop.body);
  test(&loop.body);
  program.steps.push_back({std::move(loop)});
  If more{.condition = sym::lt(3, sym::var("n")), .then_steps = {}, .else_steps = {}};
  NestBuilder inc = nest("inc");
  inc.store(y, {}, inc.load(y, {}) + inc.constant(DType::kI32, 1));
  inc.finish(&more.then_steps);
  program.steps.push_back({std::move(more)});
  CHECK(numbers(run1({tensor(DType::kI32, {}, {60})})) == std::vector<double>{120});
  CHECK(numbers(run1({tensor(DType::kI32, {}, {10})})) == std::vector<double>{161});
  CHECK(numbers(run1({tensor(DType::kI32, {}, {0})})) == std::vector<double>{1});
}

TEST_CASE_FIXTURE(Builder, "nonzero: a data-dependent size, then compaction with bind-skip") {
  Expr n_in = symbol("n", 0, 0, 0, 1000), count = sym::var("count");
  program.symbols.push_back({.var = count});
  program.facts.set_range(count, 0, 1000);
  View x = input("x", kF32, {n_in}), total = arena("total", DType::kI64, {}),
       y = output("y", DType::kI64, {count});
  NestBuilder c = nest("count");
  c.store(total, {}, c.reduce(Combine::kSum, {n_in}, [&](auto k) {
    return c.cast(ne(c.load(x, k), c.constant(kF32, 0)), DType::kI64);
  }));
  c.finish();
  program.steps.push_back({BindSymbol{count, total.buffer, 0, n_in, "count is {0}"}});
  NestBuilder f = nest("fill");
  f.scan(n_in, false, {f.constant(DType::kI64, 0)}, [&](Expr k, const std::vector<Value>& at) {
    Value hit = ne(f.load(x, {k}), f.constant(kF32, 0));
    Expr place =
        f.bind(select(hit, at[0], f.constant(DType::kI64, -1)), count, {.mode = Bind::OutOfRange::kSkip});
    f.store(y, {place}, f.index_value(k));
    return std::vector<Value>{at[0] + f.cast(hit, DType::kI64)};
  });
  f.finish();
  CHECK(numbers(run1({tensor(kF32, {6}, {0, 3, 0, 0, 1, 2})})) == std::vector<double>{1, 4, 5});
  CHECK(run1({make_tensor(kF32, {6})}).shape == std::vector<int64_t>{0});
}

TEST_CASE_FIXTURE(Builder, "sort and topk, stable, NaN largest") {
  double nan = std::nan("");
  View x = input("x", kF32, {1, 5, 1}), v = output("v", kF32, {1, 5, 1}),
       i = output("i", DType::kI64, {1, 5, 1});
  program.steps.push_back({Call{"sort", {x.buffer}, {v.buffer, i.buffer}, {1, 5, 1, 0}, {}}});
  auto out = interpret(program, {tensor(kF32, {1, 5, 1}, {2, nan, 1, 2, -1})});
  CHECK(numbers(out[1]) == std::vector<double>{4, 2, 0, 3, 1});
  std::get<Call>(program.steps[0].node) = {"topk", {x.buffer}, {v.buffer, i.buffer}, {1, 5, 1, 3, 1, 1}, {}};
  out = interpret(program, {tensor(kF32, {1, 5, 1}, {2, nan, 1, 2, -1})});
  CHECK(get_number(out[1], 0) == 1);
  CHECK(get_number(out[1], 1) == 0);
  CHECK(get_number(out[1], 2) == 3);
}

TEST_CASE_FIXTURE(Builder, "states are kept, and weights are packed before the run") {
  View x = input("x", kF32, {2}), s = buffer(Storage::kState, "s", kF32, {2}), y = output("y", kF32, {2});
  auto bytes = std::make_shared<std::vector<float>>(std::vector<float>{3, 4});
  BufferId w = add_buffer(program, {.name = "w",
                                    .shape = {2},
                                    .strides = {},
                                    .storage = Storage::kParameter,
                                    .weight = {bytes, reinterpret_cast<uint8_t*>(bytes->data()), 8}});
  BufferId packed = add_buffer(
      program, {.name = "p", .shape = {2}, .strides = {}, .storage = Storage::kParameter, .prepacked = true});
  NestBuilder p = nest("flip");
  Expr j = p.dim(2);
  p.store(whole(program, packed), {1 - j}, p.load(whole(program, w), {j}));
  Steps launches;
  program.prepack.push_back(p.finish(&launches));
  NestBuilder n = nest("add");
  Expr i = n.dim(2);
  Value sum = n.load(s, {i}) + n.load(x, {i}) * n.load(whole(program, packed), {i});
  n.store(s, {i}, sum);
  n.store(y, {i}, sum);
  n.finish();
  std::vector<HostTensor> states = {tensor(kF32, {2}, {100, 200})};
  RunOptions options{.states = &states};
  interpret(program, {tensor(kF32, {2}, {1, 2})}, options);
  CHECK(numbers(interpret(program, {tensor(kF32, {2}, {1, 2})}, options)[0]) ==
        std::vector<double>{108, 212});
  CHECK(numbers(states[0]) == std::vector<double>{108, 212});
  CHECK(interpret_prepack(program)[packed.value].size() == 8);
}

TEST_CASE_FIXTURE(Builder, "it is quick enough to verify whole models" * doctest::skip()) {
  View a = input("a", kF32, {256, 256}), b = input("b", kF32, {256, 256}), y = output("y", kF32, {256, 256});
  NestBuilder n = nest("matmul");
  std::vector<Expr> i = n.dims(y.shape);
  n.store(y, i, n.reduce(Combine::kSum, {256}, [&](auto k) {
    return n.load(a, {i[0], k[0]}) * n.load(b, {k[0], i[1]});
  }));
  n.finish();
  for (int r = 0; r < 10; ++r) run1({make_tensor(kF32, {256, 256}), make_tensor(kF32, {256, 256})});
}
