/* stridec/xxh64.h: the XXH64 hash.
 * Specification: Yann Collet, doc/xxhash_spec.md of the xxHash project, section "XXH64 algorithm
 * description". Detects a damaged or wrong weights file at memory speed. It does not protect against
 * forgery. */
#ifndef STRIDEC_XXH64_H
#define STRIDEC_XXH64_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t stridec_xxh64_rotate(uint64_t x, int n) { return (x << n) | (x >> (64 - n)); }

static inline uint64_t stridec_xxh64_read64(const unsigned char* p) {
  uint64_t x;
  memcpy(&x, p, sizeof x);
  return x;
}

static inline uint64_t stridec_xxh64_round(uint64_t lane, uint64_t input) {
  lane += input * 0xC2B2AE3D27D4EB4Full;
  return stridec_xxh64_rotate(lane, 31) * 0x9E3779B185EBCA87ull;
}

/* Incremental hash: begin, add for each piece, end. */
typedef struct stridec_xxh64_state {
  uint64_t seed, bytes, lane[4];
  unsigned char held[32]; /* the last (bytes added % 32) bytes */
} stridec_xxh64_state;

static inline stridec_xxh64_state stridec_xxh64_begin(uint64_t seed) {
  const uint64_t p1 = 0x9E3779B185EBCA87ull, p2 = 0xC2B2AE3D27D4EB4Full;
  stridec_xxh64_state state = {seed, 0, {seed + p1 + p2, seed + p2, seed, seed - p1}, {0}};
  return state;
}

static inline void stridec_xxh64_add(stridec_xxh64_state* state, const void* data, size_t bytes) {
  const unsigned char* p = (const unsigned char*)data;
  const size_t held = state->bytes % 32;
  uint64_t lane[4];
  state->bytes += bytes;
  if (held + bytes < 32) {
    if (bytes) memcpy(state->held + held, p, bytes);
    return;
  }
  memcpy(lane, state->lane, sizeof lane);
  if (held) {
    memcpy(state->held + held, p, 32 - held);
    for (int i = 0; i < 4; ++i)
      lane[i] = stridec_xxh64_round(lane[i], stridec_xxh64_read64(state->held + 8 * i));
    p += 32 - held;
    bytes -= 32 - held;
  }
  for (; bytes >= 32; p += 32, bytes -= 32)
    for (int i = 0; i < 4; ++i) lane[i] = stridec_xxh64_round(lane[i], stridec_xxh64_read64(p + 8 * i));
  memcpy(state->lane, lane, sizeof lane);
  memcpy(state->held, p, bytes);
}

static inline uint64_t stridec_xxh64_end(const stridec_xxh64_state* state) {
  const uint64_t p1 = 0x9E3779B185EBCA87ull, p2 = 0xC2B2AE3D27D4EB4Full, p3 = 0x165667B19E3779F9ull,
                 p4 = 0x85EBCA77C2B2AE63ull, p5 = 0x27D4EB2F165667C5ull;
  const unsigned char* p = state->held;
  const unsigned char* end = p + state->bytes % 32;
  uint64_t hash = state->seed + p5;
  if (state->bytes >= 32) {
    const uint64_t* lane = state->lane;
    hash = stridec_xxh64_rotate(lane[0], 1) + stridec_xxh64_rotate(lane[1], 7) +
           stridec_xxh64_rotate(lane[2], 12) + stridec_xxh64_rotate(lane[3], 18);
    for (int i = 0; i < 4; ++i) hash = (hash ^ stridec_xxh64_round(0, lane[i])) * p1 + p4;
  }
  hash += state->bytes;
  for (; end - p >= 8; p += 8) {
    hash ^= stridec_xxh64_round(0, stridec_xxh64_read64(p));
    hash = stridec_xxh64_rotate(hash, 27) * p1 + p4;
  }
  if (end - p >= 4) {
    uint32_t word;
    memcpy(&word, p, sizeof word);
    hash ^= (uint64_t)word * p1;
    hash = stridec_xxh64_rotate(hash, 23) * p2 + p3;
    p += 4;
  }
  for (; p < end; ++p) hash = stridec_xxh64_rotate(hash ^ (*p * p5), 11) * p1;
  hash = (hash ^ (hash >> 33)) * p2;
  hash = (hash ^ (hash >> 29)) * p3;
  return hash ^ (hash >> 32);
}

static inline uint64_t stridec_xxh64(const void* data, size_t bytes, uint64_t seed) {
  stridec_xxh64_state state = stridec_xxh64_begin(seed);
  stridec_xxh64_add(&state, data, bytes);
  return stridec_xxh64_end(&state);
}

#endif /* STRIDEC_XXH64_H */
