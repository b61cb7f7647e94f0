#include "compiler/loop/kernels.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>
#include <string_view>

#include "compiler/base/text.h"
#include "compiler/loop/walk.h"
#include "compiler/sym/text.h"

namespace stridec::loop {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// Removes and returns the leading number or character.
std::string_view take(std::string_view& text) {
  const auto end = std::find_if_not(text.begin(), text.end(), is_digit);
  const std::string_view front = text.substr(0, std::max<size_t>(1, static_cast<size_t>(end - text.begin())));
  text.remove_prefix(front.size());
  return front;
}

// Lexicographic order, but with numbers compared by value: 9 before 10.
bool comes_before(std::string_view a, std::string_view b) {
  while (!a.empty() && !b.empty()) {
    const std::string_view x = take(a), y = take(b);
    if (x == y) continue;
    if (is_digit(x[0]) && is_digit(y[0]) && x.size() != y.size()) return x.size() < y.size();
    return x < y;
  }
  return a.size() < b.size();
}

// The steps that the profile counts: launches outside tiled groups, tiled groups and calls.
void for_each_counted(const Program& program, const std::function<void(const Step&)>& visit) {
  const std::set<NestId> parts = launched_in_groups(program);
  for_each_step(program.steps, [&](const Step& step) {
    const auto* launch = std::get_if<Launch>(&step.node);
    const bool counted =
        launch ? !parts.contains(launch->nest)
               : std::holds_alternative<TiledGroup>(step.node) || std::holds_alternative<Call>(step.node);
    if (counted) visit(step);
  });
}

Kernel kernel_of(const Program& program, const Step& step) {
  Kernel kernel;
  kernel.strips = std::get_if<TiledGroup>(&step.node);
  if (kernel.strips)
    for (const Step& part : kernel.strips->body) kernel.nests.push_back(std::get<Launch>(part.node).nest);
  else
    kernel.nests.push_back(std::get<Launch>(step.node).nest);
  for (const NestId id : kernel.nests)
    kernel.nodes.insert(kernel.nodes.end(), program[id].nodes.begin(), program[id].nodes.end());
  sort_nodes(kernel.nodes);
  kernel.name = kernel.strips ? kernel.strips->name : program[kernel.nests[0]].name;
  kernel.schedule = join(kernel.nests, " | ", [&](NestId id) { return to_string(program[id].schedule); });
  return kernel;
}

// All tiles together cover all points.
sym::Substitution totals_of(const Kernel& kernel) {
  sym::Substitution totals;
  if (!kernel.strips) return totals;
  totals[kernel.strips->size] = kernel.strips->points * kernel.strips->rounds;
  for (const TiledGroup::Size& size : kernel.strips->sizes) totals[size.symbol] = size.total;
  return totals;
}

}  // namespace

std::vector<Kernel> kernels_of(const Program& program, int& steps) {
  std::vector<Kernel> kernels;
  for_each_counted(program, [&](const Step& step) {
    if (!std::holds_alternative<Call>(step.node)) {
      kernels.push_back(kernel_of(program, step));
      kernels.back().step = steps;
    }
    ++steps;
  });
  return kernels;
}

std::vector<Routine> routines_of(const Program& program) {
  std::vector<Routine> routines;
  int steps = 0;
  for_each_counted(program, [&](const Step& step) {
    if (const auto* call = std::get_if<Call>(&step.node)) routines.push_back({call, steps});
    ++steps;
  });
  return routines;
}

std::vector<Kernel> kernels_of(const Program& program) {
  int steps = 0;
  return kernels_of(program, steps);
}

Cost cost_of(const Program& program, const Kernel& kernel) {
  const sym::Substitution totals = totals_of(kernel);
  Cost all{.points = 0};
  for (const NestId id : kernel.nests) {
    const Cost cost = cost_of(program, program[id]);
    all.points += sym::substitute(cost.points, totals);
    all.steps += sym::substitute(cost.steps, totals);
    all.flops += sym::substitute(cost.flops, totals);
    all.bytes_read += sym::substitute(cost.bytes_read, totals);
    all.bytes_written += sym::substitute(cost.bytes_written, totals);
  }
  return all;
}

std::vector<std::pair<const Nest*, Execution>> executions_of(const Program& program, const Kernel& kernel) {
  const sym::Substitution totals = totals_of(kernel);
  std::vector<std::pair<const Nest*, Execution>> all;
  for (const NestId id : kernel.nests)
    for (const Execution& each : executions_of(program, program[id]))
      all.push_back({&program[id], {each.stmt, sym::substitute(each.times, totals)}});
  return all;
}

std::vector<KernelRow> rows_of(const Program& program, const std::vector<Kernel>& kernels,
                               const std::function<std::string(const Kernel&)>& apart) {
  std::vector<KernelRow> rows;
  std::map<std::array<std::string, 5>, size_t> known;
  for (const Kernel& kernel : kernels) {
    Cost cost = cost_of(program, kernel);
    const auto [found, fresh] =
        known.try_emplace({kernel.name, kernel.schedule, sym::to_string(cost.flops),
                           sym::to_string(cost.bytes_read + cost.bytes_written), apart ? apart(kernel) : ""},
                          rows.size());
    if (fresh) rows.push_back({.launches = {}, .nodes = {}, .cost = std::move(cost)});
    KernelRow& row = rows[found->second];
    row.launches.push_back(&kernel);
    row.nodes.insert(row.nodes.end(), kernel.nodes.begin(), kernel.nodes.end());
  }
  for (KernelRow& row : rows) sort_nodes(row.nodes);
  return rows;
}

void sort_nodes(std::vector<std::string>& nodes) {
  std::sort(nodes.begin(), nodes.end(), comes_before);
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
}

}  // namespace stridec::loop
