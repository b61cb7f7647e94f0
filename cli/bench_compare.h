// The kernels of two artifacts of one model, joined on the model's nodes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace stridec::cli {

struct KernelTime {
  std::string name;
  std::vector<std::string> nodes;  // of the model, that the kernel computes
  double seconds = 0;              // of one run
};

// Kernels of both artifacts that compute the same nodes: those that share a node are in one row, so that each
// kernel is in exactly one. A kernel without nodes is joined on its name.
struct JoinedTimes {
  std::vector<std::string> nodes, here, there;  // here, there: names of kernels
  double seconds_here = 0, seconds_there = 0;

  double difference() const { return seconds_there - seconds_here; }
};

// By decreasing difference, faster or slower.
std::vector<JoinedTimes> joined_times(const std::vector<KernelTime>& here,
                                      const std::vector<KernelTime>& there);

std::string joined_text(const std::vector<JoinedTimes>& rows, int most_rows);
nlohmann::ordered_json joined_json(const std::vector<JoinedTimes>& rows);

}  // namespace stridec::cli
