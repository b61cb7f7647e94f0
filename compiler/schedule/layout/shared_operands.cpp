#include "compiler/schedule/layout/shared_operands.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "compiler/base/sort.h"
#include "compiler/kernels/contraction.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/access_map.h"
#include "compiler/schedule/analysis/effects.h"
#include "compiler/schedule/analysis/flow.h"
#include "compiler/schedule/layout/index_digit.h"

namespace stridec::schedule {
namespace {

using loop::Access;
using loop::BufferId;
using loop::Nest;
using loop::Program;
using sym::Expr;

enum Group { kBatch, kDepth, kOwn, kGroups };

// A digit of the buffer's index: mod(index[dim] // place, size).
struct IndexPart {
  size_t dim;
  Expr place, size;
};

// One read of the buffer by a GEMM.
struct GemmRead {
  const Nest* nest;
  const loop::Reduce* reduce;
  const Access *access, *other;

  std::vector<loop::Dim> dims() const {
    std::vector<loop::Dim> all = nest->dims;
    all.insert(all.end(), reduce->dims.begin(), reduce->dims.end());
    return all;
  }
  sym::Facts facts(const Program& program) const { return loop::facts_of(program, *nest, *reduce); }
};

// The read in terms of the buffer's parts: their positions in the list of parts by group, each group from the
// slowest to the fastest.
struct Read {
  std::array<std::vector<size_t>, kGroups> groups;

  // All parts: the group with the innermost one last.
  std::vector<size_t> order(size_t innermost) const {
    const bool deep = std::ranges::count(groups[kDepth], innermost) > 0;
    std::vector<size_t> out;
    for (const Group group : {kBatch, deep ? kOwn : kDepth, deep ? kDepth : kOwn})
      out.insert(out.end(), groups[group].begin(), groups[group].end());
    return out;
  }
};

// For each dim of the buffer the digits of index variables that it is read by, the lowest first. A dim of
// size 1 has none. Nothing if an index has another form.
using IndexDigits = std::vector<std::vector<Digit>>;
std::optional<IndexDigits> index_digits(const Program& program, const GemmRead& operand) {
  const std::vector<loop::Dim> dims = operand.dims();
  const std::vector<Expr>& shape = program[operand.access->buffer].shape;
  const sym::Facts facts = operand.facts(program);
  IndexDigits out(shape.size());
  for (size_t c = 0; c < shape.size(); ++c) {
    if (shape[c].is_const(1)) continue;
    const Expr index = operand.access->index[c];
    out[c] = digits_of(index, index, shape[c], dims, facts);
    if (!out[c].empty()) continue;
    const auto digit = digit_of(index, dims);  // of a part of the dim
    if (!digit) return std::nullopt;
    out[c] = {*digit};
  }
  return out;
}

// The coarsest split of all dims in which each digit of each read consists of whole parts; nothing if the
// digits of two reads overlap in part.
std::optional<std::vector<IndexPart>> common_parts(const std::vector<Expr>& shape,
                                                   const std::vector<IndexDigits>& reads,
                                                   const sym::Facts& facts) {
  std::vector<IndexPart> parts;
  for (size_t c = 0; c < shape.size(); ++c) {
    std::set<int64_t> places = {1};
    for (const IndexDigits& read : reads) {
      int64_t place = 1;
      for (size_t d = 0; d + 1 < read[c].size(); ++d) {
        const auto size = sym::as_const(read[c][d].size);
        if (!size) return std::nullopt;
        places.insert(place *= *size);
      }
    }
    for (auto at = places.begin(); at != places.end(); ++at) {
      const auto next = std::next(at);
      const bool last = next == places.end();
      if (last ? facts.known_divisor(shape[c]) % *at != 0 : *next % *at != 0) return std::nullopt;
      parts.push_back({c, *at, last ? sym::simplify(sym::floordiv(shape[c], *at), facts) : *next / *at});
    }
  }
  return parts;
}

Read read_of(const Program& program, const GemmRead& operand, const IndexDigits& digits,
             const std::vector<IndexPart>& parts) {
  const std::vector<loop::Dim> dims = operand.dims();
  const sym::Facts facts = operand.facts(program);
  struct Component {
    size_t part;
    Expr var, place;  // of the variable
  };
  Read read;
  std::array<std::vector<Component>, kGroups> components;
  std::array<std::vector<loop::Dim>, kGroups> vars;
  for (size_t p = 0; p < parts.size(); ++p) {
    const std::vector<Digit>& of_dim = digits[parts[p].dim];
    if (of_dim.empty()) {
      read.groups[kBatch].push_back(p);
      continue;
    }
    const int64_t place = *sym::as_const(parts[p].place);
    int64_t low = 1;  // of the digit that has the part
    size_t d = 0;
    for (; d + 1 < of_dim.size(); ++d) {
      const int64_t next = low * *sym::as_const(of_dim[d].size);
      if (next > place) break;
      low = next;
    }
    const Expr var = of_dim[d].var;
    const bool shared =
        std::ranges::any_of(operand.other->index, [&](Expr at) { return sym::depends_on(at, var); });
    const Group group = loop::is_var_of(var, operand.reduce->dims) ? kDepth : shared ? kBatch : kOwn;
    components[group].push_back({p, var, of_dim[d].place * (place / low)});
    if (std::ranges::count(vars[group], var, &loop::Dim::var) == 0)
      vars[group].push_back(*std::ranges::find(dims, var, &loop::Dim::var));
  }
  sort_as_in_memory(vars[kDepth], program, *operand.other, facts);
  sort_as_in_memory(vars[kOwn], program, *operand.access, facts);
  for (int group = 0; group < kGroups; ++group) {
    sort_stable(components[group], [&](const Component& a, const Component& b) {
      const auto rank = [&](const Component& c) {
        return std::ranges::find(vars[group], c.var, &loop::Dim::var);
      };
      if (rank(a) != rank(b)) return rank(a) < rank(b);
      return facts.holds(sym::gt(a.place, b.place));
    });
    for (const Component& component : components[group]) read.groups[group].push_back(component.part);
  }
  return read;
}

// Whether depth and points each have one stride. `strides` are those of the parts.
bool is_matrix(const std::vector<IndexPart>& parts, const std::vector<Expr>& strides, const Read& read,
               const sym::Facts& facts) {
  for (const Group group : {kDepth, kOwn})
    for (size_t i = 1; i < read.groups[group].size(); ++i) {
      const size_t slow = read.groups[group][i - 1], fast = read.groups[group][i];
      if (!sym::simplify(strides[slow] - strides[fast] * parts[fast].size, facts).is_const(0)) return false;
    }
  return true;
}

std::vector<Expr> sizes_of(const std::vector<IndexPart>& parts) {
  std::vector<Expr> out;
  for (const IndexPart& part : parts) out.push_back(part.size);
  return out;
}

// The strides of the buffer's dims; nothing if the parts of a dim lie apart.
std::optional<std::vector<Expr>> strides_of_dims(const std::vector<IndexPart>& parts,
                                                 const std::vector<Expr>& strides, size_t rank,
                                                 const sym::Facts& facts) {
  std::vector<Expr> out(rank);
  for (size_t p = 0; p < parts.size(); ++p) {
    const IndexPart& part = parts[p];
    if (part.place.is_const(1))
      out[part.dim] = strides[p];
    else if (!sym::simplify(strides[p] - out[part.dim] * part.place, facts).is_const(0))
      return std::nullopt;
  }
  return out;
}

// Whether the order ends with the parts of the dim, the slowest first, so that the dim stays contiguous.
bool ends_with_dim(const std::vector<IndexPart>& parts, const std::vector<size_t>& order, size_t dim) {
  std::vector<size_t> of_dim;  // from the slowest
  for (size_t p = parts.size(); p-- > 0;)
    if (parts[p].dim == dim) of_dim.push_back(p);
  return std::ranges::equal(of_dim, std::span(order).last(of_dim.size()));
}

// Makes a dim of each part, in this order, and rewrites all indices of the buffer.
void split_dims(Program& program, BufferId id, const std::vector<IndexPart>& parts,
                const std::vector<size_t>& order) {
  loop::Buffer& buffer = program[id];
  const std::vector<Expr> before = buffer.shape;
  buffer.shape.clear();
  for (const size_t p : order) buffer.shape.push_back(parts[p].size);
  buffer.strides = loop::row_major(buffer.shape);
  for (Nest& nest : program.nests) {
    bool touches = false;
    loop::for_each_stmt(nest.body, [&](loop::Stmt& stmt) {
      Access* access = loop::access_of(stmt);
      if (!access || access->buffer != id) return;
      const std::vector<Expr> index = std::move(access->index);
      access->index.clear();
      for (const size_t p : order) {
        const auto& [dim, place, size] = parts[p];
        const Expr digit = sym::floordiv(index[dim], place);
        const bool top = sym::simplify(place * size - before[dim], program.facts).is_const(0);
        access->index.push_back(top ? digit : sym::mod(digit, size));
      }
      touches = true;
    });
    if (touches) loop::simplify(program, nest);
  }
}

std::map<BufferId, std::vector<GemmRead>> operands_of(const Program& program) {
  std::map<BufferId, std::vector<GemmRead>> operands;
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

// An order of the parts.
struct PartOrder {
  std::vector<size_t> order;
  std::vector<Expr> strides;                 // of the parts
  std::optional<std::vector<Expr>> of_dims;  // strides of the buffer's dims that give the order, if any
};

// The orders that the reads ask for, those that strides can give first. `inner`: the innermost dim.
std::vector<PartOrder> choices_of(const std::vector<IndexPart>& parts, const std::vector<Read>& reads,
                                  size_t inner, size_t rank, const sym::Facts& facts) {
  size_t innermost = 0;  // of the parts
  while (parts[innermost].dim != inner) ++innermost;
  std::vector<PartOrder> choices;
  for (const Read& read : reads) {
    PartOrder choice{.order = read.order(innermost), .strides = {}, .of_dims = {}};
    if (!ends_with_dim(parts, choice.order, inner)) continue;
    choice.strides = dense_strides(sizes_of(parts), choice.order);
    choice.of_dims = strides_of_dims(parts, choice.strides, rank, facts);
    choices.push_back(std::move(choice));
  }
  sort_stable(choices, [](const PartOrder& a, const PartOrder& b) { return a.of_dims && !b.of_dims; });
  return choices;
}

// The choice in which most reads are matrices, among those that keep every read a matrix that is one now.
// Null if none is better than the present layout.
const PartOrder* best_of(const std::vector<PartOrder>& choices, const std::vector<IndexPart>& parts,
                         const std::vector<Read>& reads, const loop::Buffer& buffer,
                         const sym::Facts& facts) {
  const auto matrices = [&](const std::vector<Expr>& strides) {
    std::vector<bool> out;
    for (const Read& read : reads) out.push_back(is_matrix(parts, strides, read, facts));
    return out;
  };
  std::vector<Expr> strides;
  for (const IndexPart& part : parts) strides.push_back(buffer.strides[part.dim] * part.place);
  std::vector<bool> now = matrices(strides);
  const PartOrder* best = nullptr;
  for (const PartOrder& choice : choices) {
    const std::vector<bool> then = matrices(choice.strides);
    bool loses = false;
    for (size_t i = 0; i < now.size(); ++i) loses = loses || (now[i] && !then[i]);
    if (loses || std::ranges::count(then, true) <= std::ranges::count(now, true)) continue;
    best = &choice;
    now = then;
  }
  return best;
}

// Lays the buffer out for these reads. Returns whether indices have changed.
bool lay_out(Program& program, BufferId id, const std::vector<GemmRead>& operands) {
  loop::Buffer& buffer = program[id];
  const size_t rank = buffer.shape.size();
  size_t inner = 0;
  while (inner < rank && (!buffer.strides[inner].is_const(1) || buffer.shape[inner].is_const(1))) ++inner;
  if (inner == rank) return false;
  std::vector<IndexDigits> digits;
  for (const GemmRead& operand : operands)
    if (auto found = index_digits(program, operand)) digits.push_back(std::move(*found));
  if (digits.size() != operands.size()) return false;
  const auto parts = common_parts(buffer.shape, digits, program.facts);
  if (!parts) return false;
  std::vector<Read> reads;
  for (size_t i = 0; i < operands.size(); ++i)
    reads.push_back(read_of(program, operands[i], digits[i], *parts));
  const std::vector<PartOrder> choices = choices_of(*parts, reads, inner, rank, program.facts);
  const PartOrder* best = best_of(choices, *parts, reads, buffer, program.facts);
  if (!best) return false;
  if (best->of_dims) {
    buffer.strides = *best->of_dims;
    return false;
  }
  // For one GEMM, a copy of what it reads may be better (lay_out_operands).
  if (operands.size() < 2) return false;
  split_dims(program, id, *parts, best->order);
  return true;
}

}  // namespace

void lay_out_shared_operands(Program& program, const std::set<BufferId>& fixed) {
  const UserCounts users = user_counts(program);
  auto operands = operands_of(program);
  for (int64_t i = 0; i < static_cast<int64_t>(program.buffers.size()); ++i) {
    const BufferId id(i);
    const bool shared = operands[id].size() > 1 || users.readers(id) > 1;
    if (operands[id].empty() || !shared || program[id].storage != loop::Storage::kArena ||
        fixed.contains(id) || program[id].shape.size() < 3)
      continue;
    if (lay_out(program, id, operands[id])) operands = operands_of(program);
  }
}

}  // namespace stridec::schedule
