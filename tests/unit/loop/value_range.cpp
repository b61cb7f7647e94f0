#include "compiler/loop/value_range.h"

#include <doctest/doctest.h>

#include "compiler/base/text.h"
#include "compiler/loop/build.h"
#include "compiler/sym/text.h"

using namespace stridec;
using namespace stridec::loop;
using sym::Expr;

namespace {

struct Fixture {
  Program program;
  Expr n = symbol("n"), rows = symbol("rows");

  Expr symbol(const char* name) {
    const Expr e = sym::var(name);
    program.facts.set_range(e, 1, std::nullopt);
    program.symbols.push_back({.var = e, .input = 0, .dim = 0});
    return e;
  }
  View buffer(const std::string& name, std::vector<Expr> shape, DType dtype, Storage storage) {
    Buffer made{.name = name, .dtype = dtype, .shape = std::move(shape), .strides = {}};
    made.storage = storage;
    const BufferId id = add_buffer(program, made);
    if (storage == Storage::kInput) program.inputs.push_back(id);
    if (storage == Storage::kOutput) program.outputs.push_back(id);
    return whole(program, id);
  }
  View input(const std::string& name, std::vector<Expr> shape, DType dtype = DType::kI64) {
    return buffer(name, std::move(shape), dtype, Storage::kInput);
  }
  View arena(const std::string& name, std::vector<Expr> shape, DType dtype = DType::kI64) {
    return buffer(name, std::move(shape), dtype, Storage::kArena);
  }
  View weights(const std::string& name, const std::vector<int64_t>& values, DType dtype = DType::kI64) {
    const View view = buffer(name, {static_cast<int64_t>(values.size())}, dtype, Storage::kParameter);
    auto kept = std::make_shared<std::vector<int64_t>>(values);
    program[view.buffer].weight = {kept, reinterpret_cast<const uint8_t*>(kept->data()), 8 * kept->size()};
    return view;
  }

  // A nest over `shape`: make(nest, index variables).
  template <class Make>
  void nest(const std::string& name, const std::vector<Expr>& shape, Make&& make) {
    NestBuilder t(program, name);
    make(t, t.dims(shape));
    t.finish(&program.steps);
  }
  // to[i] = op(from[i])
  template <class Op>
  void map(const View& from, const View& to, Op&& op) {
    nest("map", from.shape,
         [&](NestBuilder& t, const auto& at) { t.store(to, at, op(t, t.load(from, at))); });
  }
  // y[i] = table[ids[i]], of a table of `size` rows.
  void gather(const View& ids, Expr size) {
    const View table = buffer("table", {size}, DType::kF32, Storage::kParameter);
    const View y = buffer("y", ids.shape, DType::kF32, Storage::kOutput);
    nest("gather", ids.shape, [&](NestBuilder& t, const auto& at) {
      Bind bind;
      bind.wrap_negative = true;
      t.store(y, at, t.load(table, {t.bind(t.load(ids, at), size, bind)}));
    });
  }
  std::string range(size_t input = 0) {
    const ValueRange range = input_ranges(program).at(input);
    if (range.image) return "image";
    const auto text = [](const std::optional<Expr>& e) { return e ? sym::to_string(*e) : std::string(); };
    return cat(text(range.least), "..", text(range.most));
  }
  static Value number(NestBuilder& t, int64_t value, DType dtype = DType::kI64) {
    return t.constant(dtype, static_cast<double>(value));
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "indices are within what they index, a number or a size") {
  gather(input("ids", {n}), 100);
  gather(input("more", {n}), rows);
  CHECK(range(0) == "0..99");
  CHECK(range(1) == "0..rows - 1");
}

TEST_CASE_FIXTURE(Fixture, "ranges pass back through arithmetic, conversions and buffers") {
  const auto through = [&](auto&& op, DType dtype = DType::kI64) {
    Fixture f;
    const View x = f.input("x", {f.n}, dtype), ids = f.arena("ids", {f.n});
    f.map(x, ids, [&](NestBuilder& t, Value v) { return op(t, v); });
    f.gather(ids, 100);
    return f.range();
  };
  CHECK(through([](NestBuilder& t, Value v) { return v + number(t, 2); }) == "-2..97");
  CHECK(through([](NestBuilder& t, Value v) { return v - number(t, 2); }) == "2..101");
  CHECK(through([](NestBuilder& t, Value v) { return number(t, 50) - v; }) == "-49..50");
  CHECK(through([](NestBuilder& t, Value v) { return v * number(t, 3); }) == "0..33");
  CHECK(through([](NestBuilder& t, Value v) { return t.op(ScalarOp::kDiv, {v, number(t, 4)}); }) == "0..399");
  CHECK(through([](NestBuilder& t, Value v) { return t.op(ScalarOp::kMod, {v, number(t, 7)}); }) == "0..6");
  CHECK(through([](NestBuilder& t, Value v) { return t.op(ScalarOp::kNeg, {v}); }) == "-99..0");
  CHECK(through([](NestBuilder& t, Value v) { return max(v, number(t, 5)); }) == "5..99");
  CHECK(through([](NestBuilder& t, Value v) { return min(v, number(t, 5)); }) == "0..5");
  CHECK(through([](NestBuilder& t, Value v) { return t.cast(v, DType::kI64); }, DType::kI32) == "0..99");
  CHECK(through([](NestBuilder& t, Value v) { return t.cast(v * t.constant(DType::kF32, 2), DType::kI64); },
                DType::kF32) == "0..49");
  CHECK(through([](NestBuilder& t, Value v) {  // counts from the end by itself
          return select(lt(v, number(t, 0)), v + number(t, 100), v);
        }) == "0..99");
}

TEST_CASE_FIXTURE(Fixture, "an index that counts from the end by nodes of its own") {
  const View x = input("x", {n}), negative = arena("negative", {n}, DType::kBool), sum = arena("sum", {n}),
             ids = arena("ids", {n});
  map(x, negative, [](NestBuilder& t, Value v) { return lt(v, number(t, 0)); });
  map(x, sum, [](NestBuilder& t, Value v) { return v + number(t, 100); });
  nest("where", {n}, [&](NestBuilder& t, const auto& at) {
    t.store(ids, at, select(t.load(negative, at), t.load(sum, at), t.load(x, at)));
  });
  gather(ids, 100);
  CHECK(range() == "0..99");
}

TEST_CASE_FIXTURE(Fixture, "constants and index variables that are added have their own ranges") {
  const View offsets = weights("offsets", {0, 40, 70}), x = input("x", {n, 3}), ids = arena("ids", {n, 3});
  nest("offset", {n, 3},
       [&](NestBuilder& t, const auto& at) { t.store(ids, at, t.load(x, at) + t.load(offsets, {at[1]})); });
  gather(ids, 100);
  const View start = input("start", {}), places = arena("places", {rows});
  nest("places", {rows}, [&](NestBuilder& t, const auto& at) {
    t.store(places, at, t.load(start, {}) + t.index_value(at[0]));
  });
  gather(places, 512);
  CHECK(range(0) == "0..29");
  CHECK(range(1) == "0..512 - rows");
}

TEST_CASE_FIXTURE(Fixture, "terms of a sum share what it may be") {
  const View mask = input("mask", {n}), ids = arena("ids", {n});
  nest("cumsum", {1}, [&](NestBuilder& t, const auto&) {
    t.scan(n, false, {number(t, 0)}, [&](Expr at, const std::vector<Value>& carried) {
      const Value sum = carried[0] + t.load(mask, {at});
      t.store(ids, {at}, sum);
      return std::vector<Value>{sum};
    });
  });
  gather(ids, 512);
  CHECK(range() == "0..511//n");
}

TEST_CASE_FIXTURE(Fixture, "sizes that the run reads, and what is only compared") {
  const View k = input("k", {}), mask = input("mask", {n}), length = input("length", {});
  program.steps.push_back({BindSymbol{sym::var("k"), k.buffer, 1, n, "k is {0}", {}}});
  const View y = buffer("y", {n}, DType::kF32, Storage::kOutput),
             z = buffer("z", {n}, DType::kBool, Storage::kOutput);
  map(mask, y, [](NestBuilder& t, Value v) { return t.cast(v, DType::kF32); });
  nest("before", {n},
       [&](NestBuilder& t, const auto& at) { t.store(z, at, lt(t.index_value(at[0]), t.load(length, {}))); });
  CHECK(range(0) == "1..n");
  CHECK(range(1) == "0..1");
  CHECK(range(2) == "min(n - 1, 1)..n");
}

TEST_CASE_FIXTURE(Fixture,
                  "a number that is compared with another decides something, and is drawn to do so") {
  const View rate = input("rate", {}), ids = input("ids", {n});
  map(rate, buffer("fast", {}, DType::kBool, Storage::kOutput),
      [](NestBuilder& t, Value v) { return t.op(ScalarOp::kEq, {v, number(t, 16000)}); });
  map(ids, buffer("last", {n}, DType::kBool, Storage::kOutput),
      [](NestBuilder& t, Value v) { return t.op(ScalarOp::kEq, {v, number(t, 99)}); });
  gather(ids, 100);
  CHECK(range(0) == "15999..16000");
  CHECK(range(1) == "0..99");
}

TEST_CASE("numbers that leave 64 bits bound nothing") {
  constexpr int64_t kLow = INT64_MIN, kHigh = INT64_MAX;
  const auto compared = [](const std::vector<int64_t>& values, DType dtype) {
    Fixture f;
    const View x = f.input("x", {f.n}, dtype), table = f.weights("table", values, dtype),
               y = f.buffer("y", {f.n, static_cast<int64_t>(values.size())}, DType::kBool, Storage::kOutput);
    f.nest("compare", y.shape, [&](NestBuilder& t, const auto& at) {
      t.store(y, at, lt(t.load(table, {at[1]}), t.load(x, {at[0]})));
    });
    return f.range();
  };
  CHECK(compared({kLow, 7, kHigh}, DType::kI64) == "..");
  CHECK(compared({5, kHigh}, DType::kI64) == "..");
  CHECK(compared({5, -1}, DType::kU64) == "0..1");
  CHECK(compared({3, 9}, DType::kU64) == "4..10");
  const auto through = [](auto&& op) {
    Fixture f;
    const View x = f.input("x", {f.n}), ids = f.arena("ids", {f.n});
    f.map(x, ids, [&](NestBuilder& t, Value v) { return op(t, v); });
    f.gather(ids, 100);
    return f.range();
  };
  CHECK(through([](NestBuilder& t, Value v) { return v - Fixture::number(t, kLow); }) == "..");
  CHECK(through([](NestBuilder& t, Value v) {
          return v + Fixture::number(t, int64_t{1} << 40) * Fixture::number(t, int64_t{1} << 40);
        }) == "..");
}

TEST_CASE_FIXTURE(Fixture, "arguments of logarithms and roots; others are any number") {
  const auto of = [](ScalarOp op) {
    Fixture f;
    f.map(f.input("x", {f.n}, DType::kF32), f.buffer("y", {f.n}, DType::kF32, Storage::kOutput),
          [&](NestBuilder& t, Value v) { return t.op(op, {v}); });
    return f.range();
  };
  CHECK(of(ScalarOp::kLog) == "0..");
  CHECK(of(ScalarOp::kSqrt) == "0..");
  CHECK(of(ScalarOp::kAcos) == "-1..1");
  CHECK(of(ScalarOp::kAcosh) == "1..");
  CHECK(of(ScalarOp::kExp) == "..");
}
