#include "compiler/schedule/cost/tile_cost.h"

namespace stridec::schedule {
namespace {

// Tile lengths along the tiled dim; for GEMMs, multiples of the register tile's row count.
constexpr int64_t kLengths[] = {112, 56, 28, 22, 14, 7, 4, 2};
constexpr int64_t kLeastRows = 14;

}  // namespace

int64_t least_points(double weights) { return weights > 0 ? kLeastRows : 1; }

int64_t points_of_tile(double points, int64_t passing, double weights) {
  const int64_t least = least_points(weights);
  const int64_t room = weights > static_cast<double>(kWeightCache) ? kLongTileCache : kTileCache;
  for (int64_t length : kLengths)
    if (length >= least && length * passing <= (length == least ? 2 * kTileCache : room) &&
        points >= kLeastTiles * static_cast<double>(length))
      return length;
  return 0;
}

}  // namespace stridec::schedule
