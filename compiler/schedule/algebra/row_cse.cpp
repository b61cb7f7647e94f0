#include "compiler/schedule/algebra/row_cse.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "compiler/base/text.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/decision.h"
#include "compiler/schedule/analysis/nest_traits.h"
#include "compiler/schedule/analysis/typical.h"
#include "compiler/sym/text.h"

namespace stridec::schedule {
namespace {

using loop::Access;
using loop::Dim;
using loop::Load;
using loop::Nest;
using loop::Program;
using loop::Stmt;
using loop::ValueId;
using sym::Expr;

// Cost of an element in units of a scalar operation: a contiguous load, a lookup, a store and a later load.
constexpr double kLoad = 1, kLookUp = 4, kPassed = 2;

// How a value depends on the dim: not at all; through one row, in the same index component of everything it
// is computed from; otherwise.
struct Dependence {
  enum class Kind { kNone, kRow, kOther } kind = Kind::kNone;
  Expr row = 0;     // kRow: an expression of the dim
  Expr extent = 0;  // extent of that component
  bool operator==(const Dependence&) const = default;
};

// Values that are the same function of different rows.
struct Group {
  std::vector<ValueId> values;
  std::vector<Expr> rows;  // of each
  Expr extent = 0;
};

class SharedRowFinder {
 public:
  SharedRowFinder(const Program& program, const Nest& nest, const Dim& dim)
      : program_(program), nest_(nest), dim_(dim), facts_(loop::facts_of(program, nest)) {}

  std::vector<Group> groups() {
    for (const Stmt& stmt : nest_.body) look(stmt);
    std::set<ValueId> used;
    for (const Stmt& stmt : nest_.body) {
      Dependence result{.kind = Dependence::Kind::kOther};
      loop::for_each_result(stmt, [&](ValueId id) { result = dependence_.at(id); });
      loop::for_each_use(stmt, [&](ValueId id) {
        if (dependence_.at(id) != result) used.insert(id);
      });
    }
    std::map<int, Group> groups;
    for (ValueId id : used) {
      const Dependence& of = dependence_.at(id);
      if (of.kind != Dependence::Kind::kRow) continue;
      Group& group = groups[number_.at(id)];
      if (!group.values.empty() && group.extent != of.extent) continue;
      group.extent = of.extent;
      group.values.push_back(id);
      group.rows.push_back(of.row);
    }
    std::vector<Group> out;
    for (auto& [number, group] : groups)
      if (pays(group)) out.push_back(std::move(group));
    return out;
  }

  // The statements that compute the value, in order.
  std::vector<const Stmt*> slice(ValueId value) const {
    std::set<ValueId> wanted = {value};
    std::vector<const Stmt*> out;
    for (size_t i = nest_.body.size(); i-- > 0;) {
      bool makes = false;
      loop::for_each_result(nest_.body[i], [&](ValueId id) { makes = makes || wanted.contains(id); });
      if (!makes) continue;
      loop::for_each_use(nest_.body[i], [&](ValueId id) { wanted.insert(id); });
      out.push_back(&nest_.body[i]);
    }
    std::reverse(out.begin(), out.end());
    return out;
  }

 private:
  using Kind = Dependence::Kind;

  void look(const Stmt& stmt) {
    Dependence all;
    const auto join = [&](const Dependence& one) {
      if (one.kind == Kind::kNone || all == one) return;
      if (all.kind == Kind::kNone)
        all = one;
      else
        all = {.kind = Kind::kOther};
    };
    std::string text = cat(stmt.node.index());
    if (const auto* load = std::get_if<Load>(&stmt.node)) {
      const Access& access = load->access;
      const loop::Buffer& buffer = program_[access.buffer];
      text += cat(" ", access.buffer.value, " ", sym::to_string(access.mask), " ",
                  std::bit_cast<uint64_t>(load->fill.f), " ", load->fill.i);
      if (sym::depends_on(access.mask, dim_.var)) join({.kind = Kind::kOther});
      for (size_t i = 0; i < access.index.size(); ++i) {
        const Expr at = access.index[i];
        const bool row = sym::depends_on(at, dim_.var);
        text += cat(", ", row ? "row" : sym::to_string(at));
        if (!row) continue;
        bool alone = true;
        for (Expr var : sym::free_vars(at)) alone = alone && (!sym::is_index(var) || var == dim_.var);
        // Two components indexed by one row form a diagonal.
        join(alone && all.kind == Kind::kNone ? Dependence{Kind::kRow, at, buffer.shape[i]}
                                              : Dependence{.kind = Kind::kOther});
      }
    } else {
      loop::for_each_expr(stmt, [&](Expr e) {
        text += cat(" ", sym::to_string(e));
        if (sym::depends_on(e, dim_.var)) join({.kind = Kind::kOther});
      });
      if (const auto* let = std::get_if<loop::Let>(&stmt.node)) text += cat(" ", static_cast<int>(let->op));
      if (const auto* constant = std::get_if<loop::Constant>(&stmt.node))
        text += cat(" ", std::bit_cast<uint64_t>(constant->value.f), " ", constant->value.i);
    }
    loop::for_each_use(stmt, [&](ValueId id) {
      join(dependence_.at(id));
      text += cat(" %", number_.at(id));
    });
    loop::for_each_result(stmt, [&](ValueId id) {
      dependence_[id] = all;
      const std::string of = cat(name(nest_.values[id.value].dtype), " ", text);
      number_[id] = numbers_.try_emplace(of, static_cast<int>(numbers_.size())).first->second;
    });
  }

  // Whether computing a row once and storing it costs less than computing it at every use.
  bool pays(const Group& group) const {
    const double looks = static_cast<double>(group.values.size());
    if (looks < 2 || program_.facts.holds(sym::le(dim_.extent * static_cast<int64_t>(looks), group.extent)))
      return false;
    if (std::holds_alternative<Load>(slice(group.values[0]).back()->node)) return false;
    double work = 0;
    for (const Stmt* stmt : slice(group.values[0])) {
      bool of_row = false;
      loop::for_each_result(*stmt, [&](ValueId id) { of_row = dependence_.at(id).kind == Kind::kRow; });
      if (!of_row) continue;
      if (const auto* let = std::get_if<loop::Let>(&stmt->node)) work += loop::info(let->op).cost;
      if (const auto* load = std::get_if<Load>(&stmt->node)) work += looks_up(load->access) ? kLookUp : kLoad;
    }
    const double most = looks * std::max(1.0, typical(dim_.extent, facts_));
    const double rows = std::min(most, std::max(1.0, typical(group.extent, facts_)));
    return most * work > rows * (work + kPassed) + most * kLoad;
  }

  // Whether the access has unit stride along no dim.
  bool looks_up(const Access& access) const {
    return std::none_of(nest_.dims.begin(), nest_.dims.end(), [&](const Dim& dim) {
      const auto stride = loop::stride_of(program_, access, dim.var, facts_);
      return stride && stride->is_const(1);
    });
  }

  const Program& program_;
  const Nest& nest_;
  const Dim dim_;
  const sym::Facts facts_;
  std::map<ValueId, Dependence> dependence_;
  std::map<ValueId, int> number_;  // equal for values that differ only in the row
  std::map<std::string, int> numbers_;
};

// Whether the points only compute, load and store, without loops or updates, and read nothing that the nest
// writes.
bool is_candidate(const Program& program, const Nest& nest) {
  if (!nest.schedule.kernel.empty() || nest.body.size() > kMostStatements) return false;
  const loop::Effects effects = loop::effects_of(nest);
  for (const Dim& dim : nest.dims)
    if (sym::has_index(dim.extent)) return false;
  for (loop::BufferId id : effects.writes)
    if (std::find(effects.reads.begin(), effects.reads.end(), id) != effects.reads.end()) return false;
  return !effects.updates && std::all_of(nest.body.begin(), nest.body.end(), [&](const Stmt& stmt) {
    const Access* access = loop::access_of(stmt);
    return !loop::body_of(stmt) && !std::holds_alternative<loop::Bind>(stmt.node) &&
           !(access && program[access->buffer].storage == loop::Storage::kLocal);
  });
}

class Maker {
 public:
  Maker(Program& program, const Nest& nest, const Dim& dim) : program_(program), nest_(nest), dim_(dim) {}

  // Returns the nests that compute rows, then the rest of the nest.
  std::vector<Nest> run(const SharedRowFinder& finder, const std::vector<Group>& groups) {
    std::vector<Nest> out;
    rest_ = nest_;
    for (const Group& group : groups) out.push_back(rows(finder, group));
    out.push_back(std::move(rest_));
    for (Nest& part : out) {
      loop::clean(program_, part);
      loop::renumber(part);
    }
    return out;
  }

 private:
  Nest rows(const SharedRowFinder& finder, const Group& group) {
    const auto looks = static_cast<int64_t>(group.values.size());
    const Expr most = dim_.extent * looks;
    const Expr few =
        program_.facts.holds(sym::le(group.extent, most)) ? Expr(1) : sym::le(group.extent, most);

    const std::vector<const Stmt*> made_by = finder.slice(group.values[0]);
    Nest nest{.name = cat(nest_.name, " rows"),
              .nodes = nest_.nodes,
              .dims = {},
              .body = {},
              .values = nest_.values,
              .schedule = {}};
    loop::Cloner names(rest_);
    const Expr row = names.fresh_index(dim_.var);
    for (const Dim& dim : nest_.dims) {
      bool used = false;
      for (const Stmt* stmt : made_by)
        loop::for_each_expr(*stmt, [&](Expr e) { used = used || sym::depends_on(e, dim.var); });
      if (dim.var == dim_.var)
        nest.dims.push_back({row, few.is_const() ? group.extent : sym::min(group.extent, most)});
      else if (used)
        nest.dims.push_back(dim);
    }

    // Row r of t is row r of the input or, if the input has more rows than are used, the row that use r %
    // looks of point r // looks reads.
    Expr seen = sym::substitute(group.rows.back(), dim_.var, sym::floordiv(row, looks));
    for (int64_t k = looks - 2; k >= 0; --k)
      seen = sym::select(
          sym::eq(sym::mod(row, looks), k),
          sym::substitute(group.rows[static_cast<size_t>(k)], dim_.var, sym::floordiv(row, looks)), seen);
    const Expr from = few.is_const() ? row : sym::select(few, row, seen);
    for (const Stmt* stmt : made_by) {
      Stmt copy = *stmt;
      if (auto* load = std::get_if<Load>(&copy.node))
        for (Expr& at : load->access.index)
          if (sym::depends_on(at, dim_.var)) at = from;
      nest.body.push_back(std::move(copy));
    }

    // The result's contiguous dim comes last in memory.
    std::vector<Dim> order;
    const auto inner = innermost();
    for (const Dim& dim : nest.dims)
      if (!inner || !(dim.var == *inner)) order.push_back(dim);
    for (const Dim& dim : nest.dims)
      if (inner && dim.var == *inner) order.push_back(dim);
    const DType dtype = nest_.values[group.values[0].value].dtype;
    loop::Buffer buffer{.name = "", .dtype = dtype};
    Access access;
    for (const Dim& dim : order) {
      buffer.shape.push_back(dim.extent);
      access.index.push_back(dim.var);
    }
    access.buffer = loop::add_buffer(program_, std::move(buffer));
    nest.body.push_back({loop::Store{.access = access, .value = group.values[0]}});

    for (size_t k = 0; k < group.values.size(); ++k) {
      Access look = access;
      for (Expr& at : look.index)
        if (at == row)
          at = few.is_const() ? group.rows[k]
                              : sym::select(few, group.rows[k], dim_.var * looks + static_cast<int64_t>(k));
      for (Stmt& stmt : rest_.body) {
        bool here = false;
        loop::for_each_result(std::as_const(stmt), [&](ValueId id) { here = here || id == group.values[k]; });
        if (here) stmt = {Load{group.values[k], std::move(look), loop::float_scalar(dtype, 0)}};
      }
    }
    return nest;
  }

  // The dim that is contiguous in the first store's memory, unless it is the dim that the rows replace.
  std::optional<Expr> innermost() const {
    const sym::Facts facts = loop::facts_of(program_, nest_);
    for (const Stmt& stmt : nest_.body)
      if (const auto* store = std::get_if<loop::Store>(&stmt.node))
        for (const Dim& dim : nest_.dims)
          if (const auto stride = loop::stride_of(program_, store->access, dim.var, facts);
              stride && stride->is_const(1) && !(dim.var == dim_.var))
            return dim.var;
    return std::nullopt;
  }

  Program& program_;
  const Nest& nest_;
  const Dim dim_;
  Nest rest_;
};

}  // namespace

void eliminate_common_rows(Program& program, std::vector<Decision>* decisions) {
  loop::replace_nests(program, [&](const Nest& nest) {
    std::vector<Nest> out;
    if (!is_candidate(program, nest)) return out;
    out.push_back(nest);
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t n = 0; n < out.size() && !changed; ++n)
        for (const Dim& dim : out[n].dims) {
          SharedRowFinder finder(program, out[n], dim);
          const std::vector<Group> groups = finder.groups();
          if (groups.empty()) continue;
          const Nest whole = out[n];
          std::vector<Nest> parts = Maker(program, whole, dim).run(finder, groups);
          if (decisions)
            decisions->push_back(decision_about(
                whole, "rows", true,
                cat(groups[0].values.size(), " looks at a row of ", sym::to_string(groups[0].extent))));
          out.erase(out.begin() + static_cast<std::ptrdiff_t>(n));
          out.insert(out.begin() + static_cast<std::ptrdiff_t>(n), std::make_move_iterator(parts.begin()),
                     std::make_move_iterator(parts.end()));
          changed = true;
          break;
        }
    }
    if (out.size() == 1) out.clear();
    return out;
  });
}

}  // namespace stridec::schedule
