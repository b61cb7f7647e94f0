// Runs independent work on several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace stridec {

// The number of processors in this process's affinity mask, at least 1.
int processors();

// Calls work(i) for every i < count on at most `threads` threads, including the caller's (0: processors()).
// After the first exception no further call starts, and the exception is rethrown here.
void for_each_parallel(size_t count, int threads, const std::function<void(size_t)>& work);

}  // namespace stridec
