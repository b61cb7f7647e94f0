#include "compiler/loop/analysis.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/text.h"
#include "compiler/loop/walk.h"
#include "compiler/sym/text.h"

namespace stridec::loop {

using sym::Expr;

// ---- accesses --------------------------------------------------------------------------------------------

Expr offset_of(const Program& program, const Access& access) {
  const Buffer& b = program[access.buffer];
  std::vector<Expr> terms;
  for (size_t d = 0; d < access.index.size(); ++d) terms.push_back(access.index[d] * b.strides[d]);
  return sym::sum(terms);
}

std::optional<Expr> stride_of(const Program& program, const Access& access, Expr var,
                              const sym::Facts& facts) {
  Expr offset = offset_of(program, access);
  if (!sym::depends_on(offset, var)) return Expr(0);
  std::optional<sym::Linear> linear = sym::linear_in(offset, var);
  if (!linear) linear = sym::linear_in(sym::simplify(offset, facts), var);
  if (!linear) return std::nullopt;
  return sym::simplify(linear->coefficient, facts);
}

sym::Expr extent_of(const std::vector<Dim>& dims) {
  sym::Expr product = 1;
  for (const Dim& dim : dims) product *= dim.extent;
  return product;
}

std::vector<sym::Expr> vars_of(const std::vector<Dim>& dims) {
  std::vector<sym::Expr> vars;
  for (const Dim& dim : dims) vars.push_back(dim.var);
  return vars;
}

sym::Expr at_zero(sym::Expr e, const std::vector<Dim>& dims) {
  sym::Substitution zeros;
  for (const Dim& dim : dims) zeros[dim.var] = 0;
  return sym::substitute(e, zeros);
}

bool depends_on_any(sym::Expr e, const std::vector<Dim>& dims) {
  return std::any_of(dims.begin(), dims.end(), [&](const Dim& dim) { return sym::depends_on(e, dim.var); });
}

bool is_var_of(sym::Expr e, const std::vector<Dim>& dims) {
  return std::any_of(dims.begin(), dims.end(), [&](const Dim& dim) { return dim.var == e; });
}

std::vector<sym::Expr> conjuncts(sym::Expr mask) {
  if (mask.is_const(1)) return {};
  if (mask.op() != sym::Op::kAnd) return {mask};
  return {mask.args().begin(), mask.args().end()};
}

bool stores_apart(const Block& block, sym::Expr var) {
  bool apart = true;
  for_each_stmt(block, [&](const Stmt& stmt) {
    const auto* store = std::get_if<Store>(&stmt.node);
    if (!store) return;
    const auto& index = store->access.index;
    apart = apart &&
            std::any_of(index.begin(), index.end(), [&](sym::Expr at) { return sym::depends_on(at, var); });
  });
  return apart;
}

Effects effects_of(const Nest& nest) {
  Effects out;
  // An optimizer's update of all weights is one nest, which touches hundreds of buffers.
  std::vector<bool> seen[2];
  auto add = [&](std::vector<BufferId>& ids, BufferId id) {
    std::vector<bool>& known = seen[&ids == &out.writes];
    const auto at = static_cast<size_t>(id.value);
    if (at >= known.size()) known.resize(at + 1);
    if (!known[at]) ids.push_back(id);
    known[at] = true;
  };
  for_each_stmt(nest.body, [&](const Stmt& s) {
    if (auto* load = std::get_if<Load>(&s.node)) add(out.reads, load->access.buffer);
    if (auto* store = std::get_if<Store>(&s.node)) {
      add(out.writes, store->access.buffer);
      if (store->update) add(out.reads, store->access.buffer);
      out.updates = out.updates || store->update;
    }
  });
  return out;
}

bool walks(const Nest& nest) {
  bool found = false;
  for_each_stmt(nest.body, [&](const Stmt& stmt) {
    const auto* scan = std::get_if<Scan>(&stmt.node);
    if (!scan) return;
    std::set<ValueId> carried(scan->carried.begin(), scan->carried.end());  // and values that depend on them
    std::set<sym::Expr, sym::ExprLess> places;
    for_each_stmt(scan->body, [&](const Stmt& s) {
      bool follows = false;
      for_each_use(s, [&](ValueId v) { follows = follows || carried.count(v) > 0; });
      if (const auto* bind = std::get_if<Bind>(&s.node); bind && follows) places.insert(bind->var);
      if (const auto* load = std::get_if<Load>(&s.node))
        for (const sym::Expr& at : load->access.index)
          for (const sym::Expr& var : sym::free_vars(at)) found = found || places.count(var) > 0;
      if (follows) for_each_result(s, [&](ValueId v) { carried.insert(v); });
    });
  });
  return found;
}

std::optional<Accumulation> accumulation_of(const Nest& nest, const Scan& scan) {
  if (scan.carried.size() != 1 || sym::has_index(scan.dim.extent)) return std::nullopt;
  const DType dtype = nest.values[scan.carried[0].value].dtype;
  if (is_storage_float(dtype) || is_bool(dtype)) return std::nullopt;
  const Effects effects = effects_of(nest);
  std::set<ValueId> late = {scan.carried[0]};  // values that depend on the carried value
  const Let* combined = nullptr;
  for (const Stmt& stmt : scan.body) {
    if (body_of(stmt) || std::holds_alternative<Bind>(stmt.node)) return std::nullopt;
    if (const auto* load = std::get_if<Load>(&stmt.node);
        load && std::count(effects.writes.begin(), effects.writes.end(), load->access.buffer))
      return std::nullopt;
    if (const auto* store = std::get_if<Store>(&stmt.node); store && store->update) return std::nullopt;
    bool follows = false;
    for_each_use(stmt, [&](ValueId v) { follows = follows || late.count(v) > 0; });
    if (follows) for_each_result(stmt, [&](ValueId v) { late.insert(v); });
    if (const auto* let = std::get_if<Let>(&stmt.node); let && let->result == scan.yields[0]) combined = let;
  }
  if (!combined || combined->args.size() != 2) return std::nullopt;
  const bool first = combined->args[0] == scan.carried[0];
  Accumulation out{.combine = Combine::kSum, .term = combined->args[first ? 1 : 0], .terms = {}, .rest = {}};
  if (combined->args[first ? 0 : 1] != scan.carried[0] || late.count(out.term)) return std::nullopt;
  switch (combined->op) {
    case ScalarOp::kAdd: out.combine = Combine::kSum; break;
    case ScalarOp::kMul: out.combine = Combine::kProd; break;
    case ScalarOp::kMax: out.combine = Combine::kMax; break;
    case ScalarOp::kMin: out.combine = Combine::kMin; break;
    default: return std::nullopt;
  }
  // Backwards: the values that each of the two blocks needs. The term itself is an input of `rest`.
  std::set<ValueId> for_term = {out.term}, for_rest = {scan.yields[0]};
  for (size_t i = scan.body.size(); i-- > 0;) {
    const Stmt& stmt = scan.body[i];
    bool makes_term = false, makes_rest = std::holds_alternative<Store>(stmt.node);
    for_each_result(stmt, [&](ValueId v) {
      makes_term = makes_term || for_term.count(v);
      makes_rest = makes_rest || (v != out.term && for_rest.count(v));
    });
    for_each_use(stmt, [&](ValueId v) {
      if (makes_term) for_term.insert(v);
      if (makes_rest) for_rest.insert(v);
    });
    if (makes_term) out.terms.insert(out.terms.begin(), stmt);
    if (makes_rest) out.rest.insert(out.rest.begin(), stmt);
  }
  return out;
}

// ---- cost ------------------------------------------------------------------------------------------------

int flops_of(ScalarOp op) {
  switch (op) {
    case ScalarOp::kCast:
    case ScalarOp::kCastSat:
    case ScalarOp::kBitcast:
    case ScalarOp::kSelect:
    case ScalarOp::kNot:
    case ScalarOp::kAnd:
    case ScalarOp::kOr:
    case ScalarOp::kXor: return 0;
    case ScalarOp::kFma: return 2;
    default: return 1;
  }
}

namespace {

class Costs {
 public:
  explicit Costs(const Program& program, std::vector<Execution>* executions = nullptr)
      : program_(program), executions_(executions) {}

  Cost of(const Nest& nest) {
    for (const Dim& d : nest.dims) open(d);
    for (const Dim& d : nest.dims) cost_.points *= extents_.at(d.var);
    // A computed factor is computed once per element of the factor, because kernels copy it.
    const auto contraction = classify_contraction(nest);
    if (contraction)
      for (const Operand* operand : {&contraction->a, &contraction->b})
        for (const Stmt* stmt : operand->slice) factors_[stmt] = operand;
    block(nest.body, cost_.points);
    for (const auto& [buffer, elements] : touched_[0]) cost_.bytes_read += bytes(buffer, elements);
    for (const auto& [buffer, elements] : touched_[1]) cost_.bytes_written += bytes(buffer, elements);
    return cost_;
  }

 private:
  // A triangular extent counts at its largest: outer variables have their last value.
  void open(const Dim& d) {
    sym::Substitution last;
    for (const auto& [var, extent] : extents_) last[var] = extent - 1;
    extents_[d.var] = sym::substitute(d.extent, last);
  }

  void block(const Block& stmts, Expr times) {
    cost_.steps += times;
    for (const Stmt& s : stmts) {
      const auto factor = factors_.find(&s);
      const Expr here = factor == factors_.end() ? times : elements(*factor->second);
      if (auto* let = std::get_if<Let>(&s.node)) cost_.flops += here * flops_of(let->op);
      if (auto* bind = std::get_if<Bind>(&s.node)) extents_[bind->var] = bind->extent;
      if (auto* load = std::get_if<Load>(&s.node)) touch(0, load->access, times);
      if (auto* store = std::get_if<Store>(&s.node)) {
        touch(1, store->access, times);
        if (store->update) {
          touch(0, store->access, times);
          cost_.flops += times;
        }
      }
      const Block* body = body_of(s);
      if (!body) {
        if (executions_) executions_->push_back({&s, here});
        continue;
      }
      Expr inside = times;
      for (const Dim& d : dims_of(s)) {
        open(d);
        inside *= extents_.at(d.var);
      }
      if (std::holds_alternative<Reduce>(s.node)) cost_.flops += inside;
      if (executions_) executions_->push_back({&s, inside});
      block(*body, inside);
    }
  }

  Expr elements(const Operand& operand) const {
    Expr count = 1;
    for (Expr var : operand.vars)
      if (auto it = extents_.find(var); it != extents_.end()) count *= it->second;
    return count;
  }

  // Counts the distinct elements that an access reaches: one per value of the variables that it depends on,
  // at most one per execution (an index from memory takes only some of its values).
  void touch(int store, const Access& a, Expr times) {
    if (program_[a.buffer].storage == Storage::kLocal) return;
    std::vector<Expr> vars;
    for (Expr e : a.index)
      for (Expr v : sym::free_vars(e))
        if (sym::is_index(v) && std::find(vars.begin(), vars.end(), v) == vars.end()) vars.push_back(v);
    Expr elements = 1;
    for (Expr v : vars)
      if (auto it = extents_.find(v); it != extents_.end()) elements *= it->second;
    elements = sym::min(elements, times);
    auto [it, fresh] = touched_[store].emplace(a.buffer, elements);
    if (!fresh && it->second != elements) it->second = sym::max(it->second, elements);
  }
  Expr bytes(BufferId id, Expr elements) const {
    const Buffer& b = program_[id];
    return sym::simplify(sym::min(elements, element_count(b.shape)), program_.facts) * byte_size(b.dtype);
  }

  const Program& program_;
  std::vector<Execution>* executions_;  // null: not asked for
  Cost cost_;
  std::map<Expr, Expr, sym::ExprLess> extents_;  // by index variable, with outer variables eliminated
  std::map<const Stmt*, const Operand*> factors_;
  std::map<BufferId, Expr> touched_[2];  // elements read, written
};

}  // namespace

Cost cost_of(const Program& program, const Nest& nest) {
  try {
    return Costs(program).of(nest);
  } catch (const Error& error) {
    if (error.diagnostic.code != "size-overflow") throw;
    constexpr int64_t kMost = int64_t{1} << 61;
    return {.points = kMost, .flops = kMost, .bytes_read = kMost, .bytes_written = kMost};
  }
}

std::vector<Execution> executions_of(const Program& program, const Nest& nest) {
  std::vector<Execution> all;
  try {
    Costs(program, &all).of(nest);
  } catch (const Error& error) {
    if (error.diagnostic.code != "size-overflow") throw;
    all.clear();
  }
  return all;
}

// ---- equality --------------------------------------------------------------------------------------------

std::string canonical_text(const Program& program, const Nest& nest, std::vector<sym::Expr>* symbols) {
  Program out;
  Nest copy = nest;
  copy.name = "k";
  copy.nodes.clear();
  renumber(copy);
  // Buffers in order of appearance, with the symbols of their strides; then the symbols of the body.
  std::map<BufferId, BufferId> buffers;
  for_each_stmt(copy.body, [&](Stmt& s) {
    Access* a = access_of(s);
    if (!a) return;
    auto [it, fresh] = buffers.emplace(a->buffer, BufferId(static_cast<int64_t>(out.buffers.size())));
    if (fresh) {
      const Buffer& from = program[a->buffer];
      Buffer b{.name = cat("p", out.buffers.size()),
               .dtype = from.dtype,
               .shape = from.shape,
               .strides = from.strides};
      b.storage = from.storage == Storage::kLocal ? Storage::kLocal : Storage::kArena;
      // Code depends on the shape of local buffers only, because it allocates them.
      if (b.storage != Storage::kLocal) b.shape.assign(b.shape.size(), Expr(0));
      out.buffers.push_back(std::move(b));
    }
    a->buffer = it->second;
  });
  sym::Substitution names;
  auto collect = [&](Expr e) {
    if (e.is_const()) return;
    for (Expr v : sym::free_vars(e)) {
      if (sym::is_index(v) || names.count(v)) continue;
      Expr name = sym::var(cat("s", names.size()));
      names.emplace(v, name);
      if (symbols) symbols->push_back(v);
      sym::Interval range = program.facts.bounds(v);
      out.facts.set_range(name, range.has_lo() ? std::optional(range.lo) : std::nullopt,
                          range.has_hi() ? std::optional(range.hi) : std::nullopt);
      if (int64_t n = program.facts.known_divisor(v); n > 1) out.facts.set_divisible(name, n);
      out.symbols.push_back({.var = name});
    }
  };
  for (const Dim& d : copy.dims) collect(d.extent);
  for_each_stmt(std::as_const(copy.body), [&](const Stmt& s) { for_each_expr(s, collect); });
  for (const Buffer& b : out.buffers)
    for (auto* list : {&b.shape, &b.strides})
      for (Expr e : *list) collect(e);
  for (Dim& d : copy.dims) d.extent = sym::substitute(d.extent, names);
  substitute(copy.body, names);
  for (Buffer& b : out.buffers)
    for (auto* list : {&b.shape, &b.strides})
      for (Expr& e : *list) e = sym::substitute(e, names);
  out.name = "k";
  out.steps.push_back({Launch{add_nest(out, std::move(copy))}});
  return to_string(out);
}

}  // namespace stridec::loop
