// Memory accesses of vector lanes: contiguous, strided, masked, transposed, sub-byte elements.
#include "compiler/codegen/null/null.h"
#include "tests/unit/codegen_cpu/emit_harness.h"

using namespace emit_test;

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

TEST_CASE("comparisons of positions with labels of any size") {
  for (const bool along : {false, true}) {  // a label for each lane, or one for all
    ProgramBuilder b;
    const View label = b.input("label", DType::kI64, {9});
    const Expr n = b.symbol("n", 1, 0, 0, 64);
    const View columns = b.input("columns", kF32, {n});
    const std::vector<Expr> shape = along ? std::vector<Expr>{n, 9} : std::vector<Expr>{9, n};
    for (const ScalarOp op : {ScalarOp::kEq, ScalarOp::kNe, ScalarOp::kLt, ScalarOp::kLe})
      for (const bool swapped : {false, true}) {
        const std::string name = cat(loop::info(op).name, swapped ? "_swapped" : "");
        NestBuilder nb = b.nest(name);
        const auto i = nb.dims(shape);
        const Value at = nb.index_value(i[1] * 3 - 5), of = nb.load(label, {i[along ? 1 : 0]});
        const Value holds = nb.op(op, swapped ? std::vector{of, at} : std::vector{at, of});
        nb.store(b.output(name, kF32, shape), i, select(holds, nb.constant(kF32, 1), nb.constant(kF32, 2)));
        nb.finish();
      }
    HostTensor labels = make_tensor(DType::kI64, {9});
    const int64_t values[] = {
        -5,        1,        0, 22, -(int64_t{1} << 32) + 1, (int64_t{1} << 32) - 5, (int64_t{1} << 40) + 4,
        INT64_MIN, INT64_MAX};
    std::memcpy(labels.bytes.data(), values, sizeof values);
    check(b.program, {labels, random_tensor(kF32, {23}, 1)});
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
    for (const char* cpu : {"native", "x86-64-v3"})
      for (int width : {4, 8, 16, 32}) check_program(vectorised(b.program, width), inputs, {.cpu = cpu});
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
      n.store(z, {row, i}, n.load(padded, {row, at + 2}));  // only for some lanes
      n.finish();
    }
    check(b.program, {t});
    for (int width : {4, 8, 16, 32}) {
      check_program(vectorised(b.program, width), {t});
      check_program(vectorised(b.program, width), {t}, {0, "x86-64-v3", {}});
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
