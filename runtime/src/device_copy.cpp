#include "device_copy.h"

namespace stridec::runtime {
namespace {

constexpr int64_t kTileBytes = 16 << 10, kTileElements = 4096, kLeastElements = 512;
constexpr int64_t kWideTile = 64;      // elements along each loop of a transposed tile
constexpr int64_t kEnoughTiles = 256;  // to occupy a GPU
constexpr int64_t kMostTiles = INT32_MAX;
constexpr int64_t kWidest = 16;  // bytes that a thread copies at once

// Loops over elements of `element` bytes: `a` is contiguous in the target or nearly so, `b` in the source.
struct Plan {
  char* to;
  const char* from;
  int64_t element;
  CopyLoop a, b;
  bool staged;  // the tile is transposed in shared memory
  CopyLoop outer[kMaxRank + 1];
  int32_t outers;
};

int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }
int64_t tiles_of(int64_t count, int64_t tile) { return (count + tile - 1) / tile; }

// Bytes become elements where the target or the source is not aligned to its elements: one loop more.
int32_t loops_of(const StridedCopy& copy, int64_t& element, CopyLoop* loops) {
  const auto misaligned = (reinterpret_cast<uintptr_t>(copy.to) | reinterpret_cast<uintptr_t>(copy.from)) %
                          static_cast<uintptr_t>(copy.element_bytes);
  element = misaligned ? 1 : copy.element_bytes;
  const int64_t scale = copy.element_bytes / element;
  int32_t n = 0;
  for (int32_t d = 0; d < copy.rank; ++d)
    if (copy.dims[d] != 1)
      loops[n++] = {copy.dims[d], copy.to_strides[d] * scale, copy.from_strides[d] * scale};
  if (scale > 1) loops[n++] = {scale, 1, 1};
  // Outermost is what reaches furthest in the target, so that what is adjacent there can be merged.
  for (int32_t i = 1; i < n; ++i)
    for (int32_t j = i; j > 0 && magnitude(loops[j - 1].to) < magnitude(loops[j].to); --j) {
      const CopyLoop swapped = loops[j];
      loops[j] = loops[j - 1];
      loops[j - 1] = swapped;
    }
  return merge(loops, n);
}

CopyLoop take(CopyLoop* loops, int32_t& n, int32_t i) {
  const CopyLoop taken = loops[i];
  --n;
  for (; i < n; ++i) loops[i] = loops[i + 1];
  return taken;
}

// Makes elements as wide as alignment and sizes allow, where both sides are contiguous along `a`.
void widen(Plan& p) {
  if (p.staged || p.a.to != 1 || p.a.from != 1) return;
  const int64_t addresses = reinterpret_cast<int64_t>(p.to) | reinterpret_cast<int64_t>(p.from);
  int64_t together = addresses | p.a.count * p.element | p.b.to * p.element | p.b.from * p.element;
  for (int32_t i = 0; i < p.outers; ++i) together |= (p.outer[i].to | p.outer[i].from) * p.element;
  int64_t width = kWidest;
  while (together & (width - 1)) width /= 2;
  if (width <= p.element) return;
  const int64_t scale = width / p.element;
  p.element = width;
  p.a.count /= scale;
  p.b.to /= scale, p.b.from /= scale;
  for (int32_t i = 0; i < p.outers; ++i) p.outer[i].to /= scale, p.outer[i].from /= scale;
}

Plan plan_of(const StridedCopy& copy) {
  Plan p = {copy.to, copy.from, 0, {1, 0, 0}, {1, 0, 0}, false, {}, 0};
  CopyLoop* const loops = p.outer;
  int32_t n = loops_of(copy, p.element, loops);
  if (n) p.a = take(loops, n, n - 1);  // it reaches least in the target
  int32_t nearest = n - 1;
  for (int32_t i = 0; i < n; ++i)
    if (loops[i].from && (!loops[nearest].from || magnitude(loops[i].from) <= magnitude(loops[nearest].from)))
      nearest = i;
  if (n) {
    p.staged = loops[nearest].from && magnitude(loops[nearest].from) < magnitude(p.a.from);
    p.b = take(loops, n, p.staged ? nearest : n - 1);
  }
  p.outers = n;
  widen(p);
  return p;
}

void write(const CopyLoop& loop, int64_t* words) {
  words[0] = loop.count;
  words[1] = loop.to;
  words[2] = loop.from;
}

// Fills the words but for the addresses. Returns the number of tiles of the loops from `first` on.
int64_t fill(const Plan& p, int32_t first, CopyLaunch& launch) {
  int64_t elements = p.a.count * p.b.count, others = 1, most = least(kTileBytes / p.element, kTileElements);
  for (int32_t i = first; i < p.outers; ++i) others *= p.outer[i].count;
  while (most > kLeastElements && elements * others / most < kEnoughTiles) most /= 2;
  int64_t tile_a = least(p.a.count, p.staged ? kWideTile : most);
  const int64_t tile_b = least(p.b.count, most / tile_a);
  tile_a = least(p.a.count, most / tile_b);
  int64_t* const words = launch.words;
  words[STRIDEC_ABI_COPY_ELEMENT] = p.element;
  words[STRIDEC_ABI_COPY_STAGED] = p.staged;
  write(p.a, words + STRIDEC_ABI_COPY_A);
  write(p.b, words + STRIDEC_ABI_COPY_B);
  words[STRIDEC_ABI_COPY_TILE_A] = tile_a;
  words[STRIDEC_ABI_COPY_TILE_B] = tile_b;
  for (int32_t i = 0; i < STRIDEC_ABI_COPY_OUTER; ++i)
    write(first + i < p.outers ? p.outer[first + i] : CopyLoop{1, 0, 0},
          words + STRIDEC_ABI_COPY_LOOPS + 3 * i);
  return tiles_of(p.a.count, tile_a) * tiles_of(p.b.count, tile_b) * others;
}

}  // namespace

bool for_each_copy_launch(const StridedCopy& copy, bool (*launch)(void* user, const CopyLaunch& launch),
                          void* user) {
  if (!compact_bytes(copy.dims, copy.rank, 1)) return true;
  const Plan p = plan_of(copy);
  CopyLaunch next = {};
  int32_t first = p.outers > STRIDEC_ABI_COPY_OUTER ? p.outers - STRIDEC_ABI_COPY_OUTER : 0;
  while ((next.blocks = fill(p, first, next)) > kMostTiles && first < p.outers) ++first;
  // The loops before `first` are the host's: an odometer.
  int64_t index[kMaxRank + 1] = {};
  int64_t to = 0, from = 0;  // in elements
  for (;;) {
    next.words[STRIDEC_ABI_COPY_TO] = reinterpret_cast<int64_t>(p.to + to * p.element);
    next.words[STRIDEC_ABI_COPY_FROM] = reinterpret_cast<int64_t>(p.from + from * p.element);
    if (!launch(user, next)) return false;
    int32_t d = first - 1;
    for (; d >= 0; --d) {
      to += p.outer[d].to;
      from += p.outer[d].from;
      if (++index[d] < p.outer[d].count) break;
      index[d] = 0;
      to -= p.outer[d].to * p.outer[d].count;
      from -= p.outer[d].from * p.outer[d].count;
    }
    if (d < 0) return true;
  }
}

}  // namespace stridec::runtime
