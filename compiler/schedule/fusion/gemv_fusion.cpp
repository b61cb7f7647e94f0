#include "compiler/schedule/fusion/gemv_fusion.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>

#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/directives/schedule.h"
#include "compiler/schedule/fusion/fusion_join.h"
#include "compiler/schedule/layout/order_weights.h"

namespace stridec::schedule {
namespace {

using loop::Block;
using loop::BufferId;
using loop::Dim;
using loop::Launch;
using loop::Nest;
using loop::Program;
using loop::Steps;
using loop::Stmt;
using sym::Expr;

constexpr int64_t kFewColumns = 256;       // fewer give too few warps
constexpr int64_t kSmallWork = 1 << 15;    // iterations that every block may repeat
constexpr int64_t kSmallBytes = 32 << 10;  // bytes of rows in shared memory

struct RowProduct {
  const loop::Reduce* reduce;
  const loop::Load* weight;
  std::vector<BufferId> row;  // the buffers that the row is read from
};

// Matches one row times a matrix of 16- or 32-bit weights, with constant extents.
std::optional<RowProduct> row_product(const Program& program, const Nest& nest) {
  if (nest.schedule != loop::Schedule{} || nest.dims.size() != 1) return std::nullopt;
  const auto columns = sym::as_const(nest.dims[0].extent);
  const auto c = loop::classify_contraction(nest);
  if (!columns || *columns < kFewColumns || !c || !c->batch.empty() || !c->loose.empty() ||
      c->m.size() + c->n.size() != 1)
    return std::nullopt;
  const loop::Operand &weight = c->n.empty() ? c->a : c->b, &row = c->n.empty() ? c->b : c->a;
  if (!weight.plain || !weight.plain->access.mask.is_const(1)) return std::nullopt;
  const loop::Buffer& buffer = program[weight.plain->access.buffer];
  const int bytes = byte_size(buffer.dtype);
  if (buffer.storage != loop::Storage::kParameter || (bytes != 2 && bytes != 4)) return std::nullopt;
  for (const Dim& dim : c->k)
    if (!dim.extent.is_const()) return std::nullopt;
  for (Expr extent : buffer.shape)
    if (!extent.is_const()) return std::nullopt;
  RowProduct out{.reduce = c->reduce, .weight = weight.plain, .row = {}};
  for (const loop::Load* load : row.loads) out.row.push_back(load->access.buffer);
  return out;
}

// Merges dims of a sum that every access steps through as one.
void merge_depth(const Program& program, Nest& nest) {
  sym::Facts facts = loop::facts_of(program, nest);
  for (Stmt& stmt : nest.body) {
    auto* reduce = std::get_if<loop::Reduce>(&stmt.node);
    if (!reduce) continue;
    loop::add_facts(facts, stmt);
    while (reduce->dims.size() > 1) {
      const Dim outer = reduce->dims[reduce->dims.size() - 2], inner = reduce->dims.back();
      bool one = true;
      loop::for_each_stmt(reduce->body, [&](const Stmt& s) {
        if (const loop::Access* access = loop::access_of(s)) {
          const auto far = loop::stride_of(program, *access, outer.var, facts),
                     near = loop::stride_of(program, *access, inner.var, facts);
          one = one && far && near && facts.holds(sym::eq(*far, *near * inner.extent)) &&
                !sym::depends_on(access->mask, outer.var) && !sym::depends_on(access->mask, inner.var);
        } else {
          loop::for_each_expr(s, [&](Expr e) {
            one = one && !sym::depends_on(e, outer.var) && !sym::depends_on(e, inner.var);
          });
        }
      });
      if (!one) break;
      loop::Cloner names(nest);
      const Dim merged{names.fresh_index(inner.var), outer.extent * inner.extent};
      facts.set_index(merged.var, merged.extent);
      loop::substitute(reduce->body, {{outer.var, sym::floordiv(merged.var, inner.extent)},
                                      {inner.var, sym::mod(merged.var, inner.extent)}});
      reduce->dims.pop_back();
      reduce->dims.back() = merged;
    }
  }
  loop::simplify(program, nest);
}

// The number of iterations of all loops; nothing if it is unknown or exceeds kSmallWork.
std::optional<int64_t> visits(const std::vector<Dim>& dims, const Block& block) {
  int64_t count = 1, inside = 1;
  for (const Dim& dim : dims) {
    const auto extent = sym::as_const(dim.extent);
    if (!extent || *extent > kSmallWork) return std::nullopt;
    count *= *extent;
  }
  for (const Stmt& stmt : block) {
    const Block* body = loop::body_of(stmt);
    if (!body) continue;
    const auto more = visits(loop::dims_of(stmt), *body);
    if (!more) return std::nullopt;
    inside += *more;
  }
  return count > kSmallWork || inside > kSmallWork || count * inside > kSmallWork
             ? std::nullopt
             : std::optional(count * inside);
}

class Joiner {
 public:
  Joiner(Program& program, Steps& steps) : program_(program), steps_(steps) { look(); }

  void run() {
    for (int at = 1; at < static_cast<int>(steps_.size()); ++at)
      while (is_product(at) && joined(at)) --at;
    for (int at = 0; at < static_cast<int>(steps_.size()); ++at)
      if (is_product(at)) {
        while (absorbed(at)) --at;
        copy_rows(nest_at(at));
        nest_at(at).schedule.directives = {{"team", {"32"}}};
      }
  }

 private:
  void look() { flow_ = Flow(program_, steps_); }
  bool is_launch(int at) const { return std::holds_alternative<Launch>(steps_[at].node); }
  loop::NestId id_at(int at) const { return std::get<Launch>(steps_[at].node).nest; }
  Nest& nest_at(int at) { return program_[id_at(at)]; }
  bool is_product(int at) {
    return is_launch(at) && (joint_.contains(id_at(at)) || row_product(program_, nest_at(at)));
  }

  // Merges the GEMV with an earlier one that reads the same row for equally many columns and can move down to
  // it.
  bool joined(int at) {
    const auto product = row_product(program_, nest_at(at));
    for (int before = at - 1; product && before >= 0; --before) {
      if (!is_launch(before)) continue;
      const Nest &first = nest_at(before), &second = nest_at(at);
      const auto other = row_product(program_, first);
      if (!other || other->row != product->row || first.dims[0].extent != second.dims[0].extent ||
          other->reduce->dims[0].extent != product->reduce->dims[0].extent ||
          !may_move(program_, steps_, flow_, before, at))
        continue;
      // Each column may use the other GEMV's result for the same column only.
      const Exchanges exchanges = exchanges_between(first, second);
      const Matching same = {{0, 0}};
      if (!exchanges.ordered.empty() && match_dims(program_, first, second, exchanges.ordered) != same)
        continue;
      joint_.insert(id_at(at));
      replace_steps(program_, steps_, flow_, at, {before}, merged_nest(first, second, same));
      return true;
    }
    return false;
  }

  // Fuses the producer of a row that only this nest reads, if it does little work.
  bool absorbed(int at) {
    for (int before = at - 1; before >= 0; --before) {
      if (!is_launch(before) || is_product(before) || !goes_into(before, at)) continue;
      Nest& consumer = nest_at(at);
      const Nest producer = nest_at(before);
      loop::Cloner names(consumer);
      Block source = producer.body;
      if (!producer.dims.empty()) source = {Stmt{loop::For{producer.dims, producer.body}}};
      Block body = names.clone(producer, source);
      for (BufferId id : flow_.effects(before).writes) {
        loop::Buffer row = program_[id];
        row.storage = loop::Storage::kLocal;
        row.strides = loop::row_major(row.shape);
        const BufferId local = loop::add_buffer(program_, std::move(row));
        const auto turn = [&](Stmt& stmt) {
          if (loop::Access* access = loop::access_of(stmt); access && access->buffer == id)
            access->buffer = local;
        };
        loop::for_each_stmt(body, turn);
        loop::for_each_stmt(consumer.body, turn);
      }
      std::move(consumer.body.begin(), consumer.body.end(), std::back_inserter(body));
      consumer.body = std::move(body);
      consumer.name = fused_name(producer, consumer);
      join_nodes(consumer, producer.nodes);
      loop::clean(program_, consumer);
      joint_.insert(id_at(at));
      steps_.erase(steps_.begin() + before);
      look();
      return true;
    }
    return false;
  }

  // Copies the rows that the nest's sums read from memory to local buffers, once for all columns.
  void copy_rows(Nest& nest) {
    Block copies;
    loop::Cloner names(nest);
    int64_t bytes = row_bytes(nest);
    for (Stmt& top : nest.body) {
      auto* reduce = std::get_if<loop::Reduce>(&top.node);
      if (!reduce || reduce->dims.size() != 1 || !is_of_column(*reduce, nest)) continue;
      const Dim deep = reduce->dims[0];
      for (Stmt& stmt : reduce->body) {
        auto* load = std::get_if<loop::Load>(&stmt.node);
        if (!load || !load->access.mask.is_const(1) || !is_row(load->access, deep.var)) continue;
        const loop::Buffer from = program_[load->access.buffer];
        const int64_t size = sym::as_const(deep.extent).value_or(kSmallBytes) * byte_size(from.dtype);
        if (from.storage == loop::Storage::kLocal || writes(effects_of(nest), load->access.buffer) ||
            bytes + size > kSmallBytes)
          continue;
        bytes += size;
        const BufferId row = loop::add_buffer(program_, {.name = from.name,
                                                         .dtype = from.dtype,
                                                         .shape = {deep.extent},
                                                         .strides = {},
                                                         .storage = loop::Storage::kLocal});
        const Expr at = names.fresh_index(deep.var);
        loop::Load copy{
            .result = loop::add_value(nest, from.dtype), .access = load->access, .fill = load->fill};
        loop::substitute(copy.access, {{deep.var, at}});
        Block body;
        body.push_back({copy});
        body.push_back({loop::Store{.access = {.buffer = row, .index = {at}}, .value = copy.result}});
        copies.push_back({loop::For{{{at, deep.extent}}, std::move(body)}});
        load->access = {.buffer = row, .index = {deep.var}};
      }
    }
    std::move(nest.body.begin(), nest.body.end(), std::back_inserter(copies));
    nest.body = std::move(copies);
  }

  static bool is_of_column(const loop::Reduce& reduce, const Nest& nest) {
    return std::any_of(reduce.body.begin(), reduce.body.end(), [&](const Stmt& stmt) {
      const loop::Access* access = loop::access_of(stmt);
      return access && std::any_of(access->index.begin(), access->index.end(),
                                   [&](Expr index) { return loop::depends_on_any(index, nest.dims); });
    });
  }

  // Whether the access's index depends on the variable and on no other.
  static bool is_row(const loop::Access& access, Expr var) {
    bool found = false, others = false;
    for (Expr index : access.index)
      for (Expr v : sym::free_vars(index)) (v == var ? found : others) = true;
    return found && !others;
  }

  int64_t row_bytes(const Nest& nest) const {
    int64_t bytes = 0;
    for (BufferId id : loop::buffers_of(nest))
      if (program_[id].storage == loop::Storage::kLocal)
        bytes += sym::as_const(loop::element_count(program_[id].shape)).value_or(kSmallBytes) *
                 byte_size(program_[id].dtype);
    return bytes;
  }

  bool goes_into(int before, int at) {
    const Effects &made = flow_.effects(before), &taken = flow_.effects(at);
    const Nest& producer = nest_at(before);
    if (made.updates || made.writes.empty() || producer.schedule != loop::Schedule{}) return false;
    int64_t bytes = 0;
    for (BufferId id : made.writes) {
      const loop::Buffer& buffer = program_[id];
      const auto count = sym::as_const(loop::element_count(buffer.shape));
      if (!count || !reads(taken, id) || writes(taken, id) || !passes_once(program_, flow_, id)) return false;
      bytes += *count * byte_size(buffer.dtype);
    }
    for (BufferId id : made.reads)
      if (writes(taken, id) || program_[id].storage == loop::Storage::kLocal) return false;
    bool plain = true;
    loop::for_each_stmt(producer.body, [&](const Stmt& stmt) {
      plain = plain && !std::holds_alternative<loop::Bind>(stmt.node) &&
              !std::holds_alternative<loop::Scan>(stmt.node);
    });
    bytes += row_bytes(nest_at(at));
    return plain && bytes <= kSmallBytes && visits(producer.dims, producer.body) &&
           may_move(program_, steps_, flow_, before, at);
  }

  Program& program_;
  Steps& steps_;
  Flow flow_;
  std::set<loop::NestId> joint_;  // nests fused from a GEMV and others
};

}  // namespace

void fuse_gemvs(Program& program) {
  std::vector<DeepLoad> weights;
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    const auto* launch = std::get_if<Launch>(&step.node);
    if (!launch || !row_product(program, program[launch->nest])) return;
    Nest& nest = program[launch->nest];
    merge_depth(program, nest);
    const auto product = row_product(program, nest);
    weights.push_back({launch->nest, product->weight->result, loop::vars_of(product->reduce->dims)});
  });
  order_along(program, weights);
  loop::for_each_block(program.steps, [&](Steps& steps) { Joiner(program, steps).run(); });
}

}  // namespace stridec::schedule
