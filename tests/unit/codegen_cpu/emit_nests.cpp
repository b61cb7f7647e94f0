// Nests of every class, as the general emitter runs them by default, vectorised, and as schedules are chosen.
#include "compiler/codegen/cpu/emit.h"
#include "compiler/codegen/null/null.h"
#include "compiler/schedule/applies.h"
#include "compiler/schedule/choose_general.h"
#include "tests/unit/codegen_cpu/emit_harness.h"

using namespace emit_test;

namespace {

constexpr DType kF32 = DType::kF32;

void check(const Program& program, const std::vector<HostTensor>& inputs, double relative = 2e-5) {
  check_program(program, inputs, {relative, "native", {}});
  for (const char* cpu : {"native", "x86-64-v3"}) {
    Program chosen = program;
    schedule::choose_general(chosen, cpu_target(cpu));
    std::string schedules;
    for (const Nest& nest : chosen.nests) schedules += to_string(nest.schedule) + "; ";
    CAPTURE(schedules);
    check_program(chosen, inputs, {relative, cpu, {}});
  }
}

}  // namespace

TEST_CASE("pointwise with a broadcast row, symbolic and merged") {
  for (int64_t s : {0, 1, 3, 40}) {
    ProgramBuilder b;
    const Expr n = b.symbol("n", 0, 0, 0, 64), h = b.symbol("h", 0, 1, 0, 64);
    const View x = b.input("x", kF32, {n, h, 33}), y = b.input("y", kF32, {33}),
               o = b.output("o", kF32, {n, h, 33}), p = b.output("p", kF32, {n, h, 33});
    NestBuilder nb = b.nest("add");
    const auto i = nb.dims(x.shape);
    nb.store(o, i, nb.load(x, i) + nb.load(y, {i[2]}));
    nb.finish();
    NestBuilder nc = b.nest("flat");
    const auto j = nc.dims(x.shape);
    nc.store(p, j, unary(ScalarOp::kTanh, nc.load(x, j)));
    nc.finish();
    check(b.program, {random_tensor(kF32, {s, 2, 33}, 1), random_tensor(kF32, {33}, 2)});
  }
}

TEST_CASE("softmax of rows") {
  for (int64_t k : {1, 7, 64, 100, 333}) {
    ProgramBuilder b;
    const Expr n = b.symbol("n", 0, 0, 1, 64), m = b.symbol("m", 0, 1, 1, 512);
    const View x = b.input("x", kF32, {n, m}), o = b.output("o", kF32, {n, m});
    NestBuilder nb = b.nest("softmax");
    const Expr i = nb.dim(n);
    const Value top = nb.reduce(Combine::kMax, {m}, [&](const auto& at) { return nb.load(x, {i, at[0]}); });
    const Value sum = nb.reduce(Combine::kSum, {m}, [&](const auto& at) {
      return unary(ScalarOp::kExp, nb.load(x, {i, at[0]}) - top);
    });
    nb.loop({m}, [&](const auto& at) {
      nb.store(o, {i, at[0]}, unary(ScalarOp::kExp, nb.load(x, {i, at[0]}) - top) / sum);
    });
    nb.finish();
    check(b.program, {random_tensor(kF32, {5, k}, 1)});
  }
}

TEST_CASE("loops of a kernel, however many, are not called like types") {
  ProgramBuilder b;
  const Expr n = b.symbol("n", 0, 0, 1, 64), m = b.symbol("m", 0, 1, 1, 64);
  const View x = b.input("x", DType::kI8, {n, m}), o = b.output("o", DType::kI8, {n});
  NestBuilder nb = b.nest("largest");
  const Expr i = nb.dim(n);
  Value top = nb.load(x, {i, 0});
  for (int round = 0; round < 40; ++round)  // each reads the one before, so that none is left out
    top = nb.reduce(Combine::kMax, {m}, [&](const auto& at) {
      return binary(ScalarOp::kMin, nb.load(x, {i, at[0]}), top + nb.load(x, {i, 0}));
    });
  nb.store(o, {i}, top);
  nb.finish();
  check(b.program, {random_tensor(DType::kI8, {5, 7}, 1)});
}

TEST_CASE("sums of parts, the last of which is shorter, have no lanes along the parts") {
  for (int64_t s : {6, 64, 101}) {
    ProgramBuilder b;
    const Expr n = b.symbol("n", 0, 0, 1, 1000), parts = sym::ceildiv(n, 4);
    const View x = b.input("x", kF32, {n}), o = b.output("o", kF32, {parts});
    NestBuilder nb = b.nest("sum");
    const Expr i = nb.dim(parts);
    nb.store(o, {i}, nb.reduce(Combine::kSum, {sym::min(n - 4 * i, 4)}, [&](const auto& at) {
      return nb.load(x, {4 * i + at[0]});
    }));
    nb.finish();
    check(b.program, {random_tensor(kF32, {s}, 1)});
    const Program lanes = vectorised(b.program, 16);
    CHECK(schedule::why_not(lanes, lanes.nests[0], lanes.nests[0].schedule).ends_with("depends on it"));
  }
}

TEST_CASE("softmax through a local row") {
  ProgramBuilder b;
  const View x = b.input("x", kF32, {6, 50}), o = b.output("o", kF32, {6, 50}),
             row = b.local("row", kF32, {50});
  NestBuilder nb = b.nest("softmax");
  const Expr i = nb.dim(6);
  nb.loop({50}, [&](const auto& at) {
    nb.store(row, {at[0]}, unary(ScalarOp::kExp, nb.load(x, {i, at[0]})));
  });
  const Value sum = nb.reduce(Combine::kSum, {50}, [&](const auto& at) { return nb.load(row, {at[0]}); });
  nb.loop({50}, [&](const auto& at) { nb.store(o, {i, at[0]}, nb.load(row, {at[0]}) / sum); });
  nb.finish();
  check(b.program, {random_tensor(kF32, {6, 50}, 1)});
  check_program(vectorised(b.program, 4), {random_tensor(kF32, {6, 50}, 1)}, {2e-5, "native", {}});
}

TEST_CASE("reductions of every kind over rows and columns") {
  for (DType dtype : {kF32, DType::kF64, DType::kF16, DType::kI32, DType::kU8, DType::kI64, DType::kBool}) {
    CAPTURE(name(dtype));
    for (bool rows : {true, false}) {
      ProgramBuilder b;
      const int64_t n = 21, k = 150;
      const View x = b.input("x", dtype, rows ? std::vector<Expr>{n, k} : std::vector<Expr>{k, n});
      std::vector<Combine> combines = {Combine::kMax, Combine::kMin};
      if (is_bool(dtype)) combines.insert(combines.end(), {Combine::kAnd, Combine::kOr});
      if (!is_bool(dtype) && dtype != DType::kF16)
        combines.insert(combines.end(), {Combine::kSum, Combine::kProd});
      auto at = [&](Expr i, Expr j) { return rows ? std::vector<Expr>{i, j} : std::vector<Expr>{j, i}; };
      for (Combine c : combines) {
        NestBuilder nb = b.nest(std::string(loop::name(c)));
        const Expr i = nb.dim(n);
        nb.store(b.output(std::string(loop::name(c)), dtype, {n}), {i},
                 nb.reduce(c, {k}, [&](const auto& j) { return nb.load(x, at(i, j[0])); }));
        nb.finish();
      }
      for (Combine c : {Combine::kArgMax, Combine::kArgMin, Combine::kArgMaxLast, Combine::kArgMinLast}) {
        NestBuilder nb = b.nest(std::string(loop::name(c)));
        const Expr i = nb.dim(n);
        const auto both = nb.reduce_many(c, {k}, [&](const auto& j) {
          return std::vector<Value>{nb.load(x, at(i, j[0])), nb.index_value(j[0])};
        });
        nb.store(b.output(cat(loop::name(c), "_key"), dtype, {n}), {i}, both[0]);
        nb.store(b.output(cat(loop::name(c), "_index"), DType::kI64, {n}), {i}, both[1]);
        nb.finish();
      }
      HostTensor t =
          random_tensor(dtype, rows ? std::vector<int64_t>{n, k} : std::vector<int64_t>{k, n}, 3, -2, 2);
      if (is_float(dtype)) set_number(t, 77, NAN), set_number(t, 400, NAN);
      for (const char* cpu : {"native", "x86-64-v3"}) {
        Program chosen = b.program;
        schedule::choose_general(chosen, cpu_target(cpu));
        check_program(chosen, {t}, {1e-4, cpu, {}});
      }
      if (rows) check_program(b.program, {t}, {1e-4, "native", {}});
    }
  }
}

TEST_CASE("lanes that share elements, by groups and backwards") {
  for (int64_t group : {2, 3, 4, 8, 64})
    for (int64_t groups : {1, 5, 24}) {
      ProgramBuilder b;
      const Expr n = b.symbol("n", 0, 0, 0, 64), channels = group * groups;
      const View x = b.input("x", kF32, {n, channels}), y = b.input("y", kF32, {groups}),
                 o = b.output("o", kF32, {n, channels}), t = b.output("t", kF32, {n, 2 * channels});
      NestBuilder nb = b.nest("affine");
      const auto i = nb.dims(x.shape);
      const Expr c = i[1];
      nb.store(o, i, nb.load(x, {i[0], channels - 1 - c}) * nb.load(y, {sym::floordiv(c, group)}));
      nb.finish();
      NestBuilder nu = b.nest("upsample");
      const auto j = nu.dims(t.shape);
      nu.store(t, j, nu.load(x, {j[0], sym::floordiv(j[1], 2)}));
      nu.finish();
      check(b.program, {random_tensor(kF32, {3, group * groups}, 1), random_tensor(kF32, {groups}, 2)});
    }
}

TEST_CASE("stencils whose masks hold everywhere but at the borders") {
  for (int64_t rows : {1, 2, 7}) {
    ProgramBuilder b;
    const Expr n = b.symbol("n", 0, 0, 0, 64), c = b.symbol("c", 0, 2, 0, 64);
    const View x = b.input("x", kF32, {n, 5, c}), o = b.output("o", kF32, {n, 5, c});
    NestBuilder nb = b.nest("stencil");
    const auto i = nb.dims(x.shape);
    const View padded = *pad(x, {1, 1, 0}, {1, 1, 0}, float_scalar(kF32, 0));
    Value sum = nb.constant(kF32, 1);
    for (int64_t k = 0; k < 9; ++k) sum = sum + nb.load(padded, {i[0] + k / 3, i[1] + k % 3, i[2]});
    nb.store(o, i, sum);
    nb.finish();
    for (int64_t channels : {1, 16, 37}) check(b.program, {random_tensor(kF32, {rows, 5, channels}, 1)});
  }
}

TEST_CASE("windows with padding") {
  ProgramBuilder b;
  const View x = b.input("x", kF32, {2, 11, 13, 5}), o = b.output("o", kF32, {2, 6, 7, 5});
  NestBuilder nb = b.nest("maxpool");
  const auto i = nb.dims(o.shape);
  const Value top = nb.reduce(Combine::kMax, {3, 3}, [&](const auto& w) {
    const Expr y = i[1] * 2 + w[0] - 1, z = i[2] * 2 + w[1] - 1;
    return nb.load({x.buffer,
                    {i[0], y, z, i[3]},
                    sym::logical_and(sym::logical_and(sym::le(0, y), sym::lt(y, 11)),
                                     sym::logical_and(sym::le(0, z), sym::lt(z, 13)))},
                   float_scalar(kF32, -INFINITY));
  });
  nb.store(o, i, top);
  nb.finish();
  check(b.program, {random_tensor(kF32, {2, 11, 13, 5}, 1)});
}

TEST_CASE("padding along the lanes, transposes, slices and strides") {
  ProgramBuilder b;
  const View x = b.input("x", kF32, {37, 45});
  auto map = [&](const std::string& name, std::vector<Expr> shape,
                 const std::function<Access(const std::vector<Expr>&)>& from, double fill = 7) {
    NestBuilder nb = b.nest(name);
    const auto i = nb.dims(shape);
    nb.store(b.output(name, kF32, shape), i, nb.load(from(i), float_scalar(kF32, fill)));
    nb.finish();
  };
  map("pad", {37, 60}, [&](const auto& i) {
    return Access{x.buffer, {i[0], i[1] - 5}, sym::logical_and(sym::le(5, i[1]), sym::lt(i[1], 50))};
  });
  for (double fill : {0, 7})
    map(
        cat("column", fill), {37, 60},
        [&](const auto& i) {
          return Access{x.buffer, {i[0], 3}, sym::logical_and(sym::le(5, i[1]), sym::lt(i[1], 50))};
        },
        fill);
  map("transpose", {45, 37}, [&](const auto& i) { return Access{x.buffer, {i[1], i[0]}, 1}; });
  map("flip", {37, 45}, [&](const auto& i) { return Access{x.buffer, {i[0], 44 - i[1]}, 1}; });
  map("stride", {37, 15}, [&](const auto& i) { return Access{x.buffer, {i[0], i[1] * 3}, 1}; });
  map("divide", {37, 90}, [&](const auto& i) { return Access{x.buffer, {i[0], sym::floordiv(i[1], 2)}, 1}; });
  map("wrap", {37, 90}, [&](const auto& i) { return Access{x.buffer, {i[0], sym::mod(i[1] + 7, 45)}, 1}; });
  map("reshape", {45, 37}, [&](const auto& i) {
    const Expr f = i[0] * 37 + i[1];
    return Access{x.buffer, {sym::floordiv(f, 45), sym::mod(f, 45)}, 1};
  });
  check(b.program, {random_tensor(kF32, {37, 45}, 1)});
}

TEST_CASE("what an index masks off says nothing of sizes behind it") {
  for (const int64_t most : {1, 3}) {
    ProgramBuilder b;
    const Expr n = b.symbol("n", 0, 0, 0, most);
    const View x = b.input("x", DType::kI64, {n}), y = b.output("y", DType::kI64, {3});
    NestBuilder nb = b.nest("bound");
    const Expr at = nb.bind(nb.constant(DType::kI64, 0), n, {.mode = Bind::OutOfRange::kSkip});
    nb.store(y, {0}, nb.load(x, {at}));
    nb.store(y, {1}, nb.reduce(Combine::kSum, {n}, [&](auto k) { return nb.load(x, k); }));
    nb.store(y, {2}, nb.index_value(sym::max(n, 1) * 10 + n));
    nb.finish();
    for (const int64_t count : {int64_t{0}, most}) check(b.program, {random_tensor(DType::kI64, {count}, 1)});
  }
}

TEST_CASE("gather, scatter and their errors") {
  for (Bind::OutOfRange mode :
       {Bind::OutOfRange::kError, Bind::OutOfRange::kClamp, Bind::OutOfRange::kSkip}) {
    ProgramBuilder b;
    const Expr n = b.symbol("n", 1, 0, 0, 100);
    const View table = b.input("table", kF32, {10, 20}), index = b.input("index", DType::kI64, {n});
    const View rows = b.output("rows", kF32, {n, 20}), picked = b.output("picked", kF32, {n}),
               sums = b.output("sums", kF32, {20});
    {
      NestBuilder nb = b.nest("rows");
      const auto i = nb.dims(rows.shape);
      const Expr r = nb.bind(nb.load(index, {i[0]}), 10,
                             {.wrap_negative = true, .mode = mode, .sentence = "index {0} is not below {1}"});
      nb.store(rows, i, nb.load(table, {r, i[1]}));
      nb.finish();
    }
    {
      NestBuilder nb = b.nest("picked");
      const Expr i = nb.dim(n);
      const Expr r = nb.bind(nb.load(index, {i}), 10,
                             {.wrap_negative = true, .mode = mode, .sentence = "index {0} is not below {1}"});
      nb.store(picked, {i}, nb.load(table, {r, 3}));
      nb.finish();
    }
    {
      NestBuilder nb = b.nest("zero");
      const Expr i = nb.dim(20);
      nb.store(sums, {i}, nb.constant(kF32, 0));
      nb.finish();
    }
    {
      NestBuilder nb = b.nest("sums");
      const Expr i = nb.dim(n);
      const Expr r = nb.bind(nb.load(index, {i}), 20,
                             {.wrap_negative = true, .mode = mode, .sentence = "index {0} is not below {1}"});
      nb.store_update(sums, {r}, nb.load(table, {2, 5}), Combine::kSum);
      nb.finish();
    }
    HostTensor at = make_tensor(DType::kI64, {50});
    for (int64_t i = 0; i < 50; ++i) set_number(at, i, static_cast<double>((i * 7) % 20 - 10));
    const HostTensor t = random_tensor(kF32, {10, 20}, 1);
    check(b.program, {t, at});
    if (mode != Bind::OutOfRange::kError) {
      set_number(at, 33, 25), set_number(at, 34, -30);
      check(b.program, {t, at});
    } else {
      set_number(at, 33, 12);
      Program chosen = b.program;
      schedule::choose_general(chosen, cpu_target("native"));
      CHECK(error_of([&] { codegen::cpu::run_compiled(b.program, {t, at}); }) == "index 12 is not below 10");
      CHECK(error_of([&] { codegen::cpu::run_compiled(chosen, {t, at}); }) == "index 12 is not below 10");
    }
  }
}

TEST_CASE("what all points of the loops inside share is done around them, if there are any") {
  ProgramBuilder b;
  const Expr m = b.symbol("m", 0, 1, 0, 64), n = b.symbol("n", 1, 0, 0, 100);
  const View table = b.input("table", kF32, {10, m}), index = b.input("index", DType::kI64, {n});
  const View rows = b.output("rows", kF32, {n, m});
  NestBuilder nb = b.nest("rows");
  const auto i = nb.dims(rows.shape);
  const Expr r = nb.bind(nb.load(index, {i[0]}), 10, {.sentence = "index {0} is not below {1}"});
  nb.store(rows, i, nb.load(table, {r, i[1]}));
  nb.finish();
  HostTensor at = make_tensor(DType::kI64, {50});
  for (int64_t k = 0; k < 50; ++k) set_number(at, k, static_cast<double>(k % 10));
  check(b.program, {random_tensor(kF32, {10, 37}, 1), at});
  set_number(at, 7, 10);  // nothing is read at it
  check(b.program, {random_tensor(kF32, {10, 0}, 1), at});

  Program chosen = b.program;
  schedule::choose_general(chosen, cpu_target("x86-64-v3"));
  const std::string text = codegen::cpu::emit_loops(chosen, chosen.nests[0], cpu_target("x86-64-v3")).text;
  CAPTURE(text);
  const size_t failure = text.find("stridec_abi_fail");
  CHECK(failure < text.find("*(f32x8u*)"));
  CHECK(text.find("stridec_abi_fail", failure + 1) == std::string::npos);
}

TEST_CASE("a transpose with a number for each of its rows and one for each of its columns") {
  ProgramBuilder b;
  const View x = b.input("x", kF32, {45, 37}), row = b.input("row", kF32, {37}),
             column = b.input("column", kF32, {45}), y = b.output("y", kF32, {37, 45});
  NestBuilder nb = b.nest("turned");
  const auto i = nb.dims(y.shape);
  nb.store(y, i, nb.load(x, {i[1], i[0]}) * nb.load(row, {i[0]}) + nb.load(column, {i[1]}));
  nb.finish();
  check(b.program,
        {random_tensor(kF32, {45, 37}, 1), random_tensor(kF32, {37}, 2), random_tensor(kF32, {45}, 3)});
}

TEST_CASE("a stride of sizes that are sums is one number for a kernel") {
  ProgramBuilder b;
  const Expr n = b.symbol("n", 0, 0, 1, 50), m = b.symbol("m", 0, 1, 1, 50);
  b.input("sizes", kF32, {n, m});
  const View x = b.input("x", kF32, {5, n * m + 2 * n + 3 * m + 6}), y = b.output("y", kF32, {5, 4});
  NestBuilder nb = b.nest("columns");
  const auto i = nb.dims(y.shape);
  nb.store(y, i, nb.load(x, {i[0], i[1]}) + nb.constant(kF32, 1));
  nb.finish();
  Program chosen = b.program;
  schedule::choose_general(chosen, cpu_target("x86-64-v3"));
  CHECK(codegen::cpu::emit_loops(chosen, chosen.nests[0], cpu_target("x86-64-v3")).sizes.size() == 1);
  check(b.program, {random_tensor(kF32, {2, 3}, 1), random_tensor(kF32, {5, 25}, 2)});
}

TEST_CASE("how many threads a kernel is worth follows the sizes of the run, those of inner loops too") {
  ProgramBuilder b;
  const Expr n = b.symbol("n", 0, 0, 1, 4096), m = b.symbol("m", 0, 1, 1, 1 << 20);
  const View x = b.input("x", kF32, {n, m}), y = b.output("y", kF32, {n, m + 1}),
             z = b.output("z", kF32, {n});
  NestBuilder copy = b.nest("copy");
  const auto i = copy.dims(x.shape);
  copy.store(y, i, copy.load(x, i));
  copy.finish();
  NestBuilder sum = b.nest("sum");
  const Expr j = sum.dim(n);
  sum.store(z, {j}, sum.reduce(Combine::kSum, {m}, [&](auto at) { return sum.load(x, {j, at[0]}); }));
  sum.finish();
  const CpuTarget target = cpu_target("x86-64-v3");
  schedule::choose_general(b.program, target);
  for (const Nest& nest : b.program.nests) {
    const codegen::Kernel kernel = codegen::cpu::emit_loops(b.program, nest, target);
    const auto threads = [&](int64_t rows, int64_t columns) {
      const auto value = [&](Expr e) {
        return *sym::evaluate(e, [&](Expr var) { return std::optional(var == n ? rows : columns); });
      };
      return (value(kernel.tasks) + value(kernel.grain) - 1) / value(kernel.grain);
    };
    INFO(nest.name);
    CHECK(threads(4, 64) == 1);
    CHECK(threads(4, 1 << 18) == 4);
    CHECK(threads(4096, 1) <= 2);
    CHECK(threads(4096, 1024) >= 16);
  }
}

TEST_CASE("scans, also in lanes and reversed") {
  for (bool columns : {false, true}) {
    ProgramBuilder b;
    const View x = b.input("x", kF32, {19, 23}), o = b.output("o", kF32, {19, 23}),
               r = b.output("r", kF32, {19, 23});
    for (bool reverse : {false, true}) {
      NestBuilder nb = b.nest("cumsum");
      const Expr i = nb.dim(columns ? 23 : 19);
      nb.scan(columns ? 19 : 23, reverse, {nb.constant(kF32, 0)},
              [&](Expr k, const std::vector<Value>& carried) {
                const std::vector<Expr> at = columns ? std::vector<Expr>{k, i} : std::vector<Expr>{i, k};
                const Value next = carried[0] + nb.load(x, at);
                nb.store(reverse ? r : o, at, next);
                return std::vector<Value>{next};
              });
      nb.finish();
    }
    check(b.program, {random_tensor(kF32, {19, 23}, 1)}, 1e-3);
  }
}

TEST_CASE("storage floats in rows") {
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    ProgramBuilder b;
    const View x = b.input("x", dtype, {9, 70}), o = b.output("o", dtype, {9, 70});
    NestBuilder nb = b.nest("norm");
    const Expr i = nb.dim(9);
    const Value mean = nb.reduce(Combine::kSum, {70}, [&](const auto& k) {
      return nb.cast(nb.load(x, {i, k[0]}), kF32);
    }) * nb.constant(kF32, 1.0 / 64);
    nb.loop({70}, [&](const auto& k) {
      nb.store(o, {i, k[0]}, nb.cast(nb.cast(nb.load(x, {i, k[0]}), kF32) - mean, dtype));
    });
    nb.finish();
    check(b.program, {random_tensor(dtype, {9, 70}, 1)}, 1e-2);
  }
}

TEST_CASE("transposes of every width, with arithmetic on the way") {
  for (DType dtype : {DType::kU8, DType::kF16, DType::kI32, DType::kF64, DType::kBool}) {
    ProgramBuilder b;
    const Expr h = b.symbol("h", 0, 1, 1, 100);
    const View x = b.input("x", dtype, {2, h, 37}), y = b.input("y", dtype, {2, 37, h}),
               o = b.output("o", dtype, {2, 37, h});
    NestBuilder nb = b.nest("transpose");
    const auto i = nb.dims(o.shape);
    nb.store(o, i,
             select(lt(nb.load(x, {i[0], i[2], i[1]}), nb.load(y, i)), nb.load(x, {i[0], i[2], i[1]}),
                    nb.load(y, i)));
    nb.finish();
    for (int64_t s : {1, 16, 35, 64})
      check(b.program, {random_tensor(dtype, {2, s, 37}, 1), random_tensor(dtype, {2, 37, s}, 2)}, 0);
  }
}

TEST_CASE("the null backend prints each text once") {
  ProgramBuilder b;
  const View x = b.input("x", kF32, {40});
  for (int k = 0; k < 2; ++k) {
    NestBuilder nb = b.nest(cat("relu", k));
    const Expr i = nb.dim(40);
    nb.store(b.output(cat("y", k), kF32, {40}), {i}, max(nb.load(x, {i}), nb.constant(kF32, 0)));
    nb.finish();
  }
  const auto sources = codegen::null::emit(b.program, [&](const Nest& nest) {
    return codegen::cpu::emit_kernel(b.program, nest, cpu_target("x86-64-v3"));
  });
  REQUIRE(sources.size() == 1);
  CHECK(sources[0].nests == std::vector<std::string>{"relu0", "relu1"});
  CHECK(sources[0].kernel.text.find("void KERNEL(") != std::string::npos);
}

TEST_CASE("elements a small stride apart, from either end, whole and masked") {
  for (DType dtype : {DType::kF16, kF32, DType::kF64, DType::kU8, DType::kI32}) {
    CAPTURE(name(dtype));
    ProgramBuilder b;
    const int64_t count = 71;
    std::vector<HostTensor> inputs;
    for (int64_t step : {1, 2, 3, 4, 5})
      for (const bool back : {false, true}) {
        const int64_t size = (count - 1) * step + 1;
        const std::string label = cat(step, back ? "back" : "");
        inputs.push_back(random_tensor(dtype, {size}, 7));
        const View x = b.input("x" + label, dtype, {size}), whole = b.output("whole" + label, dtype, {count}),
                   masked = b.output("masked" + label, dtype, {count});
        const auto place = [&](Expr at) { return back ? (count - 1 - at) * step : at * step; };
        NestBuilder all = b.nest("all" + label);
        const Expr i = all.dim(count);
        all.store(whole, {i}, all.load(x, {place(i)}));
        all.finish();
        NestBuilder some = b.nest("some" + label);  // a neighbour that only some lanes have
        const Expr j = some.dim(count);
        const Scalar zero = is_float(dtype) ? float_scalar(dtype, 0) : int_scalar(dtype, 0);
        const View padded = *pad(x, {step}, {0}, zero);
        some.store(masked, {j}, some.load(padded, {place(j)}));
        some.finish();
      }
    check(b.program, inputs);
    for (int width : {4, 16, 32}) check_program(vectorised(b.program, width), inputs);
  }
}

TEST_CASE("results a small stride apart, one among others") {
  for (const DType dtype : {DType::kU8, DType::kBF16, kF32}) {
    for (const int64_t step : {2, 3, 4, 5}) {
      CAPTURE(name(dtype));
      CAPTURE(step);
      const int64_t count = 71;
      ProgramBuilder b;
      const View x = b.input("x", dtype, {count}), y = b.output("y", dtype, {count, step});
      NestBuilder nb = b.nest("apart");
      const Expr i = nb.dim(count);
      const Value v = nb.load(x, {i});
      for (int64_t at = 0; at < step; ++at)
        nb.store(y, {i, at}, v + nb.constant(dtype, static_cast<double>(at)));
      nb.finish();
      const HostTensor t = random_tensor(dtype, {count}, 7, 0, 200);
      for (int width : {8, 16}) {
        check_program(vectorised(b.program, width), {t});
        check_program(vectorised(b.program, width), {t}, {0, "x86-64-v3", {}});
      }
      const Program program = vectorised(b.program, 16);
      const auto sources = codegen::null::emit(program, [&](const Nest& nest) {
        return codegen::cpu::emit_kernel(program, nest, cpu_target("x86-64-v4"));
      });
      CHECK((sources[0].kernel.text.find("sd_mstore(") != std::string::npos) ==
            ((16 - 1) * step < 64 / byte_size(dtype)));
    }
  }
}

TEST_CASE(
    "results whose places are digits of one number are neighbours between an image's last and the next one's "
    "first") {
  for (const int64_t size : {1, 5, 16, 37})
    for (const int64_t first : {0, 3}) {
      ProgramBuilder b;
      const Expr n = b.symbol("n", 0, 0, 1, 512), m = b.symbol("m", 1, 0, 1, 64);
      const View x = b.input("x", kF32, {n}), like = b.input("like", kF32, {m}),
                 o = b.output("o", kF32, {200, 2, m});
      NestBuilder clear = b.nest("clear");
      const auto at = clear.dims(o.shape);
      clear.store(o, at, clear.load(like, {at[2]}));
      clear.finish();
      NestBuilder nb = b.nest("spread");
      const Expr i = nb.dim(n), place = i + first;
      const Value result = unary(ScalarOp::kTanh, nb.load(x, {i}));
      nb.store(o, {sym::floordiv(place, m), 1, sym::mod(place, m)}, result);
      nb.finish();
      check(b.program, {random_tensor(kF32, {97}, 1), random_tensor(kF32, {size}, 2)});
    }
}

TEST_CASE("comparisons of 16-bit floats") {
  ProgramBuilder b;
  const View x = b.input("x", DType::kF16, {100}), y = b.output("y", DType::kF16, {100}),
             z = b.output("z", DType::kF16, {100});
  NestBuilder nb = b.nest("compare");
  const Expr i = nb.dim(100);
  const Value v = nb.load(x, {i}), zero = nb.constant(float_scalar(DType::kF16, 0));
  nb.store(y, {i}, select(lt(v, zero), zero, v));
  nb.store(z, {i}, v);
  nb.finish();
  HostTensor t = random_tensor(DType::kF16, {100}, 3);
  set_number(t, 5, NAN), set_number(t, 6, INFINITY), set_number(t, 7, 6e-8), set_number(t, 8, -0.0);
  check(b.program, {t}, 0);
  for (int width : {4, 16, 64}) check_program(vectorised(b.program, width), {t});
}

TEST_CASE(
    "clamped, turning and repeating offsets: neighbours as one load, near ones as one and a permutation") {
  for (DType dtype : {DType::kU8, kF32, DType::kF64}) {
    CAPTURE(name(dtype));
    ProgramBuilder b;
    const int64_t size = 41, before = 9, count = size + 2 * before;
    const HostTensor t = random_tensor(dtype, {2, size}, 5);
    const View x = b.input("x", dtype, {2, size});
    const std::vector<std::function<Expr(Expr)>> places = {
        [&](Expr i) { return sym::max(sym::min(i, size - 1), 0); },
        [&](Expr i) { return sym::mod(i, size); },
        [&](Expr i) { return sym::min(sym::max(i, -i), 2 * (size - 1) - sym::max(i, -i)); },
        [&](Expr i) { return sym::min(sym::max(i, -i), 2 * (size - 1) - sym::max(i, -i)) * -1 + (size - 1); },
        [&](Expr i) { return sym::mod(i, 5); },
        [&](Expr i) { return sym::max(sym::min(sym::floordiv(i + 3, 4), size - 1), 0); },
        [&](Expr i) { return sym::max(sym::min(sym::floordiv(7 * i - 2, 5), size - 1), 0); },
        [&](Expr i) { return sym::max(sym::min(3 * i, size - 1), 0); },
    };
    const View padded =
        *pad(x, {0, 3}, {0, 4}, is_float(dtype) ? float_scalar(dtype, 2) : int_scalar(dtype, 2));
    for (size_t k = 0; k < places.size(); ++k) {
      const View y = b.output(cat("y", k), dtype, {2, count}), z = b.output(cat("z", k), dtype, {2, count});
      NestBuilder n = b.nest(cat("n", k));
      const Expr row = n.dim(2), i = n.dim(count), at = places[k](i - before);
      n.store(y, {row, i}, n.load(x, {row, at}));
      n.store(z, {row, i}, n.load(padded, {row, at + 2}));  // of some lanes alone
      n.finish();
    }
    check(b.program, {t});
    for (int width : {4, 8, 16, 32}) {
      check_program(vectorised(b.program, width), {t});
      check_program(vectorised(b.program, width), {t}, {0, "x86-64-v3", {}});
    }
  }
}

TEST_CASE("sums of products of bytes, whatever instruction the compiler finds for them") {
  for (const int64_t k : {4, 8, 15, 16, 17, 32, 48, 64, 100}) {
    CAPTURE(k);
    ProgramBuilder b;
    const View x = b.input("x", DType::kU8, {5, k}), w = b.input("w", DType::kI8, {k});
    const View y = b.output("y", DType::kI32, {5});
    NestBuilder nb = b.nest("dot");
    const Expr i = nb.dim(5);
    nb.store(y, {i}, nb.reduce(Combine::kSum, {k}, [&](const auto& at) {
      return nb.cast(nb.load(x, {i, at[0]}), DType::kI32) * nb.cast(nb.load(w, {at[0]}), DType::kI32);
    }));
    nb.finish();
    check(b.program,
          {random_tensor(DType::kU8, {5, k}, 1, 0, 256), random_tensor(DType::kI8, {k}, 2, -128, 128)}, 0);
  }
}
