// Attention's backward pass on warp groups, emulated and compared with the interpreter.
#include <doctest/doctest.h>

#include <cmath>

#include "compiler/base/text.h"
#include "compiler/kernels/flash_backward.h"
#include "compiler/loop/build.h"
#include "compiler/loop/interpret.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/fusion/attention_backward.h"
#include "compiler/schedule/fusion/gpu_attention.h"
#include "compiler/schedule/heuristics/choose_gpu.h"
#include "compiler/schedule/heuristics/flash_backward.h"
#include "tests/support/attention_backward_case.h"
#include "tests/support/emulate.h"
#include "tests/support/random_tensor.h"

namespace stridec::codegen::cuda {
namespace {

using loop::HostTensor;

struct Case {
  const char* dtype = "bf16";
  int depth = 64;
  int batch = 1, heads = 2, rows = 70, keys = 130;
  bool causal = false;
  int seen = 1;  // of a causal mask
  const char* results = "f32";
};

// q, o and grad lie as [batch, row, head, depth], k and v as [batch, head, key, depth], dv as [batch, head,
// depth, key].
loop::Program program_of(const Case& c) {
  using loop::Value;
  using sym::Expr;
  loop::Program program;
  program.name = "backward";
  const DType narrow = parse_dtype(c.dtype).value(), wide = parse_dtype(c.results).value();
  const auto add = [&](const char* name, DType dtype, std::vector<Expr> shape, loop::Storage storage) {
    const bool input = storage == loop::Storage::kInput;
    const bool local = storage == loop::Storage::kLocal;
    std::vector<loop::BufferId>& list = input ? program.inputs : program.outputs;
    const loop::BufferId id =
        loop::add_buffer(program, {.name = name,
                                   .dtype = dtype,
                                   .shape = std::move(shape),
                                   .strides = {},
                                   .storage = storage,
                                   .ordinal = local ? -1 : static_cast<int>(list.size())});
    if (!local) list.push_back(id);
    return loop::whole(program, id);
  };
  using enum loop::Storage;
  const std::vector<Expr> of_rows = {c.batch, c.rows, c.heads, c.depth},
                          of_keys = {c.batch, c.heads, c.keys, c.depth};
  const auto q = add("q", narrow, of_rows, kInput), k = add("k", narrow, of_keys, kInput),
             v = add("v", narrow, of_keys, kInput), o = add("o", narrow, of_rows, kInput),
             grad = add("grad", narrow, of_rows, kInput),
             l = add("l", DType::kF32, {c.batch, c.heads, c.rows}, kInput);
  const auto dq = add("dq", wide, of_rows, kOutput), dk = add("dk", wide, of_keys, kOutput),
             dv = add("dv", wide, {c.batch, c.heads, c.depth, c.keys}, kOutput);
  const auto p = add("p", narrow, {c.rows, c.keys}, kLocal), s = add("s", narrow, {c.rows, c.keys}, kLocal);

  loop::NestBuilder n(program, "backward");
  const Expr b = n.dim(c.batch), h = n.dim(c.heads);
  const auto load = [&](const loop::View& view, std::vector<Expr> at) {
    return n.cast(n.load(view, at), DType::kF32);
  };
  const auto sum = [&](int64_t extent, const std::function<Value(Expr)>& term) {
    return n.reduce(loop::Combine::kSum, {extent}, [&](const std::vector<Expr>& at) { return term(at[0]); });
  };
  const Value scale = n.constant(DType::kF32, 0.125);
  n.loop({c.rows}, [&](const std::vector<Expr>& outer) {
    const Expr m = outer[0];
    const Value shift = n.load(l, {b, h, m});
    const Value delta =
        sum(c.depth, [&](Expr d) { return load(grad, {b, m, h, d}) * load(o, {b, m, h, d}); });
    n.loop({c.keys}, [&](const std::vector<Expr>& at) {
      const Value score =
          sum(c.depth, [&](Expr d) { return load(q, {b, m, h, d}) * load(k, {b, h, at[0], d}); });
      Value weight = unary(loop::ScalarOp::kExp, score * scale - shift);
      if (c.causal)
        weight = select(n.index_value(sym::lt(at[0], m + c.seen), DType::kBool), weight,
                        n.constant(DType::kF32, 0));
      n.store(p, {m, at[0]}, n.cast(weight, narrow));
      const Value g =
          sum(c.depth, [&](Expr d) { return load(grad, {b, m, h, d}) * load(v, {b, h, at[0], d}); });
      n.store(s, {m, at[0]}, n.cast(weight * (g - delta), narrow));
    });
    n.loop({c.depth}, [&](const std::vector<Expr>& at) {
      const Value all =
          sum(c.keys, [&](Expr key) { return load(s, {m, key}) * load(k, {b, h, key, at[0]}); });
      n.store(dq, {b, m, h, at[0]}, n.cast(all * scale, wide));
    });
  });
  n.loop({c.keys, c.depth}, [&](const std::vector<Expr>& at) {
    const Value k_sum = sum(c.rows, [&](Expr m) { return load(s, {m, at[0]}) * load(q, {b, m, h, at[1]}); });
    const Value v_sum =
        sum(c.rows, [&](Expr m) { return load(p, {m, at[0]}) * load(grad, {b, m, h, at[1]}); });
    n.store(dk, {b, h, at[0], at[1]}, n.cast(k_sum * scale, wide));
    n.store(dv, {b, h, at[1], at[0]}, n.cast(v_sum, wide));
  });
  n.finish();
  return program;
}

void compare(const std::vector<HostTensor>& got, const std::vector<HostTensor>& want, double tolerance) {
  for (size_t result = 0; result < want.size(); ++result) {
    INFO("result ", result);
    double error = 0, largest = 0;
    for (int64_t i = 0; i < loop::element_count(want[result]); ++i) {
      const double a = loop::get_number(got[result], i), b = loop::get_number(want[result], i);
      error = std::max(error, std::isnan(a) ? HUGE_VAL : std::abs(a - b));
      largest = std::max(largest, std::abs(b));
    }
    CHECK(largest > 0.01);
    CHECK(error <= tolerance * largest);
  }
}

void check(const Case& c, int multiprocessors = 3) {
  INFO(c.dtype, " ", c.depth, ": ", c.batch, " x ", c.heads, " x ", c.rows, " x ", c.keys,
       c.causal ? " causal" : "");
  GpuTarget target = gpu_target("sm_90a");
  target.multiprocessors = multiprocessors;
  loop::Program program = program_of(c);
  loop::verify(program);
  std::string reason;
  REQUIRE_MESSAGE(schedule::fits_flash_backward(program, program.nests[0], target, &reason), reason);
  program.nests[0].schedule.kernel = kernels::kFlashBackward;
  std::vector<HostTensor> inputs;
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const loop::Buffer& buffer = program[program.inputs[i]];
    inputs.push_back(test::drawn_tensor(buffer.dtype, test::shape_of(buffer), static_cast<int>(i),
                                        [&](double unit) { return i == 5 ? 1 + 3 * unit : 2 * unit - 1; }));
  }
  const std::vector<HostTensor> want = loop::interpret(program, inputs);
  size_t choices = 1;
  const auto got = test::emulate(program, inputs, target, 0, &choices);
  REQUIRE(got.has_value());
  compare(*got, want, std::string(c.dtype) == "bf16" ? 1.6e-2 : 2e-3);
}

// Whole heads per block: one warp group per 64 keys.
TEST_CASE("attention's backward pass of few keys") {
  check({});
  check({.heads = 3, .rows = 197, .keys = 197, .results = "bf16"}, 1);
  check({.dtype = "f16", .rows = 130, .keys = 128, .results = "f16"});
  check({.heads = 5, .rows = 100, .keys = 50, .results = "bf16"}, 1);
  check({.dtype = "f16", .depth = 128, .rows = 130, .keys = 70, .results = "f16"});
  check({.depth = 128, .batch = 2, .heads = 3, .rows = 2, .keys = 3}, 1);
}

TEST_CASE("attention's backward pass of few keys with a causal mask") {
  check({.rows = 256, .keys = 256, .causal = true, .results = "bf16"});
  check({.dtype = "f16", .depth = 128, .heads = 1, .rows = 100, .keys = 100, .causal = true});
  check({.heads = 1, .rows = 60, .keys = 160, .causal = true, .seen = 101});
  check({.depth = 128, .heads = 1, .rows = 200, .keys = 120, .causal = true, .seen = -30});
  check({.heads = 1, .rows = 40, .keys = 180, .causal = true});
}

TEST_CASE("attention's backward pass by tiles of keys") {
  check({.heads = 3, .rows = 200, .keys = 300, .results = "bf16"}, 1);
  check({.dtype = "f16", .depth = 128, .rows = 130, .keys = 150, .results = "f16"});
  check({.depth = 128, .batch = 2, .heads = 1, .rows = 2, .keys = 300});
}

TEST_CASE("attention's backward pass by tiles of keys with a causal mask") {
  check({.rows = 270, .keys = 270, .causal = true});
  check(
      {.dtype = "f16", .depth = 128, .heads = 1, .rows = 140, .keys = 140, .causal = true, .results = "f16"});
  // Queries after a cache of keys.
  check({.heads = 1, .rows = 60, .keys = 260, .causal = true, .seen = 201});
  // Queries that see no key, and keys that no query sees.
  check({.depth = 128, .heads = 1, .rows = 200, .keys = 150, .causal = true, .seen = -30});
  check({.heads = 1, .rows = 40, .keys = 300, .causal = true});
}

// The forward pass stores the log-sum-exp that the backward pass reads.
TEST_CASE("attention forward and backward") {
  for (const bool causal : {false, true}) {
    INFO("causal ", causal);
    GpuTarget target = gpu_target("sm_90a");
    target.multiprocessors = 3;
    const loop::Program before =
        loop::parse_program(test::attention_backward_text({.causal = causal, .safe = causal}));
    loop::Program program = before;
    schedule::fuse_attention_backward(program, target);
    loop::eliminate_dead_code(program);
    schedule::chain_gpu(program, target);
    schedule::choose_gpu(program, target, {});
    std::vector<HostTensor> inputs;
    for (size_t i = 0; i < program.inputs.size(); ++i) {
      const loop::Buffer& buffer = program[program.inputs[i]];
      inputs.push_back(test::drawn_tensor(buffer.dtype, test::shape_of(buffer), static_cast<int>(i),
                                          [&](double unit) { return 2 * unit - 1; }));
    }
    size_t choices = 1;
    for (size_t choice = 0; choice < choices; ++choice) {
      const auto got = test::emulate(program, inputs, target, choice, &choices);
      REQUIRE(got.has_value());
      compare(*got, loop::interpret(before, inputs), 1.6e-2);
    }
  }
}

}  // namespace
}  // namespace stridec::codegen::cuda
