#include "compiler/schedule/fusion/merge_gemms.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <variant>

#include "compiler/base/text.h"
#include "compiler/kernels/contraction.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/typical.h"
#include "compiler/schedule/fusion/fusion_join.h"

namespace stridec::schedule {
namespace {

using loop::Access;
using loop::BufferId;
using loop::Launch;
using loop::Load;
using loop::Nest;
using loop::NestId;
using loop::Program;
using loop::Stmt;
using loop::Store;
using sym::Expr;

// Cycles of one core for a row; the figures are not specific to one machine.
constexpr double kFetch = 0.5;                      // per value of x: gathered, packed, loaded
constexpr int64_t kLanes = 16;                      // columns per vector
constexpr double kProducts = 2, kByteProducts = 8;  // vectors of multiply-adds per cycle
constexpr int kMostPercent = 98;                    // of the time of the two GEMMs separately
constexpr double kLoad = 0.5, kMaskedLoad = 2;      // per vector

// A GEMM by a weight with columns along one dim. Its nest is renumbered, so that equal nests have equal
// names.
struct GemmByWeights {
  Nest nest;
  size_t at = 0;   // of the sum in nest.body
  size_t dim = 0;  // of the columns in nest.dims
  Expr column = 0;
  int64_t columns = 0;
  double depth = 0;  // multiply-adds of a sum
  double rate = 0;   // vectors of multiply-adds per cycle
};

// Whether the factor has loads and all of them are of weights (`all`), or none of them is.
bool loads_weights(const Program& program, const kernels::Factor& factor, bool all) {
  size_t loads = 0, weights = 0;
  for (const Stmt* stmt : factor.slice)
    if (const auto* load = std::get_if<Load>(&stmt->node)) {
      ++loads;
      weights += program[load->access.buffer].storage == loop::Storage::kParameter;
    }
  return weights == (all ? loads : 0) && loads > 0;
}

std::optional<GemmByWeights> product_of(const Program& program, const Nest& launched) {
  if (!launched.schedule.kernel.empty() || launched.dims.empty()) return std::nullopt;
  GemmByWeights out{.nest = launched};
  loop::renumber(out.nest);
  const auto found = kernels::match_contraction(out.nest);
  if (!found) return std::nullopt;
  // Windows of bytes are read in place for few columns. Kernels for more columns copy the windows, which is
  // slower.
  if (!is_float(found->dtype) && found->reduce->dims.size() > 1) return std::nullopt;
  for (int side : {0, 1}) {
    const kernels::Factor &x = found->factors[1 - side], &weight = found->factors[side];
    if (!loads_weights(program, weight, true) || !loads_weights(program, x, false)) continue;
    int dims = 0;
    for (size_t d = 0; d < out.nest.dims.size(); ++d)
      if (weight.vars.contains(out.nest.dims[d].var)) {
        ++dims;
        out.dim = d;
      }
    const loop::Dim& dim = out.nest.dims[out.dim];
    if (dims != 1 || x.vars.contains(dim.var) || !dim.extent.is_const()) continue;
    out.at = found->at;
    out.column = dim.var;
    out.columns = dim.extent.value();
    out.rate = is_float(found->dtype) ? kProducts : kByteProducts;
    out.depth = 1;
    for (const loop::Dim& k : found->reduce->dims) out.depth *= typical(k.extent, program.facts);
    return out;
  }
  return std::nullopt;
}

// How two nests that are GEMMs of the same input differ: the first `common` statements are equal except for
// the weights and for constants, which become weights.
struct Differences {
  struct Weights {
    BufferId a, b;
    size_t dim;  // dim of the columns
    bool operator==(const Weights&) const = default;
  };
  std::vector<Weights> weights;
  std::vector<size_t> constants;  // indices of statements
  size_t common = 0;
};

class Comparison {
 public:
  Comparison(const Program& program, const GemmByWeights& a, const GemmByWeights& b)
      : program_(program), a_(a), b_(b), facts_(loop::facts_of(program, a.nest)) {}

  // Returns nothing if the nests have little in common. Sets `reason` if they read the same input but cannot
  // be merged.
  std::optional<Differences> run(std::string* reason) {
    reason_ = reason;
    if (a_.dim != b_.dim || a_.at != b_.at || a_.nest.dims.size() != b_.nest.dims.size()) return std::nullopt;
    for (size_t d = 0; d < a_.nest.dims.size(); ++d)
      if (d != a_.dim && !(a_.nest.dims[d].extent == b_.nest.dims[d].extent)) return std::nullopt;
    const loop::Block &x = a_.nest.body, &y = b_.nest.body;
    size_t& common = differences_.common;
    for (; common < std::min(x.size(), y.size()); ++common) {
      if (equal(x[common], y[common])) continue;
      if (common < a_.at || !are_constants(x[common], y[common])) break;
      differences_.constants.push_back(common);
    }
    if (common <= a_.at || !may_be_masked(x) || !may_be_masked(y)) return std::nullopt;
    if (!stores_alike() && reason_->empty()) return std::nullopt;
    return differences_;
  }

 private:
  bool equal(const loop::Block& a, const loop::Block& b) {
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                              [&](const Stmt& x, const Stmt& y) { return equal(x, y); });
  }

  bool equal(const Stmt& a, const Stmt& b) {
    if (a.node.index() != b.node.index() || names(a) != names(b)) return false;
    bool typed = true;
    loop::for_each_result(a, [&](loop::ValueId id) {
      const auto v = static_cast<size_t>(id.value);
      typed = typed && a_.nest.values[v].dtype == b_.nest.values[v].dtype;
    });
    if (!typed) return false;
    if (const auto* let = std::get_if<loop::Let>(&a.node)) return let->op == std::get<loop::Let>(b.node).op;
    if (const auto* constant = std::get_if<loop::Constant>(&a.node))
      return constant->value == std::get<loop::Constant>(b.node).value;
    if (const auto* reduce = std::get_if<loop::Reduce>(&a.node)) {
      const auto& other = std::get<loop::Reduce>(b.node);
      return reduce->combine == other.combine && reduce->byte_blocks == other.byte_blocks &&
             exprs(a) == exprs(b) && equal(reduce->body, other.body);
    }
    if (const auto* index = std::get_if<loop::IndexValue>(&a.node))
      return exprs(a) == exprs(b) && !sym::depends_on(index->expr, a_.column);
    if (const auto* load = std::get_if<Load>(&a.node))
      return load->fill == std::get<Load>(b.node).fill && equal(load->access, std::get<Load>(b.node).access);
    return false;
  }

  bool equal(const Access& a, const Access& b) {
    const bool by_column =
        std::any_of(a.index.begin(), a.index.end(), [&](Expr e) { return sym::depends_on(e, a_.column); });
    if (!(a.mask == b.mask) || sym::depends_on(a.mask, a_.column) || !(a.index == b.index)) return false;
    if (!by_column) return a.buffer == b.buffer;
    const loop::Buffer &x = program_[a.buffer], &y = program_[b.buffer];
    if (x.storage != loop::Storage::kParameter || y.storage != loop::Storage::kParameter ||
        x.dtype != y.dtype)
      return false;
    std::optional<size_t> along;
    for (size_t d = 0; d < a.index.size(); ++d) {
      if (!sym::depends_on(a.index[d], a_.column)) {
        if (!(x.shape[d] == y.shape[d])) return false;
        continue;
      }
      if (along || !(a.index[d] == a_.column) || !x.shape[d].is_const(a_.columns) ||
          !y.shape[d].is_const(b_.columns))
        return false;
      along = d;
    }
    const Differences::Weights pair{a.buffer, b.buffer, *along};
    auto& list = differences_.weights;
    if (std::find(list.begin(), list.end(), pair) == list.end()) list.push_back(pair);
    return true;
  }

  bool are_constants(const Stmt& a, const Stmt& b) const {
    const auto* x = std::get_if<loop::Constant>(&a.node);
    const auto* y = std::get_if<loop::Constant>(&b.node);
    return x && y && x->result == y->result && x->value.dtype == y->value.dtype;
  }

  // Whether the statements after the common ones can be masked: no loops, and no lookups by value.
  bool may_be_masked(const loop::Block& body) const {
    return std::all_of(body.begin() + static_cast<std::ptrdiff_t>(differences_.common), body.end(),
                       [](const Stmt& stmt) {
                         return !loop::body_of(stmt) && !std::holds_alternative<loop::Bind>(stmt.node);
                       });
  }

  // Whether a vector of columns is contiguous in all results, or in none.
  bool stores_alike() {
    int contiguous = 0, all = 0;
    for (const GemmByWeights* product : {&a_, &b_})
      for (const Stmt& stmt : product->nest.body) {
        const auto* store = std::get_if<Store>(&stmt.node);
        if (!store) continue;
        const auto stride = loop::stride_of(program_, store->access, a_.column, facts_);
        if (store->update || !stride) return false;
        contiguous += stride->is_const(1);
        ++all;
      }
    if (contiguous == 0 || contiguous == all) return true;
    *reason_ = "their results are contiguous along different dims";
    return false;
  }

  static std::vector<int32_t> names(const Stmt& stmt) {
    std::vector<int32_t> out;
    loop::for_each_result(stmt, [&](loop::ValueId id) { out.push_back(id.value); });
    loop::for_each_use(stmt, [&](loop::ValueId id) { out.push_back(id.value); });
    return out;
  }
  static std::vector<Expr> exprs(const Stmt& stmt) {
    std::vector<Expr> out;
    loop::for_each_expr(stmt, [&](Expr e) { out.push_back(e); });
    return out;
  }

  const Program& program_;
  const GemmByWeights &a_, &b_;
  const sym::Facts facts_;
  Differences differences_;
  std::string* reason_ = nullptr;
};

// Adds a weight that concatenates the two along the dim, at compile time.
BufferId joined(Program& program, const Differences::Weights& pair, const Nest& user) {
  loop::Buffer buffer{.name = cat(program[pair.a].name, ".joined"),
                      .dtype = program[pair.a].dtype,
                      .shape = program[pair.a].shape,
                      .storage = loop::Storage::kParameter,
                      .prepacked = true};
  buffer.shape[pair.dim] = program[pair.a].shape[pair.dim] + program[pair.b].shape[pair.dim];
  const BufferId to = loop::add_buffer(program, std::move(buffer));
  Expr at = 0;
  for (BufferId from : {pair.a, pair.b}) {
    std::vector<loop::Dim> dims;
    Access source{.buffer = from, .index = {}};
    for (Expr extent : program[from].shape) {
      dims.push_back({sym::var(cat("%i", dims.size())), extent});
      source.index.push_back(dims.back().var);
    }
    Access target{.buffer = to, .index = source.index};
    target.index[pair.dim] = target.index[pair.dim] + at;
    Nest copy = loop::copy_nest(cat("join ", program[from].name), std::move(dims), std::move(source),
                                loop::int_scalar(program[from].dtype, 0), std::move(target));
    copy.nodes = user.nodes;
    program.prepack.push_back(loop::add_nest(program, std::move(copy)));
    at = at + program[from].shape[pair.dim];
  }
  return to;
}

// Masks the statement's memory access by the condition. A load that does not depend on the column stays
// unmasked.
void mask(const Nest& nest, Stmt& stmt, Expr column, Expr condition) {
  Access* access = loop::access_of(stmt);
  if (!access) return;
  auto* load = std::get_if<Load>(&stmt.node);
  if (load && std::none_of(access->index.begin(), access->index.end(),
                           [&](Expr e) { return sym::depends_on(e, column); }))
    return;
  if (load && access->mask.is_const(1))
    load->fill = loop::int_scalar(nest.values[static_cast<size_t>(load->result.value)].dtype, 0);
  access->mask = sym::logical_and(access->mask, condition);
}

// Adds a vector along the columns with the first nest's constant for its columns and the second's for the
// others.
BufferId joined(Program& program, const GemmByWeights& a, const GemmByWeights& b, size_t constant,
                const Nest& user) {
  const auto value_of = [&](const GemmByWeights& product) {
    return std::get<loop::Constant>(product.nest.body[constant].node).value;
  };
  const BufferId to = loop::add_buffer(program, {.name = "constant.joined",
                                                 .dtype = value_of(a).dtype,
                                                 .shape = {a.columns + b.columns},
                                                 .storage = loop::Storage::kParameter,
                                                 .prepacked = true});
  Expr at = 0;
  for (const GemmByWeights* product : {&a, &b}) {
    Nest fill{.name = cat("join ", program[to].name), .nodes = user.nodes};
    const Expr column = sym::var("%i0");
    fill.dims = {{column, product->columns}};
    const loop::ValueId value = loop::add_value(fill, program[to].dtype);
    fill.body.push_back({loop::Constant{value, value_of(*product)}});
    fill.body.push_back({Store{.access = {to, {column + at}}, .value = value}});
    program.prepack.push_back(loop::add_nest(program, std::move(fill)));
    at = at + product->columns;
  }
  return to;
}

Nest joined(Program& program, const GemmByWeights& a, const GemmByWeights& b,
            const Differences& differences) {
  Nest nest = a.nest;
  nest.name = fused_name(a.nest, b.nest);
  join_nodes(nest, b.nest.nodes);
  nest.dims[a.dim].extent = a.columns + b.columns;
  for (const Differences::Weights& pair : differences.weights) {
    const BufferId both = joined(program, pair, nest);
    loop::for_each_stmt(nest.body, [&](Stmt& stmt) {
      if (auto* load = std::get_if<Load>(&stmt.node);
          load && load->access.buffer == pair.a && load->access.index[pair.dim] == a.column)
        load->access.buffer = both;
    });
  }
  for (size_t constant : differences.constants) {
    const BufferId both = joined(program, a, b, constant, nest);
    const loop::ValueId result = std::get<loop::Constant>(nest.body[constant].node).result;
    nest.body[constant].node = Load{result, {both, {a.column}}, loop::int_scalar(program[both].dtype, 0)};
  }
  // The statements that differ apply to each nest's own columns.
  const auto first = nest.body.begin() + static_cast<std::ptrdiff_t>(differences.common);
  std::for_each(first, nest.body.end(),
                [&](Stmt& stmt) { mask(nest, stmt, a.column, sym::le(a.column, a.columns - 1)); });
  loop::Cloner cloner(nest);
  cloner.map(a.column, a.column - a.columns);
  for (size_t i = 0; i < differences.common; ++i)
    loop::for_each_result(b.nest.body[i], [&](loop::ValueId id) { cloner.map(id, id); });
  for (size_t i = differences.common; i < b.nest.body.size(); ++i) {
    Stmt stmt = cloner.clone(b.nest, b.nest.body[i]);
    mask(nest, stmt, a.column, sym::le(a.columns, a.column));
    nest.body.push_back(std::move(stmt));
  }
  return nest;
}

// Time of the merged GEMM in percent of the two separate ones.
int percent(const GemmByWeights& a, const GemmByWeights& b, const Differences& differences) {
  const auto vectors = [](int64_t columns) { return std::ceil(static_cast<double>(columns) / kLanes); };
  const auto cycles = [&](int64_t columns) { return a.depth * (kFetch + vectors(columns) / a.rate); };
  const auto rest = [&](const GemmByWeights& product) {
    const loop::Block own(product.nest.body.begin() + static_cast<std::ptrdiff_t>(differences.common),
                          product.nest.body.end());
    double cost = scalar_cost(own);
    for (const Stmt& stmt : own) cost += std::holds_alternative<Load>(stmt.node) ? kMaskedLoad : 0;
    return cost;
  };
  const int64_t columns = a.columns + b.columns;
  const double joined = cycles(columns) + rest(a) * vectors(b.columns) + rest(b) * vectors(a.columns) +
                        kLoad * static_cast<double>(differences.constants.size()) * vectors(columns);
  return static_cast<int>(std::ceil(100 * joined / (cycles(a.columns) + cycles(b.columns))));
}

class Joining {
 public:
  Joining(Program& program, std::vector<Decision>* decisions)
      : program_(program), decisions_(decisions), in_strips_(loop::launched_in_groups(program)) {}

  void steps(loop::Steps& steps) {
    Flow flow(program_, steps);
    for (int at = 0; at < static_cast<int>(steps.size()); ++at)
      for (int other = at + 1; other < static_cast<int>(steps.size());) {
        const int made = join(steps, flow, at, other);
        if (made < 0) {
          ++other;
          continue;
        }
        at = made;  // more may be merged into it
        other = at + 1;
      }
  }

 private:
  // The GEMM that the step launches, or null. Results are cached, since every pair asks for them.
  const GemmByWeights* product_at(const loop::Steps& steps, int at) {
    const auto* launch = std::get_if<Launch>(&steps[static_cast<size_t>(at)].node);
    if (!launch || in_strips_.contains(launch->nest)) return nullptr;
    const auto [found, fresh] = products_.try_emplace(launch->nest);
    if (fresh) found->second = product_of(program_, program_[launch->nest]);
    return found->second ? &*found->second : nullptr;
  }

  // Merges the two steps and returns the position of the result, or -1.
  int join(loop::Steps& steps, Flow& flow, int at, int other) {
    const GemmByWeights* a = product_at(steps, at);
    if (!a) return -1;
    const GemmByWeights* b = product_at(steps, other);
    if (!b) return -1;
    std::string reason;
    const auto differences = Comparison(program_, *a, *b).run(&reason);
    if (!differences) return -1;
    const int time = percent(*a, *b, *differences);
    if (time > kMostPercent) reason = cat("one GEMM would take ", time, " % of the time of both");
    const bool up = may_move(program_, steps, flow, other, at);
    if (reason.empty() && ((!up && !may_move(program_, steps, flow, at, other)) || meet(*a, *b)))
      reason = "a step between them prevents it";
    if (!reason.empty()) {
      note(*a, *b, false, std::move(reason));
      return -1;
    }
    note(*a, *b, true,
         cat("one product of ", a->columns, " and ", b->columns, " columns, ", time, " % of the time"));
    Nest nest = joined(program_, *a, *b, *differences);
    const int made =
        replace_steps(program_, steps, flow, up ? at : other, {up ? other : at}, std::move(nest));
    products_.erase(std::get<Launch>(steps[static_cast<size_t>(made)].node).nest);
    return made;
  }

  // Whether one of the two writes elements that the other reads or writes.
  bool meet(const GemmByWeights& a, const GemmByWeights& b) const {
    const Effects x = effects_of(a.nest), y = effects_of(b.nest);
    const auto touched = [&](const Effects& one, const Effects& other) {
      return std::any_of(one.writes.begin(), one.writes.end(), [&](BufferId id) {
        return touches(other, id) && !access_disjoint(program_, a.nest, b.nest, id);
      });
    };
    return touched(x, y) || touched(y, x);
  }

  void note(const GemmByWeights& a, const GemmByWeights& b, bool fused, std::string reason) {
    if (decisions_) decisions_->push_back(decision_about(program_, a.nest, b.nest, fused, std::move(reason)));
  }

  Program& program_;
  std::vector<Decision>* decisions_;
  const std::set<NestId> in_strips_;
  std::map<NestId, std::optional<GemmByWeights>> products_;
};

}  // namespace

void merge_gemms(Program& program, std::vector<Decision>* decisions) {
  Joining joining(program, decisions);
  loop::for_each_block(program.steps, [&](loop::Steps& steps) { joining.steps(steps); });
}

}  // namespace stridec::schedule
