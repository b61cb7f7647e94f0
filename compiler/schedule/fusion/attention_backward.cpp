#include "compiler/schedule/fusion/attention_backward.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "compiler/kernels/definitions.h"
#include "compiler/kernels/flash_backward.h"
#include "compiler/loop/build.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/flow.h"
#include "compiler/schedule/fusion/fusion.h"
#include "compiler/schedule/fusion/gpu_attention.h"
#include "compiler/schedule/fusion/value_graph.h"
#include "compiler/schedule/heuristics/flash_backward.h"

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

// An access whose index variables are those of `Forward`.
struct Rows {
  BufferId buffer;
  std::vector<Expr> index;
  bool operator==(const Rows&) const = default;
};

Rows rows_of(const Access& access, const sym::Substitution& at, const sym::Facts& facts) {
  Rows out{.buffer = access.buffer, .index = {}};
  for (Expr e : access.index) out.index.push_back(sym::simplify(sym::substitute(e, at), facts));
  return out;
}

// The forward pass: its launches, and its factors over the index variables `batch`, `row`, `key` and `depth`.
struct Forward {
  int scores = -1, softmax = -1, values = -1;  // positions of steps
  std::vector<BufferId> weights;               // all copies of p, of several types
  std::vector<Expr> place;                     // their index: batch, row and key in the order of their dims
  std::vector<loop::Dim> dims;                 // of the softmax: the batch dims and the row
  std::vector<loop::Dim> batch;
  loop::Dim row, key, depth;
  sym::Facts facts;
  Rows q, k, v, o;
  DType dtype = DType::kBF16;
  double scale = 1;
  std::optional<Expr> seen;
  BufferId log_sum_exp;
};

// One contraction of the backward pass: the step, and its index variables as those of Forward.
struct Piece {
  int step = -1;
  sym::Substitution at;
};

struct Backward {
  Piece dq, dk, dv;
  Rows grad;
  std::set<int> between;  // launches that nothing else needs
};

class Fuser {
 public:
  Fuser(Program& program, const GpuTarget& target, std::vector<Decision>* decisions)
      : program_(program), target_(target), decisions_(decisions) {}

  void block(loop::Steps& steps) {
    Flow flow = make_flow(program_, steps);
    for (int at = 0; at < static_cast<int>(steps.size()); ++at) {
      const Nest* nest = nest_at(program_, steps, at);
      if (!nest || !kernels::match_contraction(*nest)) continue;
      const auto forward = find_forward(steps, flow, at);
      if (!forward) continue;
      const auto backward = find_backward(steps, flow, ValueGraph(program_, steps, flow), *forward);
      if (backward && apply(steps, flow, *forward, *backward)) flow = make_flow(program_, steps);
    }
  }

 private:
  // ---- the forward pass ----

  // The contraction at `values` multiplies weights that a softmax over the scores of another one made.
  std::optional<Forward> find_forward(const loop::Steps& steps, const Flow& flow, int values) {
    const Nest& last = *nest_at(program_, steps, values);
    const Contraction contraction = *kernels::match_contraction(last);
    for (const kernels::Factor& factor : contraction.factors)
      for (const Stmt* stmt : factor.slice)
        if (const auto* load = std::get_if<Load>(&stmt->node))
          if (auto out = forward_of(steps, flow, values, load->access.buffer)) return out;
    return std::nullopt;
  }

  int writer_of(const loop::Steps& steps, const Flow& flow, BufferId id, int before) const {
    if (!made_once(program_, flow, id)) return -1;
    for (int at = before - 1; at >= 0; --at)
      if (writes(flow.effects[at], id)) return nest_at(program_, steps, at) ? at : -1;
    return -1;
  }

  std::optional<Forward> forward_of(const loop::Steps& steps, const Flow& flow, int values,
                                    BufferId weights) {
    Forward out{.values = values};
    // With one reader the forward pass becomes a chain as it is.
    out.softmax = writer_of(steps, flow, weights, values);
    if (out.softmax < 0) return std::nullopt;
    const Nest& softmax = *nest_at(program_, steps, out.softmax);
    const Reduce *most = nullptr, *sum = nullptr;
    for (const Stmt& stmt : softmax.body)
      if (const auto* reduce = std::get_if<Reduce>(&stmt.node)) {
        const bool is_max = reduce->combine == loop::Combine::kMax;
        if ((is_max ? most : sum) || (!is_max && reduce->combine != loop::Combine::kSum)) return std::nullopt;
        (is_max ? most : sum) = reduce;
      }
    if (!most || !sum || softmax.values[sum->results[0].value].dtype != DType::kF32 ||
        softmax.values[most->results[0].value].dtype != DType::kF32)
      return std::nullopt;
    for (BufferId id : flow.effects[out.softmax].reads) {
      const int at = writer_of(steps, flow, id, out.softmax);
      if (at >= 0 && kernels::match_contraction(*nest_at(program_, steps, at))) out.scores = at;
    }
    if (out.scores < 0 || !copies_of(softmax, weights, out)) return std::nullopt;
    int readers = 0;
    for (BufferId id : out.weights) readers += flow.total_readers[id.value];
    if (readers < 2) return std::nullopt;
    return trial(steps, softmax, most->results[0], sum->results[0], weights, out) ? std::optional(out)
                                                                                  : std::nullopt;
  }

  // The buffers that hold the same values as `weights`, up to their types.
  bool copies_of(const Nest& softmax, BufferId weights, Forward& out) const {
    const auto made = kernels::definitions_of(softmax.body);
    const auto stored = [&](ValueId id) {
      while (kernels::is_cast(kernels::let_of(made, id))) id = kernels::let_of(made, id)->args[0];
      return id;
    };
    std::map<BufferId, const Store*> stores;
    loop::for_each_stmt(softmax.body, [&](const Stmt& stmt) {
      if (const auto* store = std::get_if<Store>(&stmt.node)) stores[store->access.buffer] = store;
    });
    const Store* main = stores.at(weights);
    for (const auto& [buffer, store] : stores)
      if (program_[buffer].storage == loop::Storage::kArena && stored(store->value) == stored(main->value) &&
          store->access.index == main->access.index)
        out.weights.push_back(buffer);
    // The dims of the softmax in their order, with the key at its place among the buffer's.
    for (Expr e : main->access.index) {
      if (!sym::is_index(e)) return false;
      out.place.push_back(e);
      if (!loop::is_var_of(e, softmax.dims)) {
        if (out.key.var != Expr()) return false;
        out.key.var = e;
      }
    }
    return out.key.var != Expr() && main->access.mask.is_const(1) && !main->update &&
           main->access.index.size() == softmax.dims.size() + 1;
  }

  // Chains the forward pass in a copy, as chain_gpu() will once nothing else reads the weights.
  bool trial(const loop::Steps& steps, const Nest& softmax, ValueId most, ValueId sum, BufferId weights,
             Forward& out) {
    std::vector<Expr> index = loop::vars_of(softmax.dims), shape;
    for (const loop::Dim& dim : softmax.dims) shape.push_back(dim.extent);
    Program copy;
    copy.buffers = program_.buffers;
    copy.facts = program_.facts;
    copy.symbols = program_.symbols;
    const BufferId lse =
        loop::add_buffer(copy, {.name = "log_sum_exp", .dtype = DType::kF32, .shape = shape, .strides = {}});
    const std::string lse_name = copy[lse].name;
    for (const int at : {out.scores, out.softmax, out.values}) {
      Nest nest = *nest_at(program_, steps, at);
      if (at == out.softmax) {
        drop_stores(nest,
                    [&](BufferId id) { return id != weights && copy[id].storage == loop::Storage::kArena; });
        add_log_sum_exp(nest, most, sum, {lse, index});
        loop::clean(copy, nest);
      }
      copy.steps.push_back({Launch{loop::add_nest(copy, std::move(nest))}});
    }
    // Read by others, so that they stay in memory.
    copy[lse].storage = loop::Storage::kOutput;
    for (BufferId id : effects_of(*nest_at(program_, steps, out.values)).writes)
      copy[id].storage = loop::Storage::kOutput;
    std::map<std::string, BufferId> names;
    for (size_t i = 0; i < program_.buffers.size(); ++i)
      names[program_.buffers[i].name] = BufferId(static_cast<int64_t>(i));
    chain_gpu(copy, target_);
    if (copy.steps.size() != 1) return false;
    const Nest& chained = *nest_at(copy, copy.steps, 0);
    const auto flash = kernels::match_flash(copy, chained);
    if (!flash || !flash->log_sum_exp || !flash->scale || flash->fixes || flash->given ||
        flash->asks_memory() || flash->depth != flash->width)
      return false;
    // Layouts that the kernel asks for.
    for (const loop::Buffer& buffer : copy.buffers)
      if (const auto found = names.find(buffer.name);
          found != names.end() && buffer.storage == loop::Storage::kArena)
        program_[found->second].strides = buffer.strides;

    // The forward pass's index variables are the softmax's own, and the depth's.
    sym::Substitution at;
    const auto& lse_index = flash->log_sum_exp->access.index;
    for (size_t d = 0; d < softmax.dims.size(); ++d) {
      if (!sym::is_index(lse_index[d])) return false;
      at[lse_index[d]] = softmax.dims[d].var;
      if (lse_index[d] == flash->chain.row.var)
        out.row = softmax.dims[d];
      else
        out.batch.push_back(softmax.dims[d]);
    }
    if (out.row.var == Expr()) return false;
    const loop::Dim& deep = flash->scores.reduce->dims[0];
    out.depth = {sym::var("%depth"), deep.extent};
    out.key.extent = flash->keys.extent;
    at[flash->keys.var] = at[flash->values.reduce->dims[0].var] = out.key.var;
    at[deep.var] = at[flash->columns.var] = out.depth.var;
    out.facts = program_.facts;
    for (const loop::Dim& dim : softmax.dims) out.facts.set_index(dim.var, dim.extent);
    out.facts.set_index(out.key.var, out.key.extent);
    out.facts.set_index(out.depth.var, out.depth.extent);
    const auto rows = [&](const Access& access) {
      Access own = access;
      own.buffer = names.at(copy[access.buffer].name);
      return rows_of(own, at, out.facts);
    };
    out.q = rows(flash->q.load->access);
    out.k = rows(flash->k.load->access);
    out.v = rows(flash->v.load->access);
    out.dims = softmax.dims;
    out.dtype = flash->dtype;
    out.scale = *flash->scale;
    if (flash->visible) {
      const Expr seen = sym::simplify(sym::substitute(*flash->visible, at) - out.row.var, out.facts);
      if (sym::has_index(seen)) return false;
      out.seen = seen;
    }
    for (const Stmt& stmt : flash->values_nest().body)
      if (const auto* store = std::get_if<Store>(&stmt.node)) {
        if (store->update || !store->access.mask.is_const(1) ||
            !names.contains(copy[store->access.buffer].name))
          return false;
        // Any copy of the result will do; the first one is as good as another.
        if (!is_result(*flash, *store)) continue;
        out.o = rows(store->access);
      }
    return !out.o.index.empty();
  }

  // Whether the store's value is the second contraction's sum, up to its type.
  static bool is_result(const Flash& flash, const Store& store) {
    const auto made = kernels::definitions_of(flash.values_nest().body);
    ValueId id = store.value;
    while (kernels::is_cast(kernels::let_of(made, id))) id = kernels::let_of(made, id)->args[0];
    return id == flash.values.reduce->results[0];
  }

  static void drop_stores(Nest& nest, const std::function<bool(BufferId)>& drops) {
    const auto clear = [&](auto&& self, loop::Block& block) -> void {
      std::erase_if(block, [&](const Stmt& stmt) {
        const auto* store = std::get_if<Store>(&stmt.node);
        return store && drops(store->access.buffer);
      });
      for (Stmt& stmt : block)
        if (loop::Block* body = loop::body_of(stmt)) self(self, *body);
    };
    clear(clear, nest.body);
  }

  static void add_log_sum_exp(Nest& nest, ValueId most, ValueId sum, Access to) {
    loop::Writer writer{nest, nest.body};
    const ValueId log = writer.let(ScalarOp::kLog, DType::kF32, {sum});
    writer.store(std::move(to), writer.let(ScalarOp::kAdd, DType::kF32, {most, log}));
  }

  // ---- the backward pass ----

  std::optional<Backward> find_backward(const loop::Steps& steps, const Flow& flow, const ValueGraph& values,
                                        const Forward& forward) {
    Backward out;
    for (int at = forward.values + 1; at < static_cast<int>(steps.size()); ++at) {
      const Nest* nest = nest_at(program_, steps, at);
      const auto contraction = nest ? kernels::match_contraction(*nest) : std::nullopt;
      if (!contraction || contraction->reduce->dims.size() != 1 || contraction->dtype != DType::kF32)
        continue;
      for (const size_t side : {0u, 1u}) {
        const auto* other = plain(contraction->factors[1 - side]);
        if (!other) continue;
        const ValueGraph::Element factor{nest, contraction->factors[side].value, {}};
        if (const auto place = weight_at(values, forward, factor))
          take_values(forward, *nest, at, *contraction, *place, *other, out);
      }
    }
    if (out.dv.step < 0) return std::nullopt;
    for (int at = forward.values + 1; at < static_cast<int>(steps.size()); ++at) {
      const Nest* nest = nest_at(program_, steps, at);
      const auto contraction = nest ? kernels::match_contraction(*nest) : std::nullopt;
      if (!contraction || contraction->reduce->dims.size() != 1 || contraction->dtype != DType::kF32)
        continue;
      for (const size_t side : {0u, 1u})
        if (const auto* other = plain(contraction->factors[1 - side]))
          take_scores(values, forward, *nest, at, *contraction, side, *other, out);
    }
    if (out.dq.step < 0 || out.dk.step < 0) return std::nullopt;
    if (!find_between(steps, flow, forward, out)) return std::nullopt;
    return out;
  }

  static const Load* plain(const kernels::Factor& factor) {
    const Load* load = nullptr;
    for (const Stmt* stmt : factor.slice)
      if (const auto* l = std::get_if<Load>(&stmt->node)) {
        if (load || !l->access.mask.is_const(1)) return nullptr;
        load = l;
      } else if (const auto* let = std::get_if<Let>(&stmt->node); !kernels::is_cast(let)) {
        return nullptr;
      }
    return load;
  }

  // The index at which the element is a weight, over its nest's variables.
  static std::optional<std::vector<Expr>> weight_at(const ValueGraph& values, const Forward& forward,
                                                    ValueGraph::Element element) {
    const std::set<BufferId> stops(forward.weights.begin(), forward.weights.end());
    element = values.resolve(std::move(element), stops);
    const Load* load = values.load_of(element);
    if (!load || !stops.contains(load->access.buffer)) return std::nullopt;
    return rows_of(load->access, element.at, forward.facts).index;
  }

  // Maps the variables of `place` to those of the forward pass, and the one dim that is left to the depth.
  static std::optional<sym::Substitution> mapping_of(const Forward& forward, const Nest& nest,
                                                     const std::vector<Expr>& place, Expr summed) {
    sym::Substitution at;
    for (size_t i = 0; i < place.size(); ++i) {
      if (!sym::is_index(place[i]) || at.contains(place[i])) return std::nullopt;
      at[place[i]] = forward.place[i];
    }
    if (!at.contains(summed)) return std::nullopt;
    Expr column;
    for (const loop::Dim& dim : nest.dims) {
      if (at.contains(dim.var)) continue;
      if (column != Expr() || dim.extent != forward.depth.extent) return std::nullopt;
      column = dim.var;
    }
    if (column == Expr() || nest.dims.size() != place.size()) return std::nullopt;
    at[column] = forward.depth.var;
    return at;
  }

  void take_values(const Forward& forward, const Nest& nest, int step, const Contraction& contraction,
                   const std::vector<Expr>& place, const Load& other, Backward& out) {
    const Expr summed = contraction.reduce->dims[0].var;
    const auto at = mapping_of(forward, nest, place, summed);
    if (!at || at->at(summed) != forward.row.var) return;
    out.dv = {step, *at};
    out.grad = rows_of(other.access, *at, forward.facts);
  }

  void take_scores(const ValueGraph& values, const Forward& forward, const Nest& nest, int step,
                   const Contraction& contraction, size_t side, const Load& other, Backward& out) {
    double scale = 1;
    std::vector<Expr> place;
    if (!is_score_gradient(values, forward, out.grad, {&nest, contraction.factors[side].value, {}}, scale,
                           place))
      return;
    const Expr summed = contraction.reduce->dims[0].var;
    const auto at = mapping_of(forward, nest, place, summed);
    if (!at || static_cast<float>(scale) != static_cast<float>(forward.scale)) return;
    const Rows factor = rows_of(other.access, *at, forward.facts);
    if (at->at(summed) == forward.key.var && factor == forward.k) out.dq = {step, *at};
    if (at->at(summed) == forward.row.var && factor == forward.q) out.dk = {step, *at};
  }

  // scale * (p * (dp - sum(p * dp))), or 0 where the mask hides the key: there p is 0.
  bool is_score_gradient(const ValueGraph& values, const Forward& forward, const Rows& grad,
                         ValueGraph::Element element, double& scale, std::vector<Expr>& place) {
    const std::set<BufferId> stops(forward.weights.begin(), forward.weights.end());
    element = values.resolve(std::move(element), stops);
    const Let* let = values.let_of(element);
    if (!let) return false;
    const auto argument = [&](size_t i) {
      return ValueGraph::Element{element.nest, let->args[i], element.at};
    };
    if (let->op == ScalarOp::kSelect) {
      const auto hidden = values.constant_of(argument(2)), shown = values.constant_of(argument(1));
      const bool first = hidden && hidden->f == 0;
      if (!first && !(shown && shown->f == 0)) return false;
      return is_score_gradient(values, forward, grad, argument(first ? 1 : 2), scale, place);
    }
    if (let->op == ScalarOp::kDiv) {
      const auto by = values.constant_of(argument(1));
      if (!by) return false;
      scale /= by->f;
      return is_score_gradient(values, forward, grad, argument(0), scale, place);
    }
    if (let->op != ScalarOp::kMul) return false;
    for (const size_t side : {0u, 1u})
      if (const auto by = values.constant_of(argument(side))) {
        scale *= by->f;
        return is_score_gradient(values, forward, grad, argument(1 - side), scale, place);
      }
    for (const size_t side : {0u, 1u}) {
      const auto at = weight_at(values, forward, argument(side));
      if (!at) continue;
      const ValueGraph::Element rest = values.resolve(argument(1 - side), stops);
      const Let* difference = values.let_of(rest);
      if (!difference || difference->op != ScalarOp::kSub) return false;
      place = *at;
      return is_weight_gradient(values, forward, grad, {rest.nest, difference->args[0], rest.at}, place) &&
             is_row_sum(values, forward, grad, {rest.nest, difference->args[1], rest.at}, place);
    }
    return false;
  }

  // Maps an index of the weights to the forward pass's variables.
  static std::optional<sym::Substitution> to_forward(const Forward& forward, const std::vector<Expr>& place) {
    sym::Substitution at;
    for (size_t i = 0; i < place.size(); ++i) {
      if (!sym::is_index(place[i]) || at.contains(place[i])) return std::nullopt;
      at[place[i]] = forward.place[i];
    }
    return at;
  }

  // dp at `place`: the sum over the depth of grad * v.
  bool is_weight_gradient(const ValueGraph& values, const Forward& forward, const Rows& grad,
                          ValueGraph::Element element, const std::vector<Expr>& place) {
    element = values.resolve(std::move(element), {});
    const Reduce* reduce = values.reduce_of(element);
    auto at = to_forward(forward, place);
    if (!reduce || !at || reduce->combine != loop::Combine::kSum || reduce->dims.size() != 1 ||
        reduce->dims[0].extent != forward.depth.extent)
      return false;
    const auto contraction = kernels::match_contraction(*element.nest);
    if (!contraction || contraction->reduce != reduce) return false;
    sym::Substitution all = {{reduce->dims[0].var, forward.depth.var}};
    for (const auto& [var, e] : element.at) all[var] = sym::substitute(e, *at);
    for (const loop::Dim& dim : element.nest->dims)
      if (!all.contains(dim.var)) all[dim.var] = sym::substitute(dim.var, *at);
    const Load *a = plain(contraction->factors[0]), *b = plain(contraction->factors[1]);
    if (!a || !b) return false;
    const Rows first = rows_of(a->access, all, forward.facts),
               second = rows_of(b->access, all, forward.facts);
    return (first == grad && second == forward.v) || (second == grad && first == forward.v);
  }

  // The sum over the keys of p * dp, in the row of `place`.
  bool is_row_sum(const ValueGraph& values, const Forward& forward, const Rows& grad,
                  ValueGraph::Element element, const std::vector<Expr>& place) {
    element = values.resolve(std::move(element), {});
    const Reduce* reduce = values.reduce_of(element);
    if (!reduce || reduce->combine != loop::Combine::kSum || reduce->dims.size() != 1 ||
        reduce->dims[0].extent != forward.key.extent)
      return false;
    const std::set<BufferId> stops(forward.weights.begin(), forward.weights.end());
    const ValueGraph::Element product = values.resolve({element.nest, reduce->yields[0], element.at}, stops);
    const Let* let = values.let_of(product);
    if (!let || let->op != ScalarOp::kMul) return false;
    for (const size_t side : {0u, 1u}) {
      const auto at = weight_at(values, forward, {product.nest, let->args[side], product.at});
      if (!at) continue;
      for (size_t i = 0; i < place.size(); ++i) {
        const Expr expected = forward.place[i] == forward.key.var ? reduce->dims[0].var : place[i];
        if ((*at)[i] != expected) return false;
      }
      return is_weight_gradient(values, forward, grad, {product.nest, let->args[1 - side], product.at}, *at);
    }
    return false;
  }

  // The launches that exist for the pieces alone. Fails if something else needs what they compute.
  bool find_between(const loop::Steps& steps, const Flow& flow, const Forward& forward, Backward& out) {
    std::set<int> gone = {out.dq.step, out.dk.step, out.dv.step};
    if (gone.size() != 3) return false;
    // What the one kernel reads.
    std::set<BufferId> kept = {forward.q.buffer, forward.k.buffer, forward.v.buffer, forward.o.buffer,
                               out.grad.buffer};
    for (const int step : gone)
      for (const Stmt& stmt : nest_at(program_, steps, step)->body)
        if (const auto* load = std::get_if<Load>(&stmt.node)) kept.insert(load->access.buffer);
    for (bool changed = true; changed;) {
      changed = false;
      for (int at = forward.values + 1; at < static_cast<int>(steps.size()); ++at) {
        if (gone.contains(at) || !nest_at(program_, steps, at)) continue;
        bool dead = !flow.effects[at].writes.empty();
        bool used = false;
        for (BufferId id : flow.effects[at].writes) {
          if (program_[id].storage == loop::Storage::kLocal) continue;
          dead = dead && !kept.contains(id) && made_once(program_, flow, id);
          int inside = 0;
          for (const int reader : gone) inside += reads(flow.effects[reader], id) ? 1 : 0;
          used = used || inside > 0;
          dead = dead && inside == flow.total_readers[id.value];
        }
        if (dead && used) changed = gone.insert(at).second;
      }
    }
    for (BufferId id : forward.weights)
      for (int at = 0; at < static_cast<int>(steps.size()); ++at)
        if (at != forward.values && at != forward.softmax && reads(flow.effects[at], id) &&
            !gone.contains(at))
          return false;
    for (const int at : {out.dq.step, out.dk.step, out.dv.step}) gone.erase(at);
    out.between = std::move(gone);
    return true;
  }

  // ---- the kernel ----

  // Replaces the pieces by one launch at the place of the first.
  bool apply(loop::Steps& steps, const Flow& flow, const Forward& forward, const Backward& backward) {
    Decision decision;
    if (decisions_)
      decision = decision_about(program_, *nest_at(program_, steps, forward.values),
                                *nest_at(program_, steps, backward.dv.step), true,
                                "attention's backward pass is one kernel");
    const auto refuse = [&](std::string why) {
      decision.fused = false;
      decision.reason = "attention's backward pass stays apart: " + why;
      if (decisions_) decisions_->push_back(std::move(decision));
      return false;
    };
    std::set<int> gone = backward.between;
    for (const Piece* piece : {&backward.dq, &backward.dk, &backward.dv}) gone.insert(piece->step);
    const int first = *std::min_element(gone.begin(), gone.end()), last = *gone.rbegin();

    Program copy;
    copy.buffers = program_.buffers;
    copy.facts = program_.facts;
    std::vector<Expr> shape;
    const Nest& softmax = *nest_at(program_, steps, forward.softmax);
    for (const loop::Dim& dim : softmax.dims) shape.push_back(dim.extent);
    Forward own = forward;
    own.log_sum_exp =
        loop::add_buffer(copy, {.name = "log_sum_exp", .dtype = DType::kF32, .shape = shape, .strides = {}});
    loop::Steps launch;
    if (!build(copy, steps, own, backward, launch)) return refuse("a result is stored in several places");
    Nest& nest = copy[std::get<Launch>(launch[0].node).nest];
    std::string why;
    if (!fits_flash_backward(copy, nest, target_, &why)) return refuse(why);
    const Effects effects = effects_of(nest);
    for (int step = first; step <= last; ++step)
      if (!gone.contains(step))
        for (BufferId id : effects.reads)
          if (id.value < static_cast<int32_t>(program_.buffers.size()) && writes(flow.effects[step], id))
            return refuse("a step between its parts is in the way");

    program_.buffers = copy.buffers;
    for (const int step : gone)
      for (const std::string& node : nest_at(program_, steps, step)->nodes)
        if (std::find(nest.nodes.begin(), nest.nodes.end(), node) == nest.nodes.end())
          nest.nodes.push_back(node);
    Nest& rows = program_[std::get<Launch>(steps[static_cast<size_t>(forward.softmax)].node).nest];
    store_log_sum_exp(rows, own, *nest_at(program_, steps, forward.values));
    steps[static_cast<size_t>(first)].node = Launch{loop::add_nest(program_, std::move(nest))};
    for (auto step = gone.rbegin(); step != gone.rend(); ++step)
      if (*step != first) steps.erase(steps.begin() + *step);
    if (decisions_) decisions_->push_back(std::move(decision));
    return true;
  }

  // The softmax stores the log-sum-exp, and of the weights what the second contraction reads.
  void store_log_sum_exp(Nest& softmax, const Forward& forward, const Nest& values) {
    ValueId most, sum;
    for (const Stmt& stmt : softmax.body)
      if (const auto* reduce = std::get_if<Reduce>(&stmt.node))
        (reduce->combine == loop::Combine::kMax ? most : sum) = reduce->results[0];
    const Effects read = effects_of(values);
    drop_stores(softmax, [&](BufferId id) {
      return std::find(forward.weights.begin(), forward.weights.end(), id) != forward.weights.end() &&
             !reads(read, id);
    });
    add_log_sum_exp(softmax, most, sum, {forward.log_sum_exp, loop::vars_of(softmax.dims)});
    loop::clean(program_, softmax);
  }

  bool build(Program& program, const loop::Steps& steps, const Forward& forward, const Backward& backward,
             loop::Steps& launch) {
    using loop::Value;
    const Expr rows = forward.row.extent, keys = forward.key.extent, depth = forward.depth.extent;
    const auto local = [&](const char* name) {
      return loop::whole(program, loop::add_buffer(program, {.name = name,
                                                             .dtype = forward.dtype,
                                                             .shape = {rows, keys},
                                                             .strides = {},
                                                             .storage = loop::Storage::kLocal}));
    };
    const loop::View weights = local("weights"), grads = local("score_grads");
    loop::NestBuilder n(program, "attention_backward");
    sym::Substitution batch;
    for (const loop::Dim& dim : forward.batch) batch[dim.var] = n.dim(dim.extent);
    const auto load = [&](const Rows& from, Expr line, Expr at) {
      sym::Substitution map = batch;
      map[forward.row.var] = map[forward.key.var] = line;
      map[forward.depth.var] = at;
      Access access{from.buffer, {}};
      for (Expr e : from.index) access.index.push_back(sym::substitute(e, map));
      return n.cast(n.load(access, loop::int_scalar(program[from.buffer].dtype, 0)), DType::kF32);
    };
    const auto local_load = [&](const loop::View& view, Expr row, Expr key) {
      return n.cast(n.load(view, {row, key}), DType::kF32);
    };
    bool stored = true;
    // The statements around a piece's sum, with `sum` in its place.
    const auto finish = [&](const Piece& piece, Expr line, Expr column, Value sum) {
      const Nest& from = *nest_at(program_, steps, piece.step);
      const Contraction contraction = *kernels::match_contraction(from);
      sym::Substitution to;
      for (const auto& [var, e] : piece.at) {
        const auto found = batch.find(e);
        to[var] = found != batch.end() ? found->second : e == forward.depth.var ? column : line;
      }
      std::map<ValueId, Value> known = {{contraction.reduce->results[0], sum}};
      const auto mapped = [&](const Access& access) {
        Access out{access.buffer, {}};
        for (Expr e : access.index) out.index.push_back(sym::substitute(e, to));
        out.mask = sym::substitute(access.mask, to);
        return out;
      };
      for (size_t i = 0; i < from.body.size(); ++i) {
        if (i == contraction.at) continue;
        const Stmt& stmt = from.body[i];
        if (const auto* l = std::get_if<Load>(&stmt.node)) {
          known[l->result] = n.load(mapped(l->access), l->fill);
        } else if (const auto* constant = std::get_if<loop::Constant>(&stmt.node)) {
          known[constant->result] = n.constant(constant->value);
        } else if (const auto* index = std::get_if<loop::IndexValue>(&stmt.node)) {
          known[index->result] =
              n.index_value(sym::substitute(index->expr, to), from.values[index->result.value].dtype);
        } else if (const auto* store = std::get_if<Store>(&stmt.node)) {
          const Access access = mapped(store->access);
          stored = stored && access.mask.is_const(1) && !store->update;
          n.store(loop::whole(program, access.buffer), access.index, known.at(store->value));
        } else if (const auto* let = std::get_if<Let>(&stmt.node)) {
          const DType dtype = from.values[let->result.value].dtype;
          std::vector<Value> args;
          for (ValueId id : let->args) args.push_back(known.at(id));
          known[let->result] = kernels::is_cast(let) ? n.cast(args[0], dtype, let->op == ScalarOp::kCastSat)
                               : let->op == ScalarOp::kBitcast ? n.bitcast(args[0], dtype)
                                                               : n.op(let->op, args);
        } else {
          stored = false;
        }
      }
    };
    const auto sum = [&](Expr extent, const std::function<Value(Expr)>& term) {
      return n.reduce(loop::Combine::kSum, {extent},
                      [&](const std::vector<Expr>& at) { return term(at[0]); });
    };

    n.loop({rows}, [&](const std::vector<Expr>& at) {
      const Expr m = at[0];
      std::vector<Expr> place;
      for (const loop::Dim& dim : forward.dims) {
        const auto found = batch.find(dim.var);
        place.push_back(found == batch.end() ? m : found->second);
      }
      const Value shift = n.load(loop::whole(program, forward.log_sum_exp), place);
      const Value delta =
          sum(depth, [&](Expr d) { return load(backward.grad, m, d) * load(forward.o, m, d); });
      n.loop({keys}, [&](const std::vector<Expr>& inner) {
        const Expr key = inner[0];
        Value score = sum(depth, [&](Expr d) { return load(forward.q, m, d) * load(forward.k, key, d); });
        if (forward.scale != 1) score = score * n.constant(DType::kF32, forward.scale);
        Value weight = unary(ScalarOp::kExp, score - shift);
        if (forward.seen)
          weight = select(n.index_value(sym::lt(key, m + *forward.seen), DType::kBool), weight,
                          n.constant(DType::kF32, 0));
        n.store(weights, {m, key}, n.cast(weight, forward.dtype));
        const Value grad =
            sum(depth, [&](Expr d) { return load(backward.grad, m, d) * load(forward.v, key, d); });
        n.store(grads, {m, key}, n.cast(weight * (grad - delta), forward.dtype));
      });
      n.loop({depth}, [&](const std::vector<Expr>& inner) {
        Value dq =
            sum(keys, [&](Expr key) { return local_load(grads, m, key) * load(forward.k, key, inner[0]); });
        if (forward.scale != 1) dq = dq * n.constant(DType::kF32, forward.scale);
        finish(backward.dq, m, inner[0], dq);
      });
    });
    n.loop({keys, depth}, [&](const std::vector<Expr>& at) {
      Value dk = sum(rows, [&](Expr m) { return local_load(grads, m, at[0]) * load(forward.q, m, at[1]); });
      const Value dv =
          sum(rows, [&](Expr m) { return local_load(weights, m, at[0]) * load(backward.grad, m, at[1]); });
      if (forward.scale != 1) dk = dk * n.constant(DType::kF32, forward.scale);
      finish(backward.dk, at[0], at[1], dk);
      finish(backward.dv, at[0], at[1], dv);
    });
    if (!stored) return false;
    n.finish(&launch);
    return true;
  }

  Program& program_;
  const GpuTarget& target_;
  std::vector<Decision>* decisions_;
};

}  // namespace

void fuse_attention_backward(Program& program, const GpuTarget& target, std::vector<Decision>* decisions) {
  Fuser fuser(program, target, decisions);
  loop::for_each_block(program.steps, [&](loop::Steps& steps) { fuser.block(steps); });
  loop::eliminate_dead_code(program);
}

}  // namespace stridec::schedule
