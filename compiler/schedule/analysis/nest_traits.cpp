#include "compiler/schedule/analysis/nest_traits.h"

#include <algorithm>

#include "compiler/base/text.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/walk.h"

namespace stridec::schedule {

bool is_pointwise(const loop::Nest& nest) {
  int stores = 0;
  for (const auto& stmt : nest.body) {
    if (std::holds_alternative<loop::Reduce>(stmt.node) || std::holds_alternative<loop::For>(stmt.node) ||
        std::holds_alternative<loop::Scan>(stmt.node))
      return false;
    if (const auto* store = std::get_if<loop::Store>(&stmt.node)) {
      if (store->update || !store->access.mask.is_const(1)) return false;
      ++stores;
    }
  }
  return stores == 1;
}

bool is_contraction(const loop::Nest& nest) {
  const auto contraction = loop::classify_contraction(nest);
  return contraction && (!contraction->m.empty() || !contraction->n.empty());
}

bool is_weighted_sum(const loop::Nest& nest) {
  const auto contraction = loop::classify_contraction(nest);
  return contraction && contraction->m.empty() != contraction->n.empty();
}

bool runs_through(const loop::Access& access, const std::vector<loop::Dim>& dims) {
  return std::all_of(dims.begin(), dims.end(), [&](const loop::Dim& dim) {
    return dim.extent.is_const(1) || std::any_of(access.index.begin(), access.index.end(),
                                                 [&](sym::Expr at) { return sym::depends_on(at, dim.var); });
  });
}

bool widens(const loop::Program& program, const loop::Nest& nest) {
  if (!is_pointwise(nest)) return false;
  // Bytes per point of the nest. Loads that do not depend on all dims are served from cache.
  int64_t read = 0, written = 0;
  for (const auto& stmt : nest.body) {
    const loop::Access* access = loop::access_of(stmt);
    if (!access) continue;
    const int64_t bytes = byte_size(program[access->buffer].dtype);
    if (std::holds_alternative<loop::Store>(stmt.node))
      written += bytes;
    else if (runs_through(*access, nest.dims))
      read += bytes;
  }
  return read > 0 && written > read;
}

namespace {

size_t depth(const std::vector<loop::Dim>& dims, const loop::Block& block) {
  size_t deepest = 0;
  for (const loop::Stmt& stmt : block)
    if (const loop::Block* body = loop::body_of(stmt))
      deepest = std::max(deepest, depth(loop::dims_of(stmt), *body));
  return deepest + static_cast<size_t>(std::ranges::count_if(
                       dims, [](const loop::Dim& dim) { return !dim.extent.is_const(1); }));
}

// The number of loops around its innermost statement.
size_t loops_of(const loop::Nest& nest) { return depth(nest.dims, nest.body); }

}  // namespace

bool is_zero(const loop::Scalar& scalar) { return is_float(scalar.dtype) ? scalar.f == 0 : scalar.i == 0; }

int scalar_cost(const loop::Block& block) {
  int cost = 0;
  loop::for_each_stmt(block, [&](const loop::Stmt& stmt) {
    if (const auto* let = std::get_if<loop::Let>(&stmt.node)) cost += info(let->op).cost;
    if (std::holds_alternative<loop::Bind>(stmt.node)) cost += 2;
  });
  return cost;
}

std::string fused_name(const loop::Nest& producer, const loop::Nest& consumer) {
  constexpr size_t kLongest = 60;
  std::string name = producer.name + "+" + consumer.name;
  if (name.size() <= kLongest) return name;
  const bool behind = loops_of(consumer) > loops_of(producer);
  const std::string &kept = (behind ? consumer : producer).name, &cut = (behind ? producer : consumer).name;
  const size_t taken = kept.size() + std::string_view("++...").size();
  size_t end = taken < kLongest ? cut.rfind('+', kLongest - taken) : std::string::npos;
  const std::string front = end == std::string::npos ? "" : cut.substr(0, end) + "+";
  name = behind ? front + "...+" + kept : kept + "+" + front + "...";
  return replaced(std::move(name), "...+...", "...");
}

void join_nodes(loop::Nest& nest, const std::vector<std::string>& more) {
  for (const auto& node : more)
    if (std::find(nest.nodes.begin(), nest.nodes.end(), node) == nest.nodes.end()) nest.nodes.push_back(node);
}

size_t statement_count(const loop::Block& block) {
  size_t count = 0;
  loop::for_each_stmt(block, [&](const loop::Stmt&) { ++count; });
  return count;
}

}  // namespace stridec::schedule
