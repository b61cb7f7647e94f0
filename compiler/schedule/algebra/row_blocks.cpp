#include "compiler/schedule/algebra/row_blocks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "compiler/base/text.h"
#include "compiler/kernels/contraction.h"
#include "compiler/loop/build.h"
#include "compiler/loop/fresh_symbol.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/flow.h"
#include "compiler/schedule/analysis/typical.h"

namespace stridec::schedule {
namespace {

using loop::BufferId;
using loop::Nest;
using loop::Program;
using loop::Reduce;
using loop::Stmt;
using loop::Store;
using sym::Expr;

constexpr double kRowBytes = 8192;  // a tensor with as much per row is never in memory as a whole

// How a nest goes through the rows.
struct Member {
  Expr row;           // its variable
  bool sums = false;  // a dim of the nest's only reduction; otherwise of the nest
};

// typical_bytes(), computed once for each buffer.
class Bytes {
 public:
  explicit Bytes(const Program& program) : program_(program), known_(program.buffers.size()) {}

  double of(BufferId id) {
    std::optional<double>& known = known_[static_cast<size_t>(id.value)];
    if (!known) known = typical_bytes(program_, id);
    return *known;
  }

 private:
  const Program& program_;
  std::vector<std::optional<double>> known_;
};

class Chain {
 public:
  Chain(const Program& program, const Flow& flow, Bytes& bytes, const RowBlocks& limits, BufferId tensor,
        size_t dim)
      : program_(program),
        flow_(flow),
        bytes_(bytes),
        limits_(limits),
        tensor_(tensor),
        rows_(program[tensor].shape[dim]) {
    add_inner(tensor, dim);
  }

  // Finds the steps; returns whether they can run in blocks.
  bool find() {
    while (ok_ && (!open_.empty() || find_between())) {
      const std::set<int> open = std::move(open_);
      open_.clear();
      for (const int at : open) ok_ = ok_ && add(at);
    }
    bool sums = false;
    for (const auto& [at, member] : members_) {
      ok_ = ok_ && is_consistent(nest(at), member);
      sums = sums || member.sums;
    }
    if (ok_ && sums) add_small();
    return ok_ && sums;
  }

  // Whether the sums are small enough, and blocks save time: a product of the rows and a sum over them read
  // the same block, as in a backward pass, or adding to the sums in each block moves less memory than the
  // tensor would.
  bool pays(int64_t block) const {
    double added = 0;
    bool shared = false;
    for (const auto& [at, member] : members_) {
      shared = shared || (!member.sums && multiplies_rows(nest(at)));
      if (member.sums)
        for (const BufferId id : effects(at).writes) added += bytes_.of(id);
    }
    if (added > limits_.sums * bytes_.of(tensor_)) return false;
    return shared ||
           added * typical(rows_, program_.facts) / static_cast<double>(block) <= bytes_.of(tensor_);
  }

  const std::map<int, Member>& members() const { return members_; }
  const std::set<BufferId>& inner() const { return inner_; }
  size_t row_dim(BufferId id) const { return row_dim_.at(id); }
  Expr rows() const { return rows_; }
  // Whether a step between the members has to run after them.
  bool is_late(int at) const { return late_.contains(at); }

 private:
  const Nest& nest(int at) const { return *nest_at(program_, program_.steps, at); }
  const Effects& effects(int at) const { return flow_.effects(at); }
  int count() const { return static_cast<int>(program_.steps.size()); }

  void add_inner(BufferId id, size_t dim) {
    row_dim_[id] = dim;
    if (!inner_.insert(id).second) return;
    const loop::Buffer& buffer = program_[id];
    ok_ = ok_ && buffer.storage == loop::Storage::kArena && buffer.strides == loop::row_major(buffer.shape);
    const std::vector<int> writers = flow_.writers_between(id, -1, count()),
                           readers = flow_.readers_between(id, -1, count());
    for (const std::vector<int>* steps : {&writers, &readers})
      for (const int at : *steps) {
        ok_ = ok_ && nest_at(program_, program_.steps, at);
        if (!members_.contains(at)) open_.insert(at);
      }
    ok_ = ok_ && writers.size() == 1 && flow_.writer_count(id) == 1 &&
          flow_.reader_count(id) == static_cast<int>(readers.size());
  }

  // Small tensors of rows that only members touch hold one block as well, so that their indices stay plain
  // variables and fusion works in the loop as it does outside.
  void add_small() {
    for (const auto& [id, dim] : row_dim_) {
      const loop::Buffer& buffer = program_[id];
      const std::vector<int> readers = flow_.readers_between(id, -1, count());
      const auto is_member = [&](int at) { return members_.contains(at); };
      const bool only = std::ranges::all_of(readers, is_member) &&
                        std::ranges::all_of(flow_.writers_between(id, -1, count()), is_member);
      if (only && static_cast<int>(readers.size()) == flow_.reader_count(id) &&
          made_once(program_, flow_, id) && buffer.strides == loop::row_major(buffer.shape))
        inner_.insert(id);
    }
  }

  bool has_extent(const std::vector<loop::Dim>& dims, Expr var) {
    const auto found = std::ranges::find(dims, var, &loop::Dim::var);
    if (found == dims.end()) return false;
    const auto [known, is_new] = is_rows_.emplace(found->extent, false);
    if (is_new) known->second = found->extent == rows_ || program_.facts.holds(sym::eq(found->extent, rows_));
    return known->second;
  }

  // Adds a step. Its row variable is the one with which it indexes the rows of a tensor found before.
  bool add(int at) {
    if (members_.contains(at)) return true;
    const Nest* nest = nest_at(program_, program_.steps, at);
    if (!nest) return false;
    std::optional<Expr> row;
    loop::for_each_stmt(nest->body, [&](const Stmt& stmt) {
      const loop::Access* access = loop::access_of(stmt);
      if (access && row_dim_.contains(access->buffer) && !row)
        row = access->index[row_dim_.at(access->buffer)];
    });
    if (!row || !sym::is_index(*row)) return false;
    Member member{*row};
    if (!has_extent(nest->dims, *row)) {
      const auto* reduce = nest->body.empty() ? nullptr : std::get_if<Reduce>(&nest->body[0].node);
      if (!reduce || nest->body.size() != 2 || !has_extent(reduce->dims, *row)) return false;
      if (!is_sum(*nest, *reduce)) return false;
      member.sums = true;
    }
    members_.emplace(at, member);
    loop::for_each_stmt(nest->body, [&](const Stmt& stmt) {
      const auto* load = std::get_if<loop::Load>(&stmt.node);
      if (load && is_large(load->access.buffer)) add_inner_at(load->access, *row);
    });
    if (member.sums) {
      sums_.insert(std::get<Store>(nest->body[1].node).access.buffer);
      return ok_;
    }
    bool ok = true;
    loop::for_each_stmt(nest->body, [&](const Stmt& stmt) {
      const auto* store = std::get_if<Store>(&stmt.node);
      if (!store) return;
      const BufferId id = store->access.buffer;
      const auto found = std::ranges::find(store->access.index, *row);
      ok = ok && !store->update && found != store->access.index.end();
      if (ok && is_large(id)) add_inner_at(store->access, *row);
      if (ok && !is_large(id)) row_dim_[id] = static_cast<size_t>(found - store->access.index.begin());
    });
    return ok && ok_;
  }

  // Whether only a block of the tensor is to be in memory.
  bool is_large(BufferId id) const {
    return program_[id].storage == loop::Storage::kArena && bytes_.of(id) >= limits_.bytes / 4 &&
           bytes_.of(id) >= kRowBytes * typical(rows_, program_.facts) &&
           bytes_.of(id) >= bytes_.of(tensor_) / 8;
  }
  void add_inner_at(const loop::Access& access, Expr row) {
    const auto found = std::ranges::find(access.index, row);
    if (found != access.index.end())
      add_inner(access.buffer, static_cast<size_t>(found - access.index.begin()));
    else if (std::ranges::any_of(access.index, [&](Expr e) { return sym::depends_on(e, row); }))
      ok_ = false;
  }

  // Whether the nest is a plain sum that can go on from a sum of other rows.
  bool is_sum(const Nest& nest, const Reduce& reduce) const {
    const auto* store = std::get_if<Store>(&nest.body[1].node);
    if (!store || reduce.combine != loop::Combine::kSum || reduce.results.size() != 1 ||
        store->value != reduce.results[0] || store->update || !store->access.mask.is_const(1))
      return false;
    const loop::Buffer& buffer = program_[store->access.buffer];
    if (!made_once(program_, flow_, store->access.buffer) ||
        buffer.dtype != nest.values[reduce.results[0].value].dtype ||
        (buffer.dtype != DType::kF32 && buffer.dtype != DType::kF64))
      return false;
    // Each element is stored.
    std::set<Expr, sym::ExprLess> seen;
    for (size_t d = 0; d < buffer.shape.size(); ++d) {
      const Expr var = store->access.index[d];
      const auto dim = std::ranges::find(nest.dims, var, &loop::Dim::var);
      if (dim == nest.dims.end() || !(dim->extent == buffer.shape[d]) || !seen.insert(var).second)
        return false;
    }
    return seen.size() == nest.dims.size();
  }

  // Whether the nest is a product of a tensor of rows and another one.
  bool multiplies_rows(const Nest& nest) const {
    const auto contraction = kernels::match_contraction(nest);
    if (!contraction) return false;
    const loop::Load *a = kernels::plain_load(contraction->factors[0]),
                     *b = kernels::plain_load(contraction->factors[1]);
    return a && b && inner_.contains(a->access.buffer) != inner_.contains(b->access.buffer);
  }

  // The buffers of some steps.
  struct Met {
    std::set<BufferId> touched, written;

    void add(const Effects& effects) {
      touched.insert(effects.reads.begin(), effects.reads.end());
      touched.insert(effects.writes.begin(), effects.writes.end());
      written.insert(effects.writes.begin(), effects.writes.end());
    }
    bool conflicts(const Effects& effects) const {
      const auto in = [](const std::set<BufferId>& ids) {
        return [&](BufferId id) { return ids.contains(id); };
      };
      return std::ranges::any_of(effects.writes, in(touched)) ||
             std::ranges::any_of(effects.reads, in(written));
    }
  };

  // Steps between the first and the last member run before the members, or after them if they depend on one.
  // Those of which a member depends as well become members; returns whether there are such.
  bool find_between() {
    late_.clear();
    const int first = members_.begin()->first, last = members_.rbegin()->first;
    Met before;  // by members and late steps
    for (int at = first; at <= last; ++at) {
      const bool member = members_.contains(at);
      if (!member && !nest_at(program_, program_.steps, at)) return ok_ = false;
      const bool depends = before.conflicts(effects(at));
      if (!member && depends) late_.insert(at);
      if (member || depends) before.add(effects(at));
    }
    Met later;  // by members and steps that they depend on
    for (int at = last; at >= first; --at) {
      const bool member = members_.contains(at);
      const bool needed = late_.contains(at) && later.conflicts(effects(at));
      if (needed) open_.insert(at);
      if (member || needed) later.add(effects(at));
    }
    return !open_.empty();
  }

  // Whether all accesses stay within the row, and nothing else depends on which row it is.
  bool is_consistent(const Nest& nest, const Member& member) const {
    bool ok = true;
    const auto free = [&](Expr e) { return !sym::depends_on(e, member.row); };
    for (const loop::Dim& dim : nest.dims) ok = ok && free(dim.extent);
    loop::for_each_stmt(nest.body, [&](const Stmt& stmt) {
      for (const loop::Dim& dim : loop::dims_of(stmt)) ok = ok && free(dim.extent);
      const loop::Access* access = loop::access_of(stmt);
      if (!access) return;
      if (sums_.contains(access->buffer)) ok = ok && member.sums && std::holds_alternative<Store>(stmt.node);
      if (!row_dim_.contains(access->buffer)) return;
      for (const Expr index : access->index) ok = ok && (!sym::has_index(index) || sym::is_index(index));
      for (size_t d = 0; d < access->index.size(); ++d)
        ok = ok &&
             (d == row_dim_.at(access->buffer) ? access->index[d] == member.row : free(access->index[d]));
    });
    return ok;
  }

  const Program& program_;
  const Flow& flow_;
  Bytes& bytes_;
  const RowBlocks& limits_;
  const BufferId tensor_;
  const Expr rows_;
  bool ok_ = true;
  std::map<Expr, bool, sym::ExprLess> is_rows_;  // whether an extent is the number of rows
  std::set<int> open_;                           // positions of steps to add
  std::map<int, Member> members_;
  std::set<int> late_;
  std::set<BufferId> inner_, sums_;
  std::map<BufferId, size_t> row_dim_;  // of buffers that members write
};

// Rows of a block; 0 if there would be too few blocks, or if the dim is the widest one.
int64_t rows_of_block(const Program& program, const RowBlocks& limits, BufferId tensor, size_t dim) {
  const std::vector<Expr>& shape = program[tensor].shape;
  double others = 1, widest = 1;  // rows of products per row of the dim
  for (size_t d = 0; d < shape.size(); ++d) {
    const double n = std::max(1.0, typical(shape[d], program.facts));
    if (d != dim) others *= n, widest = std::max(widest, n);
  }
  const double rows = typical(shape[dim], program.facts), all_rows = rows * others / widest;
  const double rows_of_products = std::clamp(all_rows / limits.blocks, limits.least_rows, limits.rows);
  const auto block = static_cast<int64_t>(std::ceil(rows_of_products * widest / others));
  if (rows >= widest || rows < limits.blocks * static_cast<double>(block)) return 0;
  if (const auto all = sym::as_const(shape[dim]))  // equal blocks if there are any of about this size
    for (int64_t more = block; more <= 2 * block && limits.blocks * static_cast<double>(more) <= rows; ++more)
      if (*all % more == 0) return more;
  return block;
}

// Rows come first in nests and in tensors, as fusion of rows wants them.
template <class T>
void move_to_front(std::vector<T>& list, size_t at) {
  const auto item = list.begin() + static_cast<std::ptrdiff_t>(at);
  std::rotate(list.begin(), item, item + 1);
}

void apply(Program& program, const Flow& flow, const Chain& chain, int64_t block) {
  int next = 1;
  const Expr rows = chain.rows(), trips = sym::ceildiv(rows, block),
             counter = loop::fresh_symbol(program, "row_block", 0, trips - 1, next);
  loop::While blocks{.counter = counter,
                     .trip_count = trips,
                     .condition = {},
                     .iterations = loop::fresh_symbol(program, "row_blocks", 0, trips, next),
                     .body = {}};
  program.facts.assume(sym::lt(counter * block, rows));
  const bool equal = program.facts.holds(sym::eq(sym::mod(rows, block), 0));
  const Expr extent = equal ? Expr(block) : sym::min(block, rows - counter * block);

  loop::Steps before, after, zeros;
  const int first = chain.members().begin()->first, last = chain.members().rbegin()->first;
  for (int at = first; at <= last; ++at) {
    const loop::Step& step = program.steps[static_cast<size_t>(at)];
    const auto member = chain.members().find(at);
    if (member == chain.members().end()) {
      const bool from_nothing = flow.effects(at).reads.empty();
      (chain.is_late(at) ? after : from_nothing ? blocks.body : before).push_back(step);
      continue;
    }
    Nest nest = program[std::get<loop::Launch>(step.node).nest];
    const Expr row = member->second.row;
    loop::substitute(nest.body, {{row, row + counter * block}});
    loop::for_each_stmt(nest.body, [&](Stmt& stmt) {
      loop::Access* access = loop::access_of(stmt);
      if (!access || !chain.inner().contains(access->buffer)) return;
      const size_t dim = chain.row_dim(access->buffer);
      access->index[dim] = row;
      move_to_front(access->index, dim);
    });
    if (const auto dim = std::ranges::find(nest.dims, row, &loop::Dim::var); dim != nest.dims.end()) {
      dim->extent = extent;
      move_to_front(nest.dims, static_cast<size_t>(dim - nest.dims.begin()));
    }
    if (member->second.sums) {
      auto& reduce = std::get<Reduce>(nest.body[0].node);
      for (loop::Dim& dim : reduce.dims)
        if (dim.var == row) dim.extent = extent;
      const loop::Access access = std::get<Store>(nest.body[1].node).access;
      const DType dtype = program[access.buffer].dtype;
      const loop::ValueId sum = reduce.results[0];
      loop::Block tail;
      loop::Writer write{nest, tail};
      const loop::ValueId rest = write.load(dtype, access);
      write.store(access, write.let(loop::ScalarOp::kAdd, dtype, {rest, sum}));
      nest.body.pop_back();
      std::ranges::move(tail, std::back_inserter(nest.body));

      Nest zero{.name = cat(nest.name, "_start"), .nodes = nest.nodes, .dims = nest.dims};
      loop::Writer start{zero, zero.body};
      start.store(access, start.constant(loop::float_scalar(dtype, 0)));
      zeros.push_back({loop::Launch{loop::add_nest(program, std::move(zero))}});
    }
    blocks.body.push_back({loop::Launch{loop::add_nest(program, std::move(nest))}});
  }
  for (const BufferId id : chain.inner()) {
    loop::Buffer& buffer = program[id];
    buffer.shape[chain.row_dim(id)] = equal ? Expr(block) : sym::min(block, rows);
    move_to_front(buffer.shape, chain.row_dim(id));
    buffer.strides = loop::row_major(buffer.shape);
  }
  loop::Steps steps(program.steps.begin(), program.steps.begin() + first);
  for (const loop::Steps* part : {&before, &zeros}) steps.insert(steps.end(), part->begin(), part->end());
  steps.push_back({std::move(blocks)});
  steps.insert(steps.end(), after.begin(), after.end());
  steps.insert(steps.end(), program.steps.begin() + last + 1, program.steps.end());
  program.steps = std::move(steps);
}

bool block_one(Program& program, const RowBlocks& limits) {
  const Flow flow(program, program.steps);
  Bytes bytes(program);
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const BufferId id(static_cast<int64_t>(i));
    if (!made_once(program, flow, id) || bytes.of(id) < limits.bytes) continue;
    for (size_t dim = 0; dim < program[id].shape.size(); ++dim) {
      const int64_t block = rows_of_block(program, limits, id, dim);
      if (block == 0) continue;
      Chain chain(program, flow, bytes, limits, id, dim);
      if (!chain.find() || !chain.pays(block)) continue;
      apply(program, flow, chain, block);
      return true;
    }
  }
  return false;
}

}  // namespace

void block_rows(Program& program, const RowBlocks& limits) {
  bool any = false;
  while (block_one(program, limits)) any = true;
  if (any) loop::eliminate_dead_code(program);
}

}  // namespace stridec::schedule
