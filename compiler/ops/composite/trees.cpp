#include "compiler/ops/composite/trees.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "compiler/base/diagnostic.h"
#include "compiler/base/number.h"
#include "compiler/base/text.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/shapes.h"
#include "compiler/ops/tables.h"
#include "compiler/ops/tree_walk.h"

namespace stridec::ops {

using graph::OpKind;

namespace {

constexpr double kNever = std::numeric_limits<double>::quiet_NaN();  // a threshold for which every test fails

// A node in the form that tree_walk takes.
struct Walked {
  int64_t feature = 0, no = 0;  // the "yes" successor is the next node
  double threshold = kNever;
  bool equal = false, missing = false;
};

// The largest `dtype` (f32 or f64) value less than x.
double below(double x, DType dtype) {
  constexpr double kLowest = -std::numeric_limits<double>::infinity();
  if (std::isnan(x) || x == kLowest) return kNever;
  return dtype == DType::kF64 ? std::nextafter(x, kLowest)
                              : std::nextafter(static_cast<float>(x), static_cast<float>(kLowest));
}

// Expresses node `i` as a test x == t or x <= t; the second result says whether its branches are swapped. x <
// t becomes x <= the value below t; >= and > become the negated tests. All modes send NaN to "no", unless
// `missing` is set.
std::pair<Walked, bool> asked(const Forest& f, int64_t node, DType dtype) {
  const auto i = static_cast<size_t>(node);
  Walked out{.feature = f.feature[i], .threshold = f.threshold[i], .missing = f.missing[i] != 0};
  if (f.yes[i] == f.no[i]) return {Walked{.feature = out.feature}, false};
  const auto mode = static_cast<Forest::Mode>(f.mode[i]);
  if (std::isnan(out.threshold) && mode != Forest::kNotEqual) return {out, false};
  const bool turns = mode == Forest::kGreaterEqual || mode == Forest::kGreater || mode == Forest::kNotEqual;
  if (mode == Forest::kLess || mode == Forest::kGreaterEqual) out.threshold = below(out.threshold, dtype);
  out.equal = mode == Forest::kEqual || mode == Forest::kNotEqual;
  if (turns) out.missing = mode != Forest::kNotEqual && !out.missing;
  return {out, turns};
}

// The trees in the layout of tree_walk: siblings are adjacent. Pairs that include a leaf come first, so that
// tables of leaf weights have few unused rows.
struct Layout {
  std::vector<Walked> nodes;
  std::vector<int64_t> roots;
  std::vector<int64_t> leaf;  // by node index: the forest's leaf or -1; only as long as needed
  std::vector<int64_t> tree;  // by node index, as long as `leaf`: the node's tree
  int64_t depth = 0;          // steps from a root to the deepest leaf
};

// Every inner node may have only one parent, so that walks terminate. A leaf with several parents is
// duplicated.
Layout laid_out(const Forest& f, DType dtype) {
  struct Place {
    int64_t node, pair, level;  // index in the forest (-1: unused); the pair it belongs to
    bool yes;
  };
  std::vector<Place> places;
  std::vector<char> seen(f.feature.size(), 0), with_leaf;  // with_leaf is indexed by pair
  std::vector<int64_t> below_pair;  // by place: the pair of its children; -1 for a leaf
  const auto is_leaf = [&](int64_t node) { return node < 0 || f.is_leaf(node); };
  const auto put = [&](int64_t node, int64_t pair, int64_t level, bool yes) {
    if (node >= f.size()) does_not_fit(cat("a tree names node ", node, ", which does not exist"));
    places.push_back({node, pair, level, yes});
    with_leaf[static_cast<size_t>(pair)] |= is_leaf(node);
  };
  Layout out;
  for (const int64_t root : f.roots) {
    if (root < 0) does_not_fit(cat("a tree names node ", root, ", which does not exist"));
    with_leaf.push_back(0);
    put(root, std::ssize(with_leaf) - 1, 0, false);
    for (size_t next = places.size() - 1; next < places.size(); ++next) {
      const Place place = places[next];
      out.depth = std::max(out.depth, place.level);
      below_pair.push_back(is_leaf(place.node) ? -1 : std::ssize(with_leaf));
      if (is_leaf(place.node)) continue;
      const auto n = static_cast<size_t>(place.node);
      if (std::exchange(seen[n], 1)) does_not_fit(cat("node ", n, " of a tree is reached twice"));
      const bool turns = asked(f, place.node, dtype).second;
      with_leaf.push_back(0);
      for (const int64_t child : {f.yes[n], f.no[n]})
        if (child < 0) does_not_fit(cat("a tree names node ", child, ", which does not exist"));
      put(turns ? f.yes[n] : f.no[n], below_pair.back(), place.level + 1, false);
      put(f.yes[n] == f.no[n] ? -1 : turns ? f.no[n] : f.yes[n], below_pair.back(), place.level + 1, true);
    }
  }
  std::vector<int64_t> first(with_leaf.size());  // index of each pair's first node
  int64_t count = 0;
  for (const bool leaf : {true, false}) {
    for (const Place& place : places)
      if (const auto pair = static_cast<size_t>(place.pair); (with_leaf[pair] != 0) == leaf) {
        if (!place.yes) first[pair] = count;
        ++count;
      }
    if (leaf) out.leaf.assign(static_cast<size_t>(count), -1);
  }
  out.tree.assign(out.leaf.size(), -1);
  out.nodes.resize(places.size());
  for (size_t i = 0; i < places.size(); ++i) {
    const Place& place = places[i];
    const int64_t number = first[static_cast<size_t>(place.pair)] + place.yes;
    Walked& node = out.nodes[static_cast<size_t>(number)];
    if (place.level == 0) out.roots.push_back(number);
    if (is_leaf(place.node)) {
      node.no = number;
      out.leaf[static_cast<size_t>(number)] = place.node;
      out.tree[static_cast<size_t>(number)] = std::ssize(out.roots) - 1;
      continue;
    }
    node = asked(f, place.node, dtype).first;
    node.no = first[static_cast<size_t>(below_pair[i])];
  }
  return out;
}

// The `equal` attribute of tree_walk: 1 if all nodes test x == t, -1 if some do, 0 if none does.
int64_t asks_equal(const std::vector<Walked>& nodes) {
  bool some = false, all = true;
  for (const Walked& node : nodes)
    if (!std::isnan(node.threshold)) some |= node.equal, all &= node.equal;
  return !some ? 0 : all ? 1 : -1;
}

// The leaf (its index in the layout) that each row reaches in each tree.
Term walk(Term x, const Layout& trees) {
  Builder& b = x.builder();
  int64_t columns = 0;
  for (const Walked& node : trees.nodes) {
    if (node.feature < 0) does_not_fit(cat("a tree asks about feature ", node.feature));
    columns = std::max(columns, node.feature + 1);
  }
  b.require(sym::le(columns, x.shape()[1]),
            cat("a tree asks about feature ", columns - 1, " where rows have {0} features"), {x.shape()[1]});
  const int child_bits = std::bit_width(trees.nodes.size()),
            feature_bits = std::bit_width(static_cast<uint64_t>(columns));
  const bool apart = x.dtype() != DType::kF32 || child_bits + feature_bits > kTreeEqualBit - 32;
  if (child_bits > 32 || feature_bits > 30)
    fail(ErrorKind::kUnsupported, "unsupported", "trees of more than 2^32 nodes or 2^30 features");
  const int child_at = apart ? 0 : 32, feature_at = child_at + child_bits;
  std::vector<int64_t> words;
  std::vector<double> thresholds;
  for (const Walked& node : trees.nodes) {
    uint64_t word = static_cast<uint64_t>(node.no) << child_at |
                    static_cast<uint64_t>(node.feature) << feature_at |
                    uint64_t{node.equal} << kTreeEqualBit | uint64_t{node.missing} << kTreeMissingBit;
    if (!apart) word |= std::bit_cast<uint32_t>(static_cast<float>(node.threshold));
    words.push_back(static_cast<int64_t>(word));
    thresholds.push_back(node.threshold);
  }
  std::vector<ValueId> inputs{x.id(), integer_table(b, words, DType::kU64).id(),
                              integer_table(b, trees.roots, DType::kU32).id()};
  if (apart) inputs.push_back(float_table(b, thresholds, x.dtype()).id());
  return {b, b.add1(OpKind::kTreeWalk, inputs,
                    {{"depth", trees.depth},
                     {"feature_at", int64_t{feature_at}},
                     {"equal", asks_equal(trees.nodes)},
                     {"missing", int64_t{std::any_of(trees.nodes.begin(), trees.nodes.end(),
                                                     [](const Walked& n) { return n.missing; })}}})};
}

// Whether every row reaches, in some tree, a leaf that has a weight for the target. `said`: [leaves,
// targets].
bool always_has(const Layout& trees, const std::vector<int64_t>& said, size_t targets, size_t target) {
  std::vector<char> all(trees.roots.size(), 1);
  for (size_t i = 0; i < trees.leaf.size(); ++i)
    if (trees.leaf[i] >= 0 && !said[i * targets + target]) all[static_cast<size_t>(trees.tree[i])] = 0;
  return std::ranges::count(all, 1) > 0;
}

}  // namespace

TreeScores evaluate_trees(Term x, Forest f, int64_t targets, TreeAggregate aggregate) {
  Builder& b = x.builder();
  if (x.rank() == 1) x = unsqueeze(x, {0});
  if (!is_float(x.dtype())) x = cast(x, DType::kF32);
  const DType dtype = x.dtype();
  if (is_storage_float(dtype)) x = cast(x, DType::kF32);
  for (double& threshold : f.threshold) {
    uint8_t bytes[sizeof(double)];
    write_float(dtype, threshold, bytes);
    threshold = read_float(dtype, bytes);
  }
  const Layout trees = laid_out(f, x.dtype());
  const Term leaf = walk(x, trees);
  std::vector<std::vector<size_t>> numbers(f.feature.size());  // layout indices of each leaf of the forest
  for (size_t i = 0; i < trees.leaf.size(); ++i)
    if (trees.leaf[i] >= 0) numbers[static_cast<size_t>(trees.leaf[i])].push_back(i);
  const auto columns = static_cast<size_t>(targets);
  const size_t cells = trees.leaf.size() * columns;
  const bool largest = aggregate == TreeAggregate::kMax;
  const bool extreme = aggregate == TreeAggregate::kMin || largest;
  const double worst = std::numeric_limits<double>::infinity() * (largest ? -1 : 1);
  std::vector<double> weights(cells, extreme ? worst : 0);
  std::vector<int64_t> said(cells, 0);
  for (const TreeLeaf& l : f.leaves) {
    if (l.target < 0 || l.target >= targets)
      does_not_fit(cat("a leaf has target ", l.target, " of ", targets));
    for (const size_t number : numbers[static_cast<size_t>(l.node)]) {
      const size_t cell = number * columns + static_cast<size_t>(l.target);
      weights[cell] = extreme && said[cell]
                          ? (largest ? std::max(weights[cell], l.weight) : std::min(weights[cell], l.weight))
                      : extreme ? l.weight
                                : weights[cell] + l.weight;
      said[cell] = 1;
    }
  }
  const Shape shape{std::ssize(trees.leaf), targets};
  const Term reached = gather(float_table(b, weights, dtype, shape), leaf, 0);  // [rows, trees, targets]
  TreeScores out{.value = reached, .has = std::nullopt};
  bool always = true;
  for (size_t t = 0; t < columns && always; ++t) always = always_has(trees, said, columns, t);
  if (!always)
    out.has = reduce(OpKind::kReduceOr, gather(integer_table(b, said, DType::kBool, shape), leaf, 0), {1});
  if (!extreme) {
    out.value = reduce_sum(reached, {1});
    if (aggregate == TreeAggregate::kAverage) out.value = out.value / static_cast<double>(f.roots.size());
    return out;
  }
  out.value = largest ? reduce_max(reached, {1}) : reduce_min(reached, {1});
  if (out.has) out.value = select(*out.has, out.value, 0);
  return out;
}

namespace {

Term plus_base(Term scores, const std::vector<double>& base) {
  return base.empty() ? scores : scores + float_table(scores.builder(), base, scores.dtype());
}

}  // namespace

Term regress_by_trees(Term x, const Forest& forest, const TreeRegression& to) {
  const TreeScores scores = evaluate_trees(x, forest, to.targets, to.aggregate);
  Term y = plus_base(scores.value, to.base);
  if (to.targets > 1 && !to.base.empty() && scores.has) y = select(*scores.has, y, 0);
  return y;
}

namespace {

struct Classes {
  Term index;  // class of each row, i64
  Term scores;
};

// Two classes, of which only class `known` has weights. ONNX does not define the other class's score. This
// follows onnxruntime (tree_ensemble_aggregator.h, TreeAggregatorClassifier::FinalizeScores), which
// converters are tested with:
// - the threshold is 1/2 if all weights are positive (probabilities), 0 otherwise (logits);
// - the score s of class 0 gives both scores: (1 - s, s) or (-s, s), or their logistic function
//   (two_class_scores);
// - a score of class 1 is paired with 0, and the transform applies to both;
// - one base value belongs to class 0. Two base values give two scores; the second one replaces the weights
//   of class 1;
// - a row whose leaves have no weights scores 0, whatever the base values.
Classes one_of_two(const TreeScores& trees, int64_t known, ScoreMeaning meaning,
                   const TreeClassification& to) {
  const std::vector<double>& base = to.base;
  Term score = slice(trees.value, 1, known, 1);
  std::optional<Term> has;
  if (trees.has) has = slice(*trees.has, 1, known, 1);
  const Term none = filled(score.builder(), score.shape(), score.dtype(), 0);
  if (known == 1 && base.size() == 2)
    score = none + base[1];
  else if (known == 0 && !base.empty())
    score = score + base[0];
  if (has) score = select(*has, score, 0);
  Classes out{.index = cast(greater(squeeze(score, {1}), meaning == ScoreMeaning::kProbability ? 0.5 : 0.0),
                            DType::kI64),
              .scores = score};
  if (known == 0 && base.size() < 2) {
    out.scores = two_class_scores(score, meaning, to.transform);
    return out;
  }
  out.scores = transform_scores(known ? concat({none, score}, 1) : concat({score, none}, 1), to.transform);
  if (has && base.size() < 2)
    out.scores = select(*has, out.scores, two_class_scores(score, meaning, to.transform));
  return out;
}

// The class of the highest score, among classes with leaf weights or base values.
Classes best_of_all(const TreeScores& trees, const TreeClassification& to) {
  std::vector<double> base = to.base;
  if (to.classes == 2 && base.size() == 1) base.push_back(0);  // as in onnxruntime: it belongs to class 0
  const Term scores = plus_base(trees.value, base);
  constexpr double kLowest = -std::numeric_limits<double>::infinity();
  const Term candidates = trees.has && base.empty() ? select(*trees.has, scores, kLowest) : scores;
  return {.index = arg_max(candidates, 1), .scores = transform_scores(scores, to.transform)};
}

}  // namespace

Classified classify_by_trees(Term x, const Forest& f, const TreeClassification& to) {
  const auto all = [&](auto&& condition) { return std::ranges::all_of(f.leaves, condition); };
  const bool one_class = to.classes == 2 && !f.leaves.empty() &&
                         all([&](const TreeLeaf& l) { return l.target == f.leaves[0].target; });
  const bool positive = all([](const TreeLeaf& l) { return l.weight >= 0; });
  const TreeScores trees = evaluate_trees(x, f, to.classes, TreeAggregate::kSum);
  const Classes out = one_class
                          ? one_of_two(trees, f.leaves[0].target,
                                       positive ? ScoreMeaning::kProbability : ScoreMeaning::kDecision, to)
                          : best_of_all(trees, to);
  return {class_labels(out.index, to.labels), cast(out.scores, DType::kF32)};
}

}  // namespace stridec::ops
