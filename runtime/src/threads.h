// A thread pool for fork-join work with static partitioning. The caller's thread takes part.
//
// Fork and join cost one cache-line transfer each per thread while the threads are awake: each thread has a
// mailbox that the caller writes and a completion word that the caller reads. A waiting thread spins for a
// limited time before it sleeps on a futex, so an idle or oversubscribed machine is not kept busy. The time
// is longer between the launches of a run, unless the pool's maker chose it. If the caller is done before a
// thread has begun, it also takes that thread's share. A thread that sleeps, or that gets no processor,
// therefore reduces parallelism but never causes a wait. If there are enough processors, the threads avoid
// the one that their caller ran on last.
#pragma once

#include <stdint.h>

namespace stridec::runtime {

struct Pool;

constexpr int32_t kMaxThreads = 1024;
constexpr int32_t kDefaultSpinMicroseconds = 100;

// threads includes the caller's; spin_us is as in stridec_pool_options. Threads start when they first get
// work. Null: out of memory.
Pool* pool_create(int32_t threads, int32_t spin_us);
void pool_destroy(Pool* pool);  // joins its threads; null is allowed
int32_t pool_threads(const Pool* pool);

// Between the two, waiting threads spin longer before they sleep: more launches follow.
void pool_begin_run(Pool* pool);
void pool_end_run(Pool* pool);

// Calls body(arg, part) once for each part in [0, parts) and returns when all are done. With more parts than
// threads, each thread takes every n-th part. The caller runs all parts itself if the pool is in use (by
// another caller, or by an outer call on this thread) or if threads cannot be started. In a child process
// after fork the threads are started again.
void pool_run(Pool* pool, int32_t parts, void (*body)(void* arg, int32_t part), void* arg);

}  // namespace stridec::runtime
