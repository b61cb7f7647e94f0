#include "compiler/schedule/fusion/attention_nest.h"

#include <functional>
#include <limits>
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
            const ForwardPass& forward, const BackwardPass& backward, loop::BufferId log_sum_exp,
            const std::string& name)
      : into_(into),
        program_(program),
        steps_(steps),
        forward_(forward),
        backward_(backward),
        log_sum_exp_(log_sum_exp),
        n_(into, name) {}

  std::optional<loop::NestId> one_kernel() {
    const Expr rows = forward_.row.extent, keys = forward_.key.extent, depth = forward_.depth.extent;
    const loop::View weights = local("weights", {rows, keys}), grads = local("score_grads", {rows, keys});
    open_batch();
    n_.loop({rows}, [&](const std::vector<Expr>& at) {
      const Expr m = at[0];
      const Value shift = n_.load(loop::whole(into_, log_sum_exp_), row_index(m));
      const Value delta =
          sum(depth, [&](Expr d) { return load(backward_.grad, m, d) * load(forward_.o, m, d); });
      n_.loop({keys}, [&](const std::vector<Expr>& inner) {
        const Expr key = inner[0];
        const Value product =
            sum(depth, [&](Expr d) { return load(forward_.q, m, d) * load(forward_.k, key, d); });
        const Value weight = weight_of(scaled(product, *forward_.scale), shift, m, key);
        n_.store(weights, {m, key}, n_.cast(weight, forward_.dtype));
        const Value grad =
            sum(depth, [&](Expr d) { return load(backward_.grad, m, d) * load(forward_.v, key, d); });
        n_.store(grads, {m, key}, n_.cast(weight * (grad - delta), forward_.dtype));
      });
      n_.loop({depth}, [&](const std::vector<Expr>& inner) {
        const Value dq =
            sum(keys, [&](Expr key) { return load(grads, m, key) * load(forward_.k, key, inner[0]); });
        finish(backward_.dq, m, inner[0], scaled(dq, backward_.dq.scale));
      });
    });
    n_.loop({keys, depth}, [&](const std::vector<Expr>& at) {
      const Value dk =
          scaled(sum(rows, [&](Expr m) { return load(grads, m, at[0]) * load(forward_.q, m, at[1]); }),
                 backward_.dk.scale);
      const Value dv =
          sum(rows, [&](Expr m) { return load(weights, m, at[0]) * load(backward_.grad, m, at[1]); });
      finish(backward_.dk, at[0], at[1], dk);
      finish(backward_.dv, at[0], at[1], dv);
    });
    return made();
  }

  // The chain that has the rows of q. Stores D, the sum of do o, to `deltas`.
  std::optional<loop::NestId> row_chain(loop::BufferId deltas) {
    const Expr keys = forward_.key.extent, depth = forward_.depth.extent;
    const loop::View scores = local("scores", {keys}, DType::kF32),
                     weight_grads = local("weight_grads", {keys}, DType::kF32),
                     grads = local("score_grads", {keys});
    open_batch();
    const Expr m = n_.dim(forward_.row.extent);
    for_each_sum(scores, keys, forward_.q, m, forward_.k,
                 [&](Value sum, Expr key) { return score_of(sum, m, key); });
    for_each_sum(weight_grads, keys, backward_.grad, m, forward_.v);
    const Value shift = n_.load(loop::whole(into_, log_sum_exp_), row_index(m));
    const Value delta =
        sum(depth, [&](Expr d) { return load(backward_.grad, m, d) * load(forward_.o, m, d); });
    n_.store(loop::whole(into_, deltas), row_index(m), delta);
    n_.loop({keys}, [&](const std::vector<Expr>& at) {
      const Value weight = weight_of(n_.load(scores, at), shift, m, at[0]);
      n_.store(grads, at, n_.cast(weight * (n_.load(weight_grads, at) - delta), forward_.dtype));
    });
    n_.loop({depth}, [&](const std::vector<Expr>& at) {
      const Value dq = sum(keys, [&](Expr key) {
        return n_.cast(n_.load(grads, {key}), DType::kF32) * load(forward_.k, key, at[0]);
      });
      finish(backward_.dq, m, at[0], scaled(dq, backward_.dq.scale));
    });
    return made();
  }

  // The chain that has the keys.
  std::optional<loop::NestId> key_chain(loop::BufferId deltas) {
    const Expr rows = forward_.row.extent, depth = forward_.depth.extent;
    const loop::View scores = local("scores", {rows}, DType::kF32),
                     weight_grads = local("weight_grads", {rows}, DType::kF32),
                     weights = local("weights", {rows}), grads = local("score_grads", {rows});
    open_batch();
    const Expr key = n_.dim(forward_.key.extent);
    for_each_sum(scores, rows, forward_.k, key, forward_.q,
                 [&](Value sum, Expr m) { return score_of(sum, m, key); });
    for_each_sum(weight_grads, rows, forward_.v, key, backward_.grad);
    n_.loop({rows}, [&](const std::vector<Expr>& at) {
      const Value shift = n_.load(loop::whole(into_, log_sum_exp_), row_index(at[0])),
                  delta = n_.load(loop::whole(into_, deltas), row_index(at[0]));
      const Value weight = weight_of(n_.load(scores, at), shift, at[0], key);
      n_.store(weights, at, n_.cast(weight, forward_.dtype));
      n_.store(grads, at, n_.cast(weight * (n_.load(weight_grads, at) - delta), forward_.dtype));
    });
    const auto product = [&](const loop::View& factor, const TensorRows& other, Expr column) {
      return sum(rows,
                 [&](Expr m) { return n_.cast(n_.load(factor, {m}), DType::kF32) * load(other, m, column); });
    };
    n_.loop({depth}, [&](const std::vector<Expr>& at) {
      finish(backward_.dv, key, at[0], product(weights, backward_.grad, at[0]));
    });
    n_.loop({depth}, [&](const std::vector<Expr>& at) {
      finish(backward_.dk, key, at[0], scaled(product(grads, forward_.q, at[0]), backward_.dk.scale));
    });
    return made();
  }

 private:
  void open_batch() {
    for (const loop::Dim& dim : forward_.batch) batch_[dim.var] = n_.dim(dim.extent);
  }
  std::optional<loop::NestId> made() {
    if (!pointwise_) return std::nullopt;
    loop::Steps launch;
    return n_.finish(&launch);
  }

  loop::View local(const char* name, std::vector<Expr> shape, std::optional<DType> dtype = {}) {
    return loop::whole(into_, loop::add_buffer(into_, {.name = name,
                                                       .dtype = dtype.value_or(forward_.dtype),
                                                       .shape = std::move(shape),
                                                       .strides = {},
                                                       .storage = loop::Storage::kLocal}));
  }

  // to[i] = what `of` makes of the sum over the depth of line[line_at, :] * other[i, :].
  void for_each_sum(const loop::View& to, Expr count, const TensorRows& line, Expr line_at,
                    const TensorRows& other, const std::function<Value(Value, Expr)>& of = {}) {
    n_.loop({count}, [&](const std::vector<Expr>& at) {
      const Value product =
          sum(forward_.depth.extent, [&](Expr d) { return load(line, line_at, d) * load(other, at[0], d); });
      n_.store(to, at, of ? of(product, at[0]) : product);
    });
  }

  Value score_of(Value sum, Expr row, Expr key) {
    sym::Substitution to = batch_;
    to[forward_.row.var] = row;
    to[forward_.key.var] = key;
    sym::Substitution at;
    for (const auto& [var, e] : forward_.score_at) at[var] = sym::substitute(e, to);
    std::optional<Value> score;
    compute_around(forward_.score, at, sum,
                   [&](const Access&, Value value) { score = n_.cast(value, DType::kF32); });
    return *score;
  }

  // p of a score; `shift`: the row's log-sum-exp, which is not a number if the row sees no key.
  Value weight_of(Value score, Value shift, Expr row, Expr key) {
    const auto zero = [&] { return n_.constant(DType::kF32, 0); };
    const Value weight = unary(loop::ScalarOp::kExp, score - shift);
    if (forward_.seen)
      return select(n_.index_value(sym::lt(key, row + *forward_.seen), DType::kBool), weight, zero());
    if (forward_.scale) return weight;
    const Value hidden = n_.constant(DType::kF32, -std::numeric_limits<double>::infinity());
    return select(n_.op(loop::ScalarOp::kEq, {score, hidden}), zero(), weight);
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
  Value scaled(Value value, double by) { return by == 1 ? value : value * n_.constant(DType::kF32, by); }

  // Adds the statements that the product's nest has around its sum, with `sum` in its place.
  void finish(const BackwardProduct& product, Expr line, Expr column, Value sum) {
    sym::Substitution to;
    for (const auto& [var, e] : product.at) {
      const auto found = batch_.find(e);
      to[var] = found != batch_.end() ? found->second : e == forward_.depth.var ? column : line;
    }
    compute_around(*nest_at(program_, steps_, product.step), to, sum, [&](const Access& access, Value value) {
      n_.store(loop::whole(into_, access.buffer), access.index, value);
    });
  }

  // The statements around a contraction's sum, with index variables substituted.
  void compute_around(const loop::Nest& from, const sym::Substitution& to, Value sum,
                      const std::function<void(const Access&, Value)>& on_store) {
    const kernels::Contraction contraction = *kernels::match_contraction(from);
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
        on_store(access, known.at(store->value));
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

std::optional<std::vector<loop::NestId>> add_backward_nest(loop::Program& into, const loop::Program& program,
                                                           const loop::Steps& steps,
                                                           const ForwardPass& forward,
                                                           const BackwardPass& backward,
                                                           loop::BufferId log_sum_exp) {
  NestMaker maker(into, program, steps, forward, backward, log_sum_exp, "attention_backward");
  const auto nest = maker.one_kernel();
  return nest ? std::optional(std::vector{*nest}) : std::nullopt;
}

std::optional<std::vector<loop::NestId>> add_backward_chains(
    loop::Program& into, const loop::Program& program, const loop::Steps& steps, const ForwardPass& forward,
    const BackwardPass& backward, loop::BufferId log_sum_exp) {
  loop::Buffer statistic{.name = "delta", .dtype = DType::kF32};
  for (const loop::Dim& dim : forward.dims) statistic.shape.push_back(dim.extent);
  const loop::BufferId deltas = loop::add_buffer(into, std::move(statistic));
  NestMaker rows(into, program, steps, forward, backward, log_sum_exp, "attention_backward_rows");
  const auto first = rows.row_chain(deltas);
  NestMaker keys(into, program, steps, forward, backward, log_sum_exp, "attention_backward_keys");
  const auto second = first ? keys.key_chain(deltas) : std::nullopt;
  return second ? std::optional(std::vector{*first, *second}) : std::nullopt;
}

}  // namespace stridec::schedule
