#include "cli/tuning_report.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "cli/output.h"
#include "compiler/base/text.h"

namespace stridec::cli {
namespace {

using tune::Tuned;

std::string times(double ratio) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f times", ratio);
  return text;
}

}  // namespace

std::string tuning_text(const Compilation& made, double seconds, const std::string& database) {
  size_t counts[3] = {};
  double before = 0, after = 0, most = 1;
  std::string best;
  for (const auto& variant : made.tuned)
    for (const Tuned& kernel : variant) {
      ++counts[static_cast<size_t>(kernel.origin)];
      const tune::Entry& entry = kernel.entry;
      if (kernel.origin == Tuned::Origin::kDefault || entry.microseconds <= 0) continue;
      const auto nests = static_cast<double>(kernel.nests.size());
      before += nests * std::max(entry.default_microseconds, entry.microseconds);
      after += nests * entry.microseconds;
      if (const double gain = entry.default_microseconds / entry.microseconds; gain > most)
        most = gain, best = entry.kernel;
    }
  const auto [left, found, measured] = counts;
  const size_t all = left + found + measured;
  if (all == 0) return "";
  std::vector<std::string> parts;
  if (measured > 0) parts.push_back(cat(measured, " measured in ", human_seconds(seconds)));
  if (found > 0) parts.push_back(cat(found, " from the database"));
  if (left > 0) parts.push_back(cat(left, left == 1 ? " keeps its default" : " keep their defaults"));
  std::string text = cat(all, all == 1 ? " kernel: " : " kernels: ", join(parts, ", "));
  if (after > 0)
    text += best.empty()
                ? "; the default schedules are the fastest"
                : cat("; ", times(before / after), " as fast as the defaults, '", best, "' ", times(most));
  return database.empty() ? text : cat(text, "; database ", database);
}

}  // namespace stridec::cli
