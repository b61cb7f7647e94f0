#include "compiler/schedule/fusion/attention_nest.h"

#include <functional>
#include <map>
#include <optional>

#include "compiler/kernels/contraction.h"
#include "compiler/kernels/definitions.h"
#include "compiler/loop/build.h"
#include "compiler/schedule/analysis/effects.h"

namespace stridec::schedule {
namespace {

using loop::Access;
using loop::Value;
using loop::ValueId;
using sym::Expr;

class NestMaker {
 public:
  NestMaker(loop::Program& into, const loop::Program& program, const loop::Steps& steps,
            const ForwardPass& forward, const BackwardPass& backward, loop::BufferId log_sum_exp)
      : into_(into),
        program_(program),
        steps_(steps),
        forward_(forward),
        backward_(backward),
        log_sum_exp_(log_sum_exp),
        n_(into, "attention_backward") {}

  std::optional<loop::NestId> make() {
    const Expr rows = forward_.row.extent, keys = forward_.key.extent, depth = forward_.depth.extent;
    const loop::View weights = local("weights"), grads = local("score_grads");
    for (const loop::Dim& dim : forward_.batch) batch_[dim.var] = n_.dim(dim.extent);
    n_.loop({rows}, [&](const std::vector<Expr>& at) {
      const Expr m = at[0];
      const Value shift = n_.load(loop::whole(into_, log_sum_exp_), row_index(m));
      const Value delta =
          sum(depth, [&](Expr d) { return load(backward_.grad, m, d) * load(forward_.o, m, d); });
      n_.loop({keys}, [&](const std::vector<Expr>& inner) {
        const Expr key = inner[0];
        const Value score =
            scaled(sum(depth, [&](Expr d) { return load(forward_.q, m, d) * load(forward_.k, key, d); }));
        Value weight = unary(loop::ScalarOp::kExp, score - shift);
        if (forward_.seen)
          weight = select(n_.index_value(sym::lt(key, m + *forward_.seen), DType::kBool), weight,
                          n_.constant(DType::kF32, 0));
        n_.store(weights, {m, key}, n_.cast(weight, forward_.dtype));
        const Value grad =
            sum(depth, [&](Expr d) { return load(backward_.grad, m, d) * load(forward_.v, key, d); });
        n_.store(grads, {m, key}, n_.cast(weight * (grad - delta), forward_.dtype));
      });
      n_.loop({depth}, [&](const std::vector<Expr>& inner) {
        const Value dq =
            sum(keys, [&](Expr key) { return load(grads, m, key) * load(forward_.k, key, inner[0]); });
        finish(backward_.dq, m, inner[0], scaled(dq));
      });
    });
    n_.loop({keys, depth}, [&](const std::vector<Expr>& at) {
      const Value dk =
          scaled(sum(rows, [&](Expr m) { return load(grads, m, at[0]) * load(forward_.q, m, at[1]); }));
      const Value dv =
          sum(rows, [&](Expr m) { return load(weights, m, at[0]) * load(backward_.grad, m, at[1]); });
      finish(backward_.dk, at[0], at[1], dk);
      finish(backward_.dv, at[0], at[1], dv);
    });
    if (!pointwise_) return std::nullopt;
    loop::Steps launch;
    return n_.finish(&launch);
  }

 private:
  loop::View local(const char* name) {
    return loop::whole(into_, loop::add_buffer(into_, {.name = name,
                                                       .dtype = forward_.dtype,
                                                       .shape = {forward_.row.extent, forward_.key.extent},
                                                       .strides = {},
                                                       .storage = loop::Storage::kLocal}));
  }

  // `line`: the row or the key.
  Value load(const TensorRows& from, Expr line, Expr column) {
    sym::Substitution map = batch_;
    map[forward_.row.var] = map[forward_.key.var] = line;
    map[forward_.depth.var] = column;
    Access access{from.buffer, {}};
    for (Expr e : from.index) access.index.push_back(sym::substitute(e, map));
    return n_.cast(n_.load(access, loop::int_scalar(into_[from.buffer].dtype, 0)), DType::kF32);
  }
  Value load(const loop::View& view, Expr row, Expr key) {
    return n_.cast(n_.load(view, {row, key}), DType::kF32);
  }

  std::vector<Expr> row_index(Expr row) const {
    std::vector<Expr> index;
    for (const loop::Dim& dim : forward_.dims) {
      const auto found = batch_.find(dim.var);
      index.push_back(found == batch_.end() ? row : found->second);
    }
    return index;
  }

  Value sum(Expr extent, const std::function<Value(Expr)>& term) {
    return n_.reduce(loop::Combine::kSum, {extent}, [&](const std::vector<Expr>& at) { return term(at[0]); });
  }
  Value scaled(Value value) {
    return forward_.scale == 1 ? value : value * n_.constant(DType::kF32, forward_.scale);
  }

  // Adds the statements that the product's nest has around its sum, with `sum` in its place.
  void finish(const BackwardProduct& product, Expr line, Expr column, Value sum) {
    const loop::Nest& from = *nest_at(program_, steps_, product.step);
    const kernels::Contraction contraction = *kernels::match_contraction(from);
    sym::Substitution to;
    for (const auto& [var, e] : product.at) {
      const auto found = batch_.find(e);
      to[var] = found != batch_.end() ? found->second : e == forward_.depth.var ? column : line;
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
      const loop::Stmt& stmt = from.body[i];
      if (const auto* load = std::get_if<loop::Load>(&stmt.node)) {
        known[load->result] = n_.load(mapped(load->access), load->fill);
      } else if (const auto* constant = std::get_if<loop::Constant>(&stmt.node)) {
        known[constant->result] = n_.constant(constant->value);
      } else if (const auto* index = std::get_if<loop::IndexValue>(&stmt.node)) {
        known[index->result] =
            n_.index_value(sym::substitute(index->expr, to), from.values[index->result.value].dtype);
      } else if (const auto* store = std::get_if<loop::Store>(&stmt.node)) {
        const Access access = mapped(store->access);
        pointwise_ = pointwise_ && access.mask.is_const(1) && !store->update;
        n_.store(loop::whole(into_, access.buffer), access.index, known.at(store->value));
      } else if (const auto* let = std::get_if<loop::Let>(&stmt.node)) {
        const DType dtype = from.values[let->result.value].dtype;
        std::vector<Value> args;
        for (ValueId id : let->args) args.push_back(known.at(id));
        known[let->result] = kernels::is_cast(let)
                                 ? n_.cast(args[0], dtype, let->op == loop::ScalarOp::kCastSat)
                             : let->op == loop::ScalarOp::kBitcast ? n_.bitcast(args[0], dtype)
                                                                   : n_.op(let->op, args);
      } else {
        pointwise_ = false;
      }
    }
  }

  loop::Program& into_;
  const loop::Program& program_;
  const loop::Steps& steps_;
  const ForwardPass& forward_;
  const BackwardPass& backward_;
  const loop::BufferId log_sum_exp_;
  loop::NestBuilder n_;
  sym::Substitution batch_;  // the batch dims' variables
  bool pointwise_ = true;
};

}  // namespace

std::optional<loop::NestId> add_backward_nest(loop::Program& into, const loop::Program& program,
                                              const loop::Steps& steps, const ForwardPass& forward,
                                              const BackwardPass& backward, loop::BufferId log_sum_exp) {
  return NestMaker(into, program, steps, forward, backward, log_sum_exp).make();
}

}  // namespace stridec::schedule
