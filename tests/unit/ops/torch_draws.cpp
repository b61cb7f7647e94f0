// Distributions of PyTorch's generator on GPUs.
#include "compiler/ops/composite/torch_random.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "compiler/base/text.h"
#include "compiler/loop/philox.h"
#include "compiler/ops/composite/random.h"
#include "harness.h"

using namespace stridec;
using namespace stridec::ops::test;
using ops::Term;
using Ids = std::vector<ValueId>;

namespace {

// The draws of torch.manual_seed(0): the interpreter's states are zeros, so any number of threads runs at
// once.
void check_draws(const char* name, const std::function<std::vector<Term>(Builder&)>& draw,
                 const std::vector<HostTensor>& expected, double tolerance) {
  check({.name = name,
         .inputs = {},
         .build =
             [&](Builder& b, const Ids&) {
               b.state(ops::kGenerator, {DType::kI64, {3}}, std::nullopt);
               Ids out;
               for (const Term& t : draw(b)) out.push_back(t.id());
               ops::finish_torch_generator(b);
               return out;
             },
         .expected = expected,
         .tolerance = tolerance});
}
// What thread i draws as its block number `call`.
philox::Block block(int64_t thread, uint64_t call) {
  return philox::block(0, static_cast<uint64_t>(thread), call);
}
HostTensor numbers(DType dtype, int64_t count, const std::function<double(int64_t)>& number) {
  return compute(dtype, {count}, [&](const At& o) { return number(o[0]); });
}

}  // namespace

TEST_CASE("a GPU's generator draws the numbers that PyTorch documents for seed 0") {
  check_draws(
      "rand", [](Builder& b) { return std::vector{ops::torch_uniform(b, {3}, DType::kF32, 0, 1)}; },
      {tensor(DType::kF32, {3}, {0.3990, 0.5167, 0.0249})}, 5e-5);
  check_draws(
      "randn", [](Builder& b) { return std::vector{ops::torch_normal(b, {3}, DType::kF32, 0, 1, true)}; },
      {tensor(DType::kF32, {3}, {-0.9247, -0.4253, -2.6438})}, 5e-5);
}

TEST_CASE("draws of a GPU's generator follow each other") {
  const auto uniform = [](int64_t i, uint64_t call) {
    return double(philox::uniform(block(i, call).word[0]));
  };
  check_draws(
      "one after the other",
      [](Builder& b) {
        return std::vector{ops::torch_uniform(b, {2}, DType::kF32, -1, 3),
                           ops::torch_uniform(b, {2}, DType::kF64, 0, 1),
                           ops::cuda_exponential(b, {2}, DType::kF32, 2),
                           ops::cuda_logarithm(b, {2}, DType::kF32),
                           ops::torch_integers(b, {2}, 3, 13),
                           ops::torch_integers(b, {2}, 0, int64_t{1} << 40)};
      },
      {numbers(DType::kF32, 2, [&](int64_t i) { return uniform(i, 0) * 4 - 1; }),
       numbers(DType::kF64, 2,
               [&](int64_t i) { return philox::uniform(block(i, 1).word[0], block(i, 1).word[1]); }),
       numbers(DType::kF32, 2, [&](int64_t i) { return std::log(uniform(i, 2)) / -2; }),
       numbers(DType::kF32, 2, [&](int64_t i) { return std::log(uniform(i, 3)); }),
       numbers(DType::kI64, 2, [&](int64_t i) { return 3 + block(i, 4).word[0] % 10; }),
       numbers(
           DType::kI64, 2,
           [&](int64_t i) { return double(philox::wide_word(block(i, 5), 0) & ((int64_t{1} << 40) - 1)); })},
      2e-7);
}

namespace {

// PyTorch's randperm on GPUs as it runs, of up to 256 numbers; `offset` advances. `equal` counts equal keys.
std::vector<int64_t> permutation(int64_t n, uint64_t* offset, int* equal) {
  const double size = double(n);
  const int bits = int(std::ceil(std::log2(size - (6 * size * size + 1) / (std::log(0.9) * 12))));
  std::vector<std::pair<uint64_t, int64_t>> keys;
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t word = static_cast<uint64_t>(philox::wide_word(block(i, *offset / 4), 0));
    keys.emplace_back(word % 0xFFFFFFFF & ((uint64_t{1} << bits) - 1), i);
  }
  *offset += 4;
  std::ranges::sort(keys);
  std::vector<int64_t> out;
  for (const auto& [key, number] : keys) out.push_back(number);
  for (size_t first = 0, end; first < keys.size(); first = end) {
    for (end = first + 1; end < keys.size() && keys[end].first == keys[first].first;) ++end;
    for (size_t i = end - first - 1, draws = 0; i > 0; --i, ++draws, ++*equal)
      std::swap(out[first + i],
                out[first + block(int64_t(first), *offset / 4 + draws / 4).word[draws % 4] % (i + 1)]);
  }
  *offset += static_cast<uint64_t>(n + 3) / 4 * 4;
  return out;
}

}  // namespace

TEST_CASE("a GPU's generator permutes numbers by their keys, and shuffles those with equal keys") {
  uint64_t offset = 0;
  int equal = 0;
  for (int turn = 0; turn < 70; ++turn) {
    const int64_t n = turn == 0 ? 1 : turn == 1 ? 2 : 3 + turn;
    const uint64_t before = offset;
    const std::vector<int64_t> expected = permutation(n, &offset, &equal);
    HostTensor want = loop::make_tensor(DType::kI64, {n});
    std::memcpy(want.bytes.data(), expected.data(), want.bytes.size());
    check({.name = cat("permutation of ", n),
           .inputs = {},
           .build =
               [&](Builder& b, const Ids&) {
                 std::vector<uint8_t> bytes(24);
                 std::memcpy(bytes.data() + 8, &before, 8);
                 b.state(ops::kGenerator, {DType::kI64, {3}}, graph::own(std::move(bytes)));
                 const Ids out{ops::torch_permutation(b, n)};
                 ops::finish_torch_generator(b);
                 return out;
               },
           .expected = {want},
           .symbolic = false});
  }
  CHECK(equal > 1);
}

TEST_CASE(
    "narrow draws of a GPU's generator are rounded to the dtype, and the upper bound becomes the lower") {
  check_draws(
      "f16 and bf16",
      [](Builder& b) {
        return std::vector{ops::torch_uniform(b, {700}, DType::kBF16, 0, 1),
                           ops::torch_normal(b, {5}, DType::kF16, 1, 0.5, true)};
      },
      {numbers(DType::kBF16, 700,
               [](int64_t i) {
                 HostTensor t = tensor(DType::kBF16, {1}, {double(philox::uniform(block(i, 0).word[0]))});
                 return at(t, {0}) == 1 ? 0.0 : at(t, {0});
               }),
       numbers(DType::kF16, 5,
               [](int64_t i) {
                 const philox::Block w = block(i, 1);
                 return std::sqrt(-2 * std::log(double(philox::uniform(w.word[0])))) *
                            std::sin((w.word[1] + 0.5) * 0x1p-32 * 2 * M_PI) * 0.5 +
                        1;
               })},
      1e-3);
}
