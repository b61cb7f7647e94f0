#include "compiler/loop/library.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "compiler/base/check.h"
#include "compiler/loop/eigen.h"
#include "compiler/loop/fourier.h"
#include "compiler/loop/philox.h"
#include "compiler/loop/scalar_math.h"
#include "runtime/image/image.h"

namespace stridec::loop {
namespace {

using Buffers = std::span<const RoutineBuffer>;
using Arguments = std::span<const int64_t>;

// Whether a comes before b in ascending order. NaN is larger than every number.
bool less(DType type, bytecode::Cell a, bytecode::Cell b) {
  if (is_float(type)) return std::isnan(a.f) ? false : std::isnan(b.f) || a.f < b.f;
  if (type == DType::kU64) return static_cast<uint64_t>(a.i) < static_cast<uint64_t>(b.i);
  return a.i < b.i;
}

// The first `keep` elements of each sorted row, with their indices.
void order_rows(Buffers reads, Buffers writes, int64_t outer, int64_t n, int64_t inner, int64_t keep,
                bool descending) {
  const RoutineBuffer& x = reads[0];
  STRIDEC_CHECK(outer >= 0 && n >= 0 && inner >= 0 && keep >= 0 && keep <= n);
  STRIDEC_CHECK(x.elements >= outer * n * inner && writes[0].elements >= outer * keep * inner &&
                writes[1].elements >= outer * keep * inner && writes[1].dtype == DType::kI64);
  int bytes = byte_size(x.dtype);
  std::vector<int64_t> order(n);
  std::vector<bytecode::Cell> row(n);
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      for (int64_t k = 0; k < n; ++k)
        row[k] = bytecode::load_cell(x.dtype, x.data + ((o * n + k) * inner + i) * bytes);
      std::iota(order.begin(), order.end(), 0);
      std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        const bytecode::Cell &first = row[descending ? b : a], &second = row[descending ? a : b];
        if (less(x.dtype, first, second)) return true;
        return !less(x.dtype, second, first) && a < b;
      });
      for (int64_t k = 0; k < keep; ++k) {
        int64_t at = (o * keep + k) * inner + i;
        bytecode::store_cell(x.dtype, writes[0].data + at * bytes, row[order[k]]);
        std::memcpy(writes[1].data + at * 8, &order[k], 8);
      }
    }
}

void run_sort(Buffers reads, Buffers writes, Arguments a) {
  order_rows(reads, writes, a[0], a[1], a[2], a[1], a[3] != 0);
}

void run_topk(Buffers reads, Buffers writes, Arguments a) {
  order_rows(reads, writes, a[0], a[1], a[2], a[3], a[4] != 0);
}

void run_suppress(Buffers reads, Buffers writes, Arguments a) {
  const int64_t rows = a[0], n = a[1];
  const RoutineBuffer& to = writes[0];
  STRIDEC_CHECK(rows >= 0 && n >= 0 && reads[0].elements >= rows * 4 * n && reads[1].elements >= rows * n &&
                to.elements >= rows * n && reads[0].dtype == DType::kF32 && reads[3].dtype == DType::kF32);
  const auto corner = [&](int64_t row, int64_t which, int64_t i) {
    float value;
    std::memcpy(&value, reads[0].data + ((row * 4 + which) * n + i) * 4, 4);
    return value;
  };
  const auto area = [&](int64_t row, int64_t i) {
    return (corner(row, 2, i) - corner(row, 0, i)) * (corner(row, 3, i) - corner(row, 1, i));
  };
  int64_t most;
  float overlap;
  std::memcpy(&most, reads[2].data, 8);
  std::memcpy(&overlap, reads[3].data, 4);
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<int64_t> kept;
    for (int64_t i = 0; i < n; ++i) {
      bool keep = reads[1].data[row * n + i] && static_cast<int64_t>(kept.size()) < most;
      for (size_t k = 0; keep && k < kept.size(); ++k) {
        float side[2];
        for (int64_t d : {0, 1})
          side[d] = std::min(corner(row, 2 + d, i), corner(row, 2 + d, kept[k])) -
                    std::max(corner(row, d, i), corner(row, d, kept[k]));
        const float shared = (side[0] > 0 ? side[0] : 0) * (side[1] > 0 ? side[1] : 0);
        keep = !(shared > (area(row, i) + area(row, kept[k]) - shared) * overlap);
      }
      if (keep) kept.push_back(i);
      to.data[row * n + i] = keep;
    }
  }
}

template <class T, bool kBackward>
void fourier(const T* x, const T* waves, T* y, int64_t rows, int64_t n) {
  using fourier::Complex;
  const fourier::Transform<T, T, kBackward> transform{.n = n, .waves = waves};
  std::vector<Complex<T>> row(n), other(n), room(2 * n);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < n; ++k) row[k] = {x[2 * (r * n + k)], x[2 * (r * n + k) + 1]};
    const Complex<T>* result = transform.run(row.data(), other.data(), room.data());
    for (int64_t k = 0; k < n; ++k) {
      y[2 * (r * n + k)] = result[k].re;
      y[2 * (r * n + k) + 1] = result[k].im;
    }
  }
}

template <class T>
void fourier(Buffers reads, const RoutineBuffer& to, int64_t rows, int64_t n, bool backward) {
  STRIDEC_CHECK(rows >= 0 && n >= 0 && reads[0].elements >= rows * n * 2 && reads[1].elements >= n * 2 &&
                to.elements >= rows * n * 2 && reads[0].dtype == to.dtype && reads[1].dtype == to.dtype);
  const auto numbers = [](const RoutineBuffer& buffer) { return reinterpret_cast<T*>(buffer.data); };
  const auto run = backward ? fourier<T, true> : fourier<T, false>;
  run(numbers(reads[0]), numbers(reads[1]), numbers(to), rows, n);
}

void run_fourier(Buffers reads, Buffers writes, Arguments a) {
  const auto run = writes[0].dtype == DType::kF64 ? fourier<double> : fourier<float>;
  run(reads, writes[0], a[0], a[1], a[2] != 0);
}

// MT19937 (Matsumoto and Nishimura 1998).
class MersenneTwister {
 public:
  static constexpr uint32_t kSize = 624;

  explicit MersenneTwister(uint32_t seed) {
    for (uint32_t i = 0; i < kSize; ++i) {
      state_[i] = seed;
      seed = 1812433253u * (seed ^ (seed >> 30)) + i + 1;
    }
  }
  // Continues from a state of which `at` words have been drawn.
  MersenneTwister(const int64_t* state, uint32_t at) : at_(at) {
    for (uint32_t i = 0; i < kSize; ++i) state_[i] = static_cast<uint32_t>(state[i]);
  }
  uint32_t draw() {
    if (at_ == kSize) twist();
    uint32_t y = state_[at_++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9D2C5680u;
    y ^= (y << 15) & 0xEFC60000u;
    return y ^ (y >> 18);
  }
  double uniform() {
    const uint32_t high = draw() >> 5, low = draw() >> 6;
    return (high * 67108864.0 + low) / 9007199254740992.0;
  }
  uint32_t drawn() const { return at_; }
  void save(int64_t* state) const { std::copy(state_, state_ + kSize, state); }

 private:
  void twist() {
    constexpr uint32_t kShift = 397;
    for (uint32_t i = 0; i < kSize; ++i) {
      const uint32_t y = (state_[i] & 0x80000000u) | (state_[(i + 1) % kSize] & 0x7FFFFFFFu);
      state_[i] = state_[(i + kShift) % kSize] ^ (y >> 1) ^ (y & 1 ? 0x9908B0DFu : 0);
    }
    at_ = 0;
  }
  uint32_t state_[kSize], at_ = kSize;
};

void run_mersenne_uniform(Buffers, Buffers writes, Arguments a) {
  const RoutineBuffer& to = writes[0];
  const int64_t count = a[0], seed = a[1];
  STRIDEC_CHECK(to.dtype == DType::kF64 && count >= 0 && to.elements >= count);
  MersenneTwister twister(static_cast<uint32_t>(seed));
  for (int64_t i = 0; i < count; ++i) {
    const double value = twister.uniform();
    std::memcpy(to.data + 8 * i, &value, 8);
  }
}

// The generator of the routine mersenne_draw.
class TorchGenerator {
 public:
  // state: the number of words drawn, below 0 for a seed; the kept normal; the words.
  explicit TorchGenerator(const int64_t* state) : words_(twister_of(state)) {
    if (state[0] >= 0) std::copy(state + 1, state + 4, kept_);
  }
  void save(int64_t* state) const {
    state[0] = words_.drawn();
    std::copy(kept_, kept_ + 3, state + 1);
    words_.save(state + 4);
  }
  uint32_t word() { return words_.draw(); }
  uint64_t wide_word() {
    const uint64_t high = word();
    return high << 32 | word();
  }
  void permutation(int64_t* to, int64_t count) {
    std::iota(to, to + count, 0);
    for (int64_t i = 0; i < count - 1; ++i) std::swap(to[i], to[i + word() % (count - i)]);
  }
  void normals(int64_t* to, int64_t count) {
    constexpr uint64_t kMask = (uint64_t{1} << 53) - 1;
    for (int64_t i = 0; i < count; ++i) {
      to[2 * count + i] = kept_[0];
      if (kept_[0] == 0) {
        kept_[1] = static_cast<int64_t>(wide_word() & kMask);
        kept_[2] = static_cast<int64_t>(wide_word() & kMask);
      }
      to[i] = kept_[1];
      to[count + i] = kept_[2];
      kept_[0] = kept_[0] == 0;
    }
  }

 private:
  static MersenneTwister twister_of(const int64_t* state) {
    if (state[0] < 0) return MersenneTwister(static_cast<uint32_t>(state[1]));
    return {state + 4, static_cast<uint32_t>(std::min<int64_t>(state[0], MersenneTwister::kSize))};
  }
  MersenneTwister words_;
  int64_t kept_[3] = {0, 0, 0};  // kind and words of the normal that is kept
};

void run_mersenne_draw(Buffers reads, Buffers writes, Arguments a) {
  constexpr int64_t kState = 628;
  const int64_t what = a[0], count = a[1];
  STRIDEC_CHECK(reads[0].elements >= kState && writes[1].elements >= kState && count >= 0);
  STRIDEC_CHECK(writes[0].elements >= (what == 3 ? 3 : 1) * count);
  std::vector<int64_t> state(kState), numbers(static_cast<size_t>(writes[0].elements));
  std::memcpy(state.data(), reads[0].data, kState * sizeof(int64_t));
  TorchGenerator generator(state.data());
  if (what == 0) std::generate_n(numbers.begin(), count, [&] { return generator.word(); });
  if (what == 1)
    std::generate_n(numbers.begin(), count, [&] { return static_cast<int64_t>(generator.wide_word()); });
  if (what == 2) generator.permutation(numbers.data(), count);
  if (what == 3) generator.normals(numbers.data(), count);
  generator.save(state.data());
  std::memcpy(writes[0].data, numbers.data(), numbers.size() * sizeof(int64_t));
  std::memcpy(writes[1].data, state.data(), kState * sizeof(int64_t));
}

struct ExactMath {
  static double log(double x) { return std::log(x); }
  static double sin(double x) { return std::sin(x); }
  static double cos(double x) { return std::cos(x); }
  static double sqrt(double x) { return std::sqrt(x); }
};

void run_philox_draw(Buffers reads, Buffers writes, Arguments a) {
  constexpr int64_t kState = 3;
  const int64_t what = a[0], count = a[1];
  STRIDEC_CHECK(reads[0].elements >= kState && writes[1].elements >= kState && count >= 0 &&
                writes[0].elements >= count);
  int64_t state[kState];
  std::memcpy(state, reads[0].data, sizeof state);
  const philox::Deal deal(state, what, count, a[2]);
  const auto put = [&](int64_t i, auto value) {
    STRIDEC_CHECK(byte_size(writes[0].dtype) == sizeof value);
    std::memcpy(writes[0].data + i * static_cast<int64_t>(sizeof value), &value, sizeof value);
  };
  for (int64_t i = 0; i < count; ++i) {
    const philox::Place at = deal.place(i);
    const philox::Block block = philox::block_of(state, at);
    if (what == philox::kWords || what == philox::kFirstWords)
      put(i, static_cast<int64_t>(block.word[at.lane]));
    if (what == philox::kWideWords) put(i, philox::wide_word(block, at.lane));
    if (what == philox::kNormals) put(i, philox::normal<ExactMath>(block, at.lane));
    if (what == philox::kWideNormals) put(i, philox::wide_normal<ExactMath>(block, at.lane));
    if (what == philox::kLogarithms) put(i, philox::logarithm<ExactMath>(block, at.lane));
    if (what == philox::kExponentials) put(i, philox::negative_logarithm<ExactMath>(block, at.lane));
  }
  state[1] += deal.advance();
  std::memcpy(writes[1].data, state, sizeof state);
}

template <class T>
void eigenvalues(Buffers reads, Buffers writes, Arguments a) {
  const int64_t batch = a[0], n = a[1], parts = a[2] ? 2 : 1;
  const bool vectors = a[3] != 0;
  STRIDEC_CHECK(batch >= 0 && n >= 0 && reads[0].elements >= batch * n * n * parts &&
                writes[0].elements >= batch * n * 2 && writes[0].dtype == reads[0].dtype);
  STRIDEC_CHECK(!vectors || (writes[1].elements >= batch * n * n * 2 && writes[1].dtype == reads[0].dtype));
  std::vector<eigen::Complex> room(static_cast<size_t>(eigen::room_of(n, vectors)));
  const auto numbers = [](const RoutineBuffer& buffer) { return reinterpret_cast<T*>(buffer.data); };
  for (int64_t i = 0; i < batch; ++i)
    eigen::solve<T>(numbers(reads[0]) + i * n * n * parts, n, parts == 2, numbers(writes[0]) + i * n * 2,
                    vectors ? numbers(writes[1]) + i * n * n * 2 : nullptr, room.data());
}

void run_eigen(Buffers reads, Buffers writes, Arguments a) {
  const auto run = writes[0].dtype == DType::kF64 ? eigenvalues<double> : eigenvalues<float>;
  run(reads, writes, a);
}

void run_image_size(Buffers reads, Buffers writes, Arguments a) {
  STRIDEC_CHECK(reads[0].elements >= a[0] && writes[0].elements >= 2);
  int64_t size[2];
  stridec_image_size(reads[0].data, a[0], size);
  std::memcpy(writes[0].data, size, sizeof size);
}

void run_image_decode(Buffers reads, Buffers writes, Arguments a) {
  const int64_t channels = a[3] == STRIDEC_IMAGE_GRAYSCALE ? 1 : 3;
  STRIDEC_CHECK(reads[0].elements >= a[0] && writes[0].elements >= a[1] * a[2] * channels);
  const int64_t whole =
      stridec_image_decode(reads[0].data, a[0], a[1], a[2], static_cast<int32_t>(a[3]), writes[0].data) == 0;
  std::memcpy(writes[1].data, &whole, sizeof whole);
}

constexpr LibraryRoutine kRoutines[] = {
#define STRIDEC_ROUTINE(routine, ...) {.name = routine, __VA_ARGS__},
#include "compiler/loop/library.def"
#undef STRIDEC_ROUTINE
};

}  // namespace

std::span<const LibraryRoutine> library_routines() { return kRoutines; }

const LibraryRoutine* find_routine(std::string_view name) {
  const auto found = std::ranges::find(kRoutines, name, &LibraryRoutine::name);
  return found == std::end(kRoutines) ? nullptr : found;
}

void run_routine(const LibraryRoutine& routine, std::span<const RoutineBuffer> reads,
                 std::span<const RoutineBuffer> writes, const std::vector<int64_t>& arguments) {
  STRIDEC_CHECK(static_cast<int>(reads.size()) == routine.reads &&
                    static_cast<int>(writes.size()) == routine.writes &&
                    static_cast<int>(arguments.size()) == routine.arguments,
                std::string(routine.name));
  routine.run(reads, writes, arguments);
}

}  // namespace stridec::loop
