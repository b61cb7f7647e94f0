#include "cli/tuning_report.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/output.h"
#include "compiler/base/counted.h"
#include "compiler/base/text.h"

namespace stridec::cli {
namespace {

using tune::Tuned;

std::string times(double ratio) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f times", ratio);
  return text;
}

struct Found {
  size_t left = 0, found = 0, measured = 0;  // kernels, by where their schedule is from
  double before = 0, after = 0;              // microseconds of one call of each
  double most = 1;                           // the largest gain
  std::string best;                          // and its kernel
};

Found found_by(const Compilation& made) {
  Found all;
  for (const Tuned* kernel : tuned_of(made)) {
    const tune::Entry& entry = kernel->entry;
    switch (kernel->origin) {
      case Tuned::Origin::kDefault: ++all.left; break;
      case Tuned::Origin::kDatabase: ++all.found; break;
      case Tuned::Origin::kMeasured: ++all.measured; break;
    }
    if (kernel->origin == Tuned::Origin::kDefault || entry.microseconds <= 0) continue;
    const auto nests = static_cast<double>(kernel->nests.size());
    all.before += nests * std::max(entry.default_microseconds, entry.microseconds);
    all.after += nests * entry.microseconds;
    if (const double gain = entry.default_microseconds / entry.microseconds; gain > all.most)
      all.most = gain, all.best = entry.kernel;
  }
  return all;
}

}  // namespace

std::vector<const Tuned*> tuned_of(const Compilation& made) {
  std::vector<const Tuned*> all;
  for (const FunctionResult& function : made.functions)
    for (const auto& variant : function.tuned)
      for (const Tuned& kernel : variant) all.push_back(&kernel);
  return all;
}

std::string tuning_text(const Compilation& made, double seconds, const std::string& database) {
  const Found found = found_by(made);
  const size_t all = found.left + found.found + found.measured;
  if (all == 0) return "";
  std::vector<std::string> parts;
  if (found.measured > 0) parts.push_back(cat(found.measured, " measured in ", human_seconds(seconds)));
  if (found.found > 0) parts.push_back(cat(found.found, " from the database"));
  if (found.left > 0) parts.push_back(counted(found.left, "keeps its default", "keep their defaults"));
  std::string text = cat(counted(all, "kernel"), ": ", join(parts, ", "));
  if (found.after > 0)
    text += found.best.empty() ? "; the default schedules are the fastest"
                               : cat("; ", times(found.before / found.after), " as fast as the defaults, '",
                                     found.best, "' ", times(found.most));
  return database.empty() ? text : cat(text, "; database ", database);
}

nlohmann::ordered_json tuning_json(const Compilation& made, double seconds) {
  const Found found = found_by(made);
  if (found.left + found.found + found.measured == 0) return nullptr;
  return {{"measured", found.measured},
          {"from_database", found.found},
          {"default", found.left},
          {"speedup", found.after > 0 ? found.before / found.after : 1.0},
          {"seconds", seconds}};
}

}  // namespace stridec::cli
