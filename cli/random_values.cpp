#include "cli/random_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include "compiler/base/number.h"
#include "compiler/base/text.h"

namespace stridec::cli {
namespace {

// Binary PPM with 8 bits per channel: a header, then the pixels.
bool fill_image(std::mt19937_64& random, int64_t count, uint8_t* bytes) {
  for (int64_t side = 64; side >= 1; side /= 2) {
    const std::string header = cat("P6\n", side, " ", side, "\n255\n");
    const auto pixels = static_cast<int64_t>(header.size());
    if (pixels + 3 * side * side > count) continue;
    std::memcpy(bytes, header.data(), header.size());
    for (int64_t i = pixels; i < count; ++i) bytes[i] = static_cast<uint8_t>(random());
    return true;
  }
  return false;
}

double draw_float(const DrawnRange& range, std::mt19937_64& random,
                  std::normal_distribution<double>& normal) {
  if (range.least && range.most) {
    const double share = std::generate_canonical<double, 53>(random);
    return static_cast<double>(*range.least) + share * static_cast<double>(*range.most - *range.least);
  }
  const double value = normal(random);
  if (range.least) return static_cast<double>(*range.least) + std::abs(value);
  if (range.most) return static_cast<double>(*range.most) - std::abs(value);
  return value;
}

}  // namespace

DrawnRange range_at(const std::optional<sym::Expr>& least, const std::optional<sym::Expr>& most, bool image,
                    const std::function<std::optional<int64_t>(sym::Expr)>& size) {
  return {.least = least ? sym::evaluate(*least, size) : std::nullopt,
          .most = most ? sym::evaluate(*most, size) : std::nullopt,
          .image = image};
}

void fill_random(DType dtype, const DrawnRange& range, uint64_t seed, int64_t count, uint8_t* bytes) {
  std::mt19937_64 random(seed);
  if (range.image && dtype == DType::kU8 && fill_image(random, count, bytes)) return;
  std::normal_distribution<double> normal;
  const auto item = static_cast<size_t>(byte_size(dtype));
  int64_t least = is_bool(dtype) ? 0 : range.least.value_or(std::min<int64_t>(0, range.most.value_or(0)));
  int64_t most = is_bool(dtype) ? 1 : std::max(least, range.most.value_or(std::max<int64_t>(2, least)));
  if (const int equal = range.attempt - (kDraws - kEqualDraws); equal >= 0 && !is_bool(dtype))
    least = most = std::clamp<int64_t>(equal, least, most);
  // 0: the whole 64-bit range
  const uint64_t span = static_cast<uint64_t>(most) - static_cast<uint64_t>(least) + 1;
  for (int64_t i = 0; i < count; ++i, bytes += item) {
    if (is_float(dtype))
      write_float(dtype, draw_float(range, random, normal), bytes);
    else
      write_integer(dtype,
                    static_cast<int64_t>(static_cast<uint64_t>(least) + (span ? random() % span : random())),
                    bytes);
  }
}

}  // namespace stridec::cli
