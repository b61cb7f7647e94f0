#include "runtime/src/tensor.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/unit/runtime/harness.h"

using namespace fake;
using namespace stridec::runtime;

namespace {

// Reference implementation of copy_strided, one element at a time.
template <class T>
void copy_plainly(T* to, const std::vector<int64_t>& to_strides, const T* from,
                  const std::vector<int64_t>& from_strides, const std::vector<int64_t>& dims, size_t d = 0) {
  if (d == dims.size()) {
    *to = *from;
    return;
  }
  for (int64_t i = 0; i < dims[d]; ++i)
    copy_plainly(to + i * to_strides[d], to_strides, from + i * from_strides[d], from_strides, dims, d + 1);
}

template <class T>
void check_random_copies(uint32_t seed) {
  std::mt19937 random(seed);
  auto upto = [&](int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
  for (int round = 0; round < 200; ++round) {
    int rank = upto(6);
    std::vector<int64_t> dims(rank), strides(rank), compact(rank);
    for (int64_t& d : dims) d = upto(12) == 0 ? 0 : 1 + upto(rank < 3 ? 70 : 7);
    // A permuted row-major layout, with gaps in some dims and some dims reversed.
    std::vector<int> order(rank);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    int64_t size = 1, low = 0;
    for (int d : order) {
      strides[d] = size;
      size *= dims[d] + upto(2);
      if (upto(3) == 0) {
        strides[d] = -strides[d];
        low += strides[d] * (dims[d] - 1);
      }
    }
    int64_t n = 1;
    for (int i = rank; i-- > 0; n *= dims[i]) compact[i] = n;
    std::vector<T> strided(static_cast<size_t>(size > 0 ? size : 1) + 64), packed(static_cast<size_t>(n)),
        expected(packed);
    for (size_t i = 0; i < strided.size(); ++i) strided[i] = static_cast<T>(i * 31 + 7);
    T* first = strided.data() - (n ? low : 0);
    copy_plainly(expected.data(), compact, const_cast<const T*>(first), strides, dims);
    copy_strided(reinterpret_cast<char*>(packed.data()), nullptr, reinterpret_cast<char*>(first),
                 strides.data(), dims.data(), rank, sizeof(T));
    CHECK(packed == expected);
    // Then copies back into other memory of the same layout.
    std::vector<T> back(strided.size(), T(1)), expected_back = back;
    copy_plainly(expected_back.data() - (n ? low : 0), strides, const_cast<const T*>(packed.data()), compact,
                 dims);
    copy_strided(reinterpret_cast<char*>(back.data() - (n ? low : 0)), strides.data(),
                 reinterpret_cast<char*>(packed.data()), nullptr, dims.data(), rank, sizeof(T));
    CHECK(back == expected_back);
  }
}

}  // namespace

TEST_CASE("gather and scatter agree with copying element by element") {
  check_random_copies<uint8_t>(1);
  check_random_copies<uint16_t>(2);
  check_random_copies<float>(3);
  check_random_copies<double>(4);
}

TEST_CASE("bytes of a shape: empty wins over overflow, overflow is seen") {
  int64_t big[] = {int64_t{1} << 62, 4, 0};
  CHECK(compact_bytes(big, 3, 4) == 0);
  CHECK(compact_bytes(big, 2, 4) == -1);
  CHECK(compact_bytes(big, 1, 1) == -1);  // more than half of the address space
  CHECK(compact_bytes(nullptr, 0, 8) == 8);
}

TEST_CASE("what may be used where it is") {
  Array<float> a({4, 1, 6});
  stridec_tensor t = a.tensor();
  const auto fits = [&](const int64_t* dims, const int32_t* order = nullptr) {
    return is_direct(a.tensor(), {dims, order, 3, 4});
  };
  CHECK(fits(t.shape));
  int64_t fewer[] = {2, 1, 6};
  CHECK(fits(fewer));  // further rows are not touched
  int64_t narrower[] = {4, 1, 5};
  CHECK_FALSE(fits(narrower));
  const int32_t turned[] = {2, 0, 1};
  CHECK_FALSE(fits(t.shape, turned));
  a.strides = {6, 1000, 1};  // the stride of a dim of size 1 is irrelevant
  CHECK(fits(t.shape));
  a.strides = {1, -7, 4};
  CHECK(fits(t.shape, turned));
  CHECK_FALSE(fits(t.shape));
  CHECK_FALSE(fits(fewer, turned));  // rows of 4, not of 2
  a.strides = {8, 6, 1};
  CHECK_FALSE(fits(t.shape));
  int64_t empty[] = {4, 0, 6};
  CHECK(fits(empty));
}

TEST_CASE("strides of dims in an order: of size 0, rank 0") {
  int64_t dims[] = {4, 0, 6}, strides[3];
  const int32_t order[] = {1, 2, 0};
  strides_of({dims, order, 3, 4}, strides);
  CHECK(std::vector(strides, strides + 3) == std::vector<int64_t>{1, 24, 4});
  strides_of({dims, nullptr, 3, 4}, strides);
  CHECK(std::vector(strides, strides + 3) == std::vector<int64_t>{6, 6, 1});
  strides_of({nullptr, nullptr, 0, 4}, nullptr);
}

TEST_CASE("overlap of an output with itself") {
  Array<float> a({3, 4});
  auto overlaps = [&](std::vector<int64_t> strides) {
    a.strides = strides;
    return may_overlap_itself(a.tensor());
  };
  CHECK_FALSE(overlaps({4, 1}));
  CHECK_FALSE(overlaps({1, 3}));
  CHECK_FALSE(overlaps({-4, 1}));
  CHECK_FALSE(overlaps({100, 7}));
  CHECK(overlaps({3, 1}));
  CHECK(overlaps({0, 1}));
  CHECK(overlaps({1, 1}));
  a.shape = {1, 4};
  CHECK_FALSE(overlaps({0, 1}));
  a.shape = {0, 4};
  CHECK_FALSE(overlaps({0, 0}));
}
