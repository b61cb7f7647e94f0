#include "compiler/kernels/packed_weights.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <set>

#include "compiler/base/check.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/walk.h"

namespace stridec::kernels {
namespace {

using loop::ScalarOp;
using loop::Stmt;
using loop::ValueId;
using sym::Expr;

// Largest zero points that a float made by the exponent trick holds.
constexpr int64_t kMostZero = 255, kMostNarrowZero = 127;

Expr times(Expr e, int64_t n) { return e * n; }

int64_t number_of(const loop::Schedule& schedule, std::string_view name) {
  for (const loop::Directive& directive : schedule.directives) {
    if (directive.name != name || directive.args.size() != 1) continue;
    const std::string& text = directive.args[0];
    int64_t value = -1;
    std::from_chars(text.data(), text.data() + text.size(), value);
    if (value >= 0) return value;
  }
  STRIDEC_CHECK(false, loop::to_string(schedule));
  __builtin_unreachable();
}

}  // namespace

loop::Schedule to_schedule(std::string_view kernel, const PackedLayout& layout, int64_t zero) {
  return {std::string(kernel),
          {{"bits", {std::to_string(layout.bits)}},
           {"step", {std::to_string(layout.step)}},
           {"fragments", {layout.fragments ? "1" : "0"}},
           {"zero", {std::to_string(zero)}}}};
}

bool fits_groups(const PackedLayout& layout, DType element) {
  const bool whole = layout.step == 0 || layout.step % kPackedDepth == 0 || kPackedDepth % layout.step == 0;
  // Rows have to begin at multiples of 16 bytes.
  return byte_size(element) == 2 && layout.depth % 8 == 0 && whole;
}

// Tuned on an H200, with int4 in blocks of 32 and 128, 4096 k by 4096 and 14336 columns.
std::vector<PackedTile> packed_tiles(const PackedLayout& layout, DType element, const GpuTarget& target) {
  constexpr int64_t kRing = 92 << 10;  // leaves room for a block of the next launch
  constexpr int kMostStages = 16;
  if (!layout.fragments || !target.wgmma || !fits_groups(layout, element)) return {};
  const int64_t steps = layout.chunks() * layout.chunk() / kPackedDepth, room = 2 * target.multiprocessors;
  const int64_t scales =
      std::max<int64_t>(1, layout.group() ? kPackedDepth / layout.group() : 1) * 64 * layout.blocks();
  std::vector<PackedTile> out;
  const auto add = [&](PackedTile tile, int64_t ring) {
    const int64_t stage = tile.rows * 256 + tile.panels * (1024 * layout.bits + 5 * scales),
                  sums = tile.split > 1 ? 0 : std::min<int64_t>(tile.rows, 32) * (64 * tile.panels + 4) * 4;
    tile.stages = static_cast<int>(std::min<int64_t>(kMostStages, (ring - sums) / stage));
    out.push_back(tile);
  };
  // Few rows: split the depth so that each multiprocessor has one or two blocks.
  const bool wide = layout.panels() >= target.multiprocessors;
  for (const int rows : {8, 16, 32}) {
    PackedTile few{.most = rows, .rows = rows, .panels = wide ? 2 : 1, .groups = wide ? 1 : 2};
    const int64_t tiles = (layout.panels() + few.panels - 1) / few.panels;
    while (few.split < 8 && 2 * few.split * tiles <= (wide ? room : room / 2) &&
           steps >= 4 * few.split * few.groups)
      few.split *= 2;
    add(few, kRing);
  }
  // Larger tiles once there are enough tiles.
  const int64_t all = target.shared_bytes - 4096;
  const auto rows_of = [&](int rows) { return target.multiprocessors / layout.panels() * rows; };
  if (rows_of(32) > 32)
    add({.most = 64, .rows = 32, .panels = 1, .groups = 2}, kRing);
  else
    add({.most = 64, .rows = 64, .panels = 1, .groups = 1}, kRing);
  if (rows_of(128) > 64) add({.most = rows_of(128), .rows = 128, .panels = 1, .groups = 1}, all);
  add({.most = INT64_MAX, .rows = 128, .panels = 2, .groups = 1}, all);
  return out;
}

bool is_packed_weights(const loop::Schedule& schedule) {
  return schedule.kernel == kPackedProduct || schedule.kernel == kPackedUnpack;
}

PackedLayout to_layout(const loop::Schedule& schedule, int64_t columns, int64_t depth) {
  return {.bits = static_cast<int>(number_of(schedule, "bits")),
          .columns = columns,
          .depth = depth,
          .step = number_of(schedule, "step"),
          .fragments = number_of(schedule, "fragments") != 0};
}

int64_t zero_of(const loop::Schedule& schedule) { return number_of(schedule, "zero"); }

// Decomposes k within a chunk: the MMA step of 16 k, the lane of four, and which of the lane's four k of that
// step. A lane's k of a span form a run; the runs of four lanes are adjacent.
namespace {

struct Split {
  Expr product, lane, of_four;
};

Split split(const PackedLayout& layout, Expr k) {
  const int64_t span = layout.span(), run = layout.run();
  const Expr in_chunk = sym::mod(k, layout.chunk()), in_span = sym::mod(in_chunk, span),
             own = times(sym::floordiv(in_span, 4 * run), run) + sym::mod(in_span, run);
  return {times(sym::floordiv(in_chunk, span), span / 16) + sym::floordiv(own, 4),
          sym::floordiv(sym::mod(in_span, 4 * run), run), sym::mod(own, 4)};
}

// Index of the column's tile within its panel, and of the panel.
Expr tile_of(const PackedLayout& layout, Expr column) {
  return sym::mod(sym::floordiv(column, 16), layout.together());
}
Expr panel_of(const PackedLayout& layout, Expr column) {
  return sym::floordiv(column, 16 * layout.together());
}

}  // namespace

std::vector<Expr> word_of(const PackedLayout& layout, Expr column, Expr k) {
  const Split s = split(layout, k);
  const Expr word = layout.bits == 8 ? times(s.product, 2) + sym::floordiv(s.of_four, 2)
                                     : sym::floordiv(s.product, 4 / layout.bits);
  return {panel_of(layout, column), sym::floordiv(k, layout.chunk()), tile_of(layout, column),
          times(sym::mod(column, 8), 4) + s.lane, word};
}

Expr bit_of(const PackedLayout& layout, Expr column, Expr k) {
  const Split s = split(layout, k);
  const Expr high = sym::floordiv(sym::mod(column, 16), 8), second = sym::mod(s.of_four, 2);
  if (layout.bits == 8) return times(high, 16) + times(second, 8);
  const Expr pair =
      times(sym::mod(s.product, 4 / layout.bits), 4) + times(sym::floordiv(s.of_four, 2), 2) + high;
  return times(pair, layout.bits) + times(second, 16);
}

std::vector<Expr> scale_of(const PackedLayout& layout, Expr column, Expr k) {
  const Expr group = layout.group() ? sym::floordiv(k, layout.group()) : Expr(0);
  const Expr block = layout.blocks() > 1 ? sym::floordiv(sym::mod(k, layout.chunk()), layout.step) : Expr(0);
  return {panel_of(layout, column), group, tile_of(layout, column),
          sym::mod(column, 8),      block, sym::floordiv(sym::mod(column, 16), 8)};
}

std::vector<Expr> packed_shape(const PackedLayout& layout) {
  return {layout.panels(), layout.chunks(), layout.together(), 32, 4};
}

std::vector<Expr> scales_shape(const PackedLayout& layout) {
  return {layout.panels(), layout.groups(), layout.together(), 8, layout.blocks(), 2};
}

Place number_at(const PackedLayout& layout, const std::vector<Expr>& at, int bit) {
  const Expr lane = at[3], word = at[4];
  Expr product, of_four;
  int high = 0;
  if (layout.bits == 8) {
    high = bit / 16;
    product = sym::floordiv(word, 2);
    of_four = times(sym::mod(word, 2), 2) + bit % 16 / 8;
  } else {
    const int number = bit % 16 / layout.bits, pair = number % 4;
    high = pair % 2;
    product = times(word, 4 / layout.bits) + number / 4;
    of_four = pair / 2 * 2 + bit / 16;
  }
  const int64_t span = layout.span(), run = layout.run();
  const Expr own = times(sym::mod(product, span / 16), 4) + of_four;
  const Expr k = times(at[1], layout.chunk()) + times(sym::floordiv(product, span / 16), span) +
                 times(sym::floordiv(own, run), 4 * run) + times(sym::mod(lane, 4), run) + sym::mod(own, run);
  return {times(at[0], 16 * layout.together()) + times(at[2], 16) + sym::floordiv(lane, 4) + 8 * high, k};
}

Place scale_at(const PackedLayout& layout, const std::vector<Expr>& at) {
  return {times(at[0], 16 * layout.together()) + times(at[2], 16) + at[3] + times(at[5], 8),
          layout.group() ? times(at[1], layout.group()) + times(at[4], layout.step) : Expr(0)};
}

std::vector<int> bits_in_word(const PackedLayout& layout) {
  std::vector<int> out;
  for (int bit = 0; bit < 32; bit += layout.bits) out.push_back(bit);
  return out;
}

namespace {

// Matches (numbers - zero) * scale with conversions in between, from the factor's value back to the numbers.
class QuantizedMatch {
 public:
  QuantizedMatch(const loop::Program& program, const loop::Nest& nest, const Factor& factor,
                 const QuantizedPart& numbers)
      : nest_(nest), factor_(factor), ranges_(integer_ranges(nest, factor.slice, &program)) {
    out_.numbers = numbers;
    carries_ = {numbers.value};
    for (const Stmt* stmt : factor.slice) {
      bool uses = false;
      loop::for_each_use(*stmt, [&](ValueId id) { uses = uses || carries_.contains(id); });
      loop::for_each_result(*stmt, [&](ValueId id) {
        made_[id] = stmt;
        if (uses) carries_.insert(id);
      });
    }
  }

  std::optional<QuantizedFactor> match(const std::vector<loop::Dim>& columns,
                                       const std::vector<loop::Dim>& k) {
    for (ValueId v = factor_.value; v != out_.numbers.value;) {
      const auto operand = carrying_operand(v);
      if (!operand) return std::nullopt;
      v = *operand;
    }
    if (!settle_scale() || !settle_zero() || !lay_out(columns, k)) return std::nullopt;
    return out_;
  }

 private:
  DType dtype(ValueId id) const { return nest_.values[id.value].dtype; }

  // The conversion that computes the value, or null.
  const loop::Let* cast_of(ValueId id) const {
    const auto* let = std::get_if<loop::Let>(&made_.at(id)->node);
    return let && (let->op == ScalarOp::kCast || let->op == ScalarOp::kCastSat) ? let : nullptr;
  }

  // The operand of `v` that depends on the numbers; nothing if `v` is not part of the pattern. Records the
  // other operand as the scale or the zero point.
  std::optional<ValueId> carrying_operand(ValueId v) {
    const auto* let = std::get_if<loop::Let>(&made_.at(v)->node);
    if (!let) return std::nullopt;
    if (cast_of(v)) {
      if (!is_float(dtype(v)) && !has_range_of(v, let->args[0])) return std::nullopt;
      return let->args[0];
    }
    if (let->op == ScalarOp::kMul && !out_.scale && !out_.zero && is_float(dtype(v))) {
      const size_t side = carries_.contains(let->args[0]) ? 0 : 1;
      if (carries_.contains(let->args[1 - side])) return std::nullopt;
      out_.scale = let->args[1 - side];
      return let->args[side];
    }
    if (let->op == ScalarOp::kSub && !out_.zero && carries_.contains(let->args[0]) &&
        !carries_.contains(let->args[1])) {
      out_.zero = let->args[1];
      return let->args[0];
    }
    return std::nullopt;
  }

  bool has_range_of(ValueId to, ValueId from) const {
    const auto a = ranges_.find(from), b = ranges_.find(to);
    return a != ranges_.end() && b != ranges_.end() && a->second == b->second;
  }

  // Looks through a lossless conversion.
  bool settle_scale() {
    if (!out_.scale) return true;
    if (const auto* cast = cast_of(*out_.scale);
        cast && is_float(dtype(cast->args[0])) &&
        byte_size(dtype(cast->args[0])) < byte_size(dtype(*out_.scale)))
      out_.scale = cast->args[0];
    return dtype(*out_.scale) == DType::kF32 || is_storage_float(dtype(*out_.scale));
  }

  bool settle_zero() {
    const int64_t low = out_.numbers.low, most = out_.numbers.bits == 8 ? kMostZero : kMostNarrowZero;
    out_.constant = -low;
    if (out_.zero) {
      while (const auto* cast = cast_of(*out_.zero)) out_.zero = cast->args[0];
      const auto range = range_of_zero();
      if (!range || range->low - low < 0 || range->high - low > most) return false;
      if (std::holds_alternative<loop::Constant>(made_.at(*out_.zero)->node)) {
        out_.constant = range->low - low;
        out_.zero.reset();
      }
    }
    return out_.constant >= 0 && out_.constant <= most;
  }

  std::optional<Range> range_of_zero() const {
    const auto* constant = std::get_if<loop::Constant>(&made_.at(*out_.zero)->node);
    if (!constant) {
      const auto found = ranges_.find(*out_.zero);
      return found == ranges_.end() ? std::nullopt : std::optional(found->second);
    }
    const bool real = is_float(constant->value.dtype);
    const int64_t value = real ? static_cast<int64_t>(constant->value.f) : constant->value.i;
    if (real && static_cast<double>(value) != constant->value.f) return std::nullopt;
    return Range{value, value};
  }

  bool lay_out(const std::vector<loop::Dim>& columns, const std::vector<loop::Dim>& k) {
    std::vector<Expr> exprs;
    for (const auto& part : {out_.zero, out_.scale})
      if (part)
        for (const Stmt* stmt : slice_of(factor_.slice, *part))
          loop::for_each_expr(*stmt, [&](Expr e) { exprs.push_back(e); });
    const auto all_columns = sym::as_const(loop::extent_of(columns)),
               depth = sym::as_const(loop::extent_of(k));
    if (!all_columns || !depth) return false;
    out_.layout = {.bits = out_.numbers.bits, .columns = *all_columns, .depth = *depth};
    out_.layout.step = exprs.empty() ? 0 : step_along(exprs, k);
    return out_.layout.fits();
  }

  const loop::Nest& nest_;
  const Factor& factor_;
  const Ranges ranges_;
  std::map<ValueId, const Stmt*> made_;
  std::set<ValueId> carries_;  // the values that depend on the numbers
  QuantizedFactor out_;
};

}  // namespace

std::optional<QuantizedFactor> match_quantized_factor(const loop::Program& program, const loop::Nest& nest,
                                                      const Factor& factor,
                                                      const std::vector<loop::Dim>& columns,
                                                      const std::vector<loop::Dim>& k) {
  const auto parts = quantized_parts(program, nest, factor, columns, k);
  if (!parts) return std::nullopt;
  const QuantizedPart* numbers = nullptr;
  for (const QuantizedPart& part : *parts)
    if (part.bits) numbers = &part;
  return numbers ? QuantizedMatch(program, nest, factor, *numbers).match(columns, k) : std::nullopt;
}

}  // namespace stridec::kernels
