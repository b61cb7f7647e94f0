// How many points a tile of a fused group has (fusion/tile_and_fuse.h), so that what passes between its nests stays in cache.
#pragma once

#include <cstdint>

namespace stridec::schedule {

// Figures of no machine in particular, as in winograd.cpp.
inline constexpr int64_t kTileCache =
    272 << 10;  // of a thread, for what passes; the shortest strip may take twice that
inline constexpr int64_t kWeightCache = 5 << 18;  // what that leaves of a core's second cache for weights
// Where weights do not fit there, they come from further away for every strip, and are the larger part of what does.
inline constexpr int64_t kLongTileCache = 3 * kTileCache;
inline constexpr double kLeastTiles = 8;       // at typical sizes of a single image: work for several threads
inline constexpr double kWeightTraffic = 2.5;  // of weights, over what no longer goes through memory

// The points of the longest strips, where so many bytes pass at each of so many points, through a product by so many bytes
// of weights (0: none); 0: what passes is too large for a cache, or the points are too few.
int64_t points_of_tile(double points, int64_t passing, double weights);
// The fewest points of a tile with a GEMM by so many bytes of weights (0: without one).
int64_t least_points(double weights);

}  // namespace stridec::schedule
