#include "compiler/tune/peak.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "compiler/base/text.h"
#include "compiler/codegen/cpu/clang.h"
#include "compiler/codegen/cpu/jit.h"
#include "compiler/kernels/gemm.h"
#include "compiler/kernels/gemm_tiles.h"

namespace stridec::tune {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kRounds = 20000;

// Parameters: element, L lanes, N accumulators (enough to hide the latency, few enough for the registers),
// and product_text() with its `factor`.
constexpr std::string_view kProducts = R"cpp(
  typedef element vec __attribute__((ext_vector_type(L)));
  typedef int words __attribute__((ext_vector_type(L)));
#define EACH(n) _Pragma("clang loop unroll(full)") for (int i = 0; i < n; ++i)
  extern "C" void peak_products(float* data, float*, long rounds) {
    vec sum[N];
    factor x = *(const factor*)data;
    EACH(N) sum[i] = *(const vec*)data;
    _Pragma("clang loop unroll(disable)") for (long r = 0; r < rounds; ++r) EACH(N) {
      __asm__ volatile("" : "+x"(x));  // opaque, so that products are not hoisted
      sum[i] = PRODUCT(sum[i], x, x);
    }
    EACH(N)((vec*)data)[i] = sum[i];
  }
)cpp";

// Parameters: product_text(), kTileShape. Six accumulators, a and b.
constexpr std::string_view kTiles = R"cpp(
  extern "C" void peak_products(float*, float*, long rounds) {
    alignas(64) shape s = {1};
    for (int t = 0; t < 8; ++t) s.bytes[t] = 64, s.rows[t] = 16;
    __builtin_ia32_tile_loadconfig(&s);  // also zeroes the tiles
    for (long r = 0; r < rounds; ++r) {
      PRODUCT(0, 6, 7), PRODUCT(1, 6, 7), PRODUCT(2, 6, 7);
      PRODUCT(3, 6, 7), PRODUCT(4, 6, 7), PRODUCT(5, 6, 7);
    }
    __builtin_ia32_tilerelease();
  }
)cpp";
constexpr int kTileSums = 6;

// Parameter: L lanes.
constexpr std::string_view kMoves = R"cpp(
  typedef float vec __attribute__((ext_vector_type(L)));
#define EACH(n) _Pragma("clang loop unroll(full)") for (int i = 0; i < n; ++i)
  extern "C" void peak_read(float* data, float* out, long bytes) {
    vec sum[8];
    EACH(8) sum[i] = 0;
    const vec* from = (const vec*)data;
    for (long n = bytes / sizeof(vec); n >= 8; n -= 8, from += 8) EACH(8) sum[i] += from[i];
    EACH(8)((vec*)out)[i] = sum[i];
  }
  extern "C" void peak_copy(float* data, float* out, long bytes) {
    const vec* from = (const vec*)data;
    vec* to = (vec*)out;
    for (long n = bytes / sizeof(vec); n > 0; --n) *to++ = *from++;
  }
)cpp";

using Loop = void (*)(float*, float*, long);

struct FreeFloats {
  void operator()(float* p) const { std::free(p); }
};
using Floats = std::unique_ptr<float, FreeFloats>;
Floats memory_of(int64_t bytes) {
  Floats memory(
      static_cast<float*>(std::aligned_alloc(4096, static_cast<size_t>((bytes + 8191) / 4096 * 4096))));
  if (memory) std::memset(memory.get(), 0, static_cast<size_t>(bytes));
  return memory;
}

// Seconds of `times` calls on every thread at once: the minimum over several tries.
double least_seconds(Loop loop, int64_t bytes, int64_t argument, int times, int threads) {
  std::vector<Floats> from, to;
  for (int t = 0; t < threads; ++t) from.push_back(memory_of(bytes)), to.push_back(memory_of(bytes));
  double least = 1e9;
  for (int attempt = 0; attempt < 6; ++attempt) {
    std::atomic<int> ready{0};
    std::atomic<bool> go{false};
    std::vector<double> seconds(static_cast<size_t>(threads));
    auto work = [&](int t) {
      const auto n = static_cast<size_t>(t);
      loop(from[n].get(), to[n].get(), argument);
      ++ready;
      while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
      const auto start = Clock::now();
      for (int i = 0; i < times; ++i) loop(from[n].get(), to[n].get(), argument);
      seconds[n] = std::chrono::duration<double>(Clock::now() - start).count();
    };
    std::vector<std::thread> others;
    for (int t = 1; t < threads; ++t) others.emplace_back(work, t);
    std::thread first(work, 0);
    while (ready.load() < threads) std::this_thread::yield();
    go.store(true, std::memory_order_release);
    first.join();
    for (std::thread& other : others) other.join();
    least = std::min(least, *std::max_element(seconds.begin(), seconds.end()));
  }
  return least;
}

int accumulators(const CpuTarget& target) { return target.vector_registers >= 32 ? 16 : 10; }

// The loop for the instruction that a micro-kernel uses.
std::string products_text(const kernels::GemmKernel& kernel, const CpuTarget& target) {
  if (kernel.tiles) return cat(kernels::product_text(kernel, target), kernels::kTileShape, kTiles);
  return cat("typedef ", kernels::gemm_type(kernel.dtype), " element;\nenum { L = ", kernel.lanes(),
             ", N = ", accumulators(target), " };\n#define factor ", kernel.group() == 1 ? "vec" : "words",
             "\n", kernels::product_text(kernel, target), kProducts);
}

std::string object_of(const std::string& text, const CpuTarget& target) {
  return codegen::compile_to_object("peak.cpp", text, {.cpu = target.name, .tune = target.tune});
}

}  // namespace

Peaks::Level Peaks::level_of(double bytes, const CpuTarget& target, int threads) const {
  const double each = bytes / threads;
  if (each <= target.l1_bytes) return {"L1", l1};
  if (each <= target.l2_bytes) return {"L2", l2};
  if (each <= target.l3_bytes) return {"L3", l3};
  return {"memory", memory};
}

double Peaks::flops_of(std::string_view schedule) const {
  for (size_t at = 0; at < schedule.size(); ++at) {
    const size_t end = std::min(schedule.find_first_of(" :;", at), schedule.size());
    if (const kernels::GemmKernel* kernel = kernels::find_gemm_kernel(schedule.substr(at, end - at))) {
      for (const Product& product : products)
        if (product.a == kernel->a && product.tiles == kernel->tiles) return product.flops;
    }
    at = end;
  }
  return flops;
}

Peaks measure_peaks(const CpuTarget& target, int threads) {
  Peaks peaks;
  for (const kernels::GemmKernel& kernel : kernels::gemm_kernels()) {
    const bool known =
        std::any_of(peaks.products.begin(), peaks.products.end(),
                    [&](const Peaks::Product& p) { return p.a == kernel.a && p.tiles == kernel.tiles; });
    if (known || kernel.deep || kernel.pairs || !kernel.runs_on(target)) continue;
    codegen::Jit jit;
    jit.add_object(object_of(products_text(kernel, target), target));
    const double seconds =
        least_seconds(reinterpret_cast<Loop>(jit.lookup("peak_products")), 1 << 16, kRounds, 4, threads);
    const double products = kernel.tiles ? kTileSums * kernels::kTileRows * kernel.lanes() * kernel.step()
                                         : accumulators(target) * kernel.lanes() * kernel.group();
    peaks.products.push_back({kernel.a, kernel.tiles, 2 * products * kRounds * 4 * threads / seconds});
    if (kernel.a == DType::kF32) peaks.flops = peaks.products.back().flops;
  }
  codegen::Jit jit;
  jit.add_object(object_of(cat("enum { L = ", target.lanes(4), " };\n", kMoves), target));
  auto find = [&](const char* name) { return reinterpret_cast<Loop>(jit.lookup(name)); };
  auto rate = [&](const char* loop, int64_t bytes, double moved) {
    const int times = static_cast<int>(std::max<int64_t>(1, (int64_t{24} << 20) / bytes));
    return moved * static_cast<double>(bytes) * times * threads /
           least_seconds(find(loop), bytes, bytes, times, threads);
  };
  peaks.l1 = rate("peak_read", target.l1_bytes / 2, 1);
  peaks.l2 = rate("peak_read", target.l2_bytes / 2, 1);
  peaks.l3 = rate("peak_read", std::max<int64_t>(target.l3_bytes / 2, 2 * target.l2_bytes), 1);
  // Larger than any last-level cache that the threads share.
  const int64_t large = int64_t{64} << 20;
  peaks.memory = std::max(rate("peak_copy", large, 2), rate("peak_read", large, 1));
  return peaks;
}

}  // namespace stridec::tune
