#include "compiler/schedule/layout/shared_operands.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <vector>

#include "compiler/base/sort.h"
#include "compiler/kernels/contraction.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/access_map.h"
#include "compiler/schedule/analysis/effects.h"
#include "compiler/schedule/layout/index_digit.h"

namespace stridec::schedule {
namespace {

using loop::Access;
using loop::BufferId;
using loop::Nest;
using loop::Program;
using sym::Expr;

enum Group { kBatch, kDepth, kOwn, kGroups };

// One read of the buffer by a GEMM: its dims by group, each from the slowest to the fastest.
struct Read {
  std::array<std::vector<size_t>, kGroups> groups;

  // All dims: the group with the innermost one last.
  std::vector<size_t> order(size_t innermost) const {
    const bool deep = std::ranges::count(groups[kDepth], innermost) > 0;
    std::vector<size_t> out;
    for (const Group group : {kBatch, deep ? kOwn : kDepth, deep ? kDepth : kOwn})
      out.insert(out.end(), groups[group].begin(), groups[group].end());
    return out;
  }
};

// How a GEMM reads an operand; nothing if one of its dims is not a digit of a variable.
std::optional<Read> read_of(const Program& program, const Nest& nest, const loop::Reduce& reduce,
                            const Access& access, const Access& other) {
  std::vector<loop::Dim> dims = nest.dims;
  dims.insert(dims.end(), reduce.dims.begin(), reduce.dims.end());
  sym::Facts facts = program.facts;
  for (const loop::Dim& dim : dims) facts.set_index(dim.var, dim.extent);
  struct Component {
    size_t at;
    Digit digit;
  };
  std::array<std::vector<Component>, kGroups> parts;
  std::array<std::vector<loop::Dim>, kGroups> vars;
  for (size_t c = 0; c < access.index.size(); ++c) {
    const auto digit = digit_of(access.index[c], dims);
    if (!digit) return std::nullopt;
    const bool shared =
        std::ranges::any_of(other.index, [&](Expr at) { return sym::depends_on(at, digit->var); });
    const Group group = loop::is_var_of(digit->var, reduce.dims) ? kDepth : shared ? kBatch : kOwn;
    parts[group].push_back({c, *digit});
    if (std::ranges::count(vars[group], digit->var, &loop::Dim::var) == 0)
      vars[group].push_back(*std::ranges::find(dims, digit->var, &loop::Dim::var));
  }
  sort_as_in_memory(vars[kDepth], program, other, facts);
  sort_as_in_memory(vars[kOwn], program, access, facts);
  Read read;
  for (int group = 0; group < kGroups; ++group) {
    std::vector<Component>& components = parts[group];
    sort_stable(components, [&](const Component& a, const Component& b) {
      const auto rank = [&](const Component& c) {
        return std::ranges::find(vars[group], c.digit.var, &loop::Dim::var);
      };
      if (rank(a) != rank(b)) return rank(a) < rank(b);
      return facts.holds(sym::gt(a.digit.place, b.digit.place));
    });
    for (const Component& component : components) read.groups[group].push_back(component.at);
  }
  return read;
}

// Whether depth and points each have one stride.
bool is_matrix(const loop::Buffer& buffer, const std::vector<Expr>& strides, const Read& read,
               const sym::Facts& facts) {
  for (const Group group : {kDepth, kOwn})
    for (size_t i = 1; i < read.groups[group].size(); ++i) {
      const size_t slow = read.groups[group][i - 1], fast = read.groups[group][i];
      if (!sym::simplify(strides[slow] - strides[fast] * buffer.shape[fast], facts).is_const(0)) return false;
    }
  return true;
}

struct Operand {
  const Nest* nest;
  const loop::Reduce* reduce;
  const Access *access, *other;
};

std::map<BufferId, std::vector<Operand>> operands_of(const Program& program) {
  std::map<BufferId, std::vector<Operand>> operands;
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    const auto* launch = std::get_if<loop::Launch>(&step.node);
    if (!launch) return;
    const Nest& nest = program[launch->nest];
    const auto contraction = loop::classify_contraction(nest);
    if (!contraction || !contraction->a.plain || !contraction->b.plain) return;
    const Access &a = contraction->a.plain->access, &b = contraction->b.plain->access;
    operands[a.buffer].push_back({&nest, contraction->reduce, &a, &b});
    operands[b.buffer].push_back({&nest, contraction->reduce, &b, &a});
  });
  return operands;
}

}  // namespace

void lay_out_shared_operands(Program& program, const std::set<BufferId>& fixed) {
  for (const auto& [id, operands] : operands_of(program)) {
    loop::Buffer& buffer = program[id];
    if (operands.size() < 2 || buffer.storage != loop::Storage::kArena || fixed.contains(id) ||
        buffer.shape.size() < 3)
      continue;
    const auto inner = std::ranges::find_if(buffer.strides, [](Expr stride) { return stride.is_const(1); });
    if (inner == buffer.strides.end()) continue;
    const auto innermost = static_cast<size_t>(inner - buffer.strides.begin());
    std::vector<Read> reads;
    for (const Operand& operand : operands)
      if (auto read = read_of(program, *operand.nest, *operand.reduce, *operand.access, *operand.other))
        reads.push_back(std::move(*read));
    if (reads.size() != operands.size()) continue;
    const auto matrices = [&](const std::vector<Expr>& strides) {
      std::vector<bool> out;
      for (const Read& read : reads) out.push_back(is_matrix(buffer, strides, read, program.facts));
      return out;
    };
    std::vector<bool> now = matrices(buffer.strides);
    for (const Read& read : reads) {
      const std::vector<size_t> order = read.order(innermost);
      if (order.back() != innermost) continue;
      const std::vector<Expr> strides = dense_strides(buffer.shape, order);
      const std::vector<bool> then = matrices(strides);
      bool loses = false;
      for (size_t i = 0; i < now.size(); ++i) loses = loses || (now[i] && !then[i]);
      if (loses || std::ranges::count(then, true) <= std::ranges::count(now, true)) continue;
      buffer.strides = strides;
      now = then;
    }
  }
}

}  // namespace stridec::schedule
