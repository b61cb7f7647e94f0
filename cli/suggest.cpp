#include "cli/suggest.h"

#include <algorithm>

#include "compiler/base/text.h"

namespace stridec::cli {
namespace {

size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before, previous(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = previous, previous = row;
  }
  return previous[b.size()];
}

}  // namespace

std::string closest(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr size_t kLongest = 64;  // no name is longer, and the distance takes quadratic time
  if (word.size() > kLongest) return "";
  std::string best;
  size_t least = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t d = distance(word, candidate);
    if (d < least) least = d, best = candidate;
  }
  // The start of a longer name, such as --tune for --tune-db.
  if (best.empty() && word.size() >= 3)
    for (const std::string& candidate : candidates)
      if (candidate.starts_with(word) && (best.empty() || candidate.size() < best.size())) best = candidate;
  return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string best = closest(word, candidates);
  return best.empty() ? "" : cat("did you mean '", best, "'? ");
}

std::string did_you_mean_any(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr size_t kShortest = 4, kMost = 3;
  if (std::string one = did_you_mean(word, candidates); !one.empty() || word.size() < kShortest) return one;
  std::vector<std::string> found;
  for (const std::string& candidate : candidates)
    if (found.size() < kMost &&
        (candidate.find(word) != std::string::npos || word.find(candidate) != word.npos))
      found.push_back(cat("'", candidate, "'"));
  return found.empty() ? "" : cat("did you mean ", join(found, " or "), "? ");
}

}  // namespace stridec::cli
