// A pool of threads for fork-join work with a static split: the caller is one of the threads.
//
// Handing out and joining cost one cache-line transfer each per thread while the threads are awake: a thread
// has a mailbox that the caller writes and a completion word that the caller reads, and whoever waits spins
// for a bounded time before it sleeps on a futex, so an idle or oversubscribed machine is not kept busy.
// A caller that is done before a thread has begun takes that thread's share too: a thread that sleeps, or that
// others keep from a processor, costs parallelism and never a wait. Where there are processors enough, the threads keep off
// the one where their caller was last seen.
#pragma once

#include <stdint.h>

namespace stridec::runtime {

struct Pool;

constexpr int32_t kMaxThreads = 1024;
constexpr int32_t kDefaultSpinMicroseconds = 100;

// threads includes the caller's; spin_us as in stridec_pool_options. Threads start with the first work for
// them. Null: no memory.
Pool* pool_create(int32_t threads, int32_t spin_us);
void pool_destroy(Pool* pool);  // joins its threads; null is fine
int32_t pool_threads(const Pool* pool);

// Calls body(arg, part) once for each part in [0, parts) and returns when all are done. With more parts than
// threads, each thread takes every n-th. When the pool is in use (by another caller, or by an outer call on
// this thread), and where threads cannot be started, the caller does all parts itself. In a child made by
// fork the threads are started anew.
void pool_run(Pool* pool, int32_t parts, void (*body)(void* arg, int32_t part), void* arg);

}  // namespace stridec::runtime
