#include "compiler/schedule/fusion/attention_passes.h"

#include <algorithm>
#include <map>
#include <string>

#include "compiler/kernels/definitions.h"
#include "compiler/kernels/flash_backward.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/fusion/value_graph.h"

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

TensorRows rows_of(const Access& access, const sym::Substitution& at, const sym::Facts& facts) {
  TensorRows out{.buffer = access.buffer, .index = {}};
  for (Expr e : access.index) out.index.push_back(sym::simplify(sym::substitute(e, at), facts));
  return out;
}

// ---- the forward pass ------------------------------------------------------------------------------------

// Finds the maximum and the sum of a softmax.
bool find_statistics(const Nest& softmax, ForwardPass& out) {
  const auto found = [&](const Reduce& reduce, ValueId& result) {
    const bool first = !result.valid();
    result = reduce.results[0];
    return first && softmax.values[result.value].dtype == DType::kF32;
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
  for (Expr e : main.access.index) {
    if (!sym::is_index(e)) return false;
    out.place.push_back(e);
    if (loop::is_var_of(e, softmax.dims)) continue;
    if (out.key.var != Expr()) return false;
    out.key.var = e;
  }
  return out.key.var != Expr() && main.access.mask.is_const(1) && !main.update &&
         main.access.index.size() == softmax.dims.size() + 1;
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
  loop::Buffer statistic{.name = "log_sum_exp", .dtype = DType::kF32, .storage = loop::Storage::kOutput};
  for (const loop::Dim& dim : nest_at(program, steps, forward.softmax)->dims)
    statistic.shape.push_back(dim.extent);
  const BufferId log_sum_exp = loop::add_buffer(copy, std::move(statistic));
  for (BufferId id : effects_of(*nest_at(program, steps, forward.values)).writes)
    copy[id].storage = loop::Storage::kOutput;
  for (const int at : {forward.scores, forward.softmax, forward.values}) {
    Nest nest = *nest_at(program, steps, at);
    if (at == forward.softmax) {
      std::set<BufferId> others;
      for (BufferId id : effects_of(nest).writes)
        if (id != weights && copy[id].storage == loop::Storage::kArena) others.insert(id);
      store_log_sum_exp(copy, nest, forward, log_sum_exp, others);
    }
    copy.steps.push_back({Launch{loop::add_nest(copy, std::move(nest))}});
  }
  chain(copy);
  return copy.steps.size() == 1 ? std::optional(std::move(out)) : std::nullopt;
}

// Whether the store's value is the second contraction's sum, up to its type.
bool is_result(const Flash& flash, const Store& store) {
  const auto made = kernels::definitions_of(flash.values_nest().body);
  return kernels::skip_casts(made, store.value) == flash.values.reduce->results[0];
}

// Describes the factors over the softmax's own index variables, the key's and a depth's.
bool describe(const Program& program, const Nest& softmax, const Chained& chain, ForwardPass& out) {
  const Program& copy = chain.program;
  const auto flash = kernels::match_attention(copy, *nest_at(copy, copy.steps, 0), true);
  if (!flash || !flash->log_sum_exp || flash->fixes) return false;
  const loop::Dim& deep = flash->scores.reduce->dims[0];
  const auto first = kernels::link_factors(flash->scores, {flash->keys}),
             last = kernels::link_factors(flash->values, {flash->columns});
  const Load* q = kernels::plain_load(flash->scores.factors[first->rows]);
  const Load* k = kernels::plain_load(flash->scores.factors[first->columns]);
  const Load* v = kernels::plain_load(flash->values.factors[last->columns]);
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
  const auto& statistic = flash->log_sum_exp->access.index;
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
  at[flash->keys.var] = at[flash->values.reduce->dims[0].var] = out.key.var;
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
  for (BufferId id : flow.effects[out.softmax].reads) {
    const int at = writer(id, out.softmax);
    if (at >= 0 && kernels::match_contraction(*nest_at(program, steps, at))) out.scores = at;
  }
  if (out.scores < 0 || !find_copies(program, softmax, weights, out)) return std::nullopt;
  // With one reader the forward pass becomes a chain as it is.
  int readers = 0;
  for (BufferId id : out.weights) readers += flow.total_readers[id.value];
  if (readers < 2) return std::nullopt;
  const auto alone = chained(program, steps, out, weights, chain);
  return alone && describe(program, softmax, *alone, out) ? std::optional(std::move(out)) : std::nullopt;
}

// ---- the backward pass -----------------------------------------------------------------------------------

class BackwardFinder {
 public:
  BackwardFinder(const Program& program, const loop::Steps& steps, const Flow& flow,
                 const ForwardPass& forward)
      : program_(program),
        steps_(steps),
        flow_(flow),
        forward_(forward),
        values_(program, steps, flow),
        weights_(forward.weights.begin(), forward.weights.end()) {}

  std::optional<BackwardPass> find() {
    // The product that reads p tells which tensor is the gradient of o; the other products read it too.
    for_each_product([&](const Product& product) { take_values(product); });
    if (out_.dv.step < 0) return std::nullopt;
    for_each_product([&](const Product& product) { take_scores(product); });
    if (out_.dq.step < 0 || out_.dk.step < 0 || !find_between()) return std::nullopt;
    return std::move(out_);
  }

 private:
  // A contraction over one dim, of a factor and a tensor in memory.
  struct Product {
    int step;
    const Nest& nest;
    ValueId factor;
    const Load& other;
    Expr summed;
  };
  // What hides keys from ds: `condition` has this value where the key is visible.
  struct Shown {
    ValueGraph::Element condition;
    bool value;
  };

  template <class Visit>
  void for_each_product(const Visit& visit) const {
    for (int at = forward_.values + 1; at < static_cast<int>(steps_.size()); ++at) {
      const Nest* nest = nest_at(program_, steps_, at);
      const auto contraction = nest ? kernels::match_contraction(*nest) : std::nullopt;
      if (!contraction || contraction->reduce->dims.size() != 1 || contraction->dtype != DType::kF32)
        continue;
      for (const size_t side : {0u, 1u})
        if (const Load* other = kernels::plain_load(contraction->factors[1 - side]))
          visit(
              Product{at, *nest, contraction->factors[side].value, *other, contraction->reduce->dims[0].var});
    }
  }

  // The index at which the element is a weight, over its nest's variables.
  std::optional<std::vector<Expr>> weight_at(ValueGraph::Element element) const {
    element = values_.resolve(std::move(element), weights_);
    const Load* load = values_.load_of(element);
    if (!load || !weights_.contains(load->access.buffer)) return std::nullopt;
    return rows_of(load->access, element.at, forward_.facts).index;
  }

  // Maps the variables of an index of the weights to those of the forward pass.
  std::optional<sym::Substitution> to_forward(const std::vector<Expr>& place) const {
    sym::Substitution at;
    for (size_t i = 0; i < place.size(); ++i) {
      if (!sym::is_index(place[i]) || at.contains(place[i])) return std::nullopt;
      at[place[i]] = forward_.place[i];
    }
    return at;
  }

  // The same, and maps the one dim of the product that is left to the depth.
  std::optional<sym::Substitution> to_forward(const Product& product, const std::vector<Expr>& place) const {
    auto at = to_forward(place);
    if (!at || !at->contains(product.summed) || product.nest.dims.size() != place.size()) return std::nullopt;
    const loop::Dim* column = nullptr;
    for (const loop::Dim& dim : product.nest.dims) {
      if (at->contains(dim.var)) continue;
      if (column || dim.extent != forward_.depth.extent) return std::nullopt;
      column = &dim;
    }
    if (!column) return std::nullopt;
    (*at)[column->var] = forward_.depth.var;
    return at;
  }

  void take_values(const Product& product) {
    const auto place = weight_at({&product.nest, product.factor, {}});
    const auto at = place ? to_forward(product, *place) : std::nullopt;
    if (!at || at->at(product.summed) != forward_.row.var) return;
    out_.dv = {product.step, *at};
    out_.grad = rows_of(product.other.access, *at, forward_.facts);
  }

  void take_scores(const Product& product) {
    double scale = 1;
    std::vector<Expr> place;
    std::vector<Shown> shown;
    if (!is_score_gradient({&product.nest, product.factor, {}}, scale, place, shown)) return;
    const auto at = to_forward(product, place);
    if (!at) return;
    for (const Shown& each : shown)
      if (!is_mask(each, *at)) return;
    const TensorRows other = rows_of(product.other.access, *at, forward_.facts);
    if (at->at(product.summed) == forward_.key.var && other == forward_.k)
      out_.dq = {product.step, *at, scale};
    if (at->at(product.summed) == forward_.row.var && other == forward_.q)
      out_.dk = {product.step, *at, scale};
  }

  // scale * (p * (dp - sum(p * dp))), or 0 where `shown` hides the key.
  bool is_score_gradient(ValueGraph::Element element, double& scale, std::vector<Expr>& place,
                         std::vector<Shown>& shown) const {
    element = values_.resolve(std::move(element), weights_);
    const Let* let = values_.let_of(element);
    if (!let) return false;
    const auto argument = [&](size_t i) {
      return ValueGraph::Element{element.nest, let->args[i], element.at};
    };
    const auto is_zero = [&](size_t i) {
      const auto number = values_.constant_of(argument(i));
      return number && number->f == 0;
    };
    if (let->op == ScalarOp::kSelect) {
      const bool value = is_zero(2);
      if (!value && !is_zero(1)) return false;
      shown.push_back({argument(0), value});
      return is_score_gradient(argument(value ? 1 : 2), scale, place, shown);
    }
    if (let->op == ScalarOp::kDiv) {
      const auto by = values_.constant_of(argument(1));
      if (!by) return false;
      scale /= by->f;
      return is_score_gradient(argument(0), scale, place, shown);
    }
    if (let->op != ScalarOp::kMul) return false;
    for (const size_t side : {0u, 1u})
      if (const auto by = values_.constant_of(argument(side))) {
        scale *= by->f;
        return is_score_gradient(argument(1 - side), scale, place, shown);
      }
    for (const size_t side : {0u, 1u}) {
      const auto at = weight_at(argument(side));
      if (!at) continue;
      const ValueGraph::Element rest = values_.resolve(argument(1 - side), weights_);
      const Let* difference = values_.let_of(rest);
      if (!difference || difference->op != ScalarOp::kSub) return false;
      place = *at;
      return is_weight_gradient({rest.nest, difference->args[0], rest.at}, place) &&
             is_row_sum({rest.nest, difference->args[1], rest.at}, place);
    }
    return false;
  }

  // Whether it hides the keys that the forward pass hides: there p is 0, and so is ds without the condition.
  bool is_mask(const Shown& shown, const sym::Substitution& at) const {
    const ValueGraph::Element condition = values_.resolve(shown.condition, {});
    const auto* index = values_.index_of(condition);
    if (!index || !forward_.seen) return false;
    Expr holds = sym::substitute(sym::substitute(index->expr, condition.at), at);
    if (!shown.value) holds = sym::logical_not(holds);
    const auto seen = kernels::seen_keys(holds, forward_.row.var, forward_.key.var, forward_.facts);
    return seen && sym::simplify(*seen - *forward_.seen, forward_.facts).is_const(0);
  }

  // The gradient that `isnan(p) ? 0 : gradient` guards.
  ValueGraph::Element skip_guard(ValueGraph::Element element, const std::vector<Expr>& place) const {
    element = values_.resolve(std::move(element), {});
    const Let* guard = values_.let_of(element);
    if (!guard || guard->op != ScalarOp::kSelect) return element;
    const auto argument = [&](const Let* let, size_t i, const ValueGraph::Element& of) {
      return ValueGraph::Element{of.nest, let->args[i], of.at};
    };
    const ValueGraph::Element condition = values_.resolve(argument(guard, 0, element), {});
    const Let* test = values_.let_of(condition);
    const auto zero = values_.constant_of(argument(guard, 1, element));
    if (!test || test->op != ScalarOp::kIsNan || !zero || zero->f != 0) return element;
    const auto at = weight_at(argument(test, 0, condition));
    return at && *at == place ? values_.resolve(argument(guard, 2, element), {}) : element;
  }

  // dp at `place`: the sum over the depth of grad * v.
  bool is_weight_gradient(ValueGraph::Element element, const std::vector<Expr>& place) const {
    element = skip_guard(std::move(element), place);
    const Reduce* reduce = values_.sum_of(element, forward_.depth.extent);
    const auto at = to_forward(place);
    if (!reduce || !at) return false;
    const auto contraction = kernels::match_contraction(*element.nest);
    if (!contraction || contraction->reduce != reduce) return false;
    sym::Substitution all = {{reduce->dims[0].var, forward_.depth.var}};
    for (const auto& [var, e] : element.at) all[var] = sym::substitute(e, *at);
    for (const loop::Dim& dim : element.nest->dims)
      if (!all.contains(dim.var)) all[dim.var] = sym::substitute(dim.var, *at);
    const Load *a = kernels::plain_load(contraction->factors[0]),
               *b = kernels::plain_load(contraction->factors[1]);
    if (!a || !b) return false;
    const TensorRows first = rows_of(a->access, all, forward_.facts),
                     second = rows_of(b->access, all, forward_.facts);
    return (first == out_.grad && second == forward_.v) || (second == out_.grad && first == forward_.v);
  }

  // The sum over the keys of p * dp, in the row of `place`.
  bool is_row_sum(ValueGraph::Element element, const std::vector<Expr>& place) const {
    element = values_.resolve(std::move(element), {});
    const Reduce* reduce = values_.sum_of(element, forward_.key.extent);
    if (!reduce) return false;
    const ValueGraph::Element product =
        values_.resolve({element.nest, reduce->yields[0], element.at}, weights_);
    const Let* let = values_.let_of(product);
    if (!let || let->op != ScalarOp::kMul) return false;
    for (const size_t side : {0u, 1u}) {
      const auto at = weight_at({product.nest, let->args[side], product.at});
      if (!at) continue;
      for (size_t i = 0; i < place.size(); ++i)
        if ((*at)[i] != (forward_.place[i] == forward_.key.var ? reduce->dims[0].var : place[i]))
          return false;
      return is_weight_gradient({product.nest, let->args[1 - side], product.at}, *at);
    }
    return false;
  }

  // Finds the steps that exist for the products alone. Fails if something else needs p or what they compute.
  bool find_between() {
    std::set<int> gone = {out_.dq.step, out_.dk.step, out_.dv.step};
    if (gone.size() != 3) return false;
    // What the one kernel reads.
    std::set<BufferId> kept = {forward_.q.buffer, forward_.k.buffer, forward_.v.buffer, forward_.o.buffer,
                               out_.grad.buffer};
    for (const int step : gone)
      for (const Stmt& stmt : nest_at(program_, steps_, step)->body)
        if (const auto* load = std::get_if<Load>(&stmt.node)) kept.insert(load->access.buffer);
    const auto serves = [&](int step) {
      bool used = false;
      for (BufferId id : flow_.effects[step].writes) {
        if (program_[id].storage == loop::Storage::kLocal) continue;
        const auto inside =
            std::ranges::count_if(gone, [&](int reader) { return reads(flow_.effects[reader], id); });
        if (kept.contains(id) || !made_once(program_, flow_, id) || inside != flow_.total_readers[id.value])
          return false;
        used = used || inside > 0;
      }
      return used;
    };
    for (bool changed = true; changed;) {
      changed = false;
      for (int at = forward_.values + 1; at < static_cast<int>(steps_.size()); ++at)
        if (!gone.contains(at) && nest_at(program_, steps_, at) && serves(at))
          changed = gone.insert(at).second;
    }
    for (BufferId id : forward_.weights)
      for (int at = 0; at < static_cast<int>(steps_.size()); ++at)
        if (at != forward_.values && at != forward_.softmax && !gone.contains(at) &&
            reads(flow_.effects[at], id))
          return false;
    for (const int at : {out_.dq.step, out_.dk.step, out_.dv.step}) gone.erase(at);
    out_.between = std::move(gone);
    return true;
  }

  const Program& program_;
  const loop::Steps& steps_;
  const Flow& flow_;
  const ForwardPass& forward_;
  const ValueGraph values_;
  const std::set<BufferId> weights_;
  BackwardPass out_;
};

}  // namespace

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

std::optional<BackwardPass> find_backward_pass(const Program& program, const loop::Steps& steps,
                                               const Flow& flow, const ForwardPass& forward) {
  return BackwardFinder(program, steps, flow, forward).find();
}

void store_log_sum_exp(const Program& program, Nest& softmax, const ForwardPass& forward, BufferId to,
                       const std::set<BufferId>& dropped) {
  const auto drop = [&](auto&& self, loop::Block& block) -> void {
    std::erase_if(block, [&](const Stmt& stmt) {
      const auto* store = std::get_if<Store>(&stmt.node);
      return store && dropped.contains(store->access.buffer);
    });
    for (Stmt& stmt : block)
      if (loop::Block* body = loop::body_of(stmt)) self(self, *body);
  };
  drop(drop, softmax.body);
  loop::Writer writer{softmax, softmax.body};
  const ValueId log = writer.let(ScalarOp::kLog, DType::kF32, {forward.sum});
  writer.store({to, loop::vars_of(softmax.dims)},
               writer.let(ScalarOp::kAdd, DType::kF32, {forward.maximum, log}));
  loop::clean(program, softmax);
}

}  // namespace stridec::schedule
