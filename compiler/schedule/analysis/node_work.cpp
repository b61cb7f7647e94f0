#include "compiler/schedule/analysis/node_work.h"

#include <algorithm>
#include <set>
#include <utility>

#include "compiler/base/text.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/origin.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/typical.h"

namespace stridec::schedule {
namespace {

using loop::Kernel;
using loop::Origin;
using loop::Program;
using loop::Stmt;

// "" for statements that compute nothing.
std::string statement_name(const Stmt& stmt) {
  if (const auto* let = std::get_if<loop::Let>(&stmt.node)) return std::string(loop::info(let->op).name);
  if (const auto* reduce = std::get_if<loop::Reduce>(&stmt.node))
    return cat("reduce ", loop::name(reduce->combine));
  if (std::holds_alternative<loop::Load>(stmt.node)) return "load";
  return std::holds_alternative<loop::Scan>(stmt.node) ? "scan" : "";
}

// Of one execution.
int operations_of(const Stmt& stmt) {
  if (const auto* let = std::get_if<loop::Let>(&stmt.node)) return loop::flops_of(let->op);
  return std::holds_alternative<loop::Reduce>(stmt.node) ? 1 : 0;
}

loop::ValueId first_result(const Stmt& stmt) {
  loop::ValueId first;
  loop::for_each_result(stmt, [&](loop::ValueId v) {
    if (!first.valid()) first = v;
  });
  return first;
}

// Calls visit(origin, statement, times at typical sizes) for each statement of the kernel with a result.
template <class Visit>
void for_each_result_of(const Program& program, const Kernel& kernel, Visit&& visit) {
  const loop::Nest* nest = nullptr;
  std::vector<Origin> origins;
  for (const auto& [of, execution] : loop::executions_of(program, kernel)) {
    if (std::exchange(nest, of) != of) origins = loop::origins_of(*of);
    const loop::ValueId result = first_result(*execution.stmt);
    if (result.valid())
      visit(origins[result.value], *execution.stmt, typical(execution.times, program.facts));
  }
}

// How many operations a run executes for the statements of the model's nodes.
using Times = std::map<std::pair<loop::NodeId, int32_t>, double>;

void add(const Times& more, Times& all) {
  for (const auto& [part, times] : more) all[part] += times;
}

// Of the two branches of an `if`, of which one runs.
Times more_of(Times a, const Times& b) {
  for (const auto& [part, times] : b) a[part] = std::max(a[part], times);
  return a;
}

class TimesOf {
 public:
  TimesOf(const Program& program, const std::vector<Kernel>& kernels)
      : program_(program), kernels_(kernels), in_groups_(loop::launched_in_groups(program)) {}

  // `steps` come in the order in which kernels_of lists their kernels.
  Times steps(const loop::Steps& steps) {
    Times all;
    for (const loop::Step& step : steps) {
      const auto* launch = std::get_if<loop::Launch>(&step.node);
      if (std::holds_alternative<loop::TiledGroup>(step.node) ||
          (launch && !in_groups_.contains(launch->nest)))
        add(kernel(kernels_[next_++]), all);
      if (const auto* branch = std::get_if<loop::If>(&step.node)) {
        Times taken = this->steps(branch->then_steps);
        add(more_of(std::move(taken), this->steps(branch->else_steps)), all);
      }
      if (const auto* repeat = std::get_if<loop::While>(&step.node)) add(this->steps(repeat->body), all);
    }
    return all;
  }

 private:
  Times kernel(const Kernel& kernel) const {
    Times times;
    for_each_result_of(program_, kernel, [&](const Origin& origin, const Stmt& stmt, double count) {
      if (origin.node.valid() && origin.part > 0 && operations_of(stmt) > 0)
        times[{origin.node, origin.part}] += count * operations_of(stmt);
    });
    return times;
  }

  const Program& program_;
  const std::vector<Kernel>& kernels_;
  const std::set<loop::NestId> in_groups_;
  size_t next_ = 0;
};

Times times_of(const Program& program, const std::vector<Kernel>& kernels) {
  return TimesOf(program, kernels).steps(program.steps);
}

}  // namespace

std::vector<NodeWork> work_of(const Program& program, const Kernel& kernel) {
  std::vector<NodeWork> all;
  std::map<std::string, size_t> place;
  for (const std::string& node : kernel.nodes) {
    place[node] = all.size();
    all.push_back({.node = node});
  }
  for_each_result_of(program, kernel, [&](const Origin& origin, const Stmt& stmt, double count) {
    const std::string name = statement_name(stmt);
    if (name.empty() || !origin.node.valid()) return;
    const auto found = place.find(loop::text_of(origin.node));
    if (found == place.end()) return;
    ++all[found->second].statements[name];
    all[found->second].operations += count * operations_of(stmt);
  });
  return all;
}

std::vector<RepeatedNode> repeated_nodes(const Program& before, const Program& program,
                                         const std::vector<Kernel>& kernels) {
  constexpr double kMore = 1.01;  // typical sizes of parts may be rounded up
  const Times least = times_of(before, loop::kernels_of(before)), now = times_of(program, kernels);
  struct More {
    double ratio, operations;
  };
  std::map<std::pair<loop::NodeId, int32_t>, More> repeated;
  for (const auto& [part, times] : now)
    if (const auto found = least.find(part); found != least.end() && found->second > 0)
      if (const double ratio = times / found->second; ratio > kMore)
        repeated[part] = {ratio, times - found->second};
  std::vector<RepeatedNode> all;
  std::map<loop::NodeId, size_t> place;
  for (const Kernel& kernel : kernels)
    for_each_result_of(program, kernel, [&](const Origin& origin, const Stmt&, double) {
      const auto more = repeated.find({origin.node, origin.part});
      if (more == repeated.end()) return;
      const auto [found, fresh] = place.emplace(origin.node, all.size());
      if (fresh) all.push_back({.node = loop::text_of(origin.node)});
      RepeatedNode& node = all[found->second];
      node.times = std::max(node.times, more->second.ratio);
      node.operations += std::exchange(more->second.operations, 0);
      if (node.kernels.empty() || node.kernels.back() != &kernel) node.kernels.push_back(&kernel);
    });
  return all;
}

}  // namespace stridec::schedule
