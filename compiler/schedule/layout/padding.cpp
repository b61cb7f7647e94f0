#include "compiler/schedule/layout/padding.h"

#include <cmath>

#include "compiler/base/text.h"
#include "compiler/kernels/contraction.h"
#include "compiler/loop/build.h"
#include "compiler/loop/index_range.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/view.h"
#include "compiler/loop/walk.h"

namespace stridec::schedule {
namespace {

using loop::Nest;
using loop::Program;
using sym::Expr;

// More channels than this are worth a row of zeros.
constexpr int64_t kFewChannels = 16;

}  // namespace

std::optional<std::vector<Nest>> padded(Program& program, const Nest& nest) {
  const auto contraction = kernels::match_contraction(nest);
  if (!contraction) return std::nullopt;
  const std::vector<loop::Dim>& k = contraction->reduce->dims;
  // In groups, what lies next to each other are the groups.
  for (const loop::Dim& dim : nest.dims)
    if (contraction->factors[0].vars.contains(dim.var) && contraction->factors[1].vars.contains(dim.var))
      return std::nullopt;
  const loop::Load* load = nullptr;
  for (const kernels::Factor& factor : contraction->factors)
    if (factor.load && !factor.load->access.mask.is_const()) load = load ? nullptr : factor.load;
  if (!load || load->fill.f != 0 || load->fill.i != 0 || std::signbit(load->fill.f)) return std::nullopt;
  const loop::Access& access = load->access;
  const loop::Buffer from = program[access.buffer];
  if (from.storage == loop::Storage::kWeight || from.storage == loop::Storage::kLocal) return std::nullopt;

  // Taps are the reduced dims in the mask, channels the others.
  int64_t taps = 1, channels = 1;
  for (const loop::Dim& dim : k) {
    const auto extent = sym::as_const(dim.extent);
    if (!extent) return std::nullopt;
    if (sym::depends_on(access.mask, dim.var))
      taps *= *extent;
    else
      channels *= *extent;
  }
  if (taps < 2 || channels >= kFewChannels) return std::nullopt;

  std::vector<loop::Dim> dims = nest.dims;
  dims.insert(dims.end(), k.begin(), k.end());
  const sym::Facts facts = kernels::facts_in(program, nest, *contraction);
  std::vector<Expr> shape, index, before, after;
  Expr inside = 1;
  for (size_t d = 0; d < access.index.size(); ++d) {
    const Expr e = access.index[d], extent = from.shape[d];
    before.push_back(0), after.push_back(0), shape.push_back(extent), index.push_back(e);
    bool in_mask = false;
    for (Expr var : sym::free_vars(e))
      in_mask = in_mask || (sym::is_index(var) && sym::depends_on(access.mask, var));
    if (!in_mask) continue;
    const auto range = loop::range_of(e, dims);
    if (!range) return std::nullopt;
    before[d] = sym::simplify(-range->least, program.facts);
    after[d] = sym::simplify(range->most - extent + 1, program.facts);
    shape[d] = sym::simplify(range->most - range->least + 1, program.facts);
    index[d] = sym::simplify(e - range->least, facts);
    inside = sym::logical_and(inside, sym::logical_and(sym::le(0, e), sym::lt(e, extent)));
  }
  // What the mask lets through is all that is in the buffer.
  if (!facts.with(inside).holds(access.mask)) return std::nullopt;

  const auto view = loop::pad(loop::whole(program, access.buffer), before, after, load->fill);
  if (!view) return std::nullopt;
  const loop::BufferId to = loop::add_buffer(program, {.name = cat(from.name, ".padded"),
                                                       .dtype = from.dtype,
                                                       .shape = shape,
                                                       .storage = loop::Storage::kArena});
  loop::NestBuilder copy(program, "pad");
  const std::vector<Expr> at = copy.dims(shape);
  copy.store(loop::whole(program, to), at, copy.load(*view, at));
  Nest made = copy.nest();
  made.nodes = nest.nodes;

  Nest reader = nest;
  loop::for_each_stmt(reader.body, [&](loop::Stmt& stmt) {
    auto* own = std::get_if<loop::Load>(&stmt.node);
    if (own && own->result == load->result) own->access = {.buffer = to, .index = index, .mask = 1};
  });
  return std::vector<Nest>{std::move(made), std::move(reader)};
}

void pad_inputs(Program& program, std::vector<Decision>* decisions) {
  loop::replace_nests(program, [&](const Nest& nest) {
    auto parts = padded(program, nest);
    if (!parts) return std::vector<Nest>();
    if (decisions) decisions->push_back({nest.name, "padding", true, "it reads a padded copy"});
    return *std::move(parts);
  });
}

}  // namespace stridec::schedule
