// The number of processors that this process may use.
#pragma once

#include <stdint.h>

namespace stridec::runtime {

// The minimum of the number of processors in the affinity mask and the quotas of the cgroup (v2 or v1) and
// its ancestors, rounded up. At least 1.
int32_t usable_processors();

// The number of threads in STRIDEC_THREADS; 0 if it is not set, is empty, or is not a number from 1 to
// `most`.
int32_t wished_threads(int32_t most);

// What a context or pool of 0 threads has: wished_threads() or, without a wish, usable_processors().
int32_t default_threads(int32_t most);

// For tests: the quota found under `root` (usually "") from root/proc/self/cgroup and root/sys/fs/cgroup; 0
// if there is none.
int32_t cgroup_processors(const char* root);

}  // namespace stridec::runtime
