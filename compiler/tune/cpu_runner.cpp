#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <thread>

#include "compiler/base/diagnostic.h"
#include "compiler/codegen/cpu/jit.h"
#include "compiler/tune/fill_buffer.h"
#include "compiler/tune/worker.h"
#include "runtime/include/stridec/abi.h"

namespace stridec::tune {
namespace {

// CPU time of the calling thread, which excludes time that other processes take.
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

constexpr double kJoin = 0.5e-6;  // to fork and join, while the threads are awake

// Fork-join with static partitioning, like the artifact's own pool. The threads spin all the time, because
// this process exists only for the measurement.
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

class CpuRunner : public Runner {
 public:
  CpuRunner(const std::vector<Subject>& subjects, const MeasureOptions& options)
      : options_(options), team_(options.threads) {
    for (const Subject& subject : subjects) {
      std::vector<Loaded>& kernels = loaded_.emplace_back();
      for (const Subject& kernel : subject.kernels) kernels.push_back({.subject = &kernel, .fixed = {}});
      orders_.push_back(subject.order);
      if (!kernels.empty()) continue;
      kernels.push_back({.subject = &subject, .fixed = {}});
      orders_.back() = {0};
    }
  }

  std::string load(size_t s) override {
    try {
      for (Loaded& kernel : loaded_[s]) {
        for (const std::string* object : kernel.subject->objects)
          if (added_.insert(object).second) jit_.add_object(*object);
        kernel.function = reinterpret_cast<stridec_abi_kernel>(jit_.lookup(kernel.subject->symbol));
      }
    } catch (const Error& error) {
      return error.text;
    }
    return "";
  }

  // All kernels share the arguments that are not weights: the n-th of a dtype, size and range is one buffer.
  void make_memory(const std::vector<bool>& alive) override {
    std::map<DType, int64_t> weights;
    int64_t scratch = 64;
    for (size_t s = 0; s < loaded_.size(); ++s) {
      if (!alive[s]) continue;
      for (Loaded& kernel : loaded_[s]) {
        scratch = std::max(scratch, kernel.subject->scratch_bytes);
        std::map<Subject::Content, size_t> count;
        int64_t own = 0;
        for (const Subject::Argument& argument : kernel.subject->arguments) {
          if (argument.weight) {
            int64_t& most = weights[argument.dtype];
            own += argument.bytes + 4096;
            most = std::max({most, own, std::min(options_.rotate_bytes, 64 * own)});
            kernel.fixed.push_back(nullptr);
            continue;
          }
          const Subject::Content key = Subject::content_of(argument);
          auto& pool = fixed_[key];
          const size_t n = count[key]++;
          if (n == pool.size())
            pool.push_back(filled(argument.bytes, argument.dtype, argument.least, argument.most));
          kernel.fixed.push_back(pool[n].get());
        }
      }
    }
    for (const auto& [dtype, bytes] : weights) weights_[dtype] = {filled(bytes, dtype), bytes, 0};
    scratch_stride_ = (scratch + 63) / 64 * 64;
    scratch_.reset(static_cast<char*>(
        std::aligned_alloc(64, static_cast<size_t>(scratch_stride_ * team_.threads() + 64))));
    failures_.resize(static_cast<size_t>(team_.threads()));
    part_seconds_.resize(failures_.size());
  }

  Event first_call(size_t s) override {
    call_all(s);
    return event_of(Event::Kind::kFailed, s, failed() ? "a check on the data failed" : "");
  }

  double call(size_t s, size_t times) override {
    double seconds = 0;
    for (size_t i = 0; i < times; ++i) seconds += call_all(s);
    return seconds / static_cast<double>(times);
  }

  double sample_seconds() const override { return 100e-6; }

 private:
  struct Loaded {
    const Subject* subject;
    stridec_abi_kernel function = nullptr;
    std::vector<char*> fixed;  // null for weights
  };

  double call_all(size_t s) {
    double seconds = 0;
    for (const size_t k : orders_[s]) seconds += call(loaded_[s][k]);
    return seconds;
  }

  // Thread time of the longest part in seconds, so that load on the machine does not make a kernel look slow.
  double call(const Loaded& kernel) {
    const Subject& subject = *kernel.subject;
    std::vector<void*> buffers;
    for (size_t a = 0; a < subject.arguments.size(); ++a) {
      const Subject::Argument& argument = subject.arguments[a];
      if (!argument.weight) {
        buffers.push_back(kernel.fixed[a]);
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
      kernel.function(&args, begin, begin + share + (part < more), part);
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

  struct Weights {
    Memory memory;
    int64_t bytes = 0, at = 0;
  };

  const MeasureOptions& options_;
  std::vector<std::vector<Loaded>> loaded_;  // for each subject its kernels
  std::vector<std::vector<size_t>> orders_;  // order of the calls
  Team team_;
  codegen::Jit jit_;
  std::set<const std::string*> added_;
  std::map<Subject::Content, std::vector<Memory>> fixed_;
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

std::unique_ptr<Runner> cpu_runner(const std::vector<Subject>& subjects, const MeasureOptions& options) {
  return std::make_unique<CpuRunner>(subjects, options);
}

}  // namespace stridec::tune
