// A fast 64-bit hash of bytes, used to identify weights in texts and caches. The same on every little-endian
// machine. It does not resist attackers; sha256.h does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace stridec {

inline uint64_t hash_mix(uint64_t h) {  // the finaliser of MurmurHash3
  h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdull;
  h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53ull;
  return h ^ (h >> 33);
}

inline uint64_t hash_bytes(const void* data, size_t size) {
  constexpr uint64_t kFactor = 0x9e3779b97f4a7c15ull;
  const auto* p = static_cast<const unsigned char*>(data);
  uint64_t lanes[4] = {size, size ^ kFactor, ~uint64_t{size}, kFactor};
  for (; size >= 32; size -= 32, p += 32)
    for (int l = 0; l < 4; ++l) {
      uint64_t word;
      std::memcpy(&word, p + 8 * l, 8);
      lanes[l] = (lanes[l] ^ word) * kFactor;
      lanes[l] ^= lanes[l] >> 29;
    }
  uint64_t h = 0;
  for (uint64_t lane : lanes) h = hash_mix(h ^ lane);
  for (; size > 0; --size) h = hash_mix(h ^ *p++);
  return h;
}

}  // namespace stridec
