// Decision trees: TreeEnsemble, TreeEnsembleRegressor and TreeEnsembleClassifier of ai.onnx.ml.
#include <cmath>
#include <map>

#include "compiler/base/text.h"
#include "compiler/frontend/onnx/constant_tables.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/frontend/onnx/strings.h"
#include "compiler/ops/composite/trees.h"

namespace stridec::onnx {
namespace {

using namespace ops;

constexpr const char* kMl = "ai.onnx.ml";
constexpr int64_t kMember = Forest::kNotEqual + 1;  // version 5: membership in a set

TreeAggregate aggregate_of(const Context& c, const std::string& name) {
  if (name == "SUM") return TreeAggregate::kSum;
  if (name == "AVERAGE") return TreeAggregate::kAverage;
  if (name == "MIN") return TreeAggregate::kMin;
  if (name == "MAX") return TreeAggregate::kMax;
  c.does_not_fit("aggregate_function is '" + name + "'");
}

void check_base(const Context& c, const std::vector<double>& base, int64_t targets) {
  if (base.size() > 1 && static_cast<int64_t>(base.size()) != targets)
    c.does_not_fit(cat(base.size(), " base values for ", targets, " targets"));
}

int64_t mode_of(const Context& c, const std::string& text) {
  constexpr const char* kNames[] = {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE",
                                    "BRANCH_GT",  "BRANCH_EQ", "BRANCH_NEQ"};
  for (size_t i = 0; i < std::size(kNames); ++i)
    if (text == kNames[i]) return static_cast<int64_t>(i);
  c.unsupported("a tree node of mode '" + text + "'");
}

template <class T>
void expect_size(const Context& c, const std::vector<T>& values, size_t size, const char* name) {
  if (values.size() != size) c.does_not_fit(cat(name, " has ", values.size(), " values, not ", size));
}

// Versions 1 to 4: nodes are identified by tree and node id; leaves are nodes with weights.
Forest read_old(const Context& c, const std::string& kind) {
  Forest f;
  const Dims trees = c.integers("nodes_treeids"), ids = c.integers("nodes_nodeids"),
             features = c.integers("nodes_featureids"), yes = c.integers("nodes_truenodeids"),
             no = c.integers("nodes_falsenodeids"), missing = c.integers("nodes_missing_value_tracks_true");
  const std::vector<std::string> modes = c.texts("nodes_modes");
  const std::vector<double> values = float_attribute(c, "nodes_values");
  const size_t n = trees.size();
  expect_size(c, ids, n, "nodes_nodeids");
  expect_size(c, features, n, "nodes_featureids");
  expect_size(c, yes, n, "nodes_truenodeids");
  expect_size(c, no, n, "nodes_falsenodeids");
  expect_size(c, modes, n, "nodes_modes");
  expect_size(c, values, n, "nodes_values");
  if (!missing.empty()) expect_size(c, missing, n, "nodes_missing_value_tracks_true");
  std::map<std::pair<int64_t, int64_t>, int64_t> place;
  std::map<int64_t, bool> started;
  for (size_t i = 0; i < n; ++i) {
    const bool leaf = modes[i] == "LEAF";
    const int64_t at = f.add(leaf ? 0 : features[i], leaf ? 0 : mode_of(c, modes[i]), leaf ? 0 : values[i],
                             !leaf && !missing.empty() && missing[i]);
    if (!place.emplace(std::pair(trees[i], ids[i]), at).second)
      c.does_not_fit(cat("node ", ids[i], " of tree ", trees[i], " is given twice"));
    // The first node of a tree is its root.
    if (!std::exchange(started[trees[i]], true)) f.roots.push_back(at);
  }
  const auto find = [&](int64_t tree, int64_t id) {
    const auto it = place.find({tree, id});
    if (it == place.end()) c.does_not_fit(cat("tree ", tree, " has no node ", id));
    return it->second;
  };
  for (size_t i = 0; i < n; ++i) {
    if (modes[i] == "LEAF") continue;
    f.yes[i] = find(trees[i], yes[i]);
    f.no[i] = find(trees[i], no[i]);
  }
  const Dims leaf_trees = c.integers(kind + "_treeids"), leaf_nodes = c.integers(kind + "_nodeids"),
             leaf_ids = c.integers(kind + "_ids");
  const std::vector<double> weights = float_attribute(c, kind + "_weights");
  expect_size(c, leaf_nodes, leaf_trees.size(), "leaf node ids");
  expect_size(c, leaf_ids, leaf_trees.size(), "leaf ids");
  expect_size(c, weights, leaf_trees.size(), "leaf weights");
  for (size_t i = 0; i < weights.size(); ++i)
    f.leaves.push_back({find(leaf_trees[i], leaf_nodes[i]), leaf_ids[i], weights[i]});
  return f;
}

// Version 5: inner nodes and leaves are separate lists. A set membership node becomes one node per member.
Forest read_new(const Context& c) {
  const auto integers = [&](const char* name) {
    const Tensor* t = c.tensor(name);
    return t ? integer_values(*t) : c.integers(name);
  };
  const auto features = integers("nodes_featureids"), modes = integers("nodes_modes"),
             yes = integers("nodes_truenodeids"), no = integers("nodes_falsenodeids"),
             yes_leaf = integers("nodes_trueleafs"), no_leaf = integers("nodes_falseleafs"),
             missing = integers("nodes_missing_value_tracks_true"), roots = integers("tree_roots"),
             targets = integers("leaf_targetids");
  const std::vector<double> splits = float_attribute(c, "nodes_splits"),
                            weights = float_attribute(c, "leaf_weights"),
                            members = float_attribute(c, "membership_values");
  const size_t n = features.size();
  expect_size(c, modes, n, "nodes_modes");
  expect_size(c, yes, n, "nodes_truenodeids");
  expect_size(c, no, n, "nodes_falsenodeids");
  expect_size(c, yes_leaf, n, "nodes_trueleafs");
  expect_size(c, no_leaf, n, "nodes_falseleafs");
  expect_size(c, splits, n, "nodes_splits");
  expect_size(c, targets, weights.size(), "leaf_targetids");
  if (!missing.empty()) expect_size(c, missing, n, "nodes_missing_value_tracks_true");
  Forest f;
  std::vector<int64_t> leaf_place, first(n), last(n);  // range of nodes that the model's node i becomes
  for (size_t i = 0; i < weights.size(); ++i) {
    leaf_place.push_back(f.add(0, 0, 0, false));
    f.leaves.push_back({leaf_place.back(), targets[i], weights[i]});
  }
  size_t member = 0;
  std::vector<std::pair<int64_t, size_t>> of_set;  // a node, and the model's node whose successors it has
  for (size_t i = 0; i < n; ++i) {
    if (modes[i] < 0 || modes[i] > kMember) c.does_not_fit(cat("a tree node of mode ", modes[i]));
    const bool track = !missing.empty() && missing[i];
    if (modes[i] != kMember) {
      first[i] = last[i] = f.add(features[i], modes[i], splits[i], track);
      of_set.emplace_back(first[i], i);
      continue;
    }
    first[i] = f.size();
    for (; member < members.size() && !std::isnan(members[member]); ++member) {
      of_set.emplace_back(f.add(features[i], Forest::kEqual, members[member], track), i);
    }
    ++member;
    if (f.size() == first[i]) c.does_not_fit("a set of membership_values is empty");
    last[i] = f.size() - 1;
  }
  const auto target = [&](int64_t id, bool leaf) {
    const auto& places = leaf ? leaf_place : first;
    if (id < 0 || id >= static_cast<int64_t>(places.size()))
      c.does_not_fit(cat("a tree names ", leaf ? "leaf " : "node ", id, " of ", places.size()));
    return places[static_cast<size_t>(id)];
  };
  for (const auto& [at, i] : of_set) {
    f.yes[static_cast<size_t>(at)] = target(yes[i], yes_leaf[i] != 0);
    f.no[static_cast<size_t>(at)] = at == last[i] ? target(no[i], no_leaf[i] != 0) : at + 1;
  }
  for (int64_t r : roots) f.roots.push_back(target(r, false));
  return f;
}

constexpr const char* kAggregates[] = {"AVERAGE", "SUM", "MIN", "MAX"};
constexpr const char* kTransforms[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};

Outputs tree_ensemble(Context& c) {
  const int64_t targets = c.integer("n_targets"), aggregate = c.integer("aggregate_function", 1),
                transform = c.integer("post_transform", 0);
  if (aggregate < 0 || aggregate > 3 || transform < 0 || transform > 4)
    c.does_not_fit("aggregate_function or post_transform is unknown");
  const TreeScores scores =
      evaluate_trees(c.in(0), read_new(c), targets, aggregate_of(c, kAggregates[aggregate]));
  return {transform_scores(scores.value, score_transform(c, kTransforms[transform]))};
}

Outputs regressor(Context& c) {
  const TreeRegression regression{.targets = c.integer("n_targets", 1),
                                  .aggregate = aggregate_of(c, c.text("aggregate_function", "SUM")),
                                  .base = float_attribute(c, "base_values")};
  check_base(c, regression.base, regression.targets);
  const ScoreTransform transform = score_transform(c, c.text("post_transform", "NONE"));
  const Term y = regress_by_trees(c.in(0), read_old(c, "target"), regression);
  return {cast(transform_scores(y, transform), DType::kF32)};
}

Outputs classifier(Context& c) {
  const Labels labels = class_labels_of(c, "classlabels_int64s", "classlabels_strings");
  const TreeClassification classification{.classes = static_cast<int64_t>(labels.size()),
                                          .base = float_attribute(c, "base_values"),
                                          .labels = labels,
                                          .transform = score_transform(c, c.text("post_transform", "NONE"))};
  check_base(c, classification.base, classification.classes);
  const Classified out = classify_by_trees(c.in(0), read_old(c, "class"), classification);
  return {out.label, out.scores};
}

constexpr Row kRows[] = {
    {"TreeEnsemble", tree_ensemble, 5, kAnyLater, kMl},
    {"TreeEnsembleClassifier", classifier, 1, kAnyLater, kMl},
    {"TreeEnsembleRegressor", regressor, 1, kAnyLater, kMl},
};

}  // namespace

std::span<const Row> tree_rows() { return kRows; }

}  // namespace stridec::onnx
