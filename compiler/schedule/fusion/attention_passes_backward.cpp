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

constexpr int kMostValues = 200;  // of a function of ds

class BackwardFinder {
 public:
  BackwardFinder(const Program& program, const loop::Steps& steps, const Flow& flow,
                 const ForwardPass& forward)
      : program_(program),
        steps_(steps),
        flow_(flow),
        forward_(forward),
        graph_(std::make_shared<const ValueGraph>(program, steps, flow)),
        values_(*graph_),
        weights_(forward.weights.begin(), forward.weights.end()) {}

  std::optional<BackwardPass> find() {
    // The product that reads p tells which tensor is the gradient of o; the other products read it too.
    for_each_product([&](const Product& product) { take_values(product); });
    if (out_.dv.step < 0) return std::nullopt;
    for_each_product([&](const Product& product) { take_scores(product); });
    if (out_.dq.step < 0 || out_.dk.step < 0 || !find_between()) return std::nullopt;
    out_.values = graph_;
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
      if (place[i].is_const() && place[i] == forward_.place[i]) continue;
      if (!sym::is_index(place[i]) || at.contains(place[i])) return std::nullopt;
      at[place[i]] = forward_.place[i];
    }
    return at;
  }

  // The same, and maps the one dim of the product that is left to the depth.
  std::optional<sym::Substitution> to_forward(const Product& product, const std::vector<Expr>& place) const {
    auto at = to_forward(place);
    if (!at || !at->contains(product.summed) || product.nest.dims.size() != at->size()) return std::nullopt;
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
    const BufferId read = product.other.access.buffer;
    if (read != forward_.q.buffer && read != forward_.k.buffer) return;
    const ValueGraph::Element factor{&product.nest, product.factor, {}};
    BackwardProduct found{
        .step = product.step, .at = {}, .scale = std::nullopt, .gradient = factor, .base = {}};
    std::vector<Expr> place;
    int budget = kMostValues;
    if (!find_base(factor, found, place, budget)) return;
    const auto at = to_forward(product, place);
    if (!at || !reads_known(factor, found, *at)) return;
    found.at = *at;
    double scale = 1;
    std::vector<Shown> shown;
    if (is_score_gradient(factor, scale, place, shown) &&
        std::ranges::all_of(shown, [&](const Shown& each) { return is_mask(each, *at); }))
      found.scale = scale;
    const TensorRows other = rows_of(product.other.access, *at, forward_.facts);
    if (at->at(product.summed) == forward_.key.var && other == forward_.k) out_.dq = found;
    if (at->at(product.summed) == forward_.row.var && other == forward_.q) out_.dk = found;
  }

  // Finds the one element p * (dp - sum(p * dp)) that `element` is a pointwise function of, and its place.
  bool find_base(ValueGraph::Element element, BackwardProduct& out, std::vector<Expr>& place,
                 int& budget) const {
    if (--budget < 0) return false;
    element = values_.resolve(std::move(element), weights_);
    const Let* let = values_.let_of(element);
    if (!let) return false;
    std::vector<Expr> here;
    if (is_base(element, here)) {
      if (place.empty()) out.base = element, place = here;
      return element == out.base;
    }
    bool any = false;
    for (const ValueId arg : let->args)
      any = find_base({element.nest, arg, element.at}, out, place, budget) || any;
    return any;
  }

  // Whether all that the function reads apart from its base can be computed at any place of the backward
  // pass: weights at the same place, the sum of q k, and tensors in memory, which go to `loaded_`.
  bool reads_known(ValueGraph::Element element, BackwardProduct& out, const sym::Substitution& at) {
    element = values_.resolve(std::move(element), weights_);
    if (element == out.base || values_.index_of(element) || values_.constant_of(element)) return true;
    if (const Let* let = values_.let_of(element))
      return std::ranges::all_of(
          let->args, [&](ValueId arg) { return reads_known({element.nest, arg, element.at}, out, at); });
    if (const Load* load = values_.load_of(element)) {
      if (program_[load->access.buffer].storage == loop::Storage::kLocal) return false;
      if (weights_.contains(load->access.buffer)) return weight_at(element) == weight_at(weight_of(out.base));
      loaded_.insert(load->access.buffer);
      return true;
    }
    ValueGraph::Element there = element;
    for (auto& [var, e] : there.at) e = sym::substitute(e, at);
    out.reads_sum = is_score_sum(program_, steps_, forward_, there);
    return out.reads_sum;
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
    return is_base(element, place);
  }

  // p * (dp - sum(p * dp)), and the place of p.
  bool is_base(const ValueGraph::Element& element, std::vector<Expr>& place) const {
    const Let* let = values_.let_of(element);
    if (!let || let->op != ScalarOp::kMul) return false;
    for (const size_t side : {0u, 1u}) {
      const auto at = weight_at({element.nest, let->args[side], element.at});
      if (!at) continue;
      const ValueGraph::Element rest =
          values_.resolve({element.nest, let->args[1 - side], element.at}, weights_);
      const Let* difference = values_.let_of(rest);
      if (!difference || difference->op != ScalarOp::kSub) return false;
      place = *at;
      return is_weight_gradient({rest.nest, difference->args[0], rest.at}, place) &&
             is_row_sum({rest.nest, difference->args[1], rest.at}, place);
    }
    return false;
  }

  // Of a base: the factor that is p.
  ValueGraph::Element weight_of(const ValueGraph::Element& base) const {
    const Let* let = values_.let_of(base);
    const ValueGraph::Element first{base.nest, let->args[0], base.at};
    return weight_at(first) ? first : ValueGraph::Element{base.nest, let->args[1], base.at};
  }

  // Whether it hides the keys that the forward pass hides: there p is 0, and so is ds without the condition.
  bool is_mask(const Shown& shown, const sym::Substitution& at) const {
    ValueGraph::Element condition = values_.resolve(shown.condition, {});
    bool value = shown.value;
    for (const Let* no; (no = values_.let_of(condition)) && no->op == ScalarOp::kNot; value = !value)
      condition = values_.resolve({condition.nest, no->args[0], condition.at}, {});
    const auto* index = values_.index_of(condition);
    if (!index || !forward_.seen) return false;
    Expr holds = sym::substitute(sym::substitute(index->expr, condition.at), at);
    if (!value) holds = sym::logical_not(holds);
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
    kept.insert(loaded_.begin(), loaded_.end());
    for (const int step : gone)
      for (const Stmt& stmt : nest_at(program_, steps_, step)->body)
        if (const auto* load = std::get_if<Load>(&stmt.node)) kept.insert(load->access.buffer);
    const auto serves = [&](int step) {
      bool used = false;
      for (BufferId id : flow_.effects(step).writes) {
        if (program_[id].storage == loop::Storage::kLocal) continue;
        const auto inside =
            std::ranges::count_if(gone, [&](int reader) { return reads(flow_.effects(reader), id); });
        if (kept.contains(id) || !made_once(program_, flow_, id) || inside != flow_.reader_count(id))
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
      for (const int at : flow_.readers_between(id, -1, flow_.size()))
        if (at != forward_.values && at != forward_.softmax && !gone.contains(at)) return false;
    for (const int at : {out_.dq.step, out_.dk.step, out_.dv.step}) gone.erase(at);
    out_.between = std::move(gone);
    return true;
  }

  const Program& program_;
  const loop::Steps& steps_;
  const Flow& flow_;
  const ForwardPass& forward_;
  const std::shared_ptr<const ValueGraph> graph_;
  const ValueGraph& values_;
  const std::set<BufferId> weights_;
  std::set<BufferId> loaded_;  // what the functions of ds load
  BackwardPass out_;
};

}  // namespace

bool is_score_sum(const Program& program, const loop::Steps& steps, const ForwardPass& forward,
                  const ValueGraph::Element& element) {
  const Nest& scores = *nest_at(program, steps, forward.scores);
  const Nest& softmax = *nest_at(program, steps, forward.softmax);
  const auto contraction = kernels::match_contraction(scores);
  if (element.nest != &scores || !contraction || element.value != contraction->reduce->results[0])
    return false;
  // Both nests index what passes between them.
  std::map<BufferId, const Access*> stored;
  for (const Stmt& stmt : scores.body)
    if (const auto* store = std::get_if<Store>(&stmt.node)) stored[store->access.buffer] = &store->access;
  bool found = false, same = true;
  loop::for_each_stmt(softmax.body, [&](const Stmt& stmt) {
    const auto* load = std::get_if<Load>(&stmt.node);
    const auto from = load ? stored.find(load->access.buffer) : stored.end();
    if (from == stored.end()) return;
    found = true;
    const std::vector<Expr>& index = from->second->index;
    for (size_t d = 0; d < index.size(); ++d) {
      const Expr var = load->access.index[d];
      if (var.is_const() && var == index[d]) continue;
      const Expr there = loop::is_var_of(var, softmax.dims) ? var : forward.key.var;
      const auto at = element.at.find(index[d]);
      same = same && at != element.at.end() && at->second == there;
    }
  });
  return found && same;
}

std::optional<BackwardPass> find_backward_pass(const Program& program, const loop::Steps& steps,
                                               const Flow& flow, const ForwardPass& forward) {
  return BackwardFinder(program, steps, flow, forward).find();
}

}  // namespace stridec::schedule
