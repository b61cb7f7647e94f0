// The host program: guards, control flow, data-dependent sizes, states, weights, routines.
#include <atomic>
#include <set>

#include "compiler/loop/text.h"
#include "compiler/schedule/heuristics/choose.h"
#include "compiler/schedule/heuristics/contraction.h"
#include "compiler/schedule/heuristics/loop_nest.h"
#include "compiler/schedule/layout/pack_weights.h"
#include "tests/unit/codegen_cpu/emit_harness.h"

using namespace emit_test;

namespace {

HostTensor tensor(DType dtype, std::vector<int64_t> shape, const std::vector<double>& values) {
  HostTensor t = make_tensor(dtype, std::move(shape));
  REQUIRE(static_cast<int64_t>(values.size()) == element_count(t));
  for (size_t i = 0; i < values.size(); ++i) set_number(t, static_cast<int64_t>(i), values[i]);
  return t;
}

}  // namespace

TEST_CASE("guards and shapes answer with sentences") {
  ProgramBuilder p;
  const Expr b = p.symbol("batch", 0, 0, 1, 8);
  const View x = p.input("x", kF32, {b, 2}), z = p.input("z", kF32, {b}), y = p.output("y", kF32, {b});
  p.program.guards.push_back({sym::eq(sym::mod(b, 2), 0), "batch must be even, not {0}", {b}});
  NestBuilder n = p.nest("copy");
  const Expr i = n.dim(b);
  n.store(y, {i}, n.load(z, {i}) + n.load(x, {i, 1}));
  n.finish();
  codegen::cpu::CompiledProgram compiled(p.program);
  auto run = [&](int64_t bx, int64_t bz) {
    return error_of([&] { compiled.run({make_tensor(kF32, {bx, 2}), make_tensor(kF32, {bz})}); });
  };
  CHECK(run(4, 4) == "no error");
  CHECK(run(3, 3) == "batch must be even, not 3");
  CHECK(run(4, 6) == "input 'z': dim 0 (batch) is 6, expected 4");
  CHECK(run(10, 10) == "input 'x': dim 0 (batch) is 10; this artifact serves 1..8");
}

TEST_CASE("names with line ends and backslashes do not end up as code") {
  ProgramBuilder p;
  p.program.name = "double\nint32_t wrong";
  const View x = p.input("x\n", kF32, {3}), y = p.output("y\\", kF32, {3});
  for (const char* name : {"first\\", "second\rint wrong;", "third */ \""}) {
    NestBuilder n = p.nest(name);
    const Expr i = n.dim(3);
    n.store(y, {i}, n.load(x, {i}) + n.load(x, {i}));
    n.finish();
  }
  codegen::cpu::CompiledProgram compiled(p.program);
  const auto outputs = compiled.run({tensor(kF32, {3}, {1, 2, 3})});
  for (int i = 0; i < 3; ++i) CHECK(get_number(outputs.at(0), i) == 2 * (i + 1));
}

TEST_CASE("a while loop with a condition, an if on a symbol bound from data") {
  ProgramBuilder p;
  const View x = p.input("x", DType::kI32, {}), y = p.output("y", DType::kI32, {}),
             go = p.arena("go", DType::kBool, {});
  auto test = [&](Steps* steps) {
    NestBuilder n = p.nest("test");
    n.store(go, {}, lt(n.load(y, {}), n.constant(DType::kI32, 100)));
    n.finish(steps);
  };
  NestBuilder init = p.nest("init");
  init.store(y, {}, init.load(x, {}));
  init.finish();
  test(&p.program.steps);
  While loop{.counter = sym::var("i"),
             .trip_count = 10,
             .condition = go.buffer,
             .iterations = sym::var("n"),
             .body = {}};
  NestBuilder twice = p.nest("twice");
  twice.store(y, {}, twice.load(y, {}) + twice.load(y, {}));
  twice.finish(&loop.body);
  test(&loop.body);
  p.program.steps.push_back({std::move(loop)});
  If more{.condition = sym::lt(3, sym::var("n")), .then_steps = {}, .else_steps = {}};
  NestBuilder inc = p.nest("inc");
  inc.store(y, {}, inc.load(y, {}) + inc.constant(DType::kI32, 1));
  inc.finish(&more.then_steps);
  p.program.steps.push_back({std::move(more)});
  codegen::cpu::CompiledProgram compiled(p.program);
  for (double start : {60, 10, 0}) {
    const std::vector<HostTensor> in = {tensor(DType::kI32, {}, {start})};
    check_close(compiled.run(in)[0], interpret(p.program, in)[0], 0, cat("from ", start));
  }
}

TEST_CASE("kernels with different micro-kernels in one object") {
  ProgramBuilder p;
  std::vector<HostTensor> in;
  for (const int64_t columns : {32, 192}) {
    const std::string size = cat(columns);
    const View x = p.input("x" + size, kF32, {24, 40}), w = p.input("w" + size, kF32, {40, columns}),
               y = p.output("y" + size, kF32, {24, columns});
    NestBuilder n = p.nest("matmul" + size);
    const auto at = n.dims(y.shape);
    n.store(y, at, n.reduce(Combine::kSum, {40}, [&](const auto& k) {
      return n.load(x, {at[0], k[0]}) * n.load(w, {k[0], at[1]});
    }));
    n.finish();
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{24, 40}, {40, columns}}) {
      in.push_back(random_tensor(kF32, shape, 1));  // whole numbers, so that sums are exact
      for (int64_t i = 0; i < element_count(in.back()); ++i)
        set_number(in.back(), i, std::floor(get_number(in.back(), i)));
    }
  }
  schedule::choose(p.program, cpu_target("native"), {});
  // The best kernels for such sizes depend on the machine.
  std::set<std::string_view> kernels;
  for (Nest& nest : p.program.nests)
    for (const auto& ranked : schedule::contraction_plans(p.program, nest, cpu_target("native")))
      if (kernels.insert(ranked.plan.kernel->name).second) {
        nest.schedule = kernels::to_schedule(ranked.plan);
        break;
      }
  CHECK_MESSAGE(kernels.size() == 2, to_string(p.program));
  codegen::cpu::RunCompiledOptions options;
  options.build.kernels_per_object = 2;
  const auto got = codegen::cpu::run_compiled(p.program, in, options), want = interpret(p.program, in);
  for (size_t i = 0; i < want.size(); ++i) check_close(got[i], want[i], 0, cat("output ", i));
}

TEST_CASE(
    "a GEMM prefetches the first weights of the next one, unless several other kernels are between them") {
  // x W0 W1, with `others` kernels that read no weights after the first GEMM.
  const auto told = [](int others) {
    ProgramBuilder p;
    const Expr rows = p.symbol("rows", 0, 0, 1, 100);
    View from = p.input("x", kF32, {rows, 128});
    const auto store = [&](const std::string& name,
                           const std::function<Value(NestBuilder&, const std::vector<Expr>&)>& value) {
      const View to =
          name == "W1" ? p.output("y", kF32, {rows, 128}) : p.arena("after " + name, kF32, {rows, 128});
      NestBuilder n = p.nest(name);
      const auto at = n.dims(to.shape);
      n.store(to, at, value(n, at));
      n.finish();
      from = to;
    };
    const auto product = [&](const std::string& name) {
      auto bytes = std::make_shared<std::vector<float>>(128 * 128, 0.5f);
      const View w =
          whole(p.program, add_buffer(p.program, {.name = name,
                                                  .shape = {128, 128},
                                                  .strides = {},
                                                  .storage = Storage::kParameter,
                                                  .weight = {bytes, reinterpret_cast<uint8_t*>(bytes->data()),
                                                             bytes->size() * sizeof(float)}}));
      store(name, [&](NestBuilder& n, const std::vector<Expr>& at) {
        return n.reduce(Combine::kSum, {128}, [&](const auto& k) {
          return n.load(from, {at[0], k[0]}) * n.load(w, {k[0], at[1]});
        });
      });
    };
    product("W0");
    for (int i = 0; i < others; ++i)
      store(cat("other", i), [&](NestBuilder& n, const std::vector<Expr>& at) {
        return n.load(from, {at[0], 127 - at[1]}) + n.constant(kF32, 1);
      });
    product("W1");
    schedule::choose(p.program, cpu_target("native"), {});
    schedule::pack_weights(p.program);
    codegen::cpu::CompiledProgram compiled(p.program);
    const HostTensor x = random_tensor(kF32, {37, 128}, 1);
    check_close(compiled.run({x})[0], interpret(p.program, {x})[0], 1e-3, cat(others, " between"));
    const std::string& text = compiled.built().host_text;
    size_t count = 0;
    for (size_t at = text.find("&ahead"); at != std::string::npos; at = text.find("&ahead", at + 1)) ++count;
    return count;
  };
  CHECK(told(0) == 1);
  CHECK(told(1) == 1);
  CHECK(told(2) == 0);
}

TEST_CASE("a data-dependent size") {
  ProgramBuilder p;
  const Expr n_in = p.symbol("n", 0, 0, 0, 1000), count = sym::var("count");
  p.program.symbols.push_back({.var = count});
  p.program.facts.set_range(count, 0, 1000);
  const View x = p.input("x", kF32, {n_in}), total = p.arena("total", DType::kI64, {}),
             y = p.output("y", DType::kI64, {count});
  NestBuilder c = p.nest("count");
  c.store(total, {}, c.reduce(Combine::kSum, {n_in}, [&](auto k) {
    return c.cast(ne(c.load(x, k), c.constant(kF32, 0)), DType::kI64);
  }));
  c.finish();
  p.program.steps.push_back({BindSymbol{count, total.buffer, 0, n_in, "count is {0}"}});
  NestBuilder f = p.nest("fill");
  f.scan(n_in, false, {f.constant(DType::kI64, 0)}, [&](Expr k, const std::vector<Value>& at) {
    const Value hit = ne(f.load(x, {k}), f.constant(kF32, 0));
    const Expr place =
        f.bind(select(hit, at[0], f.constant(DType::kI64, -1)), count, {.mode = Bind::OutOfRange::kSkip});
    f.store(y, {place}, f.index_value(k));
    return std::vector<Value>{at[0] + f.cast(hit, DType::kI64)};
  });
  f.finish();
  schedule::choose_general(p.program, cpu_target("native"));
  check_program(p.program, {tensor(kF32, {6}, {0, 3, 0, 0, 1, 2})});
  check_program(p.program, {make_tensor(kF32, {6})});
  check_program(p.program, {random_tensor(DType::kF32, {333}, 1)});
}

TEST_CASE("buffers whose size nothing useful bounds are allocated during the run") {
  ProgramBuilder p;
  const int64_t most = int64_t{1} << 40;
  const Expr count = sym::var("count"), i = sym::var("i"), done = sym::var("done");
  p.program.symbols.push_back({.var = count});
  p.program.symbols.push_back({.var = done});
  p.program.facts.set_range(count, 0, most);
  p.program.facts.set_range(i, 0, most);
  p.program.facts.set_range(done, 0, most);
  p.program.facts.assume(sym::lt(i, count));
  p.program.facts.assume(sym::le(done, count));
  const View size = p.input("size", DType::kI64, {}), y = p.output("y", kF32, {count});
  const View rows = p.arena("rows", kF32, {count});
  p.program.steps.push_back({BindSymbol{count, size.buffer, 0, most, "count is {0}"}});
  While loop{.counter = i, .trip_count = count, .condition = {}, .iterations = done, .body = {}};
  NestBuilder put = p.nest("put");
  put.store(rows, {i}, put.cast(put.index_value(i), kF32));
  put.finish(&loop.body);
  p.program.steps.push_back({std::move(loop)});
  NestBuilder out = p.nest("out");
  const Expr k = out.dim(count);
  out.store(y, {k}, out.load(rows, {k}) + out.load(rows, {count - 1 - k}));
  out.finish();
  for (double n : {0, 1, 100}) check_program(p.program, {tensor(DType::kI64, {}, {n})});
}

TEST_CASE("scratch of kernels whose size nothing useful bounds is allocated during the run") {
  ProgramBuilder p;
  const int64_t most = int64_t{1} << 40;
  const Expr count = sym::var("count");
  p.program.symbols.push_back({.var = count});
  p.program.facts.set_range(count, 0, most);
  const View size = p.input("size", DType::kI64, {}), x = p.input("x", kF32, {64});
  p.program.steps.push_back({BindSymbol{count, size.buffer, 0, most, "count is {0}"}});
  const View rows = p.arena("rows", kF32, {3, count}), v = p.output("v", kF32, {3, count}),
             at = p.output("at", DType::kI64, {3, count});
  NestBuilder put = p.nest("put");
  const Expr i = put.dim(3), k = put.dim(count);
  put.store(rows, {i, k}, put.load(x, {sym::mod(7 * k + i, 64)}));
  put.finish();
  p.program.steps.push_back({Call{"sort", {rows.buffer}, {v.buffer, at.buffer}, {3, count, 1, 0}, {}}});
  for (double n : {0, 1, 100, 5000})
    check_program(p.program, {tensor(DType::kI64, {}, {n}), random_tensor(kF32, {64}, 1)});
}

TEST_CASE("a size called threads is not that of a run, whose threads have scratch in the arena") {
  ProgramBuilder p;
  const Expr count = sym::var("threads");
  p.program.symbols.push_back({.var = count, .input = 0, .dim = 0});
  p.program.facts.set_range(count, 1, 64);
  const View x = p.input("x", kF32, {count, 64}), rows = p.arena("rows", kF32, {count, 64}),
             v = p.output("v", kF32, {count, 64}), at = p.output("at", DType::kI64, {count, 64});
  NestBuilder put = p.nest("put");
  const auto i = put.dims(rows.shape);
  put.store(rows, i, put.load(x, {i[0], 63 - i[1]}));
  put.finish();
  p.program.steps.push_back({Call{"sort", {rows.buffer}, {v.buffer, at.buffer}, {count, 64, 1, 0}, {}}});
  for (int64_t n : {1, 5, 40}) check_program(p.program, {random_tensor(kF32, {n, 64}, 1)});
  codegen::cpu::CompiledProgram compiled(p.program);
  CHECK(compiled.built().host_text.find("* threads") != std::string::npos);
}

TEST_CASE("buffers whose size leaves 64 bits are refused") {
  ProgramBuilder p;
  const int64_t most = int64_t{1} << 40;
  const Expr count = sym::var("count");
  p.program.symbols.push_back({.var = count});
  p.program.facts.set_range(count, 0, most);
  const View size = p.input("size", DType::kI64, {}), y = p.output("y", kF32, {});
  p.program.steps.push_back({BindSymbol{count, size.buffer, 0, most, "count is {0}"}});
  const View rows = p.arena("rows", kF32, {count, count});
  NestBuilder put = p.nest("put");
  const Expr i = put.dim(count), j = put.dim(count);
  put.store(rows, {i, j}, put.cast(put.index_value(i), kF32));
  put.finish();
  NestBuilder add = p.nest("add");
  add.store(y, {}, add.reduce(Combine::kSum, {count, count}, [&](const std::vector<Expr>& k) {
    return add.load(rows, {k[0], k[1]});
  }));
  add.finish();

  codegen::cpu::CompiledProgram program(p.program);
  CHECK(program.run({tensor(DType::kI64, {}, {3})})[0].bytes == tensor(kF32, {}, {9}).bytes);
  const auto kind = [&](int64_t n) {
    try {
      program.run({tensor(DType::kI64, {}, {static_cast<double>(n)})});
    } catch (const Error& e) {
      return e.diagnostic.kind;
    }
    return ErrorKind::kInternal;
  };
  CHECK(kind(int64_t{1} << 31) == ErrorKind::kDoesNotFit);  // 2^64 bytes, which would be 0
  CHECK(kind(most) == ErrorKind::kDoesNotFit);
}

TEST_CASE("sort and topk of every dtype, stable, NaN largest") {
  for (DType dtype : {DType::kBool, DType::kI8, DType::kU16, DType::kI32, DType::kI64, DType::kU8,
                      DType::kU64, DType::kF16, DType::kBF16, kF32, DType::kF64})
    for (int direction : {0, 1}) {
      ProgramBuilder p;
      const Expr n = p.symbol("n", 0, 1, 0, 1000);
      const View x = p.input("x", dtype, {3, n, 4});
      const View v = p.output("v", dtype, {3, n, 4}), i = p.output("i", DType::kI64, {3, n, 4});
      p.program.steps.push_back({Call{"sort", {x.buffer}, {v.buffer, i.buffer}, {3, n, 4, direction}, {}}});
      for (const int k : {0, 1, 5, 150}) {  // of 37: none, by selection, all; of 700 all by selection
        const Expr kept = sym::min(k, n);
        const View tv = p.output(cat("tv", k), dtype, {3, kept, 4}),
                   ti = p.output(cat("ti", k), DType::kI64, {3, kept, 4});
        p.program.steps.push_back(
            {Call{"topk", {x.buffer}, {tv.buffer, ti.buffer}, {3, n, 4, kept, direction, 1}, {}}});
      }
      const auto at_size = [&](int64_t size) {
        HostTensor t = random_tensor(dtype, {3, size, 4}, 5, -300, 300);
        if (is_float(dtype))
          set_number(t, 3, NAN), set_number(t, 50, NAN), set_number(t, 51, -0.0), set_number(t, 55, 0.0),
              set_number(t, 60, INFINITY);
        check_program(p.program, {t});
      };
      at_size(37);
      at_size(700);
    }
}

TEST_CASE("states are kept, weights are packed, buffers are copied") {
  ProgramBuilder p;
  const View x = p.input("x", kF32, {2}), s = p.buffer(Storage::kState, "s", kF32, {2}),
             y = p.output("y", kF32, {2}), z = p.output("z", kF32, {2});
  auto bytes = std::make_shared<std::vector<float>>(std::vector<float>{3, 4});
  const BufferId w = add_buffer(p.program, {.name = "w",
                                            .shape = {2},
                                            .strides = {},
                                            .storage = Storage::kParameter,
                                            .weight = {bytes, reinterpret_cast<uint8_t*>(bytes->data()), 8}});
  const BufferId packed = add_buffer(
      p.program,
      {.name = "p", .shape = {2}, .strides = {}, .storage = Storage::kParameter, .prepacked = true});
  NestBuilder flip = p.nest("flip");
  const Expr j = flip.dim(2);
  flip.store(whole(p.program, packed), {1 - j}, flip.load(whole(p.program, w), {j}));
  Steps launches;
  p.program.prepack.push_back(flip.finish(&launches));
  NestBuilder n = p.nest("add");
  const Expr i = n.dim(2);
  const Value sum = n.load(s, {i}) + n.load(x, {i}) * n.load(whole(p.program, packed), {i});
  n.store(s, {i}, sum);
  n.store(y, {i}, sum);
  n.finish();
  p.program.steps.push_back({Copy{y.buffer, z.buffer}});
  codegen::cpu::CompiledProgram compiled(p.program);
  std::vector<HostTensor> states = {tensor(kF32, {2}, {100, 200})};
  const std::vector<HostTensor> in = {tensor(kF32, {2}, {1, 2})};
  compiled.run(in, &states);
  const std::vector<HostTensor> out = compiled.run(in, &states);
  for (const HostTensor& t : {out[0], out[1], states[0]})
    check_close(t, tensor(kF32, {2}, {108, 212}), 0, "state");
}

TEST_CASE("small nests that pack weights are interpreted, except those whose weights may be replaced") {
  const auto values = std::make_shared<std::vector<float>>(std::vector<float>{3, 4, 5, 6, 7});
  for (const bool replaceable : {false, true}) {
    ProgramBuilder p;
    const BufferId w = add_buffer(
        p.program, {.name = "w",
                    .shape = {5},
                    .strides = {},
                    .storage = Storage::kParameter,
                    .weight = {values, reinterpret_cast<uint8_t*>(values->data()), 5 * sizeof(float)}});
    const BufferId packed = add_buffer(
        p.program,
        {.name = "p", .shape = {5}, .strides = {}, .storage = Storage::kParameter, .prepacked = true});
    NestBuilder flip = p.nest("flip");
    const Expr j = flip.dim(5);
    const Value x = flip.load(whole(p.program, w), {j});
    flip.store(whole(p.program, packed), {4 - j}, x * x);
    Steps launches;
    p.program.prepack.push_back(flip.finish(&launches));
    if (replaceable) p.program.parameters.push_back(w);
    for (const double statements :
         {0.0, 14.0, 15.0}) {  // a load, a product and a store at each of five points
      std::atomic<int> compiled{0};
      Program program = p.program;
      codegen::cpu::BuildOptions options{.use_cache = false, .interpreted_statements = statements};
      options.progress = [&](size_t, size_t) { ++compiled; };
      codegen::cpu::run_prepack(program, cpu_target("native"), options);
      CHECK(compiled == (replaceable || statements < 15 ? 1 : 0));
      const auto* got = reinterpret_cast<const float*>(program[packed].weight.bytes);
      CHECK(std::vector<float>(got, got + 5) == std::vector<float>{49, 36, 25, 16, 9});
    }
  }
}

TEST_CASE("a product that two nests compute is one number") {
  for (const DType dtype : {kF32, DType::kF64}) {
    ProgramBuilder p;
    const View x = p.input("x", dtype, {37}), y = p.input("y", dtype, {37}), z = p.output("z", dtype, {37}),
               t = p.arena("t", dtype, {37});
    NestBuilder first = p.nest("product");
    const Expr i = first.dim(37);
    first.store(t, {i}, first.load(x, {i}) * first.load(y, {i}));
    first.finish();
    NestBuilder second = p.nest("rest");
    const Expr j = second.dim(37);
    second.store(z, {j}, second.load(x, {j}) * second.load(y, {j}) - second.load(t, {j}));
    second.finish();
    const std::vector<HostTensor> in = {random_tensor(dtype, {37}, 1, -1e9, 1e9),
                                        random_tensor(dtype, {37}, 2, -1, 1)};
    const std::vector<HostTensor> out = codegen::cpu::run_compiled(p.program, in);
    check_close(out[0], loop::make_tensor(dtype, {37}), 0, std::string(name(dtype)));
  }
}

TEST_CASE("equal kernels of different nests are one function") {
  ProgramBuilder p;
  const View x = p.input("x", kF32, {40, 8}), z = p.input("z", kF32, {40, 8});
  for (int k = 0; k < 3; ++k) {
    NestBuilder n = p.nest(cat("relu", k));
    const auto i = n.dims(x.shape);
    n.store(p.output(cat("y", k), kF32, {40, 8}), i, max(n.load(k == 1 ? z : x, i), n.constant(kF32, 0)));
    n.finish();
  }
  codegen::cpu::CompiledProgram compiled(p.program);
  CHECK(compiled.built().kernels.size() == 1);
  CHECK(compiled.built().kernels[0].nests.size() == 3);
}

TEST_CASE("rows written in a loop outlive the temporaries of later iterations") {
  ProgramBuilder p;
  const Expr n = p.symbol("n", 0, 0, 1, 100);
  const View x = p.input("x", kF32, {n}), y = p.output("y", kF32, {5, n});
  const View stack = p.arena("stack", kF32, {5, n}), a = p.arena("a", kF32, {n}), b = p.arena("b", kF32, {n});
  const Expr i = sym::var("i");
  p.program.facts.set_range(i, 0, 4);
  While loop{.counter = i, .trip_count = 5, .condition = {}, .iterations = sym::var("done"), .body = {}};
  auto step = [&](const View& from, const View& to) {
    NestBuilder nb = p.nest("step");
    const Expr k = nb.dim(n);
    nb.store(to, {k}, nb.load(from, {k}) + nb.cast(nb.index_value(i), kF32));
    nb.finish(&loop.body);
  };
  step(x, a);
  step(a, b);
  NestBuilder put = p.nest("put");
  const Expr k = put.dim(n);
  put.store(stack, {i, k}, put.load(b, {k}));
  put.finish(&loop.body);
  p.program.steps.push_back({std::move(loop)});
  NestBuilder out = p.nest("out");
  const auto at = out.dims({5, n});
  out.store(y, at, out.load(stack, at) * out.constant(kF32, 2));
  out.finish();
  check_program(p.program, {random_tensor(kF32, {33}, 1)});
}
