// Finds what a misspelt name probably means.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stridec::cli {

// The candidate that differs from `word` by the fewest insertions, deletions, replacements and swaps of
// neighbours (optimal string alignment); "" if none is close.
std::string closest(std::string_view word, const std::vector<std::string>& candidates);

// "did you mean 'compile'? ", or "" if no candidate is close. For the start of a help sentence.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

// The same for names of several words. If no candidate is close, those that contain the word or that it
// contains, at most three: "did you mean 'max_autotune'? " for "autotune".
std::string did_you_mean_any(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace stridec::cli
