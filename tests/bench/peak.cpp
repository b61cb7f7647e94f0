// Machine measurements for race.py: the engine "peak" (multiply-adds on registers only, with as many threads
// as the models use), and the latency between two threads.
//
//   ninja -C build bench_peak
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <thread>
#include <vector>

namespace {

// Enough accumulators to hide the latency, few enough for the registers.
template <int Lanes, int Sums>
[[gnu::always_inline]] inline float multiply_add(int64_t rounds) {
  typedef float Vec __attribute__((vector_size(Lanes * 4)));
  Vec sum[Sums], x = {0.5f};
#pragma GCC unroll 16
  for (int i = 0; i < Sums; ++i) sum[i] = x + static_cast<float>(i);
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 16
    for (int i = 0; i < Sums; ++i) sum[i] = sum[i] * x + x;  // compilers contract this to one instruction
  }
  for (int i = 1; i < Sums; ++i) sum[0] += sum[i];
  return sum[0][0];
}

[[gnu::target("avx512f"), gnu::noinline]] float wide(int64_t rounds) { return multiply_add<16, 16>(rounds); }
[[gnu::target("avx2,fma"), gnu::noinline]] float narrow(int64_t rounds) {
  return multiply_add<8, 10>(rounds);
}

}  // namespace

// Runs at least `flops` operations, evenly distributed.
extern "C" void bench_peak(int32_t threads, int64_t flops) {
  const bool avx512 = __builtin_cpu_supports("avx512f");
  const int64_t per_round = 2 * (avx512 ? 16 * 16 : 8 * 10);
  const int64_t rounds = flops / (per_round * threads) + 1;
  auto work = [=] { [[maybe_unused]] volatile float sink = avx512 ? wide(rounds) : narrow(rounds); };
  std::vector<std::thread> others;
  for (int32_t t = 1; t < threads; ++t) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
}

// Nanoseconds for a value to travel from one thread to another and back, the minimum of several measurements.
extern "C" double bench_hand_over() {
  constexpr int kTries = 5, kTrips = 10000;
  struct alignas(64) Word {
    std::atomic<int> value{0};
  } there, back;
  std::thread other([&] {
    for (int i = 1; i <= kTries * kTrips; ++i) {
      while (there.value.load(std::memory_order_acquire) != i)
        ;
      back.value.store(i, std::memory_order_release);
    }
  });
  double least = std::numeric_limits<double>::infinity();
  for (int i = 1, t = 0; t < kTries; ++t) {
    const auto start = std::chrono::steady_clock::now();
    for (const int end = i + kTrips; i < end; ++i) {
      there.value.store(i, std::memory_order_release);
      while (back.value.load(std::memory_order_acquire) != i)
        ;
    }
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    least = std::min(least, took.count() / kTrips);
  }
  other.join();
  return least;
}
