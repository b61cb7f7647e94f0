#include "cli/bench_compare.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "cli/output.h"
#include "compiler/base/sort.h"
#include "compiler/base/text.h"
#include "compiler/loop/provenance.h"

namespace stridec::cli {
namespace {

// Sets of kernels that share nodes, as trees.
class Sets {
 public:
  explicit Sets(size_t count) : parent_(count) { std::iota(parent_.begin(), parent_.end(), size_t{0}); }

  size_t root(size_t at) {
    while (parent_[at] != at) at = parent_[at] = parent_[parent_[at]];
    return at;
  }
  // The lower number stays the root, so that sets have the order of their first kernels.
  void join(size_t a, size_t b) {
    a = root(a), b = root(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<size_t> parent_;
};

void add_once(std::vector<std::string>& list, const std::string& text) {
  if (std::ranges::count(list, text) == 0) list.push_back(text);
}

std::string signed_seconds(double seconds) {
  return cat(seconds < 0 ? "-" : "+", human_seconds(std::abs(seconds)));
}

}  // namespace

std::vector<JoinedTimes> joined_times(const std::vector<KernelTime>& here,
                                      const std::vector<KernelTime>& there) {
  std::vector<const KernelTime*> all;
  for (const auto* side : {&here, &there})
    for (const KernelTime& kernel : *side) all.push_back(&kernel);
  Sets sets(all.size());
  std::map<std::string, size_t> first;  // the first kernel of each node
  for (size_t i = 0; i < all.size(); ++i) {
    const KernelTime& kernel = *all[i];
    const std::vector<std::string> keys = kernel.nodes.empty() ? std::vector{kernel.name} : kernel.nodes;
    for (const std::string& key : keys) sets.join(i, first.emplace(key, i).first->second);
  }
  std::map<size_t, JoinedTimes> rows;
  for (size_t i = 0; i < all.size(); ++i) {
    JoinedTimes& row = rows[sets.root(i)];
    const bool is_here = i < here.size();
    (is_here ? row.seconds_here : row.seconds_there) += all[i]->seconds;
    add_once(is_here ? row.here : row.there, all[i]->name);
    for (const std::string& node : all[i]->nodes) add_once(row.nodes, node);
  }
  std::vector<JoinedTimes> sorted;
  for (auto& [root, row] : rows) sorted.push_back(std::move(row));
  sort_stable(sorted, [](const JoinedTimes& a, const JoinedTimes& b) {
    return std::abs(a.difference()) > std::abs(b.difference());
  });
  return sorted;
}

std::string joined_text(const std::vector<JoinedTimes>& rows, int most_rows) {
  std::vector<std::vector<std::string>> cells = {
      {"here", "there", "difference", "kernels here", "kernels there", "of"}};
  for (const JoinedTimes& row : rows) {
    if (static_cast<int>(cells.size()) > most_rows) break;
    cells.push_back({row.here.empty() ? "" : human_seconds(row.seconds_here),
                     row.there.empty() ? "" : human_seconds(row.seconds_there),
                     signed_seconds(row.difference()), join(row.here, " "),
                     row.there == row.here ? "the same" : join(row.there, " "), loop::nodes_of(row.nodes)});
  }
  return table(cells);
}

nlohmann::ordered_json joined_json(const std::vector<JoinedTimes>& rows) {
  auto all = nlohmann::ordered_json::array();
  for (const JoinedTimes& row : rows)
    all.push_back({{"nodes", row.nodes},
                   {"here", {{"kernels", row.here}, {"seconds", row.seconds_here}}},
                   {"there", {{"kernels", row.there}, {"seconds", row.seconds_there}}},
                   {"difference_seconds", row.difference()}});
  return all;
}

}  // namespace stridec::cli
