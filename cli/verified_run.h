// A run of an artifact, compared with the expected outputs.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "cli/first_difference.h"
#include "cli/progress.h"
#include "cli/tolerance.h"
#include "compiler/graph/graph.h"

namespace stridec::cli {

struct VerifiedRun {
  Given inputs;
  Tensors got, want;
  std::vector<Difference> differences;
  std::vector<Allowed> allowed;

  // The first output whose difference is not allowed; null: none.
  const Difference* failed() const {
    const auto found = std::ranges::find_if(
        differences, [&](const Difference& d) { return allowed[d.output].exceeded_by(d); });
    return found == differences.end() ? nullptr : &*found;
  }
  // failed(), or else the largest difference.
  Difference worst() const {
    if (const Difference* first = failed()) return *first;
    return differences.empty() ? Difference()
                               : *std::ranges::max_element(differences, {}, &Difference::error);
  }
};

// Sets the run's differences and what is allowed. `outputs_given`: by the user, not by the interpreter.
// Throws Error if the numbers of outputs differ.
void judge(VerifiedRun& run, const graph::Graph& graph, const Tolerance& tolerance, bool outputs_given,
           ProgressPrinter& progress);

// "output 'y': 0.5 at [0, 1] (expected 1, got 0.5), mean 0.1; allowed 1e-4, mean 1e-4"
std::string failure_text(const VerifiedRun& run, const Difference& worst, const std::string& output);

}  // namespace stridec::cli
