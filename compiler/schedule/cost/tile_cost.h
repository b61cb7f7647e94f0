// Chooses how many points a tile of a fused group has (fusion/tile_and_fuse.h), so that the intermediates
// between its nests stay in cache.
#pragma once

#include <cstdint>

namespace stridec::schedule {

// These figures are not specific to one machine, as in winograd.cpp.
// Bytes of a thread's cache for the intermediates; the shortest tile may use twice as much.
inline constexpr int64_t kTileCache = 272 << 10;
inline constexpr int64_t kWeightCache = 5 << 18;  // bytes that this leaves for weights in a core's L2
// If the weights exceed kWeightCache, every tile reads them from further away and they dominate the traffic,
// so tiles may be longer.
inline constexpr int64_t kLongTileCache = 3 * kTileCache;
// At typical sizes of a single image: enough tiles for several threads.
inline constexpr double kLeastTiles = 8;
// Highest ratio of weight traffic to the traffic that no longer goes through memory.
inline constexpr double kWeightTraffic = 2.5;

// Returns the points of the longest tile. `points`: points in total; `passing`: bytes of intermediates per
// point; `weights`: bytes of the weights of the GEMM between them (0: none). Returns 0 if the intermediates
// exceed the cache or there are too few points.
int64_t points_of_tile(double points, int64_t passing, double weights);
// The fewest points of a tile with a GEMM over this many bytes of weights (0: without a GEMM).
int64_t least_points(double weights);

}  // namespace stridec::schedule
