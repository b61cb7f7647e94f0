#include "compiler/loop/library.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "compiler/base/check.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/loop/scalar_math.h"

namespace stridec::loop {
namespace {

constexpr Routine kRoutines[] = {
#define STRIDEC_ROUTINE(name, reads, writes, arguments) {name, reads, writes, arguments},
#include "compiler/loop/library.def"
#undef STRIDEC_ROUTINE
};

// Is a before b in ascending order? NaN is larger than every number.
bool less(DType type, tape::Cell a, tape::Cell b) {
  if (is_float(type)) return std::isnan(a.f) ? false : std::isnan(b.f) || a.f < b.f;
  if (type == DType::kU64) return static_cast<uint64_t>(a.i) < static_cast<uint64_t>(b.i);
  return a.i < b.i;
}

// The first `keep` of each row in order, with their places.
void order_rows(std::span<const RoutineBuffer> reads, std::span<const RoutineBuffer> writes, int64_t outer,
                int64_t n, int64_t inner, int64_t keep, bool descending) {
  const RoutineBuffer& x = reads[0];
  STRIDEC_CHECK(outer >= 0 && n >= 0 && inner >= 0 && keep >= 0 && keep <= n);
  STRIDEC_CHECK(x.elements >= outer * n * inner && writes[0].elements >= outer * keep * inner &&
                writes[1].elements >= outer * keep * inner && writes[1].dtype == DType::kI64);
  int bytes = byte_size(x.dtype);
  std::vector<int64_t> order(n);
  std::vector<tape::Cell> row(n);
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      for (int64_t k = 0; k < n; ++k)
        row[k] = tape::load_cell(x.dtype, x.data + ((o * n + k) * inner + i) * bytes);
      std::iota(order.begin(), order.end(), 0);
      std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        const tape::Cell &first = row[descending ? b : a], &second = row[descending ? a : b];
        if (less(x.dtype, first, second)) return true;
        return !less(x.dtype, second, first) && a < b;
      });
      for (int64_t k = 0; k < keep; ++k) {
        int64_t at = (o * keep + k) * inner + i;
        tape::store_cell(x.dtype, writes[0].data + at * bytes, row[order[k]]);
        std::memcpy(writes[1].data + at * 8, &order[k], 8);
      }
    }
}

}  // namespace

const Routine* find_routine(std::string_view name) {
  for (const Routine& r : kRoutines)
    if (r.name == name) return &r;
  return nullptr;
}

void run_routine(const Routine& routine, std::span<const RoutineBuffer> reads,
                 std::span<const RoutineBuffer> writes, const std::vector<int64_t>& a) {
  STRIDEC_CHECK(static_cast<int>(reads.size()) == routine.reads &&
                    static_cast<int>(writes.size()) == routine.writes &&
                    static_cast<int>(a.size()) == routine.arguments,
                std::string(routine.name));
  if (routine.name == "sort") return order_rows(reads, writes, a[0], a[1], a[2], a[1], a[3] != 0);
  if (routine.name == "topk") return order_rows(reads, writes, a[0], a[1], a[2], a[3], a[4] != 0);
  fail(ErrorKind::kInternal, "no-routine", cat("the interpreter has no routine '", routine.name, "'"));
}

}  // namespace stridec::loop
