// Independent pieces of work on several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace stridec {

// How many this process may use, 1 at least: those of its affinity.
int processors();

// work(i) for every i below count, on at most `threads` threads (0: as many as processors()), this one
// included. The first exception stops what has not begun and is thrown here.
void for_each_parallel(size_t count, int threads, const std::function<void(size_t)>& work);

}  // namespace stridec
