#include "compiler/schedule/layout/layout.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "compiler/loop/analysis.h"
#include "compiler/loop/capacity.h"
#include "compiler/loop/provenance.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/effects.h"

namespace stridec::schedule {
namespace {

using loop::Access;
using loop::BufferId;
using loop::Nest;
using loop::Program;
using loop::Storage;
using sym::Expr;

// How strongly each dim of a buffer is preferred as the innermost one; the strongest preference wins.
struct Wishes {
  std::vector<std::vector<int64_t>> strength;  // [buffer][dim]
};

bool may_choose(const Program& program, BufferId id) {
  return program[id].storage == Storage::kArena && program[id].shape.size() >= 3;
}

// The position in the access's index that is the dim's variable alone, or the variable plus a constant or a
// multiple of its extent (the channels of a group); -1 if there is none.
int component_of(const Access& access, const loop::Dim& dim) {
  for (size_t i = 0; i < access.index.size(); ++i) {
    const auto linear = sym::linear_in(access.index[i], dim.var);
    if (!linear || !linear->coefficient.is_const(1)) continue;
    const bool digit = dim.extent.is_const() && sym::simplify(sym::mod(linear->rest, dim.extent)).is_const(0);
    if (!sym::has_index(linear->rest) || digit) return static_cast<int>(i);
  }
  return -1;
}

void wish(const Program& program, Wishes& wishes, const Access& access, const loop::Dim& dim,
          int64_t strength) {
  if (!may_choose(program, access.buffer)) return;
  const int at = component_of(access, dim);
  if (at >= 0) wishes.strength[access.buffer.value][at] += strength;
}

bool indexes(const Access& access, const loop::Dim& dim) {
  return std::ranges::any_of(access.index, [&](Expr at) { return sym::depends_on(at, dim.var); });
}

// Buffers that hold weights: parameters, states, and what is computed from these alone, such as a narrow copy
// of a state that is trained.
std::vector<bool> weights_of(const Program& program) {
  std::vector<bool> weights(program.buffers.size(), false), others(program.buffers.size(), false);
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const Storage storage = program.buffers[i].storage;
    weights[i] = storage == Storage::kParameter || storage == Storage::kState;
  }
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    const Effects effects = effects_of(program, step);
    const bool all = !effects.reads.empty() && std::ranges::all_of(effects.reads, [&](BufferId id) {
      return weights[id.value] && !others[id.value];
    });
    for (BufferId id : effects.writes) {
      if (program[id].storage != Storage::kArena) continue;
      (all ? weights : others)[id.value] = true;
    }
  });
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = weights[i] && !others[i];
  return weights;
}

// Whether a variable that indexes the result indexes both operands: a batch of matrices, or groups.
bool has_batch(const Nest& nest, const Access& a, const Access& b) {
  return std::ranges::any_of(nest.dims,
                             [&](const loop::Dim& dim) { return indexes(a, dim) && indexes(b, dim); });
}

// Whether the weight has a dim of the result of its own: it is a matrix, not a vector of scales.
bool is_matrix(const Nest& nest, const Access& data, const Access& weight) {
  return std::ranges::any_of(
      nest.dims, [&](const loop::Dim& dim) { return indexes(weight, dim) && !indexes(data, dim); });
}

// Whether an index is a sum over a place in the result and a place in a window.
bool has_windows(const Access& access, const loop::Reduce& reduce, const Nest& nest) {
  return std::ranges::any_of(access.index, [&](Expr at) {
    const auto in = [&](const loop::Dim& dim) { return sym::depends_on(at, dim.var); };
    return std::ranges::any_of(reduce.dims, in) && std::ranges::any_of(nest.dims, in);
  });
}

// The strength of a contraction's preferences: its multiplications, with symbols at a typical size.
int64_t points(const Nest& nest, const loop::Reduce& reduce) {
  constexpr int64_t kTypical = 32;
  int64_t count = 1;
  auto multiply = [&](const std::vector<loop::Dim>& dims) {
    for (const auto& dim : dims) {
      const auto extent = sym::as_const(dim.extent);
      if (count < (int64_t{1} << 40))
        count *= std::max<int64_t>(1, std::min<int64_t>(extent.value_or(kTypical), 1 << 16));
    }
  };
  multiply(nest.dims);
  multiply(reduce.dims);
  return count;
}

void wishes_of_contraction(const Program& program, const Nest& nest, const std::vector<bool>& weights,
                           Wishes& wishes) {
  const auto contraction = loop::classify_contraction(nest);
  if (!contraction || !contraction->a.plain || !contraction->b.plain) return;
  for (bool swapped : {false, true}) {
    const Access& data = (swapped ? contraction->b : contraction->a).plain->access;
    const Access& constant = (swapped ? contraction->a : contraction->b).plain->access;
    if (!weights[constant.buffer.value] || weights[data.buffer.value]) continue;
    // Keys and values that a state keeps are read by heads, and are not weights.
    if (program[constant.buffer].storage != Storage::kParameter &&
        (has_batch(nest, data, constant) ? !has_windows(data, *contraction->reduce, nest)
                                         : !is_matrix(nest, data, constant)))
      continue;
    const int64_t strength = points(nest, *contraction->reduce);
    // The longest reduced dim that indexes the data by itself: the channels, not the window.
    loop::Dim channels;
    int64_t longest = 1;
    for (const auto& dim : contraction->reduce->dims) {
      const int64_t extent = sym::as_const(dim.extent).value_or(1);
      if (component_of(data, dim) >= 0 && extent > longest) longest = extent, channels = dim;
    }
    if (longest > 1) {
      wish(program, wishes, data, channels, strength);
      wish(program, wishes, constant, channels, strength);
    }
    for (const auto& dim : nest.dims) {
      const bool own = std::none_of(data.index.begin(), data.index.end(),
                                    [&](Expr at) { return sym::depends_on(at, dim.var); });
      if (!own || dim.extent.is_const(1)) continue;
      loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
        if (const auto* store = std::get_if<loop::Store>(&stmt.node))
          wish(program, wishes, store->access, dim, strength);
      });
    }
  }
}

std::optional<int> chosen(const std::vector<int64_t>& strength) {
  // Ties go to the innermost dim, since heads and their channels are preferred equally.
  const auto best = std::max_element(strength.rbegin(), strength.rend());
  if (best == strength.rend() || *best == 0) return std::nullopt;
  return static_cast<int>(strength.rend() - best) - 1;
}

// Propagates preferences: a buffer without one follows the buffers it is computed from or into, along the
// variable that is innermost there.
bool pass_on(const Program& program, const Nest& nest, Wishes& wishes) {
  std::vector<const Access*> accesses;
  loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
    if (const Access* access = loop::access_of(stmt)) accesses.push_back(access);
  });
  bool changed = false;
  for (const Access* from : accesses) {
    if (!may_choose(program, from->buffer)) continue;
    const auto innermost = chosen(wishes.strength[from->buffer.value]);
    if (!innermost) continue;
    for (Expr var : sym::free_vars(from->index[*innermost])) {
      if (!sym::is_index(var)) continue;
      const auto own =
          std::find_if(nest.dims.begin(), nest.dims.end(), [&](const auto& d) { return d.var == var; });
      // dim of an inner loop: any extent
      const loop::Dim dim = own == nest.dims.end() ? loop::Dim{var, var} : *own;
      if (component_of(*from, dim) != *innermost) continue;
      for (const Access* to : accesses) {
        if (!may_choose(program, to->buffer) || chosen(wishes.strength[to->buffer.value])) continue;
        wish(program, wishes, *to, dim, 1);
        changed = changed || chosen(wishes.strength[to->buffer.value]).has_value();
      }
    }
  }
  return changed;
}

std::vector<Expr> strides_with_innermost(const std::vector<Expr>& shape, size_t innermost) {
  std::vector<size_t> order;
  for (size_t i = 0; i < shape.size(); ++i)
    if (i != innermost) order.push_back(i);
  order.push_back(innermost);
  return dense_strides(shape, order);
}

}  // namespace

void choose_layouts(Program& program) {
  Wishes wishes;
  for (const auto& buffer : program.buffers) wishes.strength.emplace_back(buffer.shape.size(), 0);
  std::vector<const Nest*> nests;
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    if (const auto* launch = std::get_if<loop::Launch>(&step.node)) nests.push_back(&program[launch->nest]);
  });
  const std::vector<bool> weights = weights_of(program);
  for (const Nest* nest : nests)
    loop::with_provenance(*nest, [&] { wishes_of_contraction(program, *nest, weights, wishes); });
  for (bool changed = true; changed;) {
    changed = false;
    for (const Nest* nest : nests)
      changed = loop::with_provenance(*nest, [&] { return pass_on(program, *nest, wishes); }) || changed;
    std::reverse(nests.begin(), nests.end());
  }
  // Steps other than nests access whole buffers and expect them row-major.
  std::vector<bool> fixed(program.buffers.size(), false);
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    if (const auto* copy = std::get_if<loop::Copy>(&step.node))
      fixed[copy->from.value] = fixed[copy->to.value] = true;
    if (const auto* call = std::get_if<loop::Call>(&step.node)) {
      for (BufferId id : call->reads) fixed[id.value] = true;
      for (BufferId id : call->writes) fixed[id.value] = true;
    }
    // What grows keeps its elements in place, so the dim that grows stays outermost.
    const auto* loop = std::get_if<loop::While>(&step.node);
    if (const auto capacity = loop ? loop::capacity_of(program, *loop) : std::nullopt)
      for (BufferId id : loop::growing_buffers(program, *capacity)) fixed[id.value] = true;
  });
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    auto& buffer = program.buffers[i];
    if (fixed[i] || !may_choose(program, BufferId(i))) continue;
    const auto innermost = chosen(wishes.strength[i]);
    if (innermost && *innermost + 1 != static_cast<int>(buffer.shape.size()))
      buffer.strides = strides_with_innermost(buffer.shape, static_cast<size_t>(*innermost));
  }
}

}  // namespace stridec::schedule
