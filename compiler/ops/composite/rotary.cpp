#include "compiler/ops/composite/rotary.h"

#include "compiler/ops/tables.h"

namespace stridec::ops {

Term rotate(Term x, Term position, Term cosine, Term sine, const RotaryOptions& options) {
  const Term c = gather(cosine, position, 0), s = gather(sine, position, 0);
  return rotate_by(x, c, s, options);
}

Term rotate_by(Term x, Term cosine, Term sine, const RotaryOptions& options) {
  const sym::Expr half = cosine.dim(2), rest = x.dim(3) - half * 2;
  const auto angles = [&](Term rows) {
    const Term t = unsqueeze(rows, {1});
    return widen(options.scale == 1 ? t : t * options.scale);
  };
  const Term cos = angles(cosine), sin = angles(sine), w = widen(x);
  const auto turned = [&](Term a, Term b) { return std::pair(a * cos - b * sin, a * sin + b * cos); };
  std::vector<Term> parts;
  if (options.interleaved) {
    const Term pairs = reshape(slice(w, 3, 0, half * 2), {x.dim(0), x.dim(1), x.dim(2), half, 2});
    const auto [a, b] = turned(squeeze(slice(pairs, 4, 0, 1), {4}), squeeze(slice(pairs, 4, 1, 1), {4}));
    parts.push_back(
        reshape(concat({unsqueeze(a, {4}), unsqueeze(b, {4})}, 4), {x.dim(0), x.dim(1), x.dim(2), half * 2}));
  } else {
    const auto [a, b] = turned(slice(w, 3, 0, half), slice(w, 3, half, half));
    parts = {a, b};
  }
  if (!rest.is_const(0)) parts.push_back(slice(w, 3, half * 2, rest));
  return cast(parts.size() == 1 ? parts[0] : concat(parts, 3), x.dtype());
}

Term consecutive_positions(Term first, sym::Expr length) {
  Builder& b = first.builder();
  b.require(sym::eq(first.dim(0), 1), "position_ids of one dim has {0} numbers, not 1", {first.dim(0)});
  return unsqueeze(first, {0}) + index_along(b, {1, length}, 1, DType::kI64);
}

Term multimodal_rows(Term table, Term position, const Sections& sections) {
  const auto& [time, height, width] = sections.sections;
  const int64_t half = time + height + width;
  table.builder().require(sym::eq(table.dim(1), half), "the sections have {1} columns in all, the tables {0}",
                          {table.dim(1), half});
  std::vector<double> stream(static_cast<size_t>(half), 0);  // of each column: the position that it uses
  for (int64_t i = 0; i < half; ++i) {
    double& of = stream[static_cast<size_t>(i)];
    if (!sections.alternating)
      of = i < time ? 0 : i < time + height ? 1 : 2;
    else if (i % 3 != 0 && i < 3 * sections.sections[static_cast<size_t>(i % 3)])
      of = static_cast<double>(i % 3);
  }
  const Term which = cast(float_table(table.builder(), stream, DType::kF32), DType::kI64);
  const auto read = [&](int64_t i) { return gather(table, squeeze(slice(position, 0, i, 1), {0}), 0); };
  return select(equal(which, 0), read(0), select(equal(which, 1), read(1), read(2)));
}

}  // namespace stridec::ops
