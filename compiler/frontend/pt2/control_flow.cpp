// Higher-order operators: subgraphs that close over nothing, so that everything they read is an operand.
#include <algorithm>
#include <limits>
#include <utility>

#include "compiler/base/at_exit.h"
#include "compiler/base/text.h"
#include "compiler/frontend/pt2/importer.h"
#include "compiler/frontend/pt2/json.h"
#include "compiler/ops/name_size.h"

namespace stridec::pt2 {
namespace {

using aten::Value;
using graph::ValueId;
using ops::Term;

constexpr const char* kPrefix = "torch.ops.higher_order.";

struct Call {
  Importer& importer;
  const Node& node;
  const Scope& scope;

  graph::Builder& b() const { return importer.b; }
  const Argument& argument(size_t i) const {
    if (i >= node.inputs.size()) malformed(cat(short_target(node.target), " has too few arguments"));
    return node.inputs[i].value;
  }
  const Graph& graph(size_t i) const {
    if (!argument(i).graph)
      malformed(cat("argument ", i, " of ", short_target(node.target), " is not a graph"));
    return *argument(i).graph;
  }
  Value value(size_t i) const {
    Value v = importer.value_of(argument(i), scope);
    if (v.kind == Value::Kind::kFailed) throw Importer::Failed{};
    return v;
  }
  std::vector<Value> list(size_t i) const {
    std::vector<Value> items = value(i).items;
    for (const Value& v : items)
      if (v.kind == Value::Kind::kFailed) throw Importer::Failed{};
    return items;
  }
  [[noreturn]] void unsupported(const std::string& what) const {
    fail(ErrorKind::kUnsupported, "unsupported-op", cat(short_target(node.target), ": ", what));
  }
};

// Copies of the operands: a subgraph sees their values, not their storages.
std::vector<Value> operands(const Call& c, const std::vector<Value>& values) {
  std::vector<Value> out;
  for (const Value& v : values) {
    if (!v.is_tensor()) {
      out.push_back(v);
      continue;
    }
    aten::Tensor t = aten::fresh(aten::read(c.b(), v.tensor));
    t.complex = v.tensor.complex;
    out.emplace_back(t);
  }
  return out;
}

void expect_unwritten(const Call& c, const std::vector<Value>& values) {
  for (const Value& v : values)
    if (v.is_tensor() && v.tensor.storage->version > 0) c.unsupported("a subgraph that writes its operands");
}

std::vector<ValueId> tensors(const Call& c, const std::vector<Value>& values) {
  std::vector<ValueId> out;
  for (const Value& v : values) {
    if (!v.is_tensor() && v.kind != Value::Kind::kInt) c.unsupported("a result that is not a tensor");
    if (v.is_tensor() && v.tensor.complex) c.unsupported("a result of complex numbers");
    out.push_back(aten::as_term(c.b(), v).id());
  }
  return out;
}

std::vector<Value> values(const Call& c, const std::vector<ValueId>& ids) {
  std::vector<Value> out;
  for (ValueId id : ids) out.emplace_back(Term(c.b(), id));
  return out;
}

std::vector<Value> run(const Call& c, const Graph& graph, const std::vector<Value>& given) {
  std::vector<Value> results = c.importer.run_subgraph(graph, given);
  expect_unwritten(c, given);
  return results;
}

// The condition of a cond or while_loop as a bool scalar.
Term condition_of(const Call& c, const Value& v) {
  if (v.kind == Value::Kind::kBool) return {c.b(), c.b().elements({v.integer}, {}, DType::kBool)};
  const Term t = ops::reshape(aten::as_term(c.b(), v), {});
  return is_bool(t.dtype()) ? t : ops::logical_not(ops::equal(t, 0));
}

std::vector<Value> op_cond(const Call& c) {
  const Term condition = condition_of(c, c.value(0));
  const std::vector<Value> given = operands(c, c.list(3));
  const auto branch = [&](size_t i) { return [&, i] { return tensors(c, run(c, c.graph(i), given)); }; };
  return values(c, ops::if_else(c.b(), condition, branch(1), branch(2)));
}

std::vector<Value> op_while(const Call& c) {
  const std::vector<Value> carried = operands(c, c.list(2)), more = operands(c, c.list(3));
  const auto with = [&](std::vector<Value> first) {
    first.insert(first.end(), more.begin(), more.end());
    return first;
  };
  const auto condition = [&](const std::vector<Value>& now) {
    return condition_of(c, run(c, c.graph(0), with(now)).at(0)).id();
  };
  const ValueId first = condition(carried);
  const ops::LoopResult result =
      ops::loop(c.b(), std::numeric_limits<int64_t>::max(), first, tensors(c, carried),
                [&](const ops::LoopState& state) {
                  const std::vector<Value> now = values(c, state.carried);
                  const std::vector<Value> next = run(c, c.graph(1), with(now));
                  const std::vector<ValueId> ids = tensors(c, next);
                  return ops::LoopStep{.condition = condition(values(c, ids)), .carried = ids, .stacked = {}};
                });
  return values(c, result.carried);
}

Value row_of(const Call& c, Term t, sym::Expr at) {
  (void)c;
  return ops::squeeze(ops::slice(t, 0, at, 1), {0});
}

// Carries and rows: scan(combine, init, xs, additional), map(body, xs, additional).
std::vector<Value> over_rows(const Call& c, const Graph& body, const std::vector<Value>& init,
                             const std::vector<Value>& xs, const std::vector<Value>& more) {
  std::vector<Term> rows;
  for (ValueId id : tensors(c, xs)) rows.emplace_back(c.b(), id);
  if (rows.empty()) c.unsupported("no tensor to go over");
  const size_t carried = init.size();
  const ops::LoopResult result =
      ops::loop(c.b(), rows[0].dim(0), std::nullopt, tensors(c, init), [&](const ops::LoopState& state) {
        std::vector<Value> given = values(c, state.carried);
        for (Term t : rows) given.push_back(row_of(c, t, state.counter));
        given.insert(given.end(), more.begin(), more.end());
        const std::vector<ValueId> ids = tensors(c, run(c, body, given));
        if (ids.size() < carried) c.unsupported("a body with fewer results than carried values");
        const auto split = ids.begin() + static_cast<ptrdiff_t>(carried);
        return ops::LoopStep{
            .condition = std::nullopt, .carried = {ids.begin(), split}, .stacked = {split, ids.end()}};
      });
  std::vector<ValueId> all = result.carried;
  all.insert(all.end(), result.stacked.begin(), result.stacked.end());
  return values(c, all);
}
std::vector<Value> op_scan(const Call& c) {
  return over_rows(c, c.graph(0), operands(c, c.list(1)), operands(c, c.list(2)), operands(c, c.list(3)));
}
std::vector<Value> op_map(const Call& c) {
  return over_rows(c, c.graph(0), {}, operands(c, c.list(1)), operands(c, c.list(2)));
}

// A region that runs in place. It shares the storages of its operands.
std::vector<Value> inlined(const Call& c, size_t graph, size_t first) {
  std::vector<Value> given;
  for (size_t i = first; i < c.node.inputs.size(); ++i) {
    const Value v = c.value(i);
    if (v.kind == Value::Kind::kList)
      given.insert(given.end(), v.items.begin(), v.items.end());
    else
      given.push_back(v);
  }
  return c.importer.run_subgraph(c.graph(graph), given);
}
std::vector<Value> op_set_grad(const Call& c) { return inlined(c, 1, 2); }
std::vector<Value> op_invoke(const Call& c) {
  return inlined(c, 0, c.node.inputs.size() > 1 && c.argument(1).kind == Argument::Kind::kString ? 2 : 1);
}
std::vector<Value> op_checkpoint(const Call& c) { return inlined(c, 0, 1); }

// Effects order prints and operators that may fail; tokens carry nothing.
std::vector<Value> op_with_effects(const Call& c) {
  const std::string target = c.argument(1).text;
  Value token;
  token.kind = Value::Kind::kOther;
  if (target.find("print") != std::string::npos) return {token};
  const aten::Schema* schema = schema_of(target);
  if (!schema || !aten::find_row(*schema)) c.unsupported(cat("operator ", target, " with effects"));
  std::vector<aten::NamedValue> given;
  for (size_t i = 2; i < c.node.inputs.size(); ++i) given.push_back({c.node.inputs[i].name, c.value(i)});
  std::vector<Value> out = aten::call(c.b(), *schema, std::move(given));
  out.insert(out.begin(), token);
  return out;
}
// Inside, results have the dtypes that the file says, and operands are cast to them.
std::vector<Value> op_autocast(const Call& c) {
  size_t at = 0;
  while (at < c.node.inputs.size() && !c.argument(at).graph) ++at;
  const bool enabled = c.node.inputs.size() > 2 && c.argument(2).integer != 0;
  const bool before = std::exchange(c.importer.autocast, enabled);
  const AtExit restore([&] { c.importer.autocast = before; });
  return inlined(c, at, at + 1);
}
std::vector<Value> op_print(const Call&) { return {}; }

struct Row {
  const char* name;
  std::vector<Value> (*import)(const Call& c);
};
constexpr Row kRows[] = {
    {"cond", op_cond},
    {"invoke_subgraph", op_invoke},
    {"map_impl", op_map},
    {"print", op_print},
    {"scan", op_scan},
    {"tag_activation_checkpoint", op_checkpoint},
    {"while_loop", op_while},
    {"with_effects", op_with_effects},
    {"wrap_with_autocast", op_autocast},
    {"wrap_with_set_grad_enabled", op_set_grad},
};

const Row* find(const std::string& target) {
  if (!target.starts_with(kPrefix)) return nullptr;
  const std::string name = target.substr(std::string(kPrefix).size());
  const auto found =
      std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& row) { return name == row.name; });
  return found == std::end(kRows) ? nullptr : found;
}

}  // namespace

bool is_higher_order(const std::string& target) { return find(target) != nullptr; }

std::vector<Value> import_higher_order(Importer& importer, const Node& node, const Scope& scope) {
  return find(node.target)->import(Call{importer, node, scope});
}

}  // namespace stridec::pt2
