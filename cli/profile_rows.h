// Times of a profiled artifact in groups: by kernel, by step, by the model's nodes or by their scopes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/kernel_costs.h"

namespace stridec::cli {

// What was measured, in nanoseconds.
struct Samples {
  std::vector<int64_t> runs;                     // each run
  std::vector<int64_t> between;                  // each run without its steps
  std::map<int, std::vector<int64_t>> of_steps;  // each call, by step
};

struct ProfileRow {
  std::string name;                // of the kernel, the nodes or the scope
  std::vector<std::string> nodes;  // of all its steps
  std::vector<int> steps;
  int64_t total = 0;           // nanoseconds, of all calls
  std::vector<int64_t> calls;  // nanoseconds of each, sorted
  double flops = 0, bytes = 0;
  double compute = 0, moving = 0;  // seconds at the machine's peak rates
  std::string_view level;          // that the bytes of a call come from

  int64_t percentile(double share) const;
  double mean() const { return calls.empty() ? 0 : double(total) / double(calls.size()); }
  // Share of the attainable rate; 0: the costs are not known.
  double roofline() const { return total == 0 ? 0 : std::max(compute, moving) / (double(total) * 1e-9); }
};

enum class Group { kKernel, kStep, kNode, kScope };

// Every call is in exactly one row; the last row is the time between kernels. The totals of all rows add up
// to that of the runs. A kernel with nodes of several scopes is in the scope that they have in common.
// `names`: of the steps.
std::vector<ProfileRow> profile_rows(const Samples& samples, const std::map<int, StepFacts>& steps,
                                     const std::vector<std::string>& names, Group group, const Roof& roof);

// "/encoder/layer.0" of "node 7 '/encoder/layer.0/MatMul' (MatMul)"; "" without slashes.
std::string scope_of(const std::string& node);

}  // namespace stridec::cli
