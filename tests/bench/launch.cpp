// Cost of distributing work to the thread pool and joining: minimum and median of many calls, in
// microseconds.
//
//   ninja -C build bench_launch && build/bench_launch [threads]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "runtime/src/machine.h"
#include "runtime/src/threads.h"

using namespace stridec::runtime;
using Clock = std::chrono::steady_clock;

namespace {

double us(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::micro>(to - from).count();
}

// `pause_us` between calls: after longer pauses than the spinning time the threads sleep and must be woken.
void row(Pool* pool, int32_t parts, double pause_us, const char* what) {
  std::vector<double> times;
  for (int i = 0; i < (pause_us > 50 ? 300 : 20000); ++i) {
    const auto rest = Clock::now();
    while (us(rest, Clock::now()) < pause_us) {
    }
    const auto start = Clock::now();
    pool_run(pool, parts, [](void*, int32_t) {}, nullptr);
    times.push_back(us(start, Clock::now()));
  }
  std::sort(times.begin(), times.end());
  std::printf("%-44s least %7.3f   median %7.3f   p99 %8.3f us\n", what, times[0], times[times.size() / 2],
              times[times.size() * 99 / 100]);
}

}  // namespace

int main(int argc, char** argv) {
  const int32_t threads = argc > 1 ? std::atoi(argv[1]) : usable_processors();
  for (const int32_t spin_us : {0, 2000}) {
    Pool* pool = pool_create(threads, spin_us);
    std::printf("%d threads, spinning %s\n", pool_threads(pool), spin_us ? "2000 us" : "by default");
    row(pool, 1, 0, "one part (the caller's)");
    row(pool, threads, 0, "a part a thread, one after the other");
    row(pool, threads, 20, "a part a thread, every 20 us");
    row(pool, threads, 500, "a part a thread, every 500 us");
    pool_destroy(pool);
  }
}
