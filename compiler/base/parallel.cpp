#include "compiler/base/parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace stridec {

int processors() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return std::max(1, CPU_COUNT(&allowed));
  // The machine has more processors than the set can hold.
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

void for_each_parallel(size_t count, int threads, const std::function<void(size_t)>& work) {
  const auto wanted = static_cast<size_t>(threads > 0 ? threads : processors());
  std::atomic<size_t> next{0};
  std::exception_ptr failure;
  std::mutex mutex;
  auto run = [&] {
    for (size_t i; (i = next++) < count;) try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next = count;
      }
  };
  std::vector<std::thread> helpers;
  for (size_t t = 1; t < std::min(wanted, count); ++t) helpers.emplace_back(run);
  run();
  for (std::thread& t : helpers) t.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace stridec
