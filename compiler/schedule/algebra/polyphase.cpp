#include "compiler/schedule/algebra/polyphase.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "compiler/base/text.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/decision.h"
#include "compiler/schedule/analysis/nest_traits.h"

namespace stridec::schedule {
namespace {

using loop::Access;
using loop::Block;
using loop::Dim;
using loop::Nest;
using loop::Program;
using loop::Reduce;
using loop::Stmt;
using sym::Expr;

constexpr int64_t kMostNests = 16;

// A conjunct of a mask: mod(along*s + tap*r + offset, modulus) == 0; without r if tap is 0.
struct Condition {
  Expr text;  // the conjunct
  Expr dim, reduced;
  int64_t along = 1, tap = 0, offset = 0, modulus = 1;
  int64_t phases() const { return modulus / std::gcd(along, modulus); }
};

int64_t floor_mod(int64_t a, int64_t b) { return (a % b + b) % b; }

const Dim* find(const std::vector<Dim>& dims, Expr var) {
  for (const Dim& dim : dims)
    if (dim.var == var) return &dim;
  return nullptr;
}

std::optional<Condition> condition_of(Expr text, const Nest& nest, const Reduce& reduce) {
  if (text.op() != sym::Op::kEq) return std::nullopt;
  const Expr left = text.arg(0).is_const(0) ? text.arg(1) : text.arg(0);
  const Expr right = text.arg(0).is_const(0) ? text.arg(0) : text.arg(1);
  if (left.op() != sym::Op::kMod || !right.is_const(0)) return std::nullopt;
  const auto modulus = sym::as_const(left.arg(1));
  if (!modulus || *modulus < 2) return std::nullopt;
  Condition c{.text = text, .dim = 0, .reduced = 0};
  c.modulus = *modulus;
  Expr rest = left.arg(0);
  for (Expr var : sym::free_vars(rest)) {
    const auto linear = sym::linear_in(rest, var);
    const auto coefficient = linear ? sym::as_const(linear->coefficient) : std::nullopt;
    if (!coefficient) return std::nullopt;
    rest = linear->rest;
    if (floor_mod(*coefficient, c.modulus) == 0) continue;
    if (find(nest.dims, var) && c.dim.is_const()) {
      c.dim = var;
      c.along = *coefficient;
    } else if (find(reduce.dims, var) && c.reduced.is_const()) {
      c.reduced = var;
      c.tap = *coefficient;
    } else {
      return std::nullopt;
    }
  }
  if (c.dim.is_const() || !rest.is_const()) return std::nullopt;
  c.offset = rest.value();
  return c;
}

// Collects the loads without which the summed term is zero: factors of the product, below conversions, that
// read zero where their mask is false.
void collect_factors(const Block& block, loop::ValueId value, std::vector<const loop::Load*>& factors) {
  const Stmt* stmt = loop::definition(block, value);
  if (!stmt) return;
  if (const auto* load = std::get_if<loop::Load>(&stmt->node); load && is_zero(load->fill))
    factors.push_back(load);
  const auto* let = std::get_if<loop::Let>(&stmt->node);
  if (!let) return;
  if (let->op != loop::ScalarOp::kMul && let->op != loop::ScalarOp::kCast &&
      let->op != loop::ScalarOp::kCastSat)
    return;
  for (loop::ValueId arg : let->args) collect_factors(block, arg, factors);
}

// Empties sums of which a factor is read nowhere: what no tap of a transposed convolution reaches is 0, also
// where a weight is infinite.
void empty_unread_sums(const Program& program, Nest& nest) {
  const sym::Facts facts = loop::facts_of(program, nest);
  for (Stmt& stmt : nest.body) {
    auto* reduce = std::get_if<Reduce>(&stmt.node);
    if (!reduce || reduce->combine != loop::Combine::kSum || reduce->results.size() != 1) continue;
    std::vector<const loop::Load*> factors;
    collect_factors(reduce->body, reduce->yields[0], factors);
    const bool unread = std::ranges::any_of(
        factors, [&](const loop::Load* load) { return sym::simplify(load->access.mask, facts).is_const(0); });
    if (unread) reduce->dims[0].extent = 0;
  }
}

// The distinct phase conditions in the masks of a nest's sums.
std::vector<Condition> conditions_of(const Nest& nest, std::string* reason) {
  std::vector<Condition> found;
  *reason = "no sum runs over a strided window";
  for (const Stmt& stmt : nest.body) {
    const auto* reduce = std::get_if<Reduce>(&stmt.node);
    if (!reduce || reduce->combine != loop::Combine::kSum || reduce->results.size() != 1) continue;
    std::vector<const loop::Load*> factors;
    collect_factors(reduce->body, reduce->yields[0], factors);
    for (const loop::Load* load : factors)
      for (Expr part : loop::conjuncts(load->access.mask)) {
        const auto condition = condition_of(part, nest, *reduce);
        if (!condition) continue;
        const bool known =
            std::any_of(found.begin(), found.end(), [&](const Condition& c) { return c.text == part; });
        if (!known) found.push_back(*condition);
      }
  }
  return found;
}

Reduce* reduce_over(Nest& nest, Expr var) {
  for (Stmt& stmt : nest.body)
    if (auto* reduce = std::get_if<Reduce>(&stmt.node); reduce && find(reduce->dims, var)) return reduce;
  return nullptr;
}

// Restricts the sum to the taps that meet `condition` for the given phase of s.
void restrict_taps(Nest& nest, const Condition& c, int64_t phase) {
  const int64_t residue = floor_mod(c.along * phase + c.offset, c.modulus);
  Reduce* reduce = c.reduced.is_const() ? nullptr : reduce_over(nest, c.reduced);
  if (!reduce) return;  // the mask itself becomes true or false
  const int64_t step = c.modulus / std::gcd(c.tap, c.modulus);
  for (Dim& dim : reduce->dims) {
    if (dim.var != c.reduced) continue;
    int64_t first = 0;
    while (first < step && floor_mod(c.tap * first + residue, c.modulus) != 0) ++first;
    if (first == step) {
      dim.extent = 0;
      return;
    }
    dim.extent = sym::max(sym::ceildiv(dim.extent - first, step), 0);
    loop::substitute(reduce->body, {{dim.var, dim.var * step + first}});
    return;
  }
}

// One nest per phase of `dim`.
std::vector<Nest> split_dim(const Nest& nest, Expr dim, int64_t phases,
                            const std::vector<Condition>& conditions) {
  std::vector<Nest> out;
  for (int64_t phase = 0; phase < phases; ++phase) {
    Nest part = nest;
    for (const Condition& c : conditions)
      if (c.dim == dim) restrict_taps(part, c, phase);
    loop::substitute(part.body, {{dim, dim * phases + phase}});
    for (Dim& d : part.dims)
      if (d.var == dim) d.extent = sym::ceildiv(d.extent - phase, phases);
    out.push_back(std::move(part));
  }
  return out;
}

// Makes the phase a parallel dim next to s, if all phases have equally many taps, adjacent to each other:
// s = S*q + p, r = S*r' + mod(p + offset, S).
std::optional<Nest> phase_as_dim(const Program& program, const Nest& nest, const Condition& c) {
  if (std::llabs(c.tap) != 1 || std::llabs(c.along) != 1 || c.reduced.is_const()) return std::nullopt;
  Nest out = nest;
  Reduce* reduce = reduce_over(out, c.reduced);
  loop::Cloner names(out);
  const Expr phase = names.fresh_index(sym::var(cat(c.dim.name(), ".p")));
  const Expr first = sym::mod(-c.tap * (c.along * phase + c.offset), c.modulus);
  for (Dim& dim : reduce->dims) {
    if (dim.var != c.reduced) continue;
    if (program.facts.known_divisor(dim.extent) % c.modulus != 0) return std::nullopt;
    dim.extent = sym::floordiv(dim.extent, c.modulus);
  }
  size_t at = 0;
  while (out.dims[at].var != c.dim) ++at;
  const Expr extent = out.dims[at].extent;
  const bool whole = program.facts.known_divisor(extent) % c.modulus == 0;
  loop::for_each_stmt(out.body, [&](Stmt& stmt) {
    Access* access = loop::access_of(stmt);
    if (!access) return;
    Expr mask = 1;
    for (Expr part : loop::conjuncts(access->mask))
      if (part != c.text) mask = sym::logical_and(mask, part);
    bool moves = sym::depends_on(mask, c.dim);
    for (Expr e : access->index) moves = moves || sym::depends_on(e, c.dim);
    access->mask = whole || !moves ? mask : sym::logical_and(mask, sym::lt(c.dim, extent));
  });
  loop::substitute(reduce->body, {{c.reduced, c.reduced * c.modulus + first}});
  loop::substitute(out.body, {{c.dim, c.dim * c.modulus + phase}});
  out.dims[at].extent = sym::ceildiv(extent, c.modulus);
  out.dims.insert(out.dims.begin() + static_cast<std::ptrdiff_t>(at), {phase, c.modulus});
  return out;
}

}  // namespace

std::vector<Nest> polyphase_nests(const Program& program, const Nest& nest, std::string* reason) {
  const std::vector<Condition> conditions = conditions_of(nest, reason);
  std::vector<std::pair<Expr, int64_t>> dims;  // and how many phases each has
  for (const Condition& c : conditions) {
    auto known = std::find_if(dims.begin(), dims.end(), [&](const auto& d) { return d.first == c.dim; });
    if (known == dims.end())
      dims.emplace_back(c.dim, c.phases());
    else
      known->second = std::lcm(known->second, c.phases());
  }
  for (const Dim& dim : nest.dims)
    for (const auto& [var, phases] : dims)
      if (sym::depends_on(dim.extent, var)) {
        *reason = cat("the extent of ", dim.var.name(), " depends on ", var.name());
        return {};
      }
  if (dims.empty()) return {};

  std::vector<Nest> parts = {nest};
  for (const auto& [var, phases] : dims) {
    std::vector<Nest> next;
    for (const Nest& part : parts) {
      const auto alone = std::find_if(conditions.begin(), conditions.end(), [&](const Condition& c) {
        return c.dim == var &&
               std::count_if(conditions.begin(), conditions.end(), [&](const Condition& other) {
                 return other.dim == var || other.reduced == c.reduced;
               }) == 1;
      });
      std::optional<Nest> one;
      if (static_cast<int64_t>(parts.size()) * phases > kMostNests && alone != conditions.end())
        one = phase_as_dim(program, part, *alone);
      std::vector<Nest> made =
          one ? std::vector<Nest>{*std::move(one)} : split_dim(part, var, phases, conditions);
      std::move(made.begin(), made.end(), std::back_inserter(next));
    }
    constexpr size_t kTooMany = 256;
    if (next.size() > kTooMany) {
      *reason = cat("it has ", next.size(), " phases");
      break;
    }
    parts = std::move(next);
  }
  if (parts.size() == 1 && parts[0].dims.size() == nest.dims.size()) return {};
  std::erase_if(parts, [&](Nest& part) {
    empty_unread_sums(program, part);
    loop::clean(program, part);
    return std::any_of(part.dims.begin(), part.dims.end(), [](const Dim& d) { return d.extent.is_const(0); });
  });
  return parts;
}

void decompose_polyphase(Program& program, std::vector<Decision>* decisions) {
  loop::replace_nests(program, [&](const Nest& nest) {
    std::string reason;
    std::vector<Nest> parts = polyphase_nests(program, nest, &reason);
    if (decisions && !parts.empty())
      decisions->push_back(decision_about(nest, "phases", true, cat("split into ", parts.size())));
    return parts;
  });
}

}  // namespace stridec::schedule
