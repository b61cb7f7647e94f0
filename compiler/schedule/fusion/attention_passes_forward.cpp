#include "compiler/schedule/fusion/attention_passes.h"

#include <algorithm>
#include <map>
#include <string>

#include "compiler/kernels/definitions.h"
#include "compiler/kernels/flash_backward.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"

namespace stridec::schedule {
namespace {

using kernels::Contraction;
using kernels::Flash;
using loop::Access;
using loop::BufferId;
using loop::Launch;
using loop::Let;
using loop::Load;
using loop::Nest;
using loop::Program;
using loop::Reduce;
using loop::ScalarOp;
using loop::Stmt;
using loop::Store;
using loop::ValueId;
using sym::Expr;

// Finds the maximum and the sum of a softmax.
bool find_statistics(const Nest& softmax, ForwardPass& out) {
  const auto found = [&](const Reduce& reduce, ValueId& result) {
    const bool first = !result.valid();
    result = reduce.results[0];
    return first && reduce.results.size() == 1 && softmax.values[result.value].dtype == DType::kF32;
  };
  for (const Stmt& stmt : softmax.body)
    if (const auto* reduce = std::get_if<Reduce>(&stmt.node)) {
      const bool is_max = reduce->combine == loop::Combine::kMax;
      if (!is_max && reduce->combine != loop::Combine::kSum) return false;
      if (!found(*reduce, is_max ? out.maximum : out.sum)) return false;
    }
  return out.maximum.valid() && out.sum.valid();
}

// The weight that casts convert, and that `isnan(p) ? 0 : p` guards.
ValueId skip_guards(const kernels::Definitions& made, ValueId id) {
  while (true) {
    id = kernels::skip_casts(made, id);
    const Let* guard = kernels::let_of(made, id);
    if (!guard || guard->op != ScalarOp::kSelect) return id;
    const Let* test = kernels::let_of(made, guard->args[0]);
    const auto zero = kernels::constant_of(made, guard->args[1]);
    const ValueId guarded = kernels::skip_casts(made, guard->args[2]);
    if (!test || test->op != ScalarOp::kIsNan || kernels::skip_casts(made, test->args[0]) != guarded ||
        !zero || zero->f != 0)
      return id;
    id = guarded;
  }
}

// Finds the buffers that hold the same values as `weights`, up to their types and what rows that see no key
// have, and how they are indexed.
bool find_copies(const Program& program, const Nest& softmax, BufferId weights, ForwardPass& out) {
  const auto made = kernels::definitions_of(softmax.body);
  std::map<BufferId, const Store*> stores;
  loop::for_each_stmt(softmax.body, [&](const Stmt& stmt) {
    if (const auto* store = std::get_if<Store>(&stmt.node)) stores[store->access.buffer] = store;
  });
  const Store& main = *stores.at(weights);
  for (const auto& [buffer, store] : stores)
    if (program[buffer].storage == loop::Storage::kArena &&
        skip_guards(made, store->value) == skip_guards(made, main.value) &&
        store->access.index == main.access.index)
      out.weights.push_back(buffer);
  size_t dims = 0;
  for (Expr e : main.access.index) {
    out.place.push_back(e);
    if (e.is_const()) continue;
    if (!sym::is_index(e)) return false;
    ++dims;
    if (loop::is_var_of(e, softmax.dims)) continue;
    if (out.key.var != Expr()) return false;
    out.key.var = e;
  }
  return out.key.var != Expr() && main.access.mask.is_const(1) && !main.update &&
         dims == softmax.dims.size() + 1;
}

void drop_stores(loop::Block& block, const std::set<BufferId>& dropped) {
  std::erase_if(block, [&](const Stmt& stmt) {
    const auto* store = std::get_if<Store>(&stmt.node);
    return store && dropped.contains(store->access.buffer);
  });
  for (Stmt& stmt : block)
    if (loop::Block* body = loop::body_of(stmt)) drop_stores(*body, dropped);
}

// The forward pass alone, as the target chains it once nothing else reads the weights.
struct Chained {
  Program program;
  std::map<std::string, BufferId> names;  // the buffers of the whole program
};

std::optional<Chained> chained(const Program& program, const loop::Steps& steps, const ForwardPass& forward,
                               BufferId weights, const ChainAttention& chain) {
  Chained out;
  Program& copy = out.program;
  copy.buffers = program.buffers;
  copy.facts = program.facts;
  copy.symbols = program.symbols;
  for (size_t i = 0; i < program.buffers.size(); ++i)
    out.names[program.buffers[i].name] = BufferId(static_cast<int64_t>(i));
  // Outputs stay in memory, although no step of the copy reads them.
  const RowStatistics statistics =
      add_row_statistics(copy, nest_at(program, steps, forward.softmax)->dims, true, loop::Storage::kOutput);
  for (BufferId id : effects_of(*nest_at(program, steps, forward.values)).writes)
    copy[id].storage = loop::Storage::kOutput;
  for (const int at : {forward.scores, forward.softmax, forward.values}) {
    Nest nest = *nest_at(program, steps, at);
    std::set<BufferId> others;  // what the backward pass alone reads, if it is found
    for (BufferId id : effects_of(nest).writes)
      if (id != weights && copy[id].storage == loop::Storage::kArena) others.insert(id);
    if (at == forward.scores) {
      for (BufferId id : effects_of(*nest_at(program, steps, forward.softmax)).reads) others.erase(id);
      drop_stores(nest.body, others);
      loop::clean(copy, nest);
    }
    if (at == forward.softmax) store_row_statistics(copy, nest, forward, statistics, others);
    copy.steps.push_back({Launch{loop::add_nest(copy, std::move(nest))}});
  }
  chain(copy);
  return copy.steps.size() == 1 ? std::optional(std::move(out)) : std::nullopt;
}

// Whether the store's value is the second contraction's sum, up to its type.
bool is_result(const Flash& flash, const Store& store) {
  const auto made = kernels::definitions_of(flash.values_nest().body);
  return kernels::skip_casts(made, store.value) == flash.values().reduce->results[0];
}

// Describes the factors over the softmax's own index variables, the key's and a depth's.
bool describe(const Program& program, const Nest& softmax, const Chained& chain, ForwardPass& out) {
  const Program& copy = chain.program;
  const auto flash = kernels::match_attention(copy, *nest_at(copy, copy.steps, 0), true);
  if (!flash || flash->statistics.empty() || flash->fixes) return false;
  const loop::Dim& deep = flash->scores().reduce->dims[0];
  const kernels::Chain::Link &first = *flash->chain.parts[0].link, &last = *flash->chain.parts[2].link;
  const Load* q = kernels::plain_load(first.row_factor());
  const Load* k = kernels::plain_load(first.column_factor());
  const Load* v = kernels::plain_load(last.column_factor());
  if (!q || !k || !v || deep.extent != flash->columns.extent) return false;
  out.dtype = copy[q->access.buffer].dtype;
  for (const Load* load : {k, v})
    if (copy[load->access.buffer].dtype != out.dtype) return false;
  for (const loop::Buffer& buffer : copy.buffers) {
    const auto found = chain.names.find(buffer.name);
    if (found != chain.names.end() && buffer.storage == loop::Storage::kArena &&
        buffer.strides != program[found->second].strides)
      out.layouts.emplace_back(found->second, buffer.strides);
  }
  out.dims = softmax.dims;
  out.facts = program.facts;
  sym::Substitution at;
  const auto& statistic = flash->statistics[0].store->access.index;
  for (size_t d = 0; d < softmax.dims.size(); ++d) {
    const loop::Dim& dim = softmax.dims[d];
    if (!sym::is_index(statistic[d])) return false;
    at[statistic[d]] = dim.var;
    out.facts.set_index(dim.var, dim.extent);
    if (statistic[d] == flash->chain.row.var)
      out.row = dim;
    else
      out.batch.push_back(dim);
  }
  if (out.row.var == Expr()) return false;
  out.depth = {sym::var("%depth"), deep.extent};
  out.key.extent = flash->keys.extent;
  for (const loop::Dim& dim : {out.key, out.depth}) out.facts.set_index(dim.var, dim.extent);
  at[flash->keys.var] = at[flash->values().reduce->dims[0].var] = out.key.var;
  at[deep.var] = at[flash->columns.var] = out.depth.var;
  const auto rows = [&](const Access& access) {
    TensorRows own = rows_of(access, at, out.facts);
    own.buffer = chain.names.at(copy[access.buffer].name);
    return own;
  };
  out.q = rows(q->access);
  out.k = rows(k->access);
  out.v = rows(v->access);
  out.score = flash->scores_nest();
  loop::for_each_stmt(out.score.body, [&](Stmt& stmt) {
    Access* access = loop::access_of(stmt);
    if (access && !std::holds_alternative<Store>(stmt.node))
      access->buffer = chain.names.at(copy[access->buffer].name);
  });
  out.score_at = at;
  if (!flash->given && !flash->asks_memory()) out.scale = flash->scale;
  if (out.scale && flash->visible) {
    out.seen = sym::simplify(sym::substitute(*flash->visible, at) - out.row.var, out.facts);
    if (sym::has_index(*out.seen)) return false;
  }
  for (const Stmt& stmt : flash->values_nest().body)
    if (const auto* store = std::get_if<Store>(&stmt.node)) {
      if (store->update || !store->access.mask.is_const(1) ||
          !chain.names.contains(copy[store->access.buffer].name))
        return false;
      if (is_result(*flash, *store)) out.o = rows(store->access);
    }
  return !out.o.index.empty();
}

std::optional<ForwardPass> forward_of(const Program& program, const loop::Steps& steps, const Flow& flow,
                                      int values, BufferId weights, const ChainAttention& chain) {
  ForwardPass out{.values = values};
  const auto writer = [&](BufferId id, int before) {
    return made_once(program, flow, id) ? writer_before(program, steps, flow, before, id) : -1;
  };
  out.softmax = writer(weights, values);
  if (out.softmax < 0) return std::nullopt;
  const Nest& softmax = *nest_at(program, steps, out.softmax);
  if (!find_statistics(softmax, out)) return std::nullopt;
  for (BufferId id : flow.effects(out.softmax).reads) {
    const int at = writer(id, out.softmax);
    if (at >= 0 && kernels::match_contraction(*nest_at(program, steps, at))) out.scores = at;
  }
  if (out.scores < 0 || !find_copies(program, softmax, weights, out)) return std::nullopt;
  // With one reader the forward pass becomes a chain as it is.
  int readers = 0;
  for (BufferId id : out.weights) readers += flow.reader_count(id);
  if (readers < 2) return std::nullopt;
  const auto alone = chained(program, steps, out, weights, chain);
  return alone && describe(program, softmax, *alone, out) ? std::optional(std::move(out)) : std::nullopt;
}

}  // namespace

TensorRows rows_of(const Access& access, const sym::Substitution& at, const sym::Facts& facts) {
  TensorRows out{.buffer = access.buffer, .index = {}};
  for (Expr e : access.index) out.index.push_back(sym::simplify(sym::substitute(e, at), facts));
  return out;
}

std::optional<ForwardPass> find_forward_pass(const Program& program, const loop::Steps& steps,
                                             const Flow& flow, int values, const ChainAttention& chain) {
  const Nest* last = nest_at(program, steps, values);
  const auto contraction = last ? kernels::match_contraction(*last) : std::nullopt;
  if (!contraction) return std::nullopt;
  for (const kernels::Factor& factor : contraction->factors)
    for (const Stmt* stmt : factor.slice)
      if (const auto* load = std::get_if<Load>(&stmt->node))
        if (auto out = forward_of(program, steps, flow, values, load->access.buffer, chain)) return out;
  return std::nullopt;
}

RowStatistics add_row_statistics(Program& program, const std::vector<loop::Dim>& dims, bool combined,
                                 loop::Storage storage) {
  const auto add = [&](const char* name) {
    loop::Buffer buffer{.name = name, .dtype = DType::kF32, .storage = storage};
    for (const loop::Dim& dim : dims) buffer.shape.push_back(dim.extent);
    return loop::add_buffer(program, std::move(buffer));
  };
  RowStatistics out;
  if (combined) {
    out.log_sum_exp = add("log_sum_exp");
  } else {
    out.maximum = add("maximum");
    out.log_sum = add("log_sum");
  }
  return out;
}

void store_row_statistics(const Program& program, Nest& softmax, const ForwardPass& forward,
                          const RowStatistics& to, const std::set<BufferId>& dropped) {
  drop_stores(softmax.body, dropped);
  loop::Writer writer{softmax, softmax.body};
  const ValueId log = writer.let(ScalarOp::kLog, DType::kF32, {forward.sum});
  const auto store = [&](BufferId id, ValueId value) {
    if (id.valid()) writer.store({id, loop::vars_of(softmax.dims)}, value);
  };
  store(to.maximum, forward.maximum);
  store(to.log_sum, log);
  if (to.log_sum_exp.valid())
    store(to.log_sum_exp, writer.let(ScalarOp::kAdd, DType::kF32, {forward.maximum, log}));
  loop::clean(program, softmax);
}

}  // namespace stridec::schedule
