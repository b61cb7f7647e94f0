// Ensembles of decision trees.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/ops/composite/scores.h"

namespace stridec::ops {

struct TreeLeaf {
  int64_t node, target;
  double weight;
};

// All trees in one table: a feature, a Mode, a threshold and two successors per node. A leaf is a node that
// is its own successor on both branches.
struct Forest {
  // The test of a node: feature <= threshold, and so on. NaN fails every test, unless `missing` is set.
  enum Mode : int64_t { kLessEqual, kLess, kGreaterEqual, kGreater, kEqual, kNotEqual };

  std::vector<int64_t> feature, mode, yes, no, missing, roots;
  std::vector<double> threshold;
  std::vector<TreeLeaf> leaves;

  int64_t size() const { return static_cast<int64_t>(feature.size()); }
  int64_t add(int64_t its_feature, int64_t its_mode, double its_threshold, bool its_missing) {
    feature.push_back(its_feature);
    mode.push_back(its_mode);
    threshold.push_back(its_threshold);
    missing.push_back(its_missing);
    yes.push_back(size() - 1);
    no.push_back(size() - 1);
    return size() - 1;
  }
  bool is_leaf(int64_t node) const { return yes[static_cast<size_t>(node)] == node; }
};

enum class TreeAggregate { kSum, kAverage, kMin, kMax };

struct TreeScores {
  Term value;               // [rows, targets]; 0 if no reached leaf has a weight for the target
  std::optional<Term> has;  // [rows, targets], bool: a reached leaf has a weight for the target; none: always
};
// Aggregates the weights of the leaves that each row of x [rows, features] reaches, per target. Thresholds
// are rounded to x's dtype. Throws Error for a tree with a cycle, a missing node or an unknown target.
TreeScores evaluate_trees(Term x, Forest forest, int64_t targets, TreeAggregate aggregate);

// The aggregated weights plus base values, not transformed. As in onnxruntime: if there are several targets,
// one without leaf weights is 0, without its base value.
struct TreeRegression {
  int64_t targets = 1;
  TreeAggregate aggregate = TreeAggregate::kSum;
  std::vector<double> base;  // none, one for all targets, or one per target
};
Term regress_by_trees(Term x, const Forest& forest, const TreeRegression& regression);

// The class of the highest score among classes with leaf weights or base values. If only one of two classes
// has leaf weights, ONNX does not define the other one's score; it is onnxruntime's.
struct TreeClassification {
  int64_t classes = 2;
  std::vector<double> base;  // none, one for all classes, or one per class
  Labels labels;
  ScoreTransform transform = ScoreTransform::kNone;
};
Classified classify_by_trees(Term x, const Forest& forest, const TreeClassification& classification);

}  // namespace stridec::ops
