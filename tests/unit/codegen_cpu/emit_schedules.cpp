// Loop directives without a template: `tile`, `points` and `transpose`, with different sizes and dtypes.
#include "compiler/base/text.h"
#include "compiler/loop/text.h"
#include "compiler/schedule/directives/applies.h"
#include "tests/unit/codegen_cpu/emit_harness.h"

using namespace emit_test;

namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16,
                            DType::kI8,  DType::kU8,  DType::kI32,  DType::kI64};

struct Sizes {
  int64_t m, n, k;
};
constexpr Sizes kSizes[] = {{0, 5, 3}, {1, 1, 1}, {3, 70, 5}, {4, 16, 8}, {37, 33, 0}, {65, 129, 17}};

// GEMMs of symbolic sizes, a transposed copy, and rows, for everything that the directives cover.
Program program_of(DType dtype) {
  ProgramBuilder b;
  const Expr m = b.symbol("m", 0, 0, 0, 100), k = b.symbol("k", 0, 1, 0, 100),
             n = b.symbol("n", 1, 1, 0, 200);
  const View x = b.input("x", dtype, {m, k}), w = b.input("w", dtype, {k, n}), s = b.input("s", dtype, {n});
  const View y = b.output("y", dtype, {m, n}), t = b.output("t", dtype, {k, m});
  const View most = b.output("most", dtype, {m, n});
  NestBuilder product = b.nest("product");
  const Expr i = product.dim(m), j = product.dim(n);
  const Value shift = product.load(s, {j});
  product.store(y, {i, j}, product.reduce(Combine::kSum, {k}, [&](const std::vector<Expr>& r) {
    return product.load(x, {i, r[0]}) * product.load(w, {r[0], j});
  }) + shift);
  product.finish();
  NestBuilder turn = b.nest("turn");
  const Expr a = turn.dim(k), c = turn.dim(m);
  turn.store(t, {a, c}, turn.load(x, {c, a}));
  turn.finish();
  // A window whose first rows are before the start of the matrix.
  NestBuilder window = b.nest("window");
  const Expr r = window.dim(m), q = window.dim(n);
  window.store(most, {r, q}, window.reduce(Combine::kMax, {3}, [&](const std::vector<Expr>& u) {
    Access at = access(y, {r + u[0] - 2, q});
    at.mask = sym::le(2, r + u[0]);
    return window.load(at, int_scalar(dtype, -1));
  }));
  window.finish();
  return std::move(b.program);
}

void check_grid(const std::vector<const char*>& schedules, const std::vector<const char*>& turns) {
  for (const DType dtype : kTypes)
    for (size_t at = 0; at < schedules.size(); ++at) {
      Program program = program_of(dtype);
      for (Nest& nest : program.nests) {
        nest.schedule = parse_schedule(nest.name == "turn" ? turns[at % turns.size()] : schedules[at]);
        // The dim names are those of the nest.
        for (Directive& directive : nest.schedule.directives)
          for (std::string& arg : directive.args)
            if (arg == "%a" || arg == "%b") arg = nest.dims[arg == "%b"].var.name();
        const std::string why = schedule::why_illegal(program, nest, nest.schedule);
        CHECK_MESSAGE(why.empty(), why);
      }
      for (const Sizes& size : kSizes) {
        CAPTURE(std::string(name(dtype)));
        CAPTURE(to_string(program.nests[0].schedule));
        const std::vector<HostTensor> inputs = {random_tensor(dtype, {size.m, size.k}, 1, 1, 4),
                                                random_tensor(dtype, {size.k, size.n}, 2, 1, 4),
                                                random_tensor(dtype, {size.n}, 3, 1, 4)};
        for (const char* cpu : {"native", "x86-64-v3"})
          check_program(program, inputs, {.relative = is_storage_float(dtype) ? 2e-2 : 1e-4, .cpu = cpu});
      }
    }
}

}  // namespace

TEST_CASE("several points done together give what they give one by one") {
  check_grid({"tasks %a; vectorize %b 16; points %a 4", "tasks %a %b; chunk 6; points %b 5",
              "order %b %a; points %a 2", "vectorize %a 8; points %b 3"},
             {"tasks %a; vectorize %b 8; points %a 4", "vectorize %a 8; points %b 3"});
}

TEST_CASE("loops in tiles pass over every point once") {
  check_grid({"tasks %a; tile %b 48; vectorize %b 16", "tile %b 32; tile %a 5; order %a %b; points %b 3",
              "tile %a 16; vectorize %b 8"},
             {"tasks %b; chunk 16; tile %a 16; vectorize %b 8; transpose %a 8",
              "tile %b 40; tile %a 3; vectorize %b 8; transpose %a 8", "tile %a 7; tile %b 9; order %b %a"});
}

TEST_CASE("lines that the next row reads first are asked for, where many places of a large tensor are read") {
  const auto asked = [](const char* channels, const char* height, const char* width, int step = 1) {
    std::string text = R"(program convolution
  input x f32 [C, H, W * S] ordinal 0
  output y f32 [8, H, W] ordinal 0
  input w f32 [8, C, 3] ordinal 1
  inputs (x, w)
  outputs (y)
  steps
    nest 0 conv (%i0<8, %i1<H, %i2<W)
      %0 : f32 = reduce sum (%r0<C, %r1<3)
        %1 : f32 = load x[%r0, %i1 + %r1 - 1, S * %i2] if 1 <= %i1 + %r1 && %i1 + %r1 <= H else 0
        %2 : f32 = load w[%i0, %r0, %r1]
        %3 : f32 = mul %1 %2
        yield %3
      store y[%i0, %i1, %i2] %0
)";
    for (const auto& [name, value] : {std::pair("C", channels), {"H", height}, {"W", width}})
      text = replaced(text, name, value);
    text = replaced(text, "S", cat(step));
    Program program = loop::parse_program(text);
    program.nests[0].schedule = parse_schedule("tasks %i1; points %i0 4; vectorize %i2 8");
    const std::string made =
        codegen::cpu::emit_kernel(program, program.nests[0], cpu_target("x86-64-v3")).text;
    int lines = 0;  // in the loop over four points
    for (size_t at = made.find("__builtin_prefetch"); at < made.find("+ 3)");
         at = made.find("__builtin_prefetch", at + 1))
      ++lines;
    return lines;
  };
  CHECK(asked("64", "172", "264") == 1);
  CHECK(asked("64", "172", "132", 2) == 1);
  CHECK(asked("64", "172", "132", 4) == 2);
  CHECK(asked("64", "17", "24") == 0);       // L2 holds it
  CHECK(asked("3", "1720", "264") == 0);     // few places
  CHECK(asked("64", "224", "224") == 0);     // places are whole pages apart
  CHECK(asked("64", "224", "112", 2) == 1);  // ... and vectors of several pieces wait longer
}

TEST_CASE("what several points share is loaded once") {
  Program program = program_of(DType::kI32);
  program.nests[0].schedule = parse_schedule("tasks %i0; vectorize %i1 16; points %i0 4");
  const auto text = [&] {
    return codegen::cpu::emit_kernel(program, program.nests[0], cpu_target("x86-64-v4")).text;
  };
  const auto count = [](const std::string& in, const std::string& what) {
    int found = 0;
    for (size_t at = in.find(what); at != std::string::npos; at = in.find(what, at + 1)) ++found;
    return found;
  };
  const std::string together = text();
  program.nests[0].schedule = parse_schedule("tasks %i0; vectorize %i1 16");
  const std::string apart = text();
  // One vector of w in the loop over four points and one in the remainder loop: as many as in a loop over
  // single points.
  CHECK(count(together, "*(const i32x16u*)") == 2 * count(apart, "*(const i32x16u*)"));
  CHECK(count(together, "+ 3)") > 0);
}

// Rows of `columns` sums over windows whose ends are outside.
Program windows(Expr columns, ProgramBuilder& b) {
  const View x = b.input("x", kF32, {5, columns}), y = b.output("y", kF32, {5, columns});
  NestBuilder nest = b.nest("window");
  const Expr r = nest.dim(5), q = nest.dim(columns);
  nest.store(y, {r, q}, nest.reduce(Combine::kSum, {3}, [&](const std::vector<Expr>& u) {
    Access at = access(x, {r, q + u[0] - 1});
    at.mask = sym::logical_and(sym::le(1, q + u[0]), sym::le(q + u[0], columns));
    return nest.load(at, float_scalar(kF32, 0));
  }));
  nest.finish();
  return std::move(b.program);
}

TEST_CASE("what strips of several vectors leave runs in vectors") {
  const auto has_strip = [](const Program& program, int lanes) {
    return codegen::cpu::emit_kernel(program, program.nests[0], cpu_target("x86-64-v3"))
               .text.find(cat(" + ", lanes, " <= ")) != std::string::npos;
  };
  const auto check_columns = [](const Program& program, int64_t columns) {
    CAPTURE(columns);
    for (const char* cpu : {"native", "x86-64-v3", "x86-64-v2"})
      check_program(program, {random_tensor(kF32, {5, columns}, 1)}, {.relative = 1e-5, .cpu = cpu});
  };
  for (const char* schedule : {"tasks %i0; vectorize %i1 32", "vectorize %i1 16; points %i0 2"}) {
    for (const int64_t columns : {3, 4, 7, 8, 12, 16, 28, 31, 56, 61, 64}) {
      ProgramBuilder b;
      Program program = windows(columns, b);
      program.nests[0].schedule = parse_schedule(schedule);
      check_columns(program, columns);
      CHECK(has_strip(program, 8) == (columns % (schedule[0] == 't' ? 32 : 16) >= 8));
      CHECK(has_strip(program, 4) == (columns % 8 >= 4));
    }
    ProgramBuilder b;
    Program program = windows(b.symbol("n", 0, 1, 0, 100), b);
    program.nests[0].schedule = parse_schedule(schedule);
    for (const int64_t columns : {0, 1, 7, 8, 9, 31, 57, 99}) check_columns(program, columns);
    CHECK(has_strip(program, 8));
  }
  // Half a register, where the number of points is known.
  for (const int64_t columns : {4, 12, 15, 17}) {
    ProgramBuilder b;
    Program program = windows(columns, b);
    program.nests[0].schedule = parse_schedule("tasks %i0; vectorize %i1 8");
    check_columns(program, columns);
    CHECK(has_strip(program, 4) == (columns % 8 >= 4));
  }
}

TEST_CASE("a schedule that does not apply is not emitted") {
  Program program = program_of(DType::kF32);
  program.nests[0].schedule = parse_schedule("tasks %i0; vectorize %i1 16; points %i1 4");
  CHECK(error_of([&] {
          codegen::cpu::CompiledProgram compiled(program);
        }).find("'points %i1 4': lanes run along %i1") != std::string::npos);
}
