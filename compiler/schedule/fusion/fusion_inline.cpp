// Inlines a pointwise producer into the loads of its result:
//
//   for i: t[i] = f(x[i])            for i: y[i] = g(f(x[i]))
//   for i: y[i] = g(t[i])      ->
#include <algorithm>
#include <map>
#include <set>

#include "compiler/base/check.h"
#include "compiler/loop/index_length.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/fusion/fusion_rules.h"

namespace stridec::schedule {
namespace {

using loop::Access;
using loop::Block;
using loop::BufferId;
using loop::Dim;
using loop::Launch;
using loop::Load;
using loop::Nest;
using loop::Program;
using loop::Stmt;
using loop::Store;
using sym::Expr;

// Highest cost of recomputing a value for each further use: about what loading it again would cost.
constexpr int kCheap = 4;
// For a condition that does not vary along the innermost loop of any use, where it is computed once for many
// iterations.
constexpr int kCheapOutside = 8;
// For a producer whose input takes less memory than its result: a dequantised value.
constexpr int kCheapWidening = 8;

// Highest cost of computing a factor where a chain copies it; few threads copy the same one.
constexpr int kCopied = 8;

// Limits on an index in generated code, before it is simplified. An index built from several copies of
// another, as in reflected padding of reflected padding, doubles its terms each time. Simplification takes a
// time that grows faster than the distinct nodes.
constexpr uint64_t kMostTerms = 2000, kMostNodes = 64;

const Store& only_store(const Nest& nest) {
  for (const auto& stmt : nest.body)
    if (const auto* store = std::get_if<Store>(&stmt.node)) return *store;
  STRIDEC_CHECK(false, nest.name);
  __builtin_unreachable();
}

// A load of `buffer` with the loops around it.
struct Use {
  const Load* load;
  std::vector<Dim> loops;  // enclosing, the nest's dims included
};
void collect_uses(const Block& block, BufferId buffer, std::vector<Dim>& loops, std::vector<Use>& uses) {
  for (const auto& stmt : block) {
    if (const auto* load = std::get_if<Load>(&stmt.node); load && load->access.buffer == buffer)
      uses.push_back({load, loops});
    const Block* body = loop::body_of(stmt);
    if (!body) continue;
    const size_t before = loops.size();
    for (const Dim& dim : loop::dims_of(stmt)) loops.push_back(dim);
    collect_uses(*body, buffer, loops, uses);
    loops.resize(before);
  }
}

// Whether every loop around the load moves its index, so that each element is loaded once.
bool loads_each_once(const Use& use) {
  return std::all_of(use.loops.begin(), use.loops.end(), [&](const Dim& dim) {
    if (dim.extent.is_const(1)) return true;
    return std::any_of(use.load->access.index.begin(), use.load->access.index.end(),
                       [&](Expr at) { return sym::depends_on(at, dim.var); });
  });
}

bool is_same_along_innermost(const Use& use) {
  if (use.loops.empty() || use.loops.back().extent.is_const(1)) return false;
  const auto& index = use.load->access.index;
  return std::none_of(index.begin(), index.end(),
                      [&](Expr at) { return sym::depends_on(at, use.loops.back().var); });
}

// The number of distinct loads with as many elements as the nest has points; an inlined copy repeats these
// loads.
int full_loads(const Nest& nest) {
  std::vector<const Access*> found;
  loop::for_each_stmt(nest.body, [&](const Stmt& stmt) {
    const auto* load = std::get_if<Load>(&stmt.node);
    if (!load || !runs_through(load->access, nest.dims)) return;
    const Access& access = load->access;
    const bool again = std::any_of(found.begin(), found.end(), [&](const Access* other) {
      return other->buffer == access.buffer && other->index == access.index;
    });
    if (!again) found.push_back(&access);
  });
  return static_cast<int>(found.size());
}

class Inliner {
 public:
  Inliner(const Program& program, const Nest& producer, Nest& consumer)
      : producer_(producer),
        store_(only_store(producer)),
        consumer_(consumer),
        cloner_(consumer),
        facts_(program.facts) {
    for (const Dim& dim : consumer.dims) facts_.set_index(dim.var, dim.extent);
  }

  // Returns false, with the nest half rewritten, if a load's index does not determine the producer's point.
  bool run() {
    if (!rewrite(consumer_.body, facts_)) return false;
    for (const auto& [from, to] : replaced_) loop::replace_uses(consumer_.body, from, to);
    return true;
  }

 private:
  bool rewrite(Block& block, sym::Facts facts) {
    Block out;
    for (auto& stmt : block) {
      sym::Facts inside = facts;
      loop::add_facts(inside, stmt);
      if (std::holds_alternative<loop::Bind>(stmt.node)) facts = inside;
      if (Block* body = loop::body_of(stmt); body && !rewrite(*body, inside)) return false;
      auto* load = std::get_if<Load>(&stmt.node);
      if (!load || load->access.buffer != store_.access.buffer)
        out.push_back(std::move(stmt));
      else if (!expand(*load, facts, out))
        return false;
    }
    block = std::move(out);
    return true;
  }

  // Replaces the load by the producer's body at the point that wrote the element.
  bool expand(const Load& load, const sym::Facts& facts, Block& out) {
    const auto point = loop::invert(producer_, store_.access, load.access.index, facts);
    if (!point) return false;
    cloner_.forget();
    for (const auto& [var, at] : *point) cloner_.map(var, sym::simplify(at, facts));
    Block body = cloner_.clone(producer_, producer_.body);
    const Expr mask = load.access.mask;
    for (auto& stmt : body) {
      if (std::holds_alternative<Store>(stmt.node)) continue;
      if (auto* inner = std::get_if<Load>(&stmt.node))
        inner->access.mask = sym::logical_and(inner->access.mask, mask);
      // Outside the mask the point does not exist, so its indices are not checked there.
      if (auto* bind = std::get_if<loop::Bind>(&stmt.node); bind && !mask.is_const(1))
        bind->mode = loop::Bind::OutOfRange::kSkip;
      out.push_back(std::move(stmt));
    }
    const loop::ValueId value = cloner_.value(store_.value);
    if (mask.is_const(1)) {
      replaced_.emplace_back(load.result, value);
      return true;
    }
    const loop::ValueId condition = loop::add_value(consumer_, DType::kBool);
    const loop::ValueId fill = loop::add_value(consumer_, load.fill.dtype);
    out.push_back({loop::IndexValue{condition, mask}});
    out.push_back({loop::Constant{fill, load.fill}});
    out.push_back({loop::Let{load.result, loop::ScalarOp::kSelect, {condition, value, fill}}});
    return true;
  }

  const Nest& producer_;
  const Store& store_;
  Nest& consumer_;
  loop::Cloner cloner_;
  sym::Facts facts_;
  std::vector<std::pair<loop::ValueId, loop::ValueId>> replaced_;
};

// Whether every load of the buffer comes before its only store and reads the element that the same point of
// the same loops stores.
bool overwrites_what_it_has_read(const Nest& nest, BufferId buffer) {
  const Access* stored = nullptr;
  bool ok = true;
  loop::for_each_stmt(nest.body, [&](const Stmt& stmt) {
    if (const auto* store = std::get_if<Store>(&stmt.node); store && store->access.buffer == buffer) {
      ok = ok && !stored && !store->update;
      stored = &store->access;
    }
    if (const auto* load = std::get_if<Load>(&stmt.node); load && load->access.buffer == buffer)
      ok = ok && !stored;
  });
  if (!ok || !stored) return ok;
  loop::for_each_stmt(nest.body, [&](const Stmt& stmt) {
    if (const auto* load = std::get_if<Load>(&stmt.node); load && load->access.buffer == buffer)
      ok = ok && load->access.index == stored->index;
  });
  for (const Dim& dim : nest.dims)
    ok = ok && std::find(stored->index.begin(), stored->index.end(), dim.var) != stored->index.end();
  // A store within a loop is refused: the next iteration would load what this one stored.
  for (const auto& stmt : nest.body) {
    if (const Block* body = loop::body_of(stmt))
      loop::for_each_stmt(*body, [&](const Stmt& inner) {
        if (const auto* store = std::get_if<Store>(&inner.node)) ok = ok && store->access.buffer != buffer;
      });
  }
  return ok;
}

// Whether the producer computes values from weights that take much more memory than these weights: low-bit
// values with block scales. A contraction computes such values panel by panel instead of storing them. Floats
// count as at least f32, the type in which they would be multiplied.
bool stretches_weights(const Program& program, const Nest& producer, BufferId result) {
  constexpr int64_t kStretch = 2;
  const auto bytes = [&](BufferId id) -> std::optional<int64_t> {
    const auto count = sym::as_const(loop::element_count(program[id].shape));
    if (!count) return std::nullopt;
    return *count * byte_size(program[id].dtype);
  };
  int64_t given = 0;
  for (BufferId id : effects_of(producer).reads) {
    const auto size = bytes(id);
    if (program[id].storage != loop::Storage::kParameter || !size) return false;
    given += *size;
  }
  const auto count = sym::as_const(loop::element_count(program[result].shape));
  const DType dtype = program[result].dtype;
  const int size = std::max(byte_size(dtype), is_float(dtype) ? byte_size(DType::kF32) : 1);
  return given > 0 && count && *count * size > kStretch * given;
}

bool has_binds(const Nest& nest) {
  return std::any_of(nest.body.begin(), nest.body.end(),
                     [](const Stmt& stmt) { return std::holds_alternative<loop::Bind>(stmt.node); });
}

// Cost of the nest's statements. For float and bool results, integers that do not vary along the last dim are
// not counted: lengths and positions are computed once per row.
int cost_again(const Program& program, const Nest& nest) {
  if (!is_float(program[only_store(nest).access.buffer].dtype) &&
      !is_bool(program[only_store(nest).access.buffer].dtype))
    return scalar_cost(nest.body);
  std::set<loop::ValueId> moves;
  int cost = 0;
  for (const Stmt& stmt : nest.body) {
    bool own = nest.dims.empty();
    loop::for_each_expr(stmt, [&](Expr e) { own = own || sym::depends_on(e, nest.dims.back().var); });
    loop::for_each_use(stmt, [&](loop::ValueId used) { own = own || moves.contains(used); });
    loop::for_each_result(stmt, [&](loop::ValueId id) {
      own = own || is_float(nest.values[id.value].dtype);
      if (own) moves.insert(id);
    });
    if (own) cost += scalar_cost({stmt});
  }
  return cost;
}

bool refuse(std::string* reason, FusionRule rule) {
  if (reason) *reason = info(rule).why;
  return false;
}

}  // namespace

bool is_cheap_again(const Program& program, const Nest& nest) {
  return cost_again(program, nest) <= (widens(program, nest) ? kCheapWidening : kCheap) &&
         full_loads(nest) <= 1 && !has_binds(nest);
}

bool inline_producer(const Program& program, const Nest& producer, Nest& consumer, std::string* reason) {
  const loop::IndexLength a = loop::longest_index(producer), b = loop::longest_index(consumer);
  if (!Inliner(program, producer, consumer).run()) return refuse(reason, FusionRule::kInlinePoint);
  const loop::IndexLength fused = loop::longest_index(consumer);
  if (fused.terms > std::max({kMostTerms, a.terms, b.terms}) ||
      fused.nodes > std::max({kMostNodes, a.nodes, b.nodes}))
    return refuse(reason, FusionRule::kInlineIndex);
  return true;
}

bool try_inline(Program& program, loop::Steps& steps, Flow& flow, int producer_at, std::string* reason,
                bool copied) {
  const loop::NestId producer_id = std::get<Launch>(steps[producer_at].node).nest;
  const Nest& producer = program[producer_id];
  if (!is_pointwise(producer)) return refuse(reason, FusionRule::kInlinePointwise);
  const Store& store = only_store(producer);
  const BufferId buffer = store.access.buffer;
  if (program[buffer].storage != loop::Storage::kArena) return refuse(reason, FusionRule::kInlineArena);
  if (flow.writer_count(buffer) != 1) return refuse(reason, FusionRule::kInlineWrittenOnce);

  const std::vector<int> readers = flow.readers_between(buffer, producer_at, flow.size());
  for (const int at : readers)
    if (!std::holds_alternative<Launch>(steps[at].node))
      return refuse(reason, FusionRule::kInlineControlFlow);
  if (static_cast<int>(readers.size()) != flow.reader_count(buffer) || readers.empty())
    return refuse(reason, FusionRule::kInlineReaders);
  for (BufferId id : flow.effects(producer_at).reads)
    for (const int at : flow.writers_between(id, producer_at, readers.back()))
      if (may_access_same(program, producer, steps[static_cast<size_t>(at)], id))
        return refuse(reason, FusionRule::kInlineOperand);

  if (copied && readers.size() > 1) return refuse(reason, FusionRule::kCopyReaders);
  const int cost = scalar_cost(producer.body);
  int loads = 0;
  bool once = true;
  bool stretched = stretches_weights(program, producer, buffer);
  bool outside = is_bool(program[buffer].dtype) && cost <= kCheapOutside && full_loads(producer) <= 1 &&
                 !has_binds(producer);
  for (int at : readers)
    stretched = stretched && is_contraction(program[std::get<Launch>(steps[at].node).nest]);
  for (int at : readers) {
    const Nest& consumer = program[std::get<Launch>(steps[at].node).nest];
    std::vector<Use> uses;
    std::vector<Dim> loops = consumer.dims;
    collect_uses(consumer.body, buffer, loops, uses);
    loads += static_cast<int>(uses.size());
    const bool contraction = is_contraction(consumer);
    for (const Use& use : uses) {
      if (use.loops.size() > consumer.dims.size() && contraction && cost > 0 && !stretched && !copied)
        return refuse(reason, FusionRule::kInlineFactor);
      once = once && loads_each_once(use);
      outside = outside && is_same_along_innermost(use);
    }
    if (statement_count(consumer.body) + uses.size() * producer.body.size() > kMostStatements)
      return refuse(reason, FusionRule::kInlineStatements);
  }
  if (copied && (loads > 1 || has_binds(producer) || cost > kCopied))
    return refuse(reason, FusionRule::kCopyCost);
  if (!copied && !stretched && !outside && (loads > 1 || !once) && !is_cheap_again(program, producer))
    return refuse(reason, FusionRule::kInlineAgain);

  std::vector<Nest> rewritten;
  for (int at : readers) {
    Nest& consumer = rewritten.emplace_back(program[std::get<Launch>(steps[at].node).nest]);
    if (!inline_producer(program, producer, consumer, reason)) return false;
    for (BufferId id : flow.effects(producer_at).reads)
      if (writes(flow.effects(at), id) && !overwrites_what_it_has_read(consumer, id))
        return refuse(reason, FusionRule::kInlineOwnOperand);
    consumer.name = fused_name(producer, consumer);
    join_nodes(consumer, producer.nodes);
    loop::clean(program, consumer);
  }
  for (size_t i = 0; i < readers.size(); ++i) {
    const int at = readers[i];
    program[std::get<Launch>(steps[at].node).nest] = std::move(rewritten[i]);
    flow.replace(at, effects_of(program, steps[at]));
  }
  flow.erase(steps, producer_at);
  return true;
}

}  // namespace stridec::schedule
