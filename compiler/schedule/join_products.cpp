#include "compiler/schedule/join_products.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <variant>

#include "compiler/base/text.h"
#include "compiler/kernels/contraction.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/fusion_join.h"

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

// Columns that the widest register tiles have: with more, x is used so often that fetching it is nothing beside products.
constexpr int64_t kFewColumns = 64;

// A product by a weight with columns along one dim, its nest renumbered: equal nests have equal names.
struct Product {
  Nest nest;  // without the stores at its end
  std::vector<Store> stores;
  size_t dim = 0;  // of nest.dims, the columns
  Expr column = 0;
  int64_t columns = 0;
};

void take_stores(Product& product) {
  loop::Block& body = product.nest.body;
  while (std::holds_alternative<Store>(body.back().node)) {
    product.stores.insert(product.stores.begin(), std::get<Store>(body.back().node));
    body.pop_back();
  }
}

std::optional<Product> product_of(const Program& program, const Nest& launched) {
  if (!launched.schedule.kernel.empty() || launched.dims.empty()) return std::nullopt;
  Product out{.nest = launched};
  loop::renumber(out.nest);
  const auto found = kernels::match_contraction(out.nest);
  if (!found || !is_float(found->dtype)) return std::nullopt;
  for (int side : {0, 1}) {
    const kernels::Factor &x = found->factors[1 - side], &weight = found->factors[side];
    if (!weight.load || program[weight.load->access.buffer].storage != loop::Storage::kWeight ||
        std::any_of(x.slice.begin(), x.slice.end(), [&](const Stmt* stmt) {
          const auto* load = std::get_if<Load>(&stmt->node);
          return load && program[load->access.buffer].storage == loop::Storage::kWeight;
        }))
      continue;
    int dims = 0;
    for (size_t d = 0; d < out.nest.dims.size(); ++d)
      if (weight.vars.contains(out.nest.dims[d].var)) {
        ++dims;
        out.dim = d;
      }
    const loop::Dim& dim = out.nest.dims[out.dim];
    if (dims != 1 || x.vars.contains(dim.var) || !dim.extent.is_const()) continue;
    out.column = dim.var;
    out.columns = dim.extent.value();
    take_stores(out);
    return out;
  }
  return std::nullopt;
}

// How two nests differ where they are products of the same value.
struct Differences {
  struct Weights {
    BufferId a, b;
    size_t dim;  // the columns
    bool operator==(const Weights&) const = default;
  };
  std::vector<Weights> weights;
};

class Comparison {
 public:
  Comparison(const Program& program, const Product& a, const Product& b)
      : program_(program), a_(a), b_(b), facts_(loop::facts_of(program, a.nest)) {}

  // Nothing where the two read the same but cannot be one, for the reason given, or where they have little in common.
  std::optional<Differences> run(std::string* reason) {
    reason_ = reason;
    if (a_.dim != b_.dim || a_.nest.dims.size() != b_.nest.dims.size() ||
        a_.nest.values.size() != b_.nest.values.size())
      return std::nullopt;
    for (size_t d = 0; d < a_.nest.dims.size(); ++d)
      if (d != a_.dim && !(a_.nest.dims[d].extent == b_.nest.dims[d].extent)) return std::nullopt;
    for (size_t v = 0; v < a_.nest.values.size(); ++v)
      if (a_.nest.values[v].dtype != b_.nest.values[v].dtype) return std::nullopt;
    if (!equal(a_.nest.body, b_.nest.body) || !stores_alike()) return std::nullopt;
    return differences_;
  }

 private:
  bool equal(const loop::Block& a, const loop::Block& b) {
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                              [&](const Stmt& x, const Stmt& y) { return equal(x, y); });
  }

  bool equal(const Stmt& a, const Stmt& b) {
    if (a.node.index() != b.node.index() || names(a) != names(b)) return false;
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
    if (x.storage != loop::Storage::kWeight || y.storage != loop::Storage::kWeight || x.dtype != y.dtype)
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

  // A vector of columns lies in one piece in all results, or in none.
  bool stores_alike() {
    int contiguous = 0, all = 0;
    for (const Product* product : {&a_, &b_})
      for (const Store& store : product->stores) {
        const auto stride = loop::stride_of(program_, store.access, a_.column, facts_);
        if (store.update || !stride) return false;
        contiguous += stride->is_const(1);
        ++all;
      }
    if (contiguous == 0 || contiguous == all) return true;
    *reason_ = "their results lie in memory along different dims";
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
  const Product &a_, &b_;
  const sym::Facts facts_;
  Differences differences_;
  std::string* reason_ = nullptr;
};

// A weight with both behind each other along the dim, made when compiling.
BufferId joined(Program& program, const Differences::Weights& pair, const Nest& user) {
  loop::Buffer buffer{.name = cat(program[pair.a].name, ".joined"),
                      .dtype = program[pair.a].dtype,
                      .shape = program[pair.a].shape,
                      .storage = loop::Storage::kWeight,
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

Nest joined(Program& program, const Product& a, const Product& b, const Differences& differences) {
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
  const sym::Substitution second = {{a.column, a.column - a.columns}};
  for (Store store : a.stores) {
    store.access.mask = sym::logical_and(store.access.mask, sym::le(a.column, a.columns - 1));
    nest.body.push_back({std::move(store)});
  }
  for (Store store : b.stores) {
    loop::substitute(store.access, second);
    store.access.mask = sym::logical_and(store.access.mask, sym::le(a.columns, a.column));
    nest.body.push_back({std::move(store)});
  }
  return nest;
}

class Joining {
 public:
  Joining(Program& program, std::vector<Decision>* decisions)
      : program_(program), decisions_(decisions), in_strips_(loop::launched_in_strips(program)) {}

  void steps(loop::Steps& steps) {
    Flow flow = make_flow(program_, steps);
    for (int at = 0; at < static_cast<int>(steps.size()); ++at)
      for (int other = at + 1; other < static_cast<int>(steps.size());) {
        const int made = join(steps, flow, at, other);
        if (made < 0) {
          ++other;
          continue;
        }
        at = made;  // which more may join
        other = at + 1;
      }
  }

 private:
  // The product that the step launches, or none; what is asked again, pair by pair, is known.
  const Product* product_at(const loop::Steps& steps, int at) {
    const auto* launch = std::get_if<Launch>(&steps[static_cast<size_t>(at)].node);
    if (!launch || in_strips_.contains(launch->nest)) return nullptr;
    const auto [found, fresh] = products_.try_emplace(launch->nest);
    if (fresh) found->second = product_of(program_, program_[launch->nest]);
    return found->second ? &*found->second : nullptr;
  }

  // The position of the one made of the two; -1: there is none.
  int join(loop::Steps& steps, Flow& flow, int at, int other) {
    const Product* a = product_at(steps, at);
    if (!a) return -1;
    const Product* b = product_at(steps, other);
    if (!b) return -1;
    std::string reason;
    const auto differences = Comparison(program_, *a, *b).run(&reason);
    if (!differences) {
      if (!reason.empty() && std::min(a->columns, b->columns) <= kFewColumns) note(*a, *b, false, reason);
      return -1;
    }
    if (std::min(a->columns, b->columns) > kFewColumns) {
      note(*a, *b, false, cat("both have more than ", kFewColumns, " columns and use what they share often"));
      return -1;
    }
    const bool up = may_move(program_, steps, flow, other, at);
    if (!up && !may_move(program_, steps, flow, at, other)) {
      note(*a, *b, false, "a step between them is in the way");
      return -1;
    }
    note(*a, *b, true, cat("one product of ", a->columns, " and ", b->columns, " columns"));
    Nest nest = joined(program_, *a, *b, *differences);
    flow.total_readers.resize(program_.buffers.size(), 0);
    flow.total_writers.resize(program_.buffers.size(), 0);
    const int made =
        replace_steps(program_, steps, flow, up ? at : other, {up ? other : at}, std::move(nest));
    products_.erase(std::get<Launch>(steps[static_cast<size_t>(made)].node).nest);
    return made;
  }

  void note(const Product& a, const Product& b, bool fused, std::string reason) {
    if (decisions_) decisions_->push_back({a.nest.name, b.nest.name, fused, std::move(reason)});
  }

  Program& program_;
  std::vector<Decision>* decisions_;
  const std::set<NestId> in_strips_;
  std::map<NestId, std::optional<Product>> products_;
};

}  // namespace

void join_products(Program& program, std::vector<Decision>* decisions) {
  Joining joining(program, decisions);
  loop::for_each_block(program.steps, [&](loop::Steps& steps) { joining.steps(steps); });
  loop::compact(program);
}

}  // namespace stridec::schedule
