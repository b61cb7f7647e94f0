#include "compiler/loop/view.h"

#include <algorithm>

#include "compiler/base/check.h"
#include "compiler/base/text.h"

namespace stridec::loop {
namespace {

using sym::Expr;

// A view's index uses only its own coordinates and symbols, so all views can share these names.
std::vector<Expr> coordinates(size_t rank) {
  std::vector<Expr> out;
  for (size_t d = 0; d < rank; ++d) out.push_back(sym::var(cat("%c", d)));
  return out;
}

sym::Substitution substitution(const std::vector<Expr>& from, const std::vector<Expr>& to) {
  STRIDEC_CHECK(from.size() == to.size(), cat("rank ", from.size(), " indexed with ", to.size()));
  sym::Substitution out;
  for (size_t i = 0; i < from.size(); ++i) out.emplace(from[i], to[i]);
  return out;
}

// Reparametrises the view: `at` gives its old coordinates in terms of the new ones.
View compose(const View& view, std::vector<Expr> shape, std::vector<Expr> coords, const std::vector<Expr>& at,
             const sym::Facts* facts = nullptr) {
  sym::Substitution map = substitution(view.coords, at);
  auto apply = [&](Expr e) {
    Expr replaced = sym::substitute(e, map);
    return facts ? sym::simplify(replaced, *facts) : replaced;
  };
  View out{
      .buffer = view.buffer, .dtype = view.dtype, .shape = std::move(shape), .coords = std::move(coords)};
  out.index.reserve(view.index.size());
  for (Expr e : view.index) out.index.push_back(apply(e));
  out.mask = apply(view.mask);
  out.fill = view.fill;
  return out;
}

// Replaces one dim's extent and coordinate.
View with_coordinate(const View& view, int dim, Expr extent, Expr at) {
  std::vector<Expr> shape = view.shape, map = view.coords;
  shape[dim] = extent;
  map[dim] = at;
  return compose(view, std::move(shape), view.coords, map);
}

bool same(Expr a, Expr b, const sym::Facts& facts) {
  return a == b || facts.holds(sym::eq(a, b)) || sym::simplify(a - b, facts).is_const(0);
}

// A group of dims of the old shape and one of the new shape with equal element counts, innermost dims last.
struct Segment {
  std::vector<int> from, to;
};

// Splits both shapes into the shortest groups whose products are provably equal, from the left and then, if
// that gets stuck, from the right. The remainder is one group, which is equal because the totals are. Dims of
// extent 1 are in no group.
std::vector<Segment> match(const std::vector<Expr>& from, const std::vector<Expr>& to,
                           const sym::Facts& facts) {
  auto kept = [&](const std::vector<Expr>& shape) {
    std::vector<int> out;
    for (size_t d = 0; d < shape.size(); ++d)
      if (!shape[d].is_const(1)) out.push_back(static_cast<int>(d));
    return out;
  };
  std::vector<int> a = kept(from), b = kept(to);
  std::vector<Segment> segments;
  auto cut = [&](bool right) {
    std::vector<Expr> pa{1}, pb{1};  // products of the first (right: last) n dims
    for (size_t n = 0; n < a.size(); ++n) pa.push_back(pa[n] * from[right ? a[a.size() - 1 - n] : a[n]]);
    for (size_t n = 0; n < b.size(); ++n) pb.push_back(pb[n] * to[right ? b[b.size() - 1 - n] : b[n]]);
    for (size_t total = 2; total <= a.size() + b.size(); ++total)
      for (size_t na = 1; na < total && na <= a.size(); ++na) {
        size_t nb = total - na;
        if (nb > b.size() || (na == a.size() && nb == b.size()) || !same(pa[na], pb[nb], facts)) continue;
        Segment s;
        auto take = [&](std::vector<int>& dims, size_t n, std::vector<int>& into) {
          auto begin = right ? dims.end() - n : dims.begin();
          into.assign(begin, begin + n);
          dims.erase(begin, begin + n);
        };
        take(a, na, s.from);
        take(b, nb, s.to);
        segments.push_back(std::move(s));
        return true;
      }
    return false;
  };
  while (cut(false)) {
  }
  while (cut(true)) {
  }
  if (!a.empty() || !b.empty()) segments.push_back({a, b});
  return segments;
}

}  // namespace

View whole(const Program& program, BufferId buffer) {
  const Buffer& b = program[buffer];
  std::vector<Expr> coords = coordinates(b.shape.size());
  return {.buffer = buffer,
          .dtype = b.dtype,
          .shape = b.shape,
          .coords = coords,
          .index = coords,
          .mask = 1,
          .fill = int_scalar(b.dtype, 0)};
}

Access access(const View& view, const std::vector<Expr>& at) {
  sym::Substitution map = substitution(view.coords, at);
  Access out{.buffer = view.buffer, .index = {}, .mask = sym::substitute(view.mask, map)};
  out.index.reserve(view.index.size());
  for (Expr e : view.index) out.index.push_back(sym::substitute(e, map));
  return out;
}

View reshape(const View& view, const std::vector<Expr>& shape, const sym::Facts& facts) {
  if (shape == view.shape) return view;
  std::vector<Expr> coords = coordinates(shape.size());
  std::vector<Expr> at(view.shape.size(), 0);  // old coordinates in terms of the new ones
  sym::Facts inside = facts;
  bool empty = false;
  for (size_t d = 0; d < shape.size(); ++d) {
    empty = empty || shape[d].is_const(0);
    if (!empty) inside.set_index(coords[d], shape[d]);
  }
  for (Expr extent : view.shape) empty = empty || extent.is_const(0);
  if (empty) return compose(view, shape, coords, at);
  for (const Segment& s : match(view.shape, shape, facts)) {
    Expr flat = 0;
    for (int d : s.to) flat = flat * shape[d] + coords[d];
    Expr inner = 1;
    for (size_t k = s.from.size(); k-- > 0;) {
      int d = s.from[k];
      Expr quotient = sym::simplify(sym::floordiv(flat, inner), inside);
      at[d] = k == 0 ? quotient : sym::simplify(sym::mod(quotient, view.shape[d]), inside);
      inner *= view.shape[d];
    }
  }
  return compose(view, shape, coords, at, &inside);
}

View permute(const View& view, const std::vector<int>& order) {
  STRIDEC_CHECK(order.size() == view.shape.size());
  std::vector<Expr> shape, coords = coordinates(order.size()), at(order.size(), 0);
  for (size_t i = 0; i < order.size(); ++i) {
    shape.push_back(view.shape[order[i]]);
    at[order[i]] = coords[i];
  }
  return compose(view, std::move(shape), coords, at);
}

View slice(const View& view, int dim, Expr start, Expr extent, Expr step) {
  return with_coordinate(view, dim, extent, start + step * view.coords[dim]);
}

View expand(const View& view, const std::vector<Expr>& shape, const sym::Facts& facts) {
  STRIDEC_CHECK(view.shape.size() <= shape.size(), "expand only adds dims");
  size_t added = shape.size() - view.shape.size();
  std::vector<Expr> coords = coordinates(shape.size()), at;
  for (size_t d = 0; d < view.shape.size(); ++d) {
    Expr from = view.shape[d], to = shape[d + added], coord = coords[d + added];
    if (from.is_const(1) || facts.holds(sym::eq(from, 1)))
      at.push_back(0);
    else if (same(from, to, facts) || facts.holds(sym::ne(from, 1)))
      at.push_back(coord);
    else
      at.push_back(sym::select(sym::eq(from, 1), 0, coord));
  }
  return compose(view, shape, coords, at);
}

View drop_dim(const View& view, int dim) {
  std::vector<Expr> shape = view.shape, coords = coordinates(view.shape.size() - 1), at = coords;
  shape.erase(shape.begin() + dim);
  at.insert(at.begin() + dim, 0);
  return compose(view, std::move(shape), coords, at);
}

std::optional<View> pad(const View& view, const std::vector<Expr>& before, const std::vector<Expr>& after,
                        Scalar fill) {
  STRIDEC_CHECK(before.size() == view.shape.size() && after.size() == view.shape.size());
  std::vector<Expr> shape, at;
  std::vector<Expr> conditions;
  auto may_exceed_zero = [](Expr e) { return !e.is_const() || e.value() > 0; };
  for (size_t d = 0; d < view.shape.size(); ++d) {
    shape.push_back(before[d] + view.shape[d] + after[d]);
    at.push_back(view.coords[d] - before[d]);
    if (may_exceed_zero(before[d])) conditions.push_back(sym::ge(at[d], 0));
    if (may_exceed_zero(after[d])) conditions.push_back(sym::lt(at[d], view.shape[d]));
  }
  bool masked = !view.mask.is_const(1);
  if (masked && !conditions.empty() && !(view.fill == fill)) return std::nullopt;
  View out = compose(view, std::move(shape), view.coords, at);
  conditions.push_back(out.mask);
  out.mask = sym::logical_and(conditions);
  if (!masked) out.fill = fill;
  return out;
}

}  // namespace stridec::loop
