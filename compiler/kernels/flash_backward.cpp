#include "compiler/kernels/flash_backward.h"

#include <algorithm>
#include <set>

#include "compiler/kernels/definitions.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"

namespace stridec::kernels {
namespace {

using loop::For;
using loop::Let;
using loop::Load;
using loop::Reduce;
using loop::ScalarOp;
using loop::Stmt;
using loop::Store;
using loop::ValueId;
using sym::Expr;

// The two loads that a sum of products multiplies.
struct SummedProduct {
  const Reduce* sum = nullptr;
  const Load *a = nullptr, *b = nullptr;
  Expr at;  // the summed index
};

class Matcher {
 public:
  Matcher(const loop::Program& program, const loop::Nest& nest)
      : program_(program), nest_(nest), made_(definitions_of(nest.body)) {}

  std::string reason = "it is not a backward pass of attention";

  std::optional<FlashBackward> match() {
    std::vector<const For*> loops;
    for (const Stmt& stmt : nest_.body) {
      if (const auto* loop = std::get_if<For>(&stmt.node))
        loops.push_back(loop);
      else if (loop::body_of(stmt) || std::holds_alternative<Store>(stmt.node))
        return std::nullopt;
    }
    if (loops.size() != 2 || loops[0]->dims.size() != 1 || loops[1]->dims.size() != 2) return std::nullopt;
    out_.batch = nest_.dims;
    out_.row = loops[0]->dims[0];
    if (!rows(*loops[0]) || !columns(*loops[1]) || !operands()) return std::nullopt;
    return out_;
  }

 private:
  std::optional<SummedProduct> product_of(const Reduce& reduce) const {
    if (reduce.combine != loop::Combine::kSum || reduce.dims.size() != 1 || reduce.yields.size() != 1)
      return std::nullopt;
    const Let* let = let_of(made_, reduce.yields[0]);
    if (!let || let->op != ScalarOp::kMul) return std::nullopt;
    SummedProduct out{.sum = &reduce, .at = reduce.dims[0].var};
    for (const size_t side : {0u, 1u}) {
      const auto found = made_.find(skip_casts(made_, let->args[side]));
      const Load* load = found == made_.end() ? nullptr : std::get_if<Load>(&found->second->node);
      if (!load || !load->access.mask.is_const(1)) return std::nullopt;
      (side ? out.b : out.a) = load;
    }
    return out;
  }

  bool is_local(const Load& load) const {
    return program_[load.access.buffer].storage == loop::Storage::kLocal;
  }

  bool rows(const For& loop) {
    for (const Stmt& stmt : loop.body) {
      if (const auto* reduce = std::get_if<Reduce>(&stmt.node)) {
        const auto product = product_of(*reduce);
        if (!product || delta_.sum) return false;
        delta_ = *product;
      } else if (const auto* inner = std::get_if<For>(&stmt.node)) {
        if (inner->dims.size() != 1) return false;
        if (!scores_.sum ? !weights(*inner) : !queries(*inner)) return false;
      } else if (const auto* load = std::get_if<Load>(&stmt.node)) {
        if (out_.log_sum_exp) return false;
        out_.log_sum_exp = load;
      } else if (std::holds_alternative<Store>(stmt.node)) {
        return false;
      }
    }
    return out_.log_sum_exp && delta_.sum && scores_.sum && out_.dq.sum;
  }

  // The weights and the gradients of scores, of one row.
  bool weights(const For& loop) {
    out_.keys = loop.dims[0];
    for (const Stmt& stmt : loop.body) {
      if (const auto* reduce = std::get_if<Reduce>(&stmt.node)) {
        const auto product = product_of(*reduce);
        if (!product || grads_.sum) return false;
        (scores_.sum ? grads_ : scores_) = *product;
      } else if (const auto* store = std::get_if<Store>(&stmt.node)) {
        if (program_[store->access.buffer].storage != loop::Storage::kLocal || score_grads_) return false;
        (weights_ ? score_grads_ : weights_) = store;
      } else if (loop::body_of(stmt)) {
        return false;
      }
    }
    if (!grads_.sum || !score_grads_) return false;
    out_.dtype = program_[weights_->access.buffer].dtype;
    return program_[score_grads_->access.buffer].dtype == out_.dtype && weight() && score_gradient();
  }

  // The stored weight: select(seen, exp(scale * score - log_sum_exp), 0).
  bool weight() {
    weight_ = skip_casts(made_, weights_->value);
    const Let* let = let_of(made_, weight_);
    if (let && let->op == ScalarOp::kSelect) {
      const auto hidden = constant_of(made_, let->args[2]);
      const auto found = made_.find(let->args[0]);
      const auto* shown =
          found == made_.end() ? nullptr : std::get_if<loop::IndexValue>(&found->second->node);
      if (!hidden || hidden->f != 0 || !shown) return false;
      out_.seen = seen_keys(shown->expr, out_.row.var, out_.keys.var, program_.facts);
      if (!out_.seen) return false;
      let = let_of(made_, let->args[1]);
    }
    if (!let || let->op != ScalarOp::kExp) return false;
    const Let* shifted = let_of(made_, let->args[0]);
    if (!shifted || shifted->op != ScalarOp::kSub || shifted->args[1] != out_.log_sum_exp->result)
      return false;
    ValueId score = shifted->args[0];
    if (const Let* scaled = let_of(made_, score); scaled && scaled->op == ScalarOp::kMul) {
      const auto by = constant_of(made_, scaled->args[1]);
      if (!by || !(by->f > 0)) return false;
      out_.scale = by->f;
      score = scaled->args[0];
    }
    return score == scores_.sum->results[0];
  }

  bool score_gradient() const {
    const Let* let = let_of(made_, skip_casts(made_, score_grads_->value));
    if (!let || let->op != ScalarOp::kMul || let->args[0] != weight_) return false;
    const Let* difference = let_of(made_, let->args[1]);
    return difference && difference->op == ScalarOp::kSub && difference->args[0] == grads_.sum->results[0] &&
           difference->args[1] == delta_.sum->results[0];
  }

  // The loop's results: each statement that depends on a sum belongs to it.
  bool results(const For& loop, const std::vector<FlashBackward::Result*>& each) {
    size_t next = 0;
    std::vector<std::set<ValueId>> own(each.size());
    for (const Stmt& stmt : loop.body) {
      if (const auto* reduce = std::get_if<Reduce>(&stmt.node)) {
        if (next == each.size()) return false;
        each[next]->sum = reduce;
        own[next++].insert(reduce->results[0]);
        continue;
      }
      if (loop::body_of(stmt)) return false;
      size_t users = 0, user = 0;
      for (size_t i = 0; i < each.size(); ++i) {
        bool uses = false;
        loop::for_each_use(stmt, [&](ValueId id) { uses = uses || own[i].contains(id); });
        if (uses) ++users, user = i;
      }
      if (users > 1) return false;
      if (users == 0) {
        if (std::holds_alternative<Store>(stmt.node)) return false;
        continue;  // add_uses() finds it
      }
      each[user]->statements.push_back(&stmt);
      loop::for_each_result(stmt, [&](ValueId id) { own[user].insert(id); });
    }
    for (FlashBackward::Result* result : each) add_uses(*result);
    return next == each.size();
  }

  // Adds the statements outside the sum that the result's own use: constants, which are hoisted, and loads.
  void add_uses(FlashBackward::Result& result) const {
    std::set<ValueId> known(result.sum->results.begin(), result.sum->results.end());
    std::vector<const Stmt*> all;
    const auto add = [&](auto&& self, const Stmt& stmt) -> void {
      loop::for_each_use(stmt, [&](ValueId id) {
        if (known.contains(id)) return;
        if (const auto found = made_.find(id); found != made_.end()) self(self, *found->second);
      });
      if (std::find(all.begin(), all.end(), &stmt) != all.end()) return;
      all.push_back(&stmt);
      loop::for_each_result(stmt, [&](ValueId id) { known.insert(id); });
    };
    for (const Stmt* stmt : result.statements) add(add, *stmt);
    result.statements = std::move(all);
  }

  bool queries(const For& loop) {
    out_.dq.line = out_.row;
    out_.dq.column = loop.dims[0];
    if (!results(loop, {&out_.dq})) return false;
    const auto product = product_of(*out_.dq.sum);
    if (!product) return false;
    dq_ = *product;
    return true;
  }

  bool columns(const For& loop) {
    for (FlashBackward::Result* result : {&out_.dk, &out_.dv}) {
      result->line = loop.dims[0];
      result->column = loop.dims[1];
    }
    if (loop.dims[0].extent != out_.keys.extent || !results(loop, {&out_.dk, &out_.dv})) return false;
    const auto k = product_of(*out_.dk.sum), v = product_of(*out_.dv.sum);
    if (!k || !v) return false;
    dk_ = *k;
    dv_ = *v;
    return true;
  }

  // Whether the load reads the rows that `of` describes, with this line and depth.
  bool same(const Flash::Operand& of, const Load& load, Expr line, Expr depth) const {
    const auto other = flash_operand(program_, load, line, depth, program_.facts);
    return other && load.access.buffer == of.load->access.buffer && other->base == of.base &&
           other->line == of.line;
  }

  // Whether the product's first factor is the local buffer that `of` stores.
  bool reads(const SummedProduct& product, const Store& of, Expr row, Expr key) const {
    return is_local(*product.a) && product.a->access.buffer == of.access.buffer &&
           product.a->access.index == std::vector<Expr>{row, key};
  }

  bool operands() {
    const auto operand = [&](const Load& load, Expr line, Expr depth) {
      return flash_operand(program_, load, line, depth, program_.facts);
    };
    const Expr row = out_.row.var, key = out_.keys.var;
    const auto q = operand(*scores_.a, row, scores_.at), k = operand(*scores_.b, key, scores_.at),
               grad = operand(*grads_.a, row, grads_.at), v = operand(*grads_.b, key, grads_.at),
               o = operand(*delta_.b, row, delta_.at);
    if (!q || !k || !grad || !v || !o) {
      reason = "a factor is not contiguous along the head";
      return false;
    }
    const Expr line = out_.dk.line.var, column = out_.dk.column.var;
    if (!same(*grad, *delta_.a, row, delta_.at) || !same(*k, *dq_.b, dq_.at, out_.dq.column.var) ||
        !same(*q, *dk_.b, dk_.at, column) || !same(*grad, *dv_.b, dv_.at, column) ||
        !reads(dq_, *score_grads_, row, dq_.at) || !reads(dk_, *score_grads_, dk_.at, line) ||
        !reads(dv_, *weights_, dv_.at, line))
      return false;
    out_.q = *q;
    out_.k = *k;
    out_.v = *v;
    out_.grad = *grad;
    out_.o = *o;
    out_.o_dtype = program_[o->load->access.buffer].dtype;
    for (const Flash::Operand* factor : {&*q, &*k, &*v, &*grad})
      if (program_[factor->load->access.buffer].dtype != out_.dtype) {
        reason = "a factor is stored as another type than it is multiplied as";
        return false;
      }
    const auto depth = sym::as_const(scores_.sum->dims[0].extent);
    for (Expr extent : {grads_.sum->dims[0].extent, delta_.sum->dims[0].extent, out_.dq.column.extent,
                        out_.dk.column.extent})
      if (!depth || !extent.is_const(*depth)) {
        reason = "its factors have several head sizes, or one that is not fixed";
        return false;
      }
    out_.depth = *depth;
    return true;
  }

  const loop::Program& program_;
  const loop::Nest& nest_;
  const Definitions made_;
  FlashBackward out_;
  SummedProduct scores_, grads_, delta_, dq_, dk_, dv_;
  const Store *weights_ = nullptr, *score_grads_ = nullptr;
  ValueId weight_;
};

}  // namespace

bool copies_in_tiles(const loop::Program& program, const FlashBackward& flash) {
  for (const Flash::Operand* factor : {&flash.q, &flash.k, &flash.v, &flash.grad, &flash.o}) {
    const int lanes = 16 / byte_size(program[factor->load->access.buffer].dtype);
    for (Expr e : {factor->base, factor->line})
      if (program.facts.known_divisor(e) % lanes != 0) return false;
  }
  return true;
}

std::optional<Expr> seen_keys(Expr shown, Expr row, Expr key, const sym::Facts& facts) {
  const bool strict = shown.op() == sym::Op::kLt;
  if (!strict && shown.op() != sym::Op::kLe) return std::nullopt;
  const Expr seen = sym::simplify(shown.arg(1) - shown.arg(0) + key - row + (strict ? 0 : 1), facts);
  return sym::has_index(seen) ? std::nullopt : std::optional(seen);
}

std::optional<Flash::Operand> flash_operand(const loop::Program& program, const Load& load, Expr line,
                                            Expr depth, const sym::Facts& facts) {
  const auto form = linear_form(offset_of(program, load.access, facts), {line, depth});
  if (!form || sym::has_index(form->coefficients[0]) || !form->coefficients[1].is_const(1))
    return std::nullopt;
  return Flash::Operand{.load = &load, .base = form->rest, .line = form->coefficients[0]};
}

std::optional<FlashBackward> match_flash_backward(const loop::Program& program, const loop::Nest& nest,
                                                  std::string* reason) {
  Matcher matcher(program, nest);
  auto out = matcher.match();
  if (!out && reason) *reason = matcher.reason;
  return out;
}

}  // namespace stridec::kernels
