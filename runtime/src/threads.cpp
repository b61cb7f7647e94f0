#include "threads.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <new>

#include "clock.h"
#include "fp_mode.h"
#include "machine.h"

// Before glibc 2.34 these are in libpthread, on which an artifact does not depend. If the process has not
// loaded it they are null, and there is only one thread.
#pragma weak pthread_create
#pragma weak pthread_join

namespace stridec::runtime {
namespace {

// A thread that has no part of a short launch, or finishes early, would sleep in the middle of a run and then
// take tens of microseconds to wake.
constexpr int64_t kSpinWithinRun = 1'000'000;

using Word = std::atomic<uint32_t>;
static_assert(sizeof(Word) == 4 && Word::is_always_lock_free);

constexpr int kLine = 64;
constexpr unsigned kMaskWords = 128;  // size of processor masks; more processors than any kernel is built for
constexpr unsigned kNoProcessor = ~0u;

void futex_wait(Word& word, uint32_t seen) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}
void futex_wake(Word& word) { syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0); }

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

unsigned processor_here() {
  unsigned processor = 0;
  const bool known = syscall(SYS_getcpu, &processor, nullptr, nullptr) == 0 && processor < kMaskWords * 64;
  return known ? processor : kNoProcessor;
}

bool spins(const Pool& pool);
int64_t spin_ns(const Pool& pool);  // of a wait that may end or begin with the run

// A word that one thread writes and another waits for.
struct alignas(kLine) Post {
  Word value{0};
  Word asleep{0};

  // Sleeping and waking involve two variables, so both sides need sequential consistency: either the waiter
  // sees the new value, or the writer sees that the waiter sleeps.
  void send(uint32_t v) {
    if (put(v)) wake();
  }
  // Returns true if the waiter sleeps and must be woken.
  bool put(uint32_t v) {
    value.store(v, std::memory_order_seq_cst);
    return asleep.load(std::memory_order_seq_cst);
  }
  void wake() { futex_wake(value); }

  // Returns the value once it differs from `old`.
  uint32_t wait_change(uint32_t old, const Pool& pool) {
    return wait([old](uint32_t v) { return v != old; }, pool).value;
  }
  // Returns true if the waiter had to sleep.
  bool wait_for(uint32_t wanted, const Pool& pool) {
    return wait([wanted](uint32_t v) { return v == wanted; }, pool).slept;
  }

 private:
  struct Waited {
    uint32_t value;
    bool slept;
  };
  template <class Done>
  Waited wait(Done&& is_over, const Pool& pool) {
    uint32_t v = value.load(std::memory_order_acquire);
    if (is_over(v)) return {v, false};
    if (spins(pool)) {
      const int64_t begin = now_ns();
      do {
        for (int i = 0; i < 64; ++i) {
          relax();
          v = value.load(std::memory_order_acquire);
          if (is_over(v)) return {v, false};
        }
      } while (now_ns() - begin < spin_ns(pool));
    }
    asleep.store(1, std::memory_order_seq_cst);
    while (!is_over(v = value.load(std::memory_order_seq_cst))) futex_wait(value, v);
    asleep.store(0, std::memory_order_relaxed);
    return {v, true};
  }
};

struct Worker {
  Post ticket;  // written by the caller: a new number means new work, or the end
  Post done;    // written by the worker: the number of the work that it has finished
  // The number of the work that has not begun, 0: none. Whoever clears it does the work: the worker, or a
  // caller that has finished its own part before the worker is awake.
  alignas(kLine) Word open{0};
  Pool* pool = nullptr;
  int32_t index = 0;
  // The kernel's thread id; 0 until the thread has chosen its first processor.
  std::atomic<int32_t> id{0};
  uint32_t last = 0;                 // used by the caller: number of the last work posted
  unsigned kept_off = kNoProcessor;  // used by the caller: the processor that the thread avoids
  pthread_t thread = {};
};

// Zeroed in a child after fork (MADV_WIPEONFORK), where the lock may be held and the threads do not exist.
struct Wiped {
  Word lock;
  Word running;  // number of workers, including the caller: 0 before the first work
  Word runs;     // in progress
};

}  // namespace

struct Pool {
  Wiped* wiped;
  Worker* workers;  // [1, threads)
  int32_t threads;
  int64_t spin_ns;     // between runs; 0: none, also within a run
  bool spins_longer;   // within a run
  int64_t fork_check;  // the process id if MADV_WIPEONFORK is not available, otherwise 0
  // The current work; written before the tickets, read after them.
  void (*body)(void*, int32_t);
  void* arg;
  int32_t parts, takers;
  // Processors that threads have started on, including the caller's.
  std::atomic<uint64_t> used[kMaskWords];
  // Also seen by a worker that wakes for work that a caller has already done.
  Word stop;
};

namespace {

bool spins(const Pool& pool) { return pool.spin_ns > 0; }
int64_t spin_ns(const Pool& pool) {
  return pool.spins_longer && pool.wiped->runs.load(std::memory_order_relaxed) > 0 ? kSpinWithinRun
                                                                                   : pool.spin_ns;
}

void take_parts(Pool& pool, int32_t first) {
  for (int32_t part = first; part < pool.parts; part += pool.takers) pool.body(pool.arg, part);
}

bool begin(Worker& worker, uint32_t number) {
  return worker.open.compare_exchange_strong(number, 0, std::memory_order_acq_rel, std::memory_order_relaxed);
}

// 0 is not a valid number.
uint32_t next_number(uint32_t last) { return last + 1 ? last + 1 : 1; }

bool claim(Pool& pool, unsigned processor) {
  const uint64_t bit = uint64_t{1} << processor % 64;
  return !(pool.used[processor / 64].fetch_or(bit, std::memory_order_relaxed) & bit);
}

// Returns true if no other thread of the pool has claimed it.
bool claim_own_processor(Pool& pool) {
  const unsigned processor = processor_here();
  return processor == kNoProcessor || claim(pool, processor);
}

// The kernel may start a thread on its creator's processor and be slow to move it, even if others are idle:
// in virtual machines idle processors may look busy. The thread then moves to another processor; later the
// kernel may move it freely.
void leave_shared_processor(Pool& pool) {
  if (claim_own_processor(pool)) return;
  uint64_t allowed[kMaskWords] = {};
  const long bytes = syscall(SYS_sched_getaffinity, 0, sizeof allowed, allowed);
  for (unsigned p = 0; bytes > 0 && p < static_cast<unsigned>(bytes) * 8; ++p) {
    if (!(allowed[p / 64] >> p % 64 & 1) || !claim(pool, p)) continue;
    uint64_t there[kMaskWords] = {};
    there[p / 64] = uint64_t{1} << p % 64;
    if (syscall(SYS_sched_setaffinity, 0, bytes, there) == 0)
      syscall(SYS_sched_setaffinity, 0, bytes, allowed);
    return;
  }
}

// If the caller and each worker can have their own processor, workers avoid the caller's. The kernel may wake
// a thread on the processor of the thread that wakes it, because other processors look busy or because the
// thread has run too little. The worker then first runs milliseconds later, when the caller's time slice
// ends, so the caller does all the work of every launch. Called when a worker must be woken, and when the
// caller has slept and may have moved.
void keep_off(Pool& pool, Worker& worker, unsigned processor) {
  const int32_t id = worker.id.load(std::memory_order_acquire);
  if (processor == kNoProcessor || processor == worker.kept_off || !id) return;
  uint64_t mask[kMaskWords] = {};
  const long bytes = syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);
  int32_t count = 0;
  for (long i = 0; i < bytes / 8; ++i)
    for (uint64_t bits = mask[i]; bits; bits &= bits - 1) ++count;
  if (count < pool.threads) return;
  mask[processor / 64] &= ~(uint64_t{1} << processor % 64);
  if (syscall(SYS_sched_setaffinity, id, bytes, mask) == 0) worker.kept_off = processor;
}

void keep_workers_off(Pool& pool) {
  const auto running = static_cast<int32_t>(pool.wiped->running.load(std::memory_order_relaxed));
  const unsigned processor = processor_here();
  for (int32_t i = 1; i < running; ++i) keep_off(pool, pool.workers[i], processor);
}

void* work(void* argument) {
  Worker& self = *static_cast<Worker*>(argument);
  Pool& pool = *self.pool;
  syscall(SYS_prctl, PR_SET_NAME, "stridec", 0, 0, 0);
  leave_shared_processor(pool);
  self.id.store(static_cast<int32_t>(syscall(SYS_gettid)), std::memory_order_release);
  set_default_fp_mode();
  uint32_t seen = 0;
  for (;;) {
    seen = self.ticket.wait_change(seen, pool);
    if (pool.stop.load(std::memory_order_acquire)) return nullptr;
    if (!begin(self, seen)) continue;
    take_parts(pool, self.index);
    self.done.send(seen);
  }
}

// Workers run no signal handlers of the application. They block every signal except those that report a fault
// of the thread itself. Signal sets have the kernel's format, one bit per signal.
void set_signal_mask(uint64_t mask, uint64_t* before) {
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, before, sizeof mask);
}
constexpr uint64_t only(int signal) { return uint64_t{1} << (signal - 1); }
constexpr uint64_t kWorkerMask = ~(only(SIGSEGV) | only(SIGBUS) | only(SIGFPE) | only(SIGILL) |
                                   only(SIGTRAP) | only(SIGPROF) | only(SIGSYS));

// Starting fewer threads than requested, even none, is not a failure: the caller runs their parts.
void start(Pool& pool) {
  int32_t running = 1;
  if (pthread_create && pthread_join && pool.threads > 1) {
    uint64_t before = 0;
    for (auto& word : pool.used) word.store(0, std::memory_order_relaxed);
    claim_own_processor(pool);
    set_signal_mask(kWorkerMask, &before);
    for (; running < pool.threads; ++running) {
      Worker& w = *new (&pool.workers[running]) Worker{.pool = &pool, .index = running};
      if (pthread_create(&w.thread, nullptr, work, &w) != 0) break;
    }
    set_signal_mask(before, nullptr);
  }
  pool.wiped->running.store(static_cast<uint32_t>(running), std::memory_order_release);
}

void check_fork(Pool& pool) {
  if (!pool.fork_check || pool.fork_check == getpid()) return;
  pool.fork_check = getpid();
  pool.wiped->lock.store(0);
  pool.wiped->running.store(0);
  pool.wiped->runs.store(0);
}

}  // namespace

Pool* pool_create(int32_t threads, int32_t spin_us) {
  auto* pool = static_cast<Pool*>(calloc(1, sizeof(Pool)));
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  void* workers = nullptr;
  if (!pool || page == MAP_FAILED ||
      posix_memalign(&workers, kLine, sizeof(Worker) * static_cast<size_t>(threads)) != 0) {
    free(pool);
    if (page != MAP_FAILED) munmap(page, 4096);
    return nullptr;
  }
  pool->wiped = static_cast<Wiped*>(page);
  pool->workers = static_cast<Worker*>(workers);
  pool->threads = threads;
  // With more threads than processors, a spinning thread keeps another from running.
  if (spin_us == 0 && threads > usable_processors()) spin_us = -1;
  pool->spins_longer = spin_us == 0;
  pool->spin_ns = (spin_us == 0 ? kDefaultSpinMicroseconds : spin_us < 0 ? 0 : spin_us) * int64_t{1000};
#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif
  if (madvise(page, 4096, MADV_WIPEONFORK) != 0) pool->fork_check = getpid();
  return pool;
}

void pool_destroy(Pool* pool) {
  if (!pool) return;
  check_fork(*pool);
  auto running = static_cast<int32_t>(pool->wiped->running.load());
  pool->stop.store(1, std::memory_order_release);
  for (int32_t i = 1; i < running; ++i) pool->workers[i].ticket.send(next_number(pool->workers[i].last));
  for (int32_t i = 1; i < running; ++i) pthread_join(pool->workers[i].thread, nullptr);
  munmap(pool->wiped, 4096);
  free(pool->workers);
  free(pool);
}

int32_t pool_threads(const Pool* pool) { return pool->threads; }
void pool_begin_run(Pool* pool) {
  check_fork(*pool);
  pool->wiped->runs.fetch_add(1, std::memory_order_relaxed);
}
void pool_end_run(Pool* pool) {
  // 0: this process was forked within the run.
  if (pool->wiped->runs.load(std::memory_order_relaxed) > 0)
    pool->wiped->runs.fetch_sub(1, std::memory_order_relaxed);
}

void pool_run(Pool* pool, int32_t parts, void (*body)(void* arg, int32_t part), void* arg) {
  check_fork(*pool);
  bool alone = parts <= 1 || pool->threads <= 1 || pool->wiped->lock.exchange(1, std::memory_order_acquire);
  if (alone) {
    for (int32_t part = 0; part < parts; ++part) body(arg, part);
    return;
  }
  if (!pool->wiped->running.load(std::memory_order_acquire)) start(*pool);
  auto running = static_cast<int32_t>(pool->wiped->running.load(std::memory_order_relaxed));
  pool->body = body;
  pool->arg = arg;
  pool->parts = parts;
  pool->takers = parts < running ? parts : running;
  unsigned here = kNoProcessor;
  for (int32_t i = 1; i < pool->takers; ++i) {
    Worker& w = pool->workers[i];
    w.last = next_number(w.last);
    w.open.store(w.last, std::memory_order_release);
    if (!w.ticket.put(w.last)) continue;
    if (here == kNoProcessor) here = processor_here();
    keep_off(*pool, w, here);
    w.ticket.wake();
  }
  take_parts(*pool, 0);
  bool slept = false;
  for (int32_t i = 1; i < pool->takers; ++i) {
    Worker& w = pool->workers[i];
    if (begin(w, w.last))
      take_parts(*pool, i);
    else
      slept |= w.done.wait_for(w.last, *pool);
  }
  if (slept) keep_workers_off(*pool);
  pool->wiped->lock.store(0, std::memory_order_release);
}

}  // namespace stridec::runtime
