// Nests of every class with the general emitter: default, vectorised, and with chosen schedules.
#include "compiler/codegen/cpu/emit.h"
#include "compiler/codegen/null/null.h"
#include "compiler/schedule/directives/applies.h"
#include "tests/unit/codegen_cpu/emit_harness.h"

using namespace emit_test;

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
  for (int round = 0; round < 40; ++round)  // each reads the previous one, so that none is dead
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
    CHECK(schedule::why_illegal(lanes, lanes.nests[0], lanes.nests[0].schedule).ends_with("depends on it"));
  }
}

TEST_CASE("softmax through a local row") {
  ProgramBuilder b;
  const View x = b.input("x", kF32, {6, 50}), o = b.output("o", kF32, {6, 50}),
             row = b.local("row", kF32, {50});
  NestBuilder nb = b.nest("softmax");
  const Expr i = nb.dim(6);
  nb.loop({50},
          [&](const auto& at) { nb.store(row, {at[0]}, unary(ScalarOp::kExp, nb.load(x, {i, at[0]}))); });
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
      for (Combine c : combines) {  // several values, each reduced by itself
        NestBuilder nb = b.nest(cat(loop::name(c), "_three"));
        const Expr i = nb.dim(n);
        const auto three = nb.reduce_many(c, {k}, [&](const auto& j) {
          const Value v = nb.load(x, at(i, j[0])), w = nb.load(x, at(i, k - 1 - j[0]));
          return std::vector<Value>{v, w, v};
        });
        for (size_t r = 0; r < three.size(); ++r)
          nb.store(b.output(cat(loop::name(c), "_of_three_", r), dtype, {n}), {i}, three[r]);
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

TEST_CASE("a masked index says nothing about the sizes of later accesses") {
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
  set_number(at, 7, 10);  // out of range: nothing is read there
  check(b.program, {random_tensor(kF32, {10, 0}, 1), at});

  Program chosen = b.program;
  schedule::choose_general(chosen, cpu_target("x86-64-v3"));
  const std::string text = codegen::cpu::emit_loops(chosen, chosen.nests[0], cpu_target("x86-64-v3")).text;
  CAPTURE(text);
  const size_t failure = text.find("stridec_abi_fail");
  CHECK(failure < text.find("*(f32x8u*)"));
  CHECK(text.find("stridec_abi_fail", failure + 1) == std::string::npos);
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
