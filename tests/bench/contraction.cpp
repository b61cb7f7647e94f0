// Benchmarks contraction kernels: bench_contraction [--all] [--threads N] [--cpu NAME] [filter...]
//
// Prints time and rate of the chosen plan for each shape. With --all: of every plan, together with the cost
// model's estimate.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "compiler/base/text.h"
#include "compiler/codegen/cpu/build.h"
#include "compiler/loop/build.h"
#include "compiler/schedule/heuristics/contraction.h"
#include "compiler/schedule/layout/pack_weights.h"
#include "tests/support/contraction_harness.h"

using namespace stridec;
using loop::NestBuilder;
using loop::Program;
using loop::Storage;
using loop::Value;
using loop::View;
using sym::Expr;
using test::buffer;

namespace {

struct Case {
  std::string name;
  double multiply_adds = 0;
  Program program;
  loop::NestId nest;
};

// y[m, n] = relu(x[m, k] w[k, n] + bias[n]); transposed: w[n, k], as in PyTorch's Linear.
Case linear(const std::string& name, int64_t m, int64_t n, int64_t k, bool transposed = false,
            bool relu = true) {
  Case c{.name = name, .multiply_adds = 1.0 * m * n * k};
  const View x = buffer(c.program, "x", {m, k}, Storage::kInput);
  const View w = buffer(c.program, "w", transposed ? std::vector<Expr>{n, k} : std::vector<Expr>{k, n},
                        Storage::kParameter);
  const View bias = buffer(c.program, "bias", {n}, Storage::kParameter);
  const View y = buffer(c.program, "y", {m, n}, Storage::kArena);
  NestBuilder nb(c.program, name);
  const Expr i = nb.dim(m), j = nb.dim(n);
  Value sum = nb.reduce(loop::Combine::kSum, {k}, [&](const std::vector<Expr>& at) {
    return nb.load(x, {i, at[0]}) *
           nb.load(w, transposed ? std::vector<Expr>{j, at[0]} : std::vector<Expr>{at[0], j});
  });
  sum = sum + nb.load(bias, {j});
  nb.store(y, {i, j}, relu ? max(sum, nb.constant(DType::kF32, 0)) : sum);
  c.nest = nb.finish();
  return c;
}

// y[m, n] = x[m, k] w[k, n] of bytes and signed bytes, as of a quantised linear layer.
Case bytes(const std::string& name, int64_t m, int64_t n, int64_t k) {
  Case c{.name = name, .multiply_adds = 1.0 * m * n * k};
  const View x = buffer(c.program, "x", {m, k}, Storage::kInput, DType::kU8);
  const View w = buffer(c.program, "w", {k, n}, Storage::kParameter, DType::kI8);
  const View y = buffer(c.program, "y", {m, n}, Storage::kArena);
  NestBuilder nb(c.program, name);
  const Expr i = nb.dim(m), j = nb.dim(n);
  const Value sum = nb.reduce(loop::Combine::kSum, {k}, [&](const std::vector<Expr>& at) {
    return nb.cast(nb.load(x, {i, at[0]}), DType::kI32) * nb.cast(nb.load(w, {at[0], j}), DType::kI32);
  });
  nb.store(y, {i, j}, nb.cast(sum, DType::kF32) * nb.constant(DType::kF32, 0.01));
  c.nest = nb.finish();
  return c;
}

// Attention on one [batch, s, 3, heads, d] buffer: scores = q k^T, or mixed = p v.
Case attention(const std::string& name, int64_t batch, int64_t heads, int64_t s, int64_t d, bool values) {
  Case c{.name = name, .multiply_adds = 1.0 * batch * heads * s * s * d};
  const View qkv = buffer(c.program, "qkv", {batch, s, 3, heads, d}, Storage::kInput);
  const View scores =
      buffer(c.program, "scores", {batch, heads, s, s}, values ? Storage::kInput : Storage::kArena);
  const View out = buffer(c.program, "out", {batch, s, heads, d}, Storage::kArena);
  NestBuilder nb(c.program, name);
  const auto i = nb.dims({batch, heads, s, values ? d : s});
  const Value sum = nb.reduce(loop::Combine::kSum, {values ? s : d}, [&](const std::vector<Expr>& at) {
    if (values)
      return nb.load(scores, {i[0], i[1], i[2], at[0]}) * nb.load(qkv, {i[0], at[0], 2, i[1], i[3]});
    return nb.load(qkv, {i[0], i[2], 0, i[1], at[0]}) * nb.load(qkv, {i[0], i[3], 1, i[1], at[0]});
  });
  if (values) {
    nb.store(out, {i[0], i[2], i[1], i[3]}, sum);
  } else {
    nb.store(scores, i, sum * nb.constant(DType::kF32, 0.125));
  }
  c.nest = nb.finish();
  return c;
}

// Channels-last, with bias, residual and relu.
Case conv(const std::string& name, int64_t channels, int64_t filters, int64_t size, int64_t kernel,
          int64_t stride, bool residual = false, int64_t batch = 1, bool channels_first = false) {
  const int64_t pad = kernel / 2, out = (size + 2 * pad - kernel) / stride + 1;
  Case c{.name = name, .multiply_adds = 1.0 * batch * channels * filters * out * out * kernel * kernel};
  auto strides = [](int64_t ch, int64_t hw) { return std::vector<Expr>{hw * hw * ch, 1, hw * ch, ch}; };
  const View x = buffer(c.program, "x", {batch, channels, size, size}, Storage::kInput, DType::kF32,
                        channels_first ? std::vector<Expr>() : strides(channels, size));
  const View w = buffer(c.program, "w", {filters, channels, kernel, kernel}, Storage::kParameter);
  const View bias = buffer(c.program, "bias", {filters}, Storage::kParameter);
  const View add = buffer(c.program, "residual", {batch, filters, out, out}, Storage::kArena, DType::kF32,
                          strides(filters, out));
  const View y =
      buffer(c.program, "y", {batch, filters, out, out}, Storage::kArena, DType::kF32, strides(filters, out));
  NestBuilder nb(c.program, name);
  const auto i = nb.dims({batch, filters, out, out});
  Value sum = nb.reduce(loop::Combine::kSum, {channels, kernel, kernel}, [&](const std::vector<Expr>& k) {
    loop::Access from{.buffer = x.buffer, .index = {i[0], k[0]}};
    std::vector<Expr> inside;
    for (size_t d = 0; d < 2; ++d) {
      const Expr at = i[2 + d] * stride + k[1 + d] - pad;
      from.index.push_back(at);
      if (pad) inside.push_back(sym::logical_and(sym::ge(at, 0), sym::lt(at, size)));
    }
    from.mask = sym::logical_and(inside);
    return nb.load(from, loop::float_scalar(DType::kF32, 0)) * nb.load(w, {i[1], k[0], k[1], k[2]});
  });
  sum = sum + nb.load(bias, {i[1]});
  if (residual) sum = sum + nb.load(add, i);
  nb.store(y, i, max(sum, nb.constant(DType::kF32, 0)));
  c.nest = nb.finish();
  return c;
}

// Channels-last, one 3x3 (or 7x7) filter per channel, bias, clipped.
Case depthwise(const std::string& name, int64_t channels, int64_t size, int64_t kernel, int64_t stride) {
  const int64_t pad = kernel / 2, out = (size + 2 * pad - kernel) / stride + 1;
  Case c{.name = name, .multiply_adds = 1.0 * channels * out * out * kernel * kernel};
  auto strides = [&](int64_t hw) {
    return std::vector<Expr>{hw * hw * channels, 1, hw * channels, channels};
  };
  const View x =
      buffer(c.program, "x", {1, channels, size, size}, Storage::kArena, DType::kF32, strides(size));
  const View w = buffer(c.program, "w", {channels, kernel, kernel}, Storage::kParameter);
  const View bias = buffer(c.program, "bias", {channels}, Storage::kParameter);
  const View y = buffer(c.program, "y", {1, channels, out, out}, Storage::kArena, DType::kF32, strides(out));
  NestBuilder nb(c.program, name);
  const auto i = nb.dims({1, channels, out, out});
  Value sum = nb.reduce(loop::Combine::kSum, {kernel, kernel}, [&](const std::vector<Expr>& k) {
    const Expr row = i[2] * stride + k[0] - pad, column = i[3] * stride + k[1] - pad;
    const loop::Access from{.buffer = x.buffer,
                            .index = {i[0], i[1], row, column},
                            .mask = sym::logical_and(std::vector{sym::ge(row, 0), sym::lt(row, size),
                                                                 sym::ge(column, 0), sym::lt(column, size)})};
    return nb.load(from, loop::float_scalar(DType::kF32, 0)) * nb.load(w, {i[1], k[0], k[1]});
  });
  sum = max(sum + nb.load(bias, {i[1]}), nb.constant(DType::kF32, 0));
  nb.store(y, i, min(sum, nb.constant(DType::kF32, 6)));
  c.nest = nb.finish();
  return c;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  auto add = [&](Case c) { all.push_back(std::move(c)); };
  add(linear("matmul 1024", 1024, 1024, 1024));
  add(linear("bert qkv 128x2304x768", 128, 2304, 768));
  add(linear("bert out 128x768x768", 128, 768, 768));
  add(linear("bert up 128x3072x768", 128, 3072, 768));
  add(linear("bert down 128x768x3072", 128, 768, 3072));
  add(linear("gpt2 logits 128x50257x768", 128, 50257, 768, true, false));
  add(linear("vit 197x768x768", 197, 768, 768));
  add(linear("vit 197x3072x768", 197, 3072, 768));
  add(linear("classifier 1x1000x2048", 1, 1000, 2048, true, false));
  add(linear("gemv 1x4096x4096", 1, 4096, 4096, true, false));
  add(linear("recommender 1x512x1024", 1, 512, 1024, true));
  add(linear("recommender 1x64x128", 1, 64, 128, true));
  add(linear("recommender 64x256x512", 64, 256, 512, true));
  add(linear("lstm 1x1024x256", 1, 1024, 256, true));
  add(linear("skinny 4x3072x768", 4, 3072, 768));
  add(linear("llama 6x1408x512", 6, 1408, 512));
  for (const int64_t m : {1, 4, 8, 32, 256})
    for (const int64_t k : {64, 256, 512, 1024})
      add(bytes(cat("bytes ", m, "x", 4 * k, "x", k), m, 4 * k, k));
  add(attention("attention qk 12x128x128x64", 1, 12, 128, 64, false));
  add(attention("attention pv 12x128x128x64", 1, 12, 128, 64, true));
  add(attention("attention qk 12x384x384x64", 1, 12, 384, 64, false));
  add(attention("attention pv 12x384x384x64", 1, 12, 384, 64, true));
  add(conv("resnet stem 7x7s2 3>64 224", 3, 64, 224, 7, 2));
  add(conv("resnet stem channels first", 3, 64, 224, 7, 2, false, 1, true));
  add(conv("vit patches 16x16s16 channels first", 3, 768, 224, 16, 16, false, 1, true));
  add(conv("resnet 1x1 64>64 56", 64, 64, 56, 1, 1));
  add(conv("resnet 3x3 64>64 56", 64, 64, 56, 3, 1));
  add(conv("resnet 1x1 64>256 56", 64, 256, 56, 1, 1, true));
  add(conv("resnet 1x1 256>64 56", 256, 64, 56, 1, 1));
  add(conv("resnet 3x3s2 128>128 56", 128, 128, 56, 3, 2));
  add(conv("resnet 1x1s2 256>512 56", 256, 512, 56, 1, 2));
  add(conv("resnet 1x1 128>512 28", 128, 512, 28, 1, 1, true));
  add(conv("resnet 1x1 512>128 28", 512, 128, 28, 1, 1));
  add(conv("resnet 3x3 128>128 28", 128, 128, 28, 3, 1));
  add(conv("resnet 3x3 256>256 14", 256, 256, 14, 3, 1));
  add(conv("resnet 1x1 256>1024 14", 256, 1024, 14, 1, 1, true));
  add(conv("resnet 1x1 1024>256 14", 1024, 256, 14, 1, 1));
  add(conv("resnet 3x3 512>512 7", 512, 512, 7, 3, 1));
  add(conv("resnet 1x1 512>2048 7", 512, 2048, 7, 1, 1, true));
  add(conv("resnet 1x1 2048>512 7", 2048, 512, 7, 1, 1));
  add(conv("mobilenet stem 3x3s2 3>32 224", 3, 32, 224, 3, 2));
  add(conv("mobilenet stem channels first", 3, 32, 224, 3, 2, false, 1, true));
  add(conv("mobilenet 1x1 32>16 112", 32, 16, 112, 1, 1));
  add(conv("mobilenet 1x1 16>96 112", 16, 96, 112, 1, 1));
  add(conv("mobilenet 1x1 96>24 56", 96, 24, 56, 1, 1));
  add(conv("mobilenet 1x1 24>144 56", 24, 144, 56, 1, 1));
  add(conv("mobilenet 1x1 144>24 56", 144, 24, 56, 1, 1, true));
  add(conv("mobilenet 1x1 144>32 28", 144, 32, 28, 1, 1));
  add(conv("mobilenet 1x1 32>192 28", 32, 192, 28, 1, 1));
  add(conv("mobilenet 1x1 384>64 14", 384, 64, 14, 1, 1));
  add(conv("mobilenet 1x1 64>384 14", 64, 384, 14, 1, 1));
  add(conv("mobilenet 1x1 960>160 7", 960, 160, 7, 1, 1));
  add(conv("mobilenet 1x1 320>1280 7", 320, 1280, 7, 1, 1));
  add(depthwise("depthwise 3x3 32 112", 32, 112, 3, 1));
  add(depthwise("depthwise 3x3s2 96 112", 96, 112, 3, 2));
  add(depthwise("depthwise 3x3 144 56", 144, 56, 3, 1));
  add(depthwise("depthwise 3x3s2 144 56", 144, 56, 3, 2));
  add(depthwise("depthwise 3x3 192 28", 192, 28, 3, 1));
  add(depthwise("depthwise 3x3 384 14", 384, 14, 3, 1));
  add(depthwise("depthwise 3x3 960 7", 960, 7, 3, 1));
  add(depthwise("depthwise 7x7 96 56", 96, 56, 7, 1));
  add(depthwise("depthwise 7x7 768 7", 768, 7, 7, 1));
  return all;
}

// Prints kernel time and rate.
void measure(const Case& c, const loop::Schedule& schedule, double model, const CpuTarget& target,
             int threads) {
  Program program = c.program;
  program[c.nest].schedule = schedule;
  schedule::pack_weights(program);
  const test::CompiledKernel kernel(codegen::cpu::emit_kernel(program, program[c.nest], target), target);
  test::Memory memory(program, {});
  const double guess = c.multiply_adds / 1e11;
  const int repeats = static_cast<int>(std::min(2000.0, std::max(30.0, 0.05 / guess)));
  const double one = kernel.seconds({}, memory.views(), 1, repeats);
  const double many = threads > 1 ? kernel.seconds({}, memory.views(), threads, repeats) : one;
  std::printf(
      "%-32s %9.2f us %5.0f GFLOP/s | %d threads %9.2f us %5.0f GFLOP/s | model %9.2f us | %lld tasks, %s\n",
      c.name.c_str(), one * 1e6, 2 * c.multiply_adds / one * 1e-9, threads, many * 1e6,
      2 * c.multiply_adds / many * 1e-9, model / 3.7e3, static_cast<long long>(kernel.tasks({})),
      loop::to_string(schedule).c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  bool every = false;
  int threads = 2;
  std::string cpu = "native";
  std::vector<std::string> filters;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--all") {
      every = true;
    } else if (arg == "--threads" && i + 1 < argc) {
      threads = std::stoi(argv[++i]);
    } else if (arg == "--cpu" && i + 1 < argc) {
      cpu = argv[++i];
    } else {
      filters.push_back(arg);
    }
  }
  const CpuTarget& target = cpu_target(cpu);
  for (const Case& c : cases()) {
    bool wanted = filters.empty();
    for (const std::string& filter : filters) wanted = wanted || c.name.find(filter) != std::string::npos;
    if (!wanted) continue;
    if (every) {
      for (const auto& ranked : schedule::contraction_plans(c.program, c.program[c.nest], target)) {
        measure(c, kernels::to_schedule(ranked.plan), ranked.cycles, target, threads);
      }
    } else if (const auto chosen = schedule::choose_contraction(c.program, c.program[c.nest], target)) {
      measure(c, *chosen, 0, target, threads);
    } else {
      std::printf("%-32s general emitter\n", c.name.c_str());
    }
  }
}
