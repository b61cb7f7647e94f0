#include "compiler/kernels/point_window.h"

#include <algorithm>
#include <set>

#include "compiler/loop/walk.h"

namespace stridec::kernels {
namespace {

// How many taps of the window's first dim correspond to one step along `var`; 0: none do.
int64_t taps_between(const loop::Reduce& reduce, sym::Expr var) {
  const auto step = [](sym::Expr index, sym::Expr along) {
    const auto linear = sym::linear_in(index, along);
    return linear ? sym::as_const(linear->coefficient).value_or(0) : 0;
  };
  for (const loop::Stmt& stmt : reduce.body)
    if (const auto* load = std::get_if<loop::Load>(&stmt.node))
      for (sym::Expr index : load->access.index) {
        const int64_t point = step(index, var), tap = step(index, reduce.dims[0].var);
        if (tap && point / tap > 0 && point % tap == 0) return point / tap;
      }
  return 0;
}

// Drops the given values that no reduction uses.
void keep_used(PointWindow& window) {
  std::set<uint32_t> used;
  const auto use = [&](const loop::Stmt& stmt) {
    loop::for_each_use(stmt, [&](loop::ValueId id) { used.insert(id.value); });
  };
  for (const loop::Reduce* reduce : window.reduces) {
    for (const loop::Stmt& stmt : reduce->body) use(stmt);
    for (loop::ValueId id : reduce->yields) used.insert(id.value);
  }
  for (size_t i = window.given.size(); i-- > 0;) {
    bool needed = false;
    loop::for_each_result(*window.given[i],
                          [&](loop::ValueId id) { needed = needed || used.contains(id.value); });
    if (needed)
      use(*window.given[i]);
    else
      window.given.erase(window.given.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

}  // namespace

std::optional<PointWindow> match_point_window(const loop::Program& program, const loop::Nest& nest) {
  PointWindow out;
  std::set<uint32_t> given, results;  // results: of reductions
  auto plain = [&](const loop::Stmt& stmt) {
    if (loop::body_of(stmt) || std::holds_alternative<loop::Bind>(stmt.node)) return false;
    const auto* store = std::get_if<loop::Store>(&stmt.node);
    if (store && store->update) return false;
    const loop::Access* access = loop::access_of(stmt);
    return !access || program[access->buffer].storage != loop::Storage::kLocal;
  };
  for (const loop::Stmt& stmt : nest.body) {
    const auto* reduce = std::get_if<loop::Reduce>(&stmt.node);
    if (!reduce) {
      if (!plain(stmt)) return std::nullopt;
      bool free = !loop::access_of(stmt);
      loop::for_each_use(stmt, [&](loop::ValueId id) { free = free && given.contains(id.value); });
      if (!free) continue;
      loop::for_each_result(stmt, [&](loop::ValueId id) { given.insert(id.value); });
      out.given.push_back(&stmt);
      continue;
    }
    int64_t taps = 1;
    for (const loop::Dim& dim : reduce->dims) {
      const int64_t extent = sym::as_const(dim.extent).value_or(kMostTaps + 1);
      if (extent < 1 || extent > kMostTaps || (taps *= extent) > kMostTaps) return std::nullopt;
    }
    std::set<uint32_t> own = given;
    own.insert(results.begin(), results.end());
    bool closed = true;
    for (const loop::Stmt& inner : reduce->body) {
      if (!plain(inner) || std::holds_alternative<loop::Store>(inner.node)) return std::nullopt;
      loop::for_each_use(inner, [&](loop::ValueId id) { closed = closed && own.contains(id.value); });
      loop::for_each_result(inner, [&](loop::ValueId id) { own.insert(id.value); });
      if (const auto* load = std::get_if<loop::Load>(&inner.node)) out.loads.push_back(load);
    }
    for (loop::ValueId id : reduce->yields) closed = closed && own.contains(id.value);
    if (!closed) return std::nullopt;
    for (loop::ValueId id : reduce->results) results.insert(id.value);
    out.reduces.push_back(reduce);
  }
  if (out.reduces.empty() || out.loads.empty()) return std::nullopt;
  keep_used(out);
  return out;
}

std::vector<std::vector<int64_t>> taps_of(const loop::Reduce& reduce) {
  std::vector<std::vector<int64_t>> taps = {{}};
  for (const loop::Dim& dim : reduce.dims) {
    std::vector<std::vector<int64_t>> next;
    for (const std::vector<int64_t>& tap : taps)
      for (int64_t k = 0; k < dim.extent.value(); ++k) {
        next.push_back(tap);
        next.back().push_back(k);
      }
    taps = std::move(next);
  }
  return taps;
}

loop::Access access_at(const loop::Access& access, const Indices& indices, const sym::Facts& facts) {
  auto moved = [&](sym::Expr e) {
    for (const auto& [var, index] : indices) e = sym::substitute(e, var, index);
    return sym::simplify(e, facts);
  };
  loop::Access out{.buffer = access.buffer, .index = {}, .mask = moved(access.mask)};
  for (sym::Expr index : access.index) out.index.push_back(moved(index));
  return out;
}

std::optional<RowLoop> window_row_loop(const loop::Reduce& reduce, const std::vector<sym::Expr>& along,
                                       int64_t lanes) {
  // Keep the code within the instruction cache.
  constexpr int64_t kMostUnrolled = 1024, kMostTapsUnrolled = 32;
  const auto taps = static_cast<int64_t>(taps_of(reduce).size());
  if (reduce.dims.size() < 2 ||
      (along.size() < 2 && taps <= kMostTapsUnrolled && taps * lanes <= kMostUnrolled))
    return std::nullopt;
  for (size_t a = 0; a < along.size(); ++a)
    if (const int64_t step = taps_between(reduce, along[a])) return RowLoop{a, step};
  return RowLoop{};
}

bool AccessLess::operator()(const loop::Access& a, const loop::Access& b) const {
  const sym::ExprLess less;
  if (a.mask != b.mask) return less(a.mask, b.mask);
  return std::lexicographical_compare(a.index.begin(), a.index.end(), b.index.begin(), b.index.end(), less);
}

}  // namespace stridec::kernels
