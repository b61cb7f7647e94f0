#include "compiler/codegen/cpu/chain.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <string>

#include "compiler/codegen/cpu/build_run.h"
#include "compiler/kernels/chain.h"
#include "compiler/loop/build.h"
#include "compiler/loop/interpret.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/fusion/fusion.h"
#include "compiler/schedule/heuristics/chain.h"
#include "compiler/schedule/heuristics/choose.h"
#include "tests/support/tiles.h"

using namespace stridec;
using loop::HostTensor;
using loop::NestBuilder;
using loop::Program;
using loop::Storage;
using loop::Value;
using loop::View;
using sym::Expr;

namespace {

struct Options {
  DType dtype = DType::kF32;
  int64_t heads = 2, group = 1, size = 8, value_size = 8;
  bool keys_by_size = false;  // k is [.., size, keys]
  bool causal = false, additive = false, scaled_operands = false, fully_masked_rows = false;
  bool past = false;     // keys and values are concatenated from two tensors
  bool guarded = false;  // isnan(p) ? 0 : p
  // The dims that a mask of -inf and finite values has, as letters: batch, heads, queries; "-" for a
  // broadcast dim. Fully masked rows give 0.
  std::string masks;
  bool lengths = false;  // keys beyond the batch row's length are masked
  bool tokens = false;   // a finite value masks later keys and keys whose token is 0
};

// softmax(q k' + mask) v as a frontend imports it: one nest per operation.
struct Attention {
  Program program;
  Options options;
  Expr batch = sym::var("batch"), queries = sym::var("queries"), keys = sym::var("keys"),
       past = sym::var("past");

  View input(const std::string& name, std::vector<Expr> shape, DType dtype) {
    loop::Buffer buffer{.name = name, .dtype = dtype, .shape = std::move(shape), .storage = Storage::kInput};
    buffer.ordinal = static_cast<int>(program.inputs.size());
    for (size_t d = 0; d < buffer.shape.size(); ++d)
      for (loop::Symbol& symbol : program.symbols)
        if (symbol.var == buffer.shape[d] && symbol.input < 0)
          symbol.input = buffer.ordinal, symbol.dim = static_cast<int>(d);
    program.inputs.push_back(loop::add_buffer(program, std::move(buffer)));
    return loop::whole(program, program.inputs.back());
  }
  View temporary(const std::string& name, std::vector<Expr> shape, DType dtype,
                 Storage storage = Storage::kArena) {
    loop::Buffer buffer{.name = name, .dtype = dtype, .shape = std::move(shape), .storage = storage};
    if (storage == Storage::kOutput) buffer.ordinal = static_cast<int>(program.outputs.size());
    const auto id = loop::add_buffer(program, std::move(buffer));
    if (storage == Storage::kOutput) program.outputs.push_back(id);
    return loop::whole(program, id);
  }
  template <class F>
  View map(const std::string& name, const View& x, F f) {
    const View out = temporary(name, x.shape, x.dtype);
    NestBuilder nest(program, name);
    const auto at = nest.dims(x.shape);
    nest.store(out, at, f(nest, at, nest.load(x, at)));
    nest.finish();
    return out;
  }
  View joined(const std::string& name, const View& old, const View& fresh, Expr length) {
    const View out = temporary(name, {batch, fresh.shape[1], length, fresh.shape[3]}, fresh.dtype);
    Expr start = 0;
    for (const View& part : {old, fresh}) {
      NestBuilder nest(program, name);
      const auto at = nest.dims(part.shape);
      nest.store(loop::slice(out, 2, start, part.shape[2], 1), at, nest.load(part, at));
      nest.finish();
      start += part.shape[2];
    }
    return out;
  }
  // out[b, h, m, n] = sum over k of a[b, h, m, k] * c(b, h, k, n), in f32 or wider.
  template <class F>
  View matmul(const std::string& name, const View& a, Expr n, F c, Storage storage = Storage::kArena) {
    const View out = temporary(name, {batch, options.heads, queries, n}, options.dtype, storage);
    const DType wide = options.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
    NestBuilder nest(program, name);
    const auto at = nest.dims(out.shape);
    const Value sum = nest.reduce(loop::Combine::kSum, {a.shape[3]}, [&](const std::vector<Expr>& k) {
      return nest.cast(nest.load(a, {at[0], at[1], at[2], k[0]}), wide) * nest.cast(c(nest, at, k[0]), wide);
    });
    nest.store(out, at, nest.cast(sum, options.dtype));
    nest.finish();
    return out;
  }
  View row(const std::string& name, const View& x, loop::Combine combine) {
    const View out = temporary(name, {batch, options.heads, queries}, x.dtype);
    NestBuilder nest(program, name);
    const auto at = nest.dims(out.shape);
    nest.store(out, at, nest.reduce(combine, {x.shape[3]}, [&](const std::vector<Expr>& k) {
      return nest.load(x, {at[0], at[1], at[2], k[0]});
    }));
    nest.finish();
    return out;
  }

  static std::vector<Expr> broadcast(const View& x, const std::vector<Expr>& at) {
    std::vector<Expr> index(at.begin(), at.begin() + static_cast<std::ptrdiff_t>(x.shape.size()));
    for (size_t d = 0; d < index.size(); ++d)
      if (x.shape[d].is_const(1)) index[d] = 0;
    return index;
  }
  View masks(Expr length) {
    const double infinity = std::numeric_limits<double>::infinity();
    const std::string& m = options.masks;
    const View mask = input("masks",
                            {m[0] == '-' ? Expr(1) : batch, m[1] == '-' ? 1 : options.heads,
                             m[2] == '-' ? Expr(1) : queries, length},
                            options.dtype);
    const View kept = map("kept", mask, [&](NestBuilder& nest, const auto&, Value x) {
      return select(lt(x, nest.constant(options.dtype, 1)), nest.constant(options.dtype, -infinity), x);
    });
    if (!options.causal) return kept;
    const View out = temporary("bias", {mask.shape[0], mask.shape[1], queries, length}, options.dtype);
    NestBuilder nest(program, "bias");
    const auto at = nest.dims(out.shape);
    const Value last = nest.index_value(at[2] + (options.past ? past : Expr(0)));
    nest.store(out, at,
               nest.load(kept, broadcast(kept, at)) + select(lt(last, nest.index_value(at[3])),
                                                             nest.constant(options.dtype, -infinity),
                                                             nest.constant(options.dtype, 0)));
    nest.finish();
    return out;
  }

  explicit Attention(const Options& o) : options(o) {
    program.name = "attention";
    for (Expr s : {batch, queries, keys, past}) {
      if (s == past && !o.past) continue;
      program.symbols.push_back({.var = s});
      program.facts.set_range(s, 0, 1 << 12);
    }
    const int64_t shared = o.heads / o.group;
    View q = input("q", {batch, o.heads, queries, o.size}, o.dtype);
    View k = o.keys_by_size ? input("k", {batch, shared, o.size, keys}, o.dtype)
                            : input("k", {batch, shared, keys, o.size}, o.dtype);
    View v = input("v", {batch, shared, keys, o.value_size}, o.dtype);
    Expr length = keys;
    if (o.past) {
      length = past + keys;
      const View old_k = input("old_k", {batch, shared, past, o.size}, o.dtype);
      const View old_v = input("old_v", {batch, shared, past, o.value_size}, o.dtype);
      k = joined("all_k", old_k, k, length);
      v = joined("all_v", old_v, v, length);
    }
    if (o.scaled_operands) {
      auto scale = [&](NestBuilder& nest, const auto&, Value x) { return x * nest.constant(o.dtype, 0.5); };
      q = map("scale_q", q, scale);
      k = map("scale_k", k, scale);
    }
    View s = matmul("scores", q, length, [&](NestBuilder& nest, const auto& at, Expr d) {
      const Expr head = sym::floordiv(at[1], o.group);
      return o.keys_by_size ? nest.load(k, {at[0], head, d, at[3]}) : nest.load(k, {at[0], head, at[3], d});
    });
    if (o.additive) {
      const View mask = input("mask", {batch, length}, o.dtype);
      s = map("add_mask", s, [&](NestBuilder& nest, const auto& at, Value x) {
        return x + nest.load(mask, {at[0], at[3]});
      });
    }
    const double infinity = std::numeric_limits<double>::infinity();
    std::optional<View> bias;
    if (!o.masks.empty()) bias = masks(length);
    if (bias) {
      s = map("add_bias", s, [&](NestBuilder& nest, const auto& at, Value x) {
        return x + nest.load(*bias, broadcast(*bias, at));
      });
    } else if (o.lengths) {
      const View lengths = input("lengths", {batch}, DType::kI64);
      s = map("mask", s, [&](NestBuilder& nest, const auto& at, Value x) {
        return select(lt(nest.index_value(at[3]), nest.load(lengths, {at[0]})), x,
                      nest.constant(o.dtype, -infinity));
      });
    } else if (o.tokens) {
      const View tokens = input("tokens", {batch, length}, DType::kI64);
      s = map("mask", s, [&](NestBuilder& nest, const auto& at, Value x) {
        const Value shown = binary(loop::ScalarOp::kAnd, le(nest.index_value(at[3]), nest.index_value(at[2])),
                                   ne(nest.load(tokens, {at[0], at[3]}), nest.constant(DType::kI64, 0)));
        return select(shown, x, nest.constant(o.dtype, -1e30));
      });
    } else if (o.causal || o.fully_masked_rows)
      s = map("mask", s, [&](NestBuilder& nest, const auto& at, Value x) {
        const Expr last = o.fully_masked_rows ? at[2] - 2 : at[2] + (o.past ? past : Expr(0));
        return select(le(nest.index_value(at[3]), nest.index_value(last)), x,
                      nest.constant(o.dtype, -infinity));
      });
    const View largest = row("largest", s, loop::Combine::kMax);
    const View e = map("exp", s, [&](NestBuilder& nest, const auto& at, Value x) {
      return unary(loop::ScalarOp::kExp, x - nest.load(largest, {at[0], at[1], at[2]}));
    });
    const View total = row("total", e, loop::Combine::kSum);
    View p = map("divide", e, [&](NestBuilder& nest, const auto& at, Value x) {
      const Value share = x / nest.load(total, {at[0], at[1], at[2]});
      return o.guarded ? select(unary(loop::ScalarOp::kIsNan, share), nest.constant(o.dtype, 0), share)
                       : share;
    });
    if (bias) {
      const View most = temporary("most", {bias->shape[0], bias->shape[1], bias->shape[2]}, o.dtype);
      NestBuilder nest(program, "most");
      const auto at = nest.dims(most.shape);
      nest.store(most, at, nest.reduce(loop::Combine::kMax, {length}, [&](const std::vector<Expr>& k) {
        return nest.load(*bias, {at[0], at[1], at[2], k[0]});
      }));
      nest.finish();
      p = map("hide", p, [&](NestBuilder& inner, const auto& point, Value x) {
        const auto of = broadcast(most, point);
        return select(eq(inner.load(most, of), inner.constant(o.dtype, -infinity)),
                      inner.constant(o.dtype, 0), x);
      });
    }
    matmul(
        "out", p, o.value_size,
        [&](NestBuilder& nest, const auto& at, Expr key) {
          return nest.load(v, {at[0], sym::floordiv(at[1], o.group), key, at[3]});
        },
        Storage::kOutput);
  }
};

struct Sizes {
  int64_t batch, queries, keys, past = 0;
};

std::vector<HostTensor> inputs_for(const Attention& a, const Sizes& sizes) {
  std::mt19937 random(7);
  std::vector<HostTensor> inputs;
  for (loop::BufferId id : a.program.inputs) {
    const loop::Buffer& buffer = a.program[id];
    std::vector<int64_t> shape;
    for (Expr e : buffer.shape) {
      const auto value = sym::evaluate(e, [&](Expr var) -> std::optional<int64_t> {
        return var == a.batch     ? sizes.batch
               : var == a.queries ? sizes.queries
               : var == a.keys    ? sizes.keys
                                  : sizes.past;
      });
      shape.push_back(*value);
    }
    HostTensor tensor = loop::make_tensor(buffer.dtype, shape);
    // Some lengths are 0, some exceed the number of keys; every third token is 0.
    const double most = buffer.name == "lengths" ? static_cast<double>(sizes.keys) + 3 : 3;
    for (int64_t i = 0; i < loop::element_count(tensor); ++i)
      loop::set_number(tensor, i,
                       is_float(buffer.dtype)
                           ? std::uniform_real_distribution<double>(-2, 2)(random)
                           : std::floor(std::uniform_real_distribution<double>(0, most)(random)));
    inputs.push_back(std::move(tensor));
  }
  return inputs;
}

double difference(const HostTensor& x, const HostTensor& y) {
  REQUIRE(x.shape == y.shape);
  double worst = 0, largest = 1e-30;
  for (int64_t i = 0; i < loop::element_count(x); ++i) {
    const double a = loop::get_number(x, i), b = loop::get_number(y, i);
    if (std::isnan(a) != std::isnan(b)) return 1;
    if (std::isnan(a)) continue;
    worst = std::max(worst, std::fabs(a - b));
    largest = std::max(largest, std::fabs(b));
  }
  return worst / largest;
}

// Makes the chain's GEMMs use tile registers.
void take_tiles(Program& program) {
  for (loop::Nest& nest : program.nests) {
    if (!kernels::is_chain(nest.schedule)) continue;
    kernels::ChainPlan plan = kernels::to_chain_plan(nest.schedule);
    for (kernels::ChainPlan::Link& link : plan.links)
      link = {link.column, kernels::find_gemm_kernel("gemm.bf16.amx.32x32"), kernels::GemmPlan::A::kPack};
    nest.schedule = kernels::to_schedule(plan);
  }
}

// Fuses to one kernel and schedules it for the target.
Program chained(Program program, const CpuTarget& target) {
  schedule::fuse(program);
  schedule::chain(program);
  schedule::choose(program, target, {});
  return program;
}

void check_chain(const Attention& a, const Options& options, const Program& made, const CpuTarget& target,
                 bool tiles, const std::vector<Sizes>& shapes) {
  loop::verify(made);
  int chains = 0;
  for (const loop::Nest& nest : made.nests) chains += kernels::is_chain(nest.schedule);
  CHECK(chains == 1);
  const codegen::cpu::BuildOptions build{.prelude = tiles ? test::tiles_prelude() : std::string()};
  codegen::cpu::CompiledProgram whole(made, {.target = target, .build = build, .parts = 1}),
      shared(made, {.target = target, .build = build, .parts = 3});
  for (const Sizes& sizes : shapes) {
    CAPTURE(target.name);
    CAPTURE(sizes.batch);
    CAPTURE(sizes.queries);
    CAPTURE(sizes.keys);
    CAPTURE(sizes.past);
    const auto inputs = inputs_for(a, sizes);
    const auto expected = loop::interpret(a.program, inputs);
    const auto got = whole.run(inputs);
    const double allowed = options.dtype == DType::kF64    ? 1e-12
                           : options.dtype == DType::kF32  ? 1e-5
                           : options.dtype == DType::kBF16 ? 2e-2
                                                           : 3e-3;
    CHECK(difference(got[0], expected[0]) < allowed);
    CHECK(shared.run(inputs)[0].bytes == got[0].bytes);
  }
}

void check(const Options& options, const std::vector<Sizes>& shapes) {
  const Attention a(options);
  std::vector<CpuTarget> targets(cpu_targets().begin(), cpu_targets().end());
  const CpuTarget tiled = test::target_with_tiles();
  if (options.dtype == DType::kBF16) targets.push_back(tiled);
  for (const CpuTarget& target : targets) {
    const CpuTarget& native = cpu_target("native");
    if (target.name != native.name &&
        (target.vector_bytes >= native.vector_bytes || target.tune != "generic"))
      continue;
    if (target.name != native.name && (options.past || options.heads > 2)) continue;  // enough on one
    const bool tiles = &target == &targets.back() && options.dtype == DType::kBF16;
    Program made = chained(a.program, target);
    if (tiles) take_tiles(made);
    check_chain(a, options, made, target, tiles, shapes);
    if (target.name != native.name || tiles) continue;
    // The tuner's space is large: test a sample, different in every test.
    static std::mt19937 random(7);
    constexpr int kDraws = 2;
    for (int draw = 0; draw < kDraws; ++draw) {
      for (loop::Nest& nest : made.nests) {
        if (!kernels::is_chain(nest.schedule)) continue;
        const auto space = schedule::chain_space(made, nest, target);
        nest.schedule = kernels::to_schedule(space[random() % space.size()].plan);
      }
      check_chain(a, options, made, target, tiles, shapes);
    }
  }
}

}  // namespace

TEST_CASE("attention runs as one chain, whatever the sizes") {
  check({}, {{1, 1, 1}, {2, 5, 7}, {1, 49, 65}, {3, 100, 33}, {1, 1, 200}, {0, 3, 4}, {2, 0, 5}, {1, 3, 0}});
  check({.size = 37, .value_size = 53}, {{1, 6, 9}, {2, 50, 70}});
  check({.size = 2, .value_size = 130}, {{1, 20, 30}});
  check({.keys_by_size = true}, {{1, 13, 17}, {1, 97, 80}});
}

TEST_CASE("masks, grouped heads, scaled factors and two sources of keys join the chain") {
  check({.causal = true}, {{2, 17, 17}, {1, 130, 130}, {1, 5, 200}});
  check({.additive = true}, {{2, 17, 19}, {1, 60, 100}});
  check({.fully_masked_rows = true}, {{1, 9, 9}});
  check({.fully_masked_rows = true, .guarded = true}, {{1, 9, 9}, {2, 70, 90}, {1, 3, 0}});
  check({.causal = true, .guarded = true}, {{1, 60, 60}});
  check({.heads = 6, .group = 3, .size = 16}, {{2, 7, 40}, {1, 100, 70}});
  check({.scaled_operands = true}, {{1, 11, 70}, {2, 60, 50}});
  check({.keys_by_size = true, .scaled_operands = true}, {{2, 60, 50}});
  check({.heads = 4,
         .group = 2,
         .size = 9,
         .value_size = 5,
         .causal = true,
         .additive = true,
         .scaled_operands = true,
         .past = true},
        {{1, 1, 1, 70}, {2, 4, 4, 0}, {1, 60, 60, 33}});
}

TEST_CASE("rows that a mask hides whole join the chain") {
  const std::vector<Sizes> sizes = {{1, 1, 1}, {2, 5, 7}, {1, 65, 49}, {2, 0, 5}, {1, 3, 0}};
  for (const char* masks : {"---", "--q", "-hq", "b--", "bhq"}) {
    CAPTURE(masks);
    check({.masks = masks}, sizes);
    check({.causal = true, .masks = masks}, sizes);
  }
  check({.guarded = true, .masks = "--q"}, sizes);
  check({.heads = 6, .group = 3, .causal = true, .past = true, .masks = "b-q"},
        {{2, 4, 4, 0}, {1, 60, 60, 33}});
  check({.dtype = DType::kF16, .causal = true, .masks = "--q"}, {{1, 33, 41}});
  check({.dtype = DType::kF64, .masks = "bhq"}, {{2, 33, 41}});
}

TEST_CASE("keys that a mask hides from a block of rows are not met") {
  for (const char* masks : {"", "--q"}) {
    CAPTURE(masks);
    const Attention a({.causal = true, .masks = masks});
    codegen::cpu::CompiledProgram compiled(chained(a.program, cpu_target("native")), {.parts = 1});
    auto inputs = inputs_for(a, {1, 130, 130});
    const HostTensor clean = compiled.run(inputs)[0];
    // The last key, which only the last block of rows can see.
    for (const size_t input : {1, 2})
      for (int64_t head = 0; head < 2; ++head)
        for (int64_t d = 0; d < 8; ++d)
          loop::set_number(inputs[input], (head * 130 + 129) * 8 + d,
                           std::numeric_limits<double>::quiet_NaN());
    const HostTensor got = compiled.run(inputs)[0];
    for (int64_t head = 0; head < 2; ++head)
      for (int64_t d = 0; d < 8; ++d) {
        for (int64_t row = 0; row < 40; ++row)
          CHECK(loop::get_number(got, (head * 130 + row) * 8 + d) ==
                loop::get_number(clean, (head * 130 + row) * 8 + d));
        CHECK(std::isnan(loop::get_number(got, (head * 130 + 129) * 8 + d)));
      }
  }
}

TEST_CASE("keys beyond lengths in memory are skipped, also with a causal mask and a mask of tokens") {
  check({.lengths = true}, {{1, 1, 1}, {3, 5, 7}, {5, 65, 149}, {2, 0, 5}, {1, 3, 0}});
  check({.heads = 6, .group = 3, .guarded = true, .lengths = true}, {{4, 60, 93}});
  check({.tokens = true}, {{1, 1, 1}, {3, 5, 7}, {2, 130, 149}, {2, 0, 5}, {1, 3, 0}});
  for (const bool tokens : {false, true})
    for (const bool early : {false, true}) {  // whether a row sees a key
      const Attention a({.lengths = !tokens, .tokens = tokens});
      codegen::cpu::CompiledProgram compiled(chained(a.program, cpu_target("native")), {.parts = 1});
      auto inputs = inputs_for(a, {1, 130, 130});
      for (int64_t i = 0; i < loop::element_count(inputs[3]); ++i)
        loop::set_number(inputs[3], i, !early ? 0 : tokens ? i < 40 : 60);
      for (int64_t d = 0; d < 8; ++d)
        loop::set_number(inputs[2], 129 * 8 + d, std::numeric_limits<double>::quiet_NaN());
      const HostTensor got = compiled.run(inputs)[0];
      CHECK(std::isnan(loop::get_number(got, 0)) == !early);
    }
}

TEST_CASE("results are divided, not rows, and a row is summed where it is stored") {
  for (const Options& options : {Options{}, Options{.guarded = true}, Options{.masks = "--q"}}) {
    CAPTURE(options.guarded);
    CAPTURE(options.masks);
    const Attention a(options);
    const CpuTarget& target = cpu_target("x86-64-v4");
    const Program made = chained(a.program, target);
    for (const loop::Nest& nest : made.nests) {
      if (!kernels::is_chain(nest.schedule)) continue;
      const std::string text = codegen::cpu::emit_chain(made, nest, target).text;
      // The only division follows the last micro-kernel call.
      CHECK(text.find(" / (f32x16)") > text.rfind("(tile_rows, "));
      const size_t exponential = text.find(" = sd_exp("), end = text.find("\n          }\n", exponential);
      REQUIRE(exponential < end);
      CHECK(text.substr(exponential, end - exponential).find(" + v") != std::string::npos);
    }
  }
}

TEST_CASE("attention in other dtypes runs as one chain") {
  for (DType dtype : {DType::kF64, DType::kF16, DType::kBF16}) {
    CAPTURE(name(dtype));
    check({.dtype = dtype, .size = 24, .value_size = 20}, {{1, 5, 7}, {2, 50, 70}});
    check({.dtype = dtype, .causal = true, .additive = true, .scaled_operands = true}, {{1, 33, 41}});
    check({.dtype = dtype, .fully_masked_rows = true, .guarded = true}, {{1, 33, 41}});
  }
}
