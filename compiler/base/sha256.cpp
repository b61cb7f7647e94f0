#include "compiler/base/sha256.h"

#include <cpuid.h>
#include <fcntl.h>
#include <immintrin.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include "compiler/base/diagnostic.h"

namespace stridec {
namespace {

constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

void absorb(uint32_t (&state)[8], const uint8_t* block) {
  uint32_t w[64];
  for (int i = 0; i < 16; ++i) {
    uint32_t word;
    std::memcpy(&word, block + 4 * i, 4);
    w[i] = __builtin_bswap32(word);
  }
  for (int i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (int i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const uint32_t add[8] = {a, b, c, d, e, f, g, h};
  for (int i = 0; i < 8; ++i) state[i] += add[i];
}

bool has_sha() {
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & (1u << 29));
}

// The same with the SHA instructions of the processor, about eight times as fast. Models are gigabytes.
__attribute__((target("sha,sse4.1,ssse3"))) void absorb_blocks_sha_ni(uint32_t (&state)[8],
                                                                      const uint8_t* block, size_t count) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const auto* words = reinterpret_cast<const __m128i*>(state);
  // The instructions use the state as (a b e f) and (c d g h), high lane first.
  const __m128i abcd = _mm_shuffle_epi32(_mm_loadu_si128(words), 0xb1);
  const __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128(words + 1), 0x1b);
  __m128i abef = _mm_alignr_epi8(abcd, efgh, 8), cdgh = _mm_blend_epi16(efgh, abcd, 0xf0);
  for (; count > 0; --count, block += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
    for (int i = 0; i < 4; ++i)
      w[i] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block) + i), swap);
    for (int i = 0; i < 16; ++i) {
      const __m128i k =
          _mm_add_epi32(w[i % 4], _mm_loadu_si128(reinterpret_cast<const __m128i*>(kRound) + i));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, k);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(k, 0x0e));
      // w[i + 4] from the four preceding ones.
      const __m128i& w1 = w[(i + 1) % 4];
      const __m128i& w2 = w[(i + 2) % 4];
      const __m128i& w3 = w[(i + 3) % 4];
      const __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(w[i % 4], w1), _mm_alignr_epi8(w3, w2, 4));
      w[i % 4] = _mm_sha256msg2_epu32(sum, w3);
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state), _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state) + 1, _mm_alignr_epi8(dchg, feba, 8));
}

void absorb_blocks(uint32_t (&state)[8], const uint8_t* block, size_t count) {
  static const bool kFast = __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("sse4.1") && has_sha();
  if (kFast) return absorb_blocks_sha_ni(state, block, count);
  for (; count > 0; --count, block += 64) absorb(state, block);
}

struct Hash {
  uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  uint64_t bytes = 0;

  // Adds whole blocks of 64 bytes.
  void add(const uint8_t* at, size_t size) {
    absorb_blocks(state, at, size / 64);
    bytes += size;
  }

  // Adds the last bytes, fewer than 64.
  std::string finish(const uint8_t* rest, size_t size) {
    uint8_t tail[128] = {};
    if (size > 0) std::memcpy(tail, rest, size);
    tail[size] = 0x80;
    const size_t padded = size < 56 ? 64 : 128;
    const uint64_t bits = __builtin_bswap64((bytes + size) * 8);
    std::memcpy(tail + padded - 8, &bits, 8);
    absorb_blocks(state, tail, padded / 64);
    std::string hex;
    for (uint32_t word : state)
      for (int shift = 28; shift >= 0; shift -= 4) hex += "0123456789abcdef"[(word >> shift) & 15];
    return hex;
  }
};

}  // namespace

std::string sha256(const void* bytes, size_t size) {
  const auto* at = static_cast<const uint8_t*>(bytes);
  Hash hash;
  hash.add(at, size / 64 * 64);
  return hash.finish(at + size / 64 * 64, size % 64);
}

std::string sha256_of_file(const std::string& path, std::stop_token stop) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(ErrorKind::kUnreadable, "cannot-read", "cannot read '" + path + "'");
  // Reads instead of mapping: mapped pages of a large model would count as memory of this process.
  std::vector<uint8_t> chunk(1 << 20);
  Hash hash;
  size_t held = 0;
  for (;;) {
    const ssize_t n = read(fd, chunk.data() + held, chunk.size() - held);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      close(fd);
      fail(ErrorKind::kUnreadable, "cannot-read", "cannot read '" + path + "'");
    }
    held += static_cast<size_t>(n);
    const size_t whole = held / 64 * 64;
    if (n == 0) break;
    if (stop.stop_requested()) return close(fd), std::string();
    hash.add(chunk.data(), whole);
    std::memmove(chunk.data(), chunk.data() + whole, held - whole);
    held -= whole;
  }
  close(fd);
  const size_t whole = held / 64 * 64;
  hash.add(chunk.data(), whole);
  return hash.finish(chunk.data() + whole, held - whole);
}

}  // namespace stridec
