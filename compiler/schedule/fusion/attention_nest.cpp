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
            const ForwardPass& forward, const BackwardPass& backward, const RowStatistics& statistics,
            const std::string& name)
      : into_(into),
        program_(program),
        steps_(steps),
        forward_(forward),
        backward_(backward),
        statistics_(statistics),
        n_(into, name) {}

  std::optional<loop::NestId> one_kernel() {
    const Expr rows = forward_.row.extent, keys = forward_.key.extent, depth = forward_.depth.extent;
    const loop::View weights = local("weights", {rows, keys}), grads = local("score_grads", {rows, keys});
    open_batch();
    n_.loop({rows}, [&](const std::vector<Expr>& at) {
      const Expr m = at[0];
      const Shift shift = shift_of(m);
      const Value delta = row_sum(m);
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
        finish(backward_.dq, m, inner[0], scaled(dq, *backward_.dq.scale));
      });
    });
    n_.loop({keys, depth}, [&](const std::vector<Expr>& at) {
      const Value dk =
          scaled(sum(rows, [&](Expr m) { return load(grads, m, at[0]) * load(forward_.q, m, at[1]); }),
                 *backward_.dk.scale);
      const Value dv =
          sum(rows, [&](Expr m) { return load(weights, m, at[0]) * load(backward_.grad, m, at[1]); });
      finish(backward_.dk, at[0], at[1], dk);
      finish(backward_.dv, at[0], at[1], dv);
    });
    return made();
  }

  // Stores D, the sum of do o, to `deltas`.
  std::optional<loop::NestId> row_sums(loop::BufferId deltas) {
    open_batch();
    const Expr m = n_.dim(forward_.row.extent);
    n_.store(loop::whole(into_, deltas), row_index(m), row_sum(m));
    return made();
  }

  // The chain that has the rows of q. It computes D and stores it to `deltas`, or reads it there.
  std::optional<loop::NestId> row_chain(loop::BufferId deltas, bool stores) {
    const Expr keys = forward_.key.extent, depth = forward_.depth.extent;
    const loop::View scores = local("scores", {keys}, DType::kF32),
                     weight_grads = local("weight_grads", {keys}, DType::kF32),
                     grads = local("score_grads", {keys});
    open_batch();
    const Expr m = n_.dim(forward_.row.extent);
    const bool sums = backward_.dq.reads_sum;
    for_each_sum(scores, keys, forward_.q, m, forward_.k,
                 [&](Value sum, Expr key) { return sums ? sum : score_of(sum, m, key); });
    for_each_sum(weight_grads, keys, backward_.grad, m, forward_.v);
    const Shift shift = shift_of(m);
    const Value delta = stores ? row_sum(m) : n_.load(loop::whole(into_, deltas), row_index(m));
    if (stores) n_.store(loop::whole(into_, deltas), row_index(m), delta);
    n_.loop({keys}, [&](const std::vector<Expr>& at) {
      const Value sum = n_.load(scores, at);
      const Value weight = weight_of(sums ? score_of(sum, m, at[0]) : sum, shift, m, at[0]);
      const Value grad = weight * (n_.load(weight_grads, at) - delta);
      n_.store(grads, at, n_.cast(gradient_of(backward_.dq, {m, at[0], sum, weight, grad}), forward_.dtype));
    });
    n_.loop({depth}, [&](const std::vector<Expr>& at) {
      const Value dq = sum(keys, [&](Expr key) {
        return n_.cast(n_.load(grads, {key}), DType::kF32) * load(forward_.k, key, at[0]);
      });
      finish(backward_.dq, m, at[0], scaled(dq, backward_.dq.scale.value_or(1)));
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
    const bool sums = backward_.dk.reads_sum;
    for_each_sum(scores, rows, forward_.k, key, forward_.q,
                 [&](Value sum, Expr m) { return sums ? sum : score_of(sum, m, key); });
    for_each_sum(weight_grads, rows, forward_.v, key, backward_.grad);
    n_.loop({rows}, [&](const std::vector<Expr>& at) {
      const Shift shift = shift_of(at[0]);
      const Value delta = n_.load(loop::whole(into_, deltas), row_index(at[0]));
      const Value sum = n_.load(scores, at);
      const Value weight = weight_of(sums ? score_of(sum, at[0], key) : sum, shift, at[0], key);
      n_.store(weights, at, n_.cast(weight, forward_.dtype));
      const Value grad = weight * (n_.load(weight_grads, at) - delta);
      n_.store(grads, at,
               n_.cast(gradient_of(backward_.dk, {at[0], key, sum, weight, grad}), forward_.dtype));
    });
    const auto product = [&](const loop::View& factor, const TensorRows& other, Expr column) {
      return sum(rows,
                 [&](Expr m) { return n_.cast(n_.load(factor, {m}), DType::kF32) * load(other, m, column); });
    };
    n_.loop({depth}, [&](const std::vector<Expr>& at) {
      finish(backward_.dv, key, at[0], product(weights, backward_.grad, at[0]));
    });
    n_.loop({depth}, [&](const std::vector<Expr>& at) {
      finish(backward_.dk, key, at[0],
             scaled(product(grads, forward_.q, at[0]), backward_.dk.scale.value_or(1)));
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

  // The sum of do o in a row.
  Value row_sum(Expr m) {
    return sum(forward_.depth.extent,
               [&](Expr d) { return load(backward_.grad, m, d) * load(forward_.o, m, d); });
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

  // What ds is computed from, in a row and at a key.
  struct Place {
    Expr row, key;
    Value sum, weight, base;  // q k, p, and p * (dp - sum(p * dp))
  };

  // ds without the factor `scale` of a product that has one.
  Value gradient_of(const BackwardProduct& product, const Place& place) {
    return product.scale ? place.base : cloned(product.gradient, product, place);
  }

  Value cloned(ValueGraph::Element element, const BackwardProduct& product, const Place& place) {
    const ValueGraph& values = *backward_.values;
    element = values.resolve(std::move(element),
                             std::set<loop::BufferId>(forward_.weights.begin(), forward_.weights.end()));
    if (element == product.base) return place.base;
    sym::Substitution at = batch_;
    at[forward_.row.var] = place.row;
    at[forward_.key.var] = place.key;
    const auto here = [&](Expr e) {
      return sym::substitute(sym::substitute(sym::substitute(e, element.at), product.at), at);
    };
    const DType dtype = element.nest->values[element.value.value].dtype;
    const auto wide = [&](Value value) { return is_float(dtype) ? n_.cast(value, DType::kF32) : value; };
    if (const auto constant = values.constant_of(element)) return wide(n_.constant(*constant));
    if (const auto* index = values.index_of(element)) return n_.index_value(here(index->expr), dtype);
    if (const loop::Load* load = values.load_of(element)) {
      if (std::ranges::count(forward_.weights, load->access.buffer)) return place.weight;
      Access access{load->access.buffer, {}};
      for (Expr e : load->access.index) access.index.push_back(here(e));
      access.mask = here(load->access.mask);
      return wide(n_.load(access, load->fill));
    }
    const loop::Let* let = values.let_of(element);
    if (!let) return place.sum;
    std::vector<Value> args;
    for (ValueId id : let->args) args.push_back(cloned({element.nest, id, element.at}, product, place));
    return copied({element.nest, element.value}, computed(*let, dtype, args));
  }

  // A value of a nest, and where it is.
  struct Source {
    const loop::Nest* nest;
    ValueId value;
  };
  Value copied(const Source& source, Value made) {
    loop::Origin& origin = n_.nest().values[made.id.value].origin;
    if (!origin.node.valid()) origin = source.nest->values[source.value.value].origin;
    return made;
  }

  // The value of the statement for these arguments, which may have wider float types than its own.
  Value computed(const loop::Let& let, DType dtype, std::vector<Value> args) {
    if (kernels::is_cast(&let)) return n_.cast(args[0], dtype, let.op == loop::ScalarOp::kCastSat);
    if (let.op == loop::ScalarOp::kBitcast) return n_.bitcast(args[0], dtype);
    return n_.op(let.op, args);
  }

  // What is subtracted from the scores of a row: L, or M and then S.
  struct Shift {
    Value first;
    std::optional<Value> second;
  };
  Shift shift_of(Expr row) {
    const auto load = [&](loop::BufferId id) { return n_.load(loop::whole(into_, id), row_index(row)); };
    if (statistics_.log_sum_exp.valid()) return {load(statistics_.log_sum_exp), {}};
    return {load(statistics_.maximum), load(statistics_.log_sum)};
  }

  // The weight p of a score. The shift is not finite if the row sees no key.
  Value weight_of(Value score, const Shift& shift, Expr row, Expr key) {
    const auto zero = [&] { return n_.constant(DType::kF32, 0); };
    Value exponent = score - shift.first;
    if (shift.second) exponent = exponent - *shift.second;
    const Value weight = unary(loop::ScalarOp::kExp, exponent);
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
        known[let->result] = copied({&from, let->result}, computed(*let, dtype, std::move(args)));
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
  const RowStatistics statistics_;
  loop::NestBuilder n_;
  sym::Substitution batch_;  // the batch dims' variables
  bool pointwise_ = true;
};

}  // namespace

std::optional<std::vector<loop::NestId>> add_backward_nest(loop::Program& into, const loop::Program& program,
                                                           const loop::Steps& steps,
                                                           const ForwardPass& forward,
                                                           const BackwardPass& backward,
                                                           const RowStatistics& statistics) {
  NestMaker maker(into, program, steps, forward, backward, statistics, "attention_backward");
  const auto nest = maker.one_kernel();
  return nest ? std::optional(std::vector{*nest}) : std::nullopt;
}

namespace {

// `apart`: a nest of its own computes D.
std::optional<std::vector<loop::NestId>> add_chains(loop::Program& into, const loop::Program& program,
                                                    const loop::Steps& steps, const ForwardPass& forward,
                                                    const BackwardPass& backward,
                                                    const RowStatistics& statistics, bool apart) {
  loop::Buffer row_sums{.name = "delta", .dtype = DType::kF32};
  for (const loop::Dim& dim : forward.dims) row_sums.shape.push_back(dim.extent);
  const loop::BufferId deltas = loop::add_buffer(into, std::move(row_sums));
  std::vector<loop::NestId> nests;
  const auto add = [&](const char* name, const auto& make) {
    NestMaker maker(into, program, steps, forward, backward, statistics, name);
    const std::optional<loop::NestId> nest = make(maker);
    if (nest) nests.push_back(*nest);
    return nest.has_value();
  };
  const bool all =
      (!apart || add("attention_backward_sums", [&](NestMaker& m) { return m.row_sums(deltas); })) &&
      add("attention_backward_rows", [&](NestMaker& m) { return m.row_chain(deltas, !apart); }) &&
      add("attention_backward_keys", [&](NestMaker& m) { return m.key_chain(deltas); });
  return all ? std::optional(std::move(nests)) : std::nullopt;
}

}  // namespace

std::optional<std::vector<loop::NestId>> add_backward_chains(
    loop::Program& into, const loop::Program& program, const loop::Steps& steps, const ForwardPass& forward,
    const BackwardPass& backward, const RowStatistics& statistics) {
  return add_chains(into, program, steps, forward, backward, statistics, false);
}

std::optional<std::vector<loop::NestId>> add_streamed_backward_chains(
    loop::Program& into, const loop::Program& program, const loop::Steps& steps, const ForwardPass& forward,
    const BackwardPass& backward, const RowStatistics& statistics) {
  return add_chains(into, program, steps, forward, backward, statistics, true);
}

}  // namespace stridec::schedule
