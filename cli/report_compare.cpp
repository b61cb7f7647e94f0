#include "cli/report_compare.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cli/json_values.h"
#include "compiler/base/text.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;

// A node of one of the reports.
struct ReportedNode {
  std::string fate;
  std::vector<std::string> kernels;    // in the order of their steps
  std::vector<std::string> schedules;  // of these
  std::set<std::string> together;      // the nodes that share a kernel with it
};

std::map<std::string, ReportedNode> places_of(const Json& function) {
  std::map<int, const Json*> by_step;
  for (const Json& kernel : function.at("kernels"))
    for (const Json& step : kernel.at("steps")) by_step.emplace(step.get<int>(), &kernel);
  // Launches of one kernel have nodes of their own.
  std::map<int, std::set<std::string>> nodes_of;
  for (const Json& node : function.at("nodes"))
    if (node.contains("kernels"))
      for (const Json& kernel : node.at("kernels"))
        for (const Json& step : kernel.at("steps")) nodes_of[step.get<int>()].insert(text_at(node, "node"));
  std::map<std::string, ReportedNode> places;
  for (const Json& node : function.at("nodes")) {
    ReportedNode& place = places[text_at(node, "node")];
    place.fate = text_at(node, "fate");
    if (!node.contains("kernels")) continue;
    for (const Json& kernel : node.at("kernels")) {
      place.kernels.push_back(text_at(kernel, "name"));
      for (const Json& step : kernel.at("steps")) {
        const std::set<std::string>& nodes = nodes_of[step.get<int>()];
        place.together.insert(nodes.begin(), nodes.end());
        if (const auto row = by_step.find(step.get<int>()); row != by_step.end())
          place.schedules.push_back(text_at(*row->second, "schedule"));
      }
    }
  }
  return places;
}

std::string kernels_or_fate(const ReportedNode& place) {
  return place.kernels.empty() ? place.fate : join(place.kernels, ", ");
}

Json compare_functions(const Json& here, const Json& there) {
  const std::map<std::string, ReportedNode> a = places_of(here), b = places_of(there);
  Json nodes = Json::array();
  const auto add = [&](const std::string& node, const char* change, const std::string& x,
                       const std::string& y) {
    nodes.push_back({{"node", node}, {"change", change}, {"here", x}, {"there", y}});
  };
  for (const Json& row : here.at("nodes")) {
    const std::string node = text_at(row, "node");
    const auto other = b.find(node);
    const ReportedNode& mine = a.at(node);
    if (other == b.end())
      add(node, "only here", kernels_or_fate(mine), "");
    else if (mine.fate != other->second.fate)
      add(node, "fate", kernels_or_fate(mine), kernels_or_fate(other->second));
    else if (mine.together != other->second.together)
      add(node, "fused differently", kernels_or_fate(mine), kernels_or_fate(other->second));
    else if (mine.schedules != other->second.schedules)
      add(node, "schedule", join(mine.schedules, " | "), join(other->second.schedules, " | "));
  }
  for (const Json& row : there.at("nodes"))
    if (const std::string node = text_at(row, "node"); !a.contains(node))
      add(node, "only there", "", kernels_or_fate(b.at(node)));
  return {{"name", here.at("name")},
          {"kernels_here", here.at("kernels").size()},
          {"kernels_there", there.at("kernels").size()},
          {"nodes", std::move(nodes)}};
}

}  // namespace

Json compare_reports(const Json& here, const Json& there) {
  const Json &mine = here.at("functions"), &others = there.at("functions");
  Json functions = Json::array();
  for (const Json& function : mine) {
    const auto other = std::ranges::find_if(
        others, [&](const Json& each) { return each.at("name") == function.at("name"); });
    if (other != others.end())
      functions.push_back(compare_functions(function, *other));
    else if (mine.size() == 1 && others.size() == 1)
      functions.push_back(compare_functions(function, others.front()));
  }
  return {{"with", there.at("title")}, {"functions", std::move(functions)}};
}

}  // namespace stridec::cli
