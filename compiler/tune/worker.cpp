#include "compiler/tune/worker.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <thread>

#include "compiler/base/diagnostic.h"
#include "compiler/codegen/cpu/jit.h"
#include "runtime/include/stridec/abi.h"

namespace stridec::tune {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Of the calling thread: what other processes take from it does not count.
double thread_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}
double cost_of_clock() {
  double least = 1;
  for (int i = 0; i < 20; ++i) {
    const double start = thread_seconds();
    least = std::min(least, thread_seconds() - start);
  }
  return least;
}

constexpr double kJoin = 0.5e-6;  // to hand out work and to join, while the threads are awake

struct Free {
  void operator()(char* p) const { std::free(p); }
};
using Memory = std::unique_ptr<char, Free>;

// Numbers as activations have them; anything else is zero. A pattern of one megabyte repeats.
Memory filled(int64_t bytes, DType dtype) {
  const size_t size = static_cast<size_t>((bytes + 4095) / 4096 * 4096 + 4096);
  Memory memory(static_cast<char*>(std::aligned_alloc(4096, size)));
  if (!memory) return memory;
  const size_t pattern = std::min<size_t>(size, size_t{1} << 20);
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  if (dtype == DType::kF32) {
    for (size_t i = 0; i + 4 <= pattern; i += 4) {
      const float value = uniform(random);
      std::memcpy(memory.get() + i, &value, 4);
    }
  } else if (dtype == DType::kF64) {
    for (size_t i = 0; i + 8 <= pattern; i += 8) {
      const double value = uniform(random);
      std::memcpy(memory.get() + i, &value, 8);
    }
  } else if (dtype == DType::kF16 || dtype == DType::kBF16) {
    // 1 to 2 in steps that fit, both signs.
    const unsigned one = dtype == DType::kF16 ? 0x3c00 : 0x3f80;
    for (size_t i = 0; i + 2 <= pattern; i += 2) {
      const unsigned bits = random();
      const auto value = static_cast<uint16_t>(one | (bits & 0x8000u) | (bits & 0x7fu));
      std::memcpy(memory.get() + i, &value, 2);
    }
  } else {
    std::memset(memory.get(), 0, pattern);
  }
  for (size_t at = pattern; at < size; at += pattern)
    std::memcpy(memory.get() + at, memory.get(), std::min(pattern, size - at));
  return memory;
}

// Fork and join with a static split, as the artifact's own pool does it. Threads spin: this process lives for the
// measurement alone.
class Team {
 public:
  explicit Team(int threads) {
    for (int t = 1; t < threads; ++t)
      helpers_.emplace_back([this, t] {
        uint64_t seen = 0;
        while (true) {
          for (int spins = 0; ticket_.load(std::memory_order_acquire) == seen; ++spins)
            if (spins > 20000) std::this_thread::yield();
          seen = ticket_.load(std::memory_order_acquire);
          if (t < parts_) work_(t);
          done_.fetch_add(1, std::memory_order_release);
        }
      });
  }
  int threads() const { return static_cast<int>(helpers_.size()) + 1; }
  template <class Work>
  void run(int parts, const Work& work) {
    if (parts <= 1) return work(0);
    parts_ = parts;
    work_ = std::ref(work);
    done_.store(0, std::memory_order_relaxed);
    ticket_.fetch_add(1, std::memory_order_release);
    work(0);
    for (int spins = 0; done_.load(std::memory_order_acquire) < helpers_.size(); ++spins)
      if (spins > 20000) std::this_thread::yield();
  }

 private:
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<size_t> done_{0};
  int parts_ = 0;
  std::function<void(int)> work_;
  std::vector<std::thread> helpers_;
};

class Worker {
 public:
  Worker(const std::vector<Subject>& subjects, const MeasureOptions& options, int descriptor)
      : subjects_(subjects), options_(options), descriptor_(descriptor), team_(options.threads) {}

  void run(std::vector<bool> alive) {
    load(alive);
    make_memory(alive);
    const auto start = Clock::now();
    std::vector<size_t> repeats(subjects_.size(), 1);
    std::vector<std::vector<double>> times(subjects_.size());
    // Once for pages and code, and to see how long a call is.
    for (size_t s = 0; s < subjects_.size(); ++s) {
      if (!alive[s]) continue;
      tell({Event::Kind::kBegin, static_cast<int32_t>(s), -1, 0, 0, {}});
      double least = call(s);
      for (int i = 0; i < 2 && least < 0.05; ++i) least = std::min(least, call(s));
      if (failed()) {
        alive[s] = false;
        say_failed(s, "a check on the data failed");
        continue;
      }
      constexpr double kSample = 100e-6;
      repeats[s] = std::clamp<size_t>(static_cast<size_t>(kSample / std::max(least, 1e-8)), 1, 1000);
    }
    for (int round = 0; round < options_.most_rounds; ++round) {
      if (round >= 3 && seconds_since(start) > options_.seconds) break;
      for (size_t i = 0; i < subjects_.size(); ++i) {
        const size_t s = (i + static_cast<size_t>(round)) % subjects_.size();
        if (!alive[s]) continue;
        tell({Event::Kind::kBegin, static_cast<int32_t>(s), round, 0, 0, {}});
        double seconds = 0;
        for (size_t i = 0; i < repeats[s]; ++i) seconds += call(s);
        seconds /= static_cast<double>(repeats[s]);
        times[s].push_back(seconds);
        tell({Event::Kind::kSample, static_cast<int32_t>(s), round, 0, seconds, {}});
      }
      drop_slow(round, times, alive);
    }
    tell({Event::Kind::kEnd, -1, 0, 0, 0, {}});
  }

 private:
  struct Loaded {
    stridec_abi_kernel function = nullptr;
    std::vector<char*> fixed;  // null for weights
  };

  void tell(const Event& event) {
    if (write(descriptor_, &event, sizeof event) != sizeof event) _exit(1);  // nobody listens any more
  }
  void say_failed(size_t subject, const std::string& reason) {
    Event event{Event::Kind::kFailed, static_cast<int32_t>(subject), 0, 0, 0, {}};
    reason.copy(event.reason, sizeof event.reason - 1);
    tell(event);
  }

  void load(std::vector<bool>& alive) {
    loaded_.resize(subjects_.size());
    std::set<const std::string*> added;
    for (size_t s = 0; s < subjects_.size(); ++s) {
      if (!alive[s]) continue;
      try {
        for (const std::string* object : subjects_[s].objects)
          if (added.insert(object).second) jit_.add_object(*object);
        loaded_[s].function = reinterpret_cast<stridec_abi_kernel>(jit_.lookup(subjects_[s].symbol));
      } catch (const Error& error) {
        alive[s] = false;
        say_failed(s, error.text);
      }
    }
  }

  // Arguments that are no weights are shared by all subjects: the n-th of a dtype and size is one and the same.
  void make_memory(const std::vector<bool>& alive) {
    std::map<DType, int64_t> weights;
    int64_t scratch = 64;
    for (size_t s = 0; s < subjects_.size(); ++s) {
      if (!alive[s]) continue;
      scratch = std::max(scratch, subjects_[s].scratch_bytes);
      std::map<std::pair<DType, int64_t>, size_t> count;
      int64_t own = 0;
      for (const Subject::Argument& argument : subjects_[s].arguments) {
        if (argument.weight) {
          int64_t& most = weights[argument.dtype];
          own += argument.bytes + 4096;
          most = std::max({most, own, std::min(options_.rotate_bytes, 64 * own)});
          loaded_[s].fixed.push_back(nullptr);
          continue;
        }
        const std::pair key(argument.dtype, argument.bytes);
        auto& pool = fixed_[key];
        const size_t n = count[key]++;
        if (n == pool.size()) pool.push_back(filled(argument.bytes, argument.dtype));
        loaded_[s].fixed.push_back(pool[n].get());
      }
    }
    for (const auto& [dtype, bytes] : weights) weights_[dtype] = {filled(bytes, dtype), bytes, 0};
    scratch_stride_ = (scratch + 63) / 64 * 64;
    scratch_.reset(static_cast<char*>(
        std::aligned_alloc(64, static_cast<size_t>(scratch_stride_ * team_.threads() + 64))));
    failures_.resize(static_cast<size_t>(team_.threads()));
    part_seconds_.resize(failures_.size());
  }

  // Seconds of the longest part, as its thread counts them: a busy machine does not look like a slow kernel.
  double call(size_t s) {
    const Subject& subject = subjects_[s];
    std::vector<void*> buffers;
    for (size_t a = 0; a < subject.arguments.size(); ++a) {
      const Subject::Argument& argument = subject.arguments[a];
      if (!argument.weight) {
        buffers.push_back(loaded_[s].fixed[a]);
        continue;
      }
      Weights& weights = weights_[argument.dtype];
      if (weights.at + argument.bytes > weights.bytes) weights.at = 0;
      buffers.push_back(weights.memory.get() + weights.at);
      weights.at += (argument.bytes + 4095) / 4096 * 4096;
    }
    const stridec_abi_args args{buffers.data(), subject.sizes.data(), scratch_.get(), scratch_stride_,
                                failures_.data()};
    const int64_t worth = (subject.tasks + subject.grain - 1) / subject.grain;
    const int parts = static_cast<int>(std::clamp<int64_t>(worth, 1, team_.threads()));
    team_.run(parts, [&](int part) {
      const int64_t share = subject.tasks / parts, more = subject.tasks % parts;
      const int64_t begin = part * share + std::min<int64_t>(part, more);
      const double start = thread_seconds();
      loaded_[s].function(&args, begin, begin + share + (part < more), part);
      part_seconds_[static_cast<size_t>(part)].value = thread_seconds() - start;
    });
    double longest = 0;
    for (int part = 0; part < parts; ++part)
      longest = std::max(longest, part_seconds_[static_cast<size_t>(part)].value);
    return std::max(longest - clock_cost_, 1e-9) + (parts > 1 ? kJoin : 0);
  }

  bool failed() {
    bool any = false;
    for (stridec_abi_failure& failure : failures_) {
      any = any || failure.code;
      failure = {};
    }
    return any;
  }

  // What is clearly behind after some rounds will not win. The first subject stays: it is what others are
  // compared with.
  void drop_slow(int round, const std::vector<std::vector<double>>& times, std::vector<bool>& alive) const {
    if (round < 1) return;
    double best = 1;
    std::vector<double> ratios(subjects_.size(), 1);
    for (size_t s = 1; s < subjects_.size(); ++s) {
      if (!alive[s]) continue;
      std::vector<double> relative;
      for (size_t r = 0; r < times[s].size(); ++r) relative.push_back(times[s][r] / times[0][r]);
      ratios[s] = estimate(std::move(relative)).median;
      best = std::min(best, ratios[s]);
    }
    const double limit = round < 3 ? 1.5 : round < 6 ? 1.15 : 1.06;
    for (size_t s = 1; s < subjects_.size(); ++s)
      if (alive[s] && ratios[s] > limit * best) alive[s] = false;
  }

  struct Weights {
    Memory memory;
    int64_t bytes = 0, at = 0;
  };

  const std::vector<Subject>& subjects_;
  const MeasureOptions& options_;
  int descriptor_;
  Team team_;
  codegen::Jit jit_;
  std::vector<Loaded> loaded_;
  std::map<std::pair<DType, int64_t>, std::vector<Memory>> fixed_;
  std::map<DType, Weights> weights_;
  Memory scratch_;
  int64_t scratch_stride_ = 64;
  std::vector<stridec_abi_failure> failures_;
  struct alignas(64) Padded {
    double value = 0;
  };
  std::vector<Padded> part_seconds_;
  const double clock_cost_ = cost_of_clock();
};

}  // namespace

void run_worker(const std::vector<Subject>& subjects, std::vector<bool> alive, const MeasureOptions& options,
                int descriptor) {
  (new Worker(subjects, options, descriptor))->run(std::move(alive));  // _exit follows: nothing is torn down
}

}  // namespace stridec::tune
