#include "compiler/schedule/layout/operand_layout.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "compiler/base/text.h"
#include "compiler/kernels/contraction.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/origin.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/effects.h"
#include "compiler/schedule/analysis/flow.h"
#include "compiler/schedule/layout/index_digit.h"
#include "compiler/schedule/layout/shared_operands.h"

namespace stridec::schedule {
namespace {

using loop::BufferId;
using loop::Nest;
using loop::Program;
using sym::Expr;

// The buffer's dims, outermost first: those of the GEMM's points and those of size 1 in their present order,
// then those of the depth. Empty if a dim of the depth is not an index of the buffer.
std::vector<size_t> rows_first(const loop::Access& access, const loop::Reduce& reduce) {
  std::vector<size_t> order;
  for (size_t c = 0; c < access.index.size(); ++c)
    if (!loop::is_var_of(access.index[c], reduce.dims)) order.push_back(c);
  for (const loop::Dim& dim : reduce.dims) {
    const auto at = std::find(access.index.begin(), access.index.end(), dim.var);
    if (at == access.index.end()) return {};
    order.push_back(static_cast<size_t>(at - access.index.begin()));
  }
  return order;
}

// The index variable in terms of its digits; nothing if they do not cover all of it.
std::optional<Expr> variable_of(const loop::Dim& dim, std::vector<Digit> digits, const sym::Facts& facts) {
  Expr value = 0, place = 1;
  while (!digits.empty()) {
    const auto next = std::find_if(digits.begin(), digits.end(), [&](const Digit& digit) {
      return digit.var == dim.var && sym::simplify(digit.place, facts) == place;
    });
    if (next == digits.end()) break;
    value += next->value * place;
    place = sym::simplify(place * next->size, facts);
    digits.erase(next);
  }
  const bool all =
      place == sym::simplify(dim.extent, facts) &&
      std::none_of(digits.begin(), digits.end(), [&](const Digit& d) { return d.var == dim.var; });
  return all ? std::optional(value) : std::nullopt;
}

// Gives the buffer the shape in which the GEMM reads it, and rewrites the indices of its writers.
bool lay_as_read(Program& program, Nest& nest, const loop::Access& access, const loop::Reduce& reduce) {
  std::vector<loop::Dim> dims = nest.dims;
  dims.insert(dims.end(), reduce.dims.begin(), reduce.dims.end());
  const BufferId id = access.buffer;
  loop::Buffer& buffer = program[id];
  const sym::Facts facts = loop::facts_of(program, nest);
  std::vector<Expr> at;
  std::vector<Digit> digits;
  for (size_t c = 0; c < access.index.size(); ++c) {
    at.push_back(sym::var(cat("%at", c)));
    if (buffer.shape[c].is_const(1)) continue;
    const auto more = digits_of(access.index[c], at[c], buffer.shape[c], dims, facts);
    if (more.empty()) return false;
    digits.insert(digits.end(), more.begin(), more.end());
  }
  std::vector<Expr> shape, index, place;
  for (const loop::Dim& dim : dims) {
    if (std::none_of(digits.begin(), digits.end(), [&](const Digit& d) { return d.var == dim.var; }))
      continue;
    const auto value = variable_of(dim, digits, facts);
    if (!value) return false;
    shape.push_back(dim.extent);
    index.push_back(dim.var);
    place.push_back(*value);
  }
  // Memory has to stay contiguous along the last dim.
  if (reduce.dims.empty() || access.index.back() != index.back()) return false;
  for (Nest& writer : program.nests) {
    bool writes = false;
    loop::for_each_stmt(writer.body, [&](loop::Stmt& stmt) {
      auto* store = std::get_if<loop::Store>(&stmt.node);
      if (!store || store->access.buffer != id) return;
      sym::Substitution indices;
      for (size_t c = 0; c < at.size(); ++c) indices[at[c]] = store->access.index[c];
      store->access.index.clear();
      for (Expr e : place) store->access.index.push_back(sym::substitute(e, indices));
      writes = true;
    });
    if (writes) loop::simplify(program, writer);
  }
  loop::for_each_stmt(nest.body, [&](loop::Stmt& stmt) {
    auto* load = std::get_if<loop::Load>(&stmt.node);
    if (load && load->access.buffer == id) load->access.index = index;
  });
  buffer.shape = shape;
  buffer.strides = loop::row_major(shape);
  return true;
}

bool divides(Expr at) {
  bool found = false;
  sym::for_each_node(
      at, [&](Expr e) { found = found || e.op() == sym::Op::kFloorDiv || e.op() == sym::Op::kMod; });
  return found;
}

// Whether the address is not affine in the index variables.
bool reads_windows(const Program& program, const Nest& nest, const loop::Reduce& reduce,
                   const loop::Access& access) {
  if (std::none_of(access.index.begin(), access.index.end(), divides)) return false;
  return divides(kernels::offset_of(program, access, loop::facts_of(program, nest, reduce)));
}

// Returns the GEMM after a copy of the operand that it reads in windows. Returns nothing if it reads none, or
// reads each element rarely.
std::vector<Nest> behind_copy(Program& program, const Nest& nest) {
  // Least number of results that read an element: gathered tiles run at a fifth of the speed of boxes.
  constexpr int64_t kReadsWorthCopy = 64;
  const auto contraction = loop::classify_contraction(nest);
  if (!contraction || !nest.schedule.kernel.empty()) return {};
  for (const auto* operand : {&contraction->a, &contraction->b}) {
    if (!operand->plain || !reads_windows(program, nest, *contraction->reduce, operand->plain->access))
      continue;
    const loop::Access access = operand->plain->access;
    const loop::Buffer from = program[access.buffer];
    if ((from.storage != loop::Storage::kArena && from.storage != loop::Storage::kInput) ||
        byte_size(from.dtype) > 4 || !access.mask.is_const(1))
      continue;
    std::vector<loop::Dim> dims = nest.dims;
    dims.insert(dims.end(), contraction->reduce->dims.begin(), contraction->reduce->dims.end());
    loop::Buffer matrix{.name = from.name + ".matrix", .dtype = from.dtype};
    std::vector<loop::Dim> own_dims;
    Expr reads = 1;
    loop::Access write;
    for (const loop::Dim& dim : dims) {
      const bool own = std::any_of(access.index.begin(), access.index.end(),
                                   [&](Expr e) { return sym::depends_on(e, dim.var); });
      if (!own) {
        reads *= dim.extent;
        continue;
      }
      if (sym::has_index(dim.extent)) return {};
      own_dims.push_back(dim);
      matrix.shape.push_back(dim.extent);
      write.index.push_back(dim.var);
    }
    // What is contiguous stays so: a weight gradient's operand is contiguous along its points.
    const auto last = std::ranges::find(write.index, access.index.back()) - write.index.begin();
    if (last < std::ssize(write.index)) {
      const auto to_end = [&](auto& list) {
        std::rotate(list.begin() + last, list.begin() + last + 1, list.end());
      };
      to_end(own_dims), to_end(matrix.shape), to_end(write.index);
    }
    // Overlapping windows are excluded, since the copy would be larger than the buffer.
    const Expr elements = loop::element_count(matrix.shape);
    if (program.facts.bounds(reads).lo < kReadsWorthCopy || access.index.back() != write.index.back() ||
        sym::simplify(elements - loop::element_count(from.shape), program.facts) != Expr(0))
      continue;
    write.buffer = loop::add_buffer(program, std::move(matrix));
    Nest product = nest;
    loop::redirect(product, operand->plain->result, write);
    Nest copy =
        loop::copy_nest("copy " + from.name, std::move(own_dims), access, operand->plain->fill, write);
    loop::attribute(copy, loop::node_of(nest, operand->plain->result));
    return {std::move(copy), std::move(product)};
  }
  return {};
}

void lay(Program& program, Nest& nest, const UserCounts& users, const std::set<BufferId>& fixed) {
  const auto contraction = loop::classify_contraction(nest);
  if (!contraction) return;
  for (const auto* operand : {&contraction->a, &contraction->b}) {
    if (!operand->plain) continue;
    const loop::Access& access = operand->plain->access;
    loop::Buffer& buffer = program[access.buffer];
    if (buffer.storage != loop::Storage::kArena || users.readers(access.buffer) != 1 ||
        fixed.contains(access.buffer) || buffer.strides != loop::row_major(buffer.shape))
      continue;
    int loads = 0;
    loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
      const auto* load = std::get_if<loop::Load>(&stmt.node);
      loads += load && load->access.buffer == access.buffer;
    });
    if (reads_windows(program, nest, *contraction->reduce, access) && loads == 1 && access.mask.is_const(1) &&
        lay_as_read(program, nest, access, *contraction->reduce))
      return lay(program, nest, users, fixed);  // the statements have changed
    if (contraction->reduce->dims.size() < 2) continue;
    // Each component of the index is a separate dim of the GEMM's points or depth.
    std::set<sym::Expr, sym::ExprLess> seen;
    bool plain = true;
    for (size_t c = 0; c < access.index.size(); ++c) {
      const Expr at = access.index[c];
      const bool dim = loop::is_var_of(at, nest.dims) || loop::is_var_of(at, contraction->reduce->dims);
      plain = plain && (buffer.shape[c].is_const(1) || (dim && seen.insert(at).second));
    }
    const std::vector<size_t> order =
        plain ? rows_first(access, *contraction->reduce) : std::vector<size_t>{};
    if (order.empty() || order.back() + 1 != access.index.size()) continue;
    buffer.strides = dense_strides(buffer.shape, order);
  }
}

}  // namespace

void lay_out_operands(Program& program) {
  const UserCounts users = user_counts(program);
  const std::set<BufferId> fixed = fixed_buffers(program);
  lay_out_shared_operands(program, fixed);
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    if (const auto* launch = std::get_if<loop::Launch>(&step.node))
      lay(program, program[launch->nest], users, fixed);
  });
  loop::replace_nests(program, [&](const Nest& nest) { return behind_copy(program, nest); });
}

}  // namespace stridec::schedule
