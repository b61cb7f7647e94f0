// Decision trees: TreeEnsemble, TreeEnsembleRegressor and TreeEnsembleClassifier of ai.onnx.ml.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>

#include "compiler/base/number.h"
#include "compiler/base/text.h"
#include "compiler/frontend/onnx/constant_tables.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/frontend/onnx/strings.h"
#include "compiler/ops/composite/activations.h"
#include "compiler/ops/tree_walk.h"

namespace stridec::onnx {
namespace {

using namespace ops;

constexpr const char* kMl = "ai.onnx.ml";
enum Mode : int64_t { kLessEqual, kLess, kGreaterEqual, kGreater, kEqual, kNotEqual, kMember };

struct Leaf {
  int64_t node, target;
  double weight;
};

// All trees in one table. A leaf is a node that is its own successor on both branches.
struct Forest {
  std::vector<int64_t> feature, mode, yes, no, missing, roots;
  std::vector<double> threshold;
  std::vector<Leaf> leaves;

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
  const auto mode = static_cast<Mode>(f.mode[i]);
  if (std::isnan(out.threshold) && mode != kNotEqual) return {out, false};
  const bool turns = mode == kGreaterEqual || mode == kGreater || mode == kNotEqual;
  if (mode == kLess || mode == kGreaterEqual) out.threshold = below(out.threshold, dtype);
  out.equal = mode == kEqual || mode == kNotEqual;
  if (turns) out.missing = mode != kNotEqual && !out.missing;
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
Layout laid_out(const Context& c, const Forest& f, DType dtype) {
  struct Place {
    int64_t node, pair, level;  // index in the forest (-1: unused); the pair it belongs to
    bool yes;
  };
  std::vector<Place> places;
  std::vector<char> seen(f.feature.size(), 0), with_leaf;  // with_leaf is indexed by pair
  std::vector<int64_t> below_pair;  // by place: the pair of its children; -1 for a leaf
  const auto is_leaf = [&](int64_t node) { return node < 0 || f.is_leaf(node); };
  const auto put = [&](int64_t node, int64_t pair, int64_t level, bool yes) {
    if (node >= f.size()) c.does_not_fit(cat("a tree names node ", node, ", which does not exist"));
    places.push_back({node, pair, level, yes});
    with_leaf[static_cast<size_t>(pair)] |= is_leaf(node);
  };
  Layout out;
  for (const int64_t root : f.roots) {
    if (root < 0) c.does_not_fit(cat("a tree names node ", root, ", which does not exist"));
    with_leaf.push_back(0);
    put(root, std::ssize(with_leaf) - 1, 0, false);
    for (size_t next = places.size() - 1; next < places.size(); ++next) {
      const Place place = places[next];
      out.depth = std::max(out.depth, place.level);
      below_pair.push_back(is_leaf(place.node) ? -1 : std::ssize(with_leaf));
      if (is_leaf(place.node)) continue;
      const auto n = static_cast<size_t>(place.node);
      if (std::exchange(seen[n], 1)) c.does_not_fit(cat("node ", n, " of a tree is reached twice"));
      const bool turns = asked(f, place.node, dtype).second;
      with_leaf.push_back(0);
      for (const int64_t child : {f.yes[n], f.no[n]})
        if (child < 0) c.does_not_fit(cat("a tree names node ", child, ", which does not exist"));
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
Term walk(const Context& c, Term x, const Layout& trees) {
  int64_t columns = 0;
  for (const Walked& node : trees.nodes) {
    if (node.feature < 0) c.does_not_fit(cat("a tree asks about feature ", node.feature));
    columns = std::max(columns, node.feature + 1);
  }
  c.b.require(sym::le(columns, x.shape()[1]),
              cat("a tree asks about feature ", columns - 1, " where rows have {0} features"),
              {x.shape()[1]});
  const int child_bits = std::bit_width(trees.nodes.size()),
            feature_bits = std::bit_width(static_cast<uint64_t>(columns));
  const bool apart = x.dtype() != DType::kF32 || child_bits + feature_bits > kTreeEqualBit - 32;
  if (child_bits > 32 || feature_bits > 30) c.unsupported("trees of more than 2^32 nodes or 2^30 features");
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
  std::vector<ValueId> inputs{x.id(), integer_table(c.b, words, DType::kU64).id(),
                              integer_table(c.b, trees.roots, DType::kU32).id()};
  if (apart) inputs.push_back(float_table(c.b, thresholds, x.dtype()).id());
  return {c.b, c.b.add1(OpKind::kTreeWalk, inputs,
                        {{"depth", trees.depth},
                         {"feature_at", int64_t{feature_at}},
                         {"equal", asks_equal(trees.nodes)},
                         {"missing", int64_t{std::any_of(trees.nodes.begin(), trees.nodes.end(),
                                                         [](const Walked& n) { return n.missing; })}}})};
}

// The trees' results per row and target.
struct Scores {
  Term value;               // [rows, targets]; 0 if no reached leaf has a weight for the target
  std::optional<Term> has;  // [rows, targets], bool: a reached leaf has a weight for the target; none: always
};

// Whether every row reaches, in some tree, a leaf that has a weight for the target. `said`: [leaves,
// targets].
bool always_has(const Layout& trees, const std::vector<int64_t>& said, size_t targets, size_t target) {
  std::vector<char> all(trees.roots.size(), 1);
  for (size_t i = 0; i < trees.leaf.size(); ++i)
    if (trees.leaf[i] >= 0 && !said[i * targets + target]) all[static_cast<size_t>(trees.tree[i])] = 0;
  return std::ranges::count(all, 1) > 0;
}

// Aggregates (sum, mean, min, max) the weights of the reached leaves per row and target.
Scores evaluate(const Context& c, Term x, Forest f, int64_t targets, const std::string& aggregate) {
  if (x.rank() == 1) x = unsqueeze(x, {0});
  if (!is_float(x.dtype())) x = cast(x, DType::kF32);
  const DType dtype = x.dtype();
  if (is_storage_float(dtype)) x = cast(x, DType::kF32);
  for (double& threshold : f.threshold) {
    uint8_t bytes[sizeof(double)];
    write_float(dtype, threshold, bytes);
    threshold = read_float(dtype, bytes);
  }
  const Layout trees = laid_out(c, f, x.dtype());
  const Term leaf = walk(c, x, trees);
  std::vector<std::vector<size_t>> numbers(f.feature.size());  // layout indices of each leaf of the forest
  for (size_t i = 0; i < trees.leaf.size(); ++i)
    if (trees.leaf[i] >= 0) numbers[static_cast<size_t>(trees.leaf[i])].push_back(i);
  const auto columns = static_cast<size_t>(targets);
  const size_t cells = trees.leaf.size() * columns;
  const bool extreme = aggregate == "MIN" || aggregate == "MAX";
  const double worst = std::numeric_limits<double>::infinity() * (aggregate == "MAX" ? -1 : 1);
  std::vector<double> weights(cells, extreme ? worst : 0);
  std::vector<int64_t> said(cells, 0);
  for (const Leaf& l : f.leaves) {
    if (l.target < 0 || l.target >= targets)
      c.does_not_fit(cat("a leaf has target ", l.target, " of ", targets));
    for (const size_t number : numbers[static_cast<size_t>(l.node)]) {
      const size_t cell = number * columns + static_cast<size_t>(l.target);
      weights[cell] = extreme && said[cell] ? (aggregate == "MAX" ? std::max(weights[cell], l.weight)
                                                                  : std::min(weights[cell], l.weight))
                      : extreme             ? l.weight
                                            : weights[cell] + l.weight;
      said[cell] = 1;
    }
  }
  const Shape shape{std::ssize(trees.leaf), targets};
  const Term reached = gather(float_table(c.b, weights, dtype, shape), leaf, 0);  // [rows, trees, targets]
  Scores out{.value = reached, .has = std::nullopt};
  bool always = true;
  for (size_t t = 0; t < columns && always; ++t) always = always_has(trees, said, columns, t);
  if (!always)
    out.has = reduce(OpKind::kReduceOr, gather(integer_table(c.b, said, DType::kBool, shape), leaf, 0), {1});
  if (aggregate == "SUM" || aggregate == "AVERAGE") {
    out.value = reduce_sum(reached, {1});
    if (aggregate == "AVERAGE") out.value = out.value / static_cast<double>(f.roots.size());
    return out;
  }
  if (!extreme) c.does_not_fit("aggregate_function is '" + aggregate + "'");
  out.value = aggregate == "MAX" ? reduce_max(reached, {1}) : reduce_min(reached, {1});
  if (out.has) out.value = select(*out.has, out.value, 0);
  return out;
}

void check_base(const Context& c, const std::vector<double>& base, int64_t targets) {
  if (base.size() > 1 && static_cast<int64_t>(base.size()) != targets)
    c.does_not_fit(cat(base.size(), " base values for ", targets, " targets"));
}

Term plus_base(Term scores, const std::vector<double>& base) {
  return base.empty() ? scores : scores + float_table(scores.builder(), base, scores.dtype());
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
      of_set.emplace_back(f.add(features[i], kEqual, members[member], track), i);
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
  const Scores scores = evaluate(c, c.in(0), read_new(c), targets, kAggregates[aggregate]);
  return {post_transform(c, scores.value, kTransforms[transform])};
}

// As in onnxruntime: if there are several targets, one without leaf weights is 0, without its base value.
Outputs regressor(Context& c) {
  const int64_t targets = c.integer("n_targets", 1);
  const std::vector<double> base = float_attribute(c, "base_values");
  check_base(c, base, targets);
  const Scores scores =
      evaluate(c, c.in(0), read_old(c, "target"), targets, c.text("aggregate_function", "SUM"));
  Term y = plus_base(scores.value, base);
  if (targets > 1 && !base.empty() && scores.has) y = select(*scores.has, y, 0);
  return {cast(post_transform(c, y, c.text("post_transform", "NONE")), DType::kF32)};
}

// ---- classification ----

struct Classes {
  Term index;  // class of each row, i64
  Term scores;
};

// Two class scores from one. PROBIT: onnxruntime leaves the second column uninitialised.
Term two_from_one(const Context& c, Term score, bool positive, const std::string& transform) {
  if (transform == "PROBIT") return post_transform(c, concat({score, score}, 1), transform);
  if (transform == "LOGISTIC") return sigmoid(concat({-score, score}, 1));
  return concat({positive ? subtract_from(1, score) : -score, score}, 1);
}

// Two classes, of which only class `known` has weights. ONNX does not define the other class's score. This
// follows onnxruntime (tree_ensemble_aggregator.h, TreeAggregatorClassifier::FinalizeScores), which
// converters are tested with:
// - the threshold is 1/2 if all weights are positive (probabilities), 0 otherwise (logits);
// - the score s of class 0 gives both scores: (1 - s, s) or (-s, s), or their logistic function; a
//   post_transform other than LOGISTIC and PROBIT has no other effect;
// - a score of class 1 is paired with 0, and post_transform applies to both;
// - one base value belongs to class 0. Two base values give two scores; the second one replaces the weights
//   of class 1;
// - a row whose leaves have no weights scores 0, whatever the base values.
Classes one_of_two(const Context& c, const Scores& trees, int64_t known, bool positive,
                   const std::vector<double>& base, const std::string& transform) {
  Term score = slice(trees.value, 1, known, 1);
  std::optional<Term> has;
  if (trees.has) has = slice(*trees.has, 1, known, 1);
  const Term none = filled(c.b, score.shape(), score.dtype(), 0);
  if (known == 1 && base.size() == 2)
    score = none + base[1];
  else if (known == 0 && !base.empty())
    score = score + base[0];
  if (has) score = select(*has, score, 0);
  Classes out{.index = cast(greater(squeeze(score, {1}), positive ? 0.5 : 0.0), DType::kI64),
              .scores = score};
  if (known == 0 && base.size() < 2) {
    out.scores = two_from_one(c, score, positive, transform);
    return out;
  }
  out.scores = post_transform(c, known ? concat({none, score}, 1) : concat({score, none}, 1), transform);
  if (has && base.size() < 2)
    out.scores = select(*has, out.scores, two_from_one(c, score, positive, transform));
  return out;
}

// The class of the highest score, among classes with leaf weights or base values.
Classes best_of_all(const Context& c, const Scores& trees, int64_t classes, std::vector<double> base,
                    const std::string& transform) {
  if (classes == 2 && base.size() == 1) base.push_back(0);  // as in onnxruntime: it belongs to class 0
  const Term scores = plus_base(trees.value, base);
  constexpr double kLowest = -std::numeric_limits<double>::infinity();
  const Term candidates = trees.has && base.empty() ? select(*trees.has, scores, kLowest) : scores;
  constexpr int64_t kDim = 1;
  const Term best(c.b, c.b.add1(OpKind::kArgMax, {candidates.id()}, {{"dim", kDim}, {"last", int64_t{0}}}));
  return {.index = best, .scores = post_transform(c, scores, transform)};
}

Outputs classifier(Context& c) {
  const Forest f = read_old(c, "class");
  const int64_t classes = static_cast<int64_t>(
      std::max(c.texts("classlabels_strings").size(), c.integers("classlabels_int64s").size()));
  const std::vector<double> base = float_attribute(c, "base_values");
  check_base(c, base, classes);
  const std::string transform = c.text("post_transform", "NONE");
  const auto all = [&](auto&& condition) { return std::ranges::all_of(f.leaves, condition); };
  const bool one_class =
      classes == 2 && !f.leaves.empty() && all([&](const Leaf& l) { return l.target == f.leaves[0].target; });
  const bool positive = all([](const Leaf& l) { return l.weight >= 0; });
  const Scores trees = evaluate(c, c.in(0), f, classes, "SUM");
  const Classes out = one_class ? one_of_two(c, trees, f.leaves[0].target, positive, base, transform)
                                : best_of_all(c, trees, classes, base, transform);
  return {class_labels(c, out.index, "classlabels_int64s", "classlabels_strings"),
          cast(out.scores, DType::kF32)};
}

constexpr Row kRows[] = {
    {"TreeEnsemble", tree_ensemble, 5, kAnyLater, kMl},
    {"TreeEnsembleClassifier", classifier, 1, kAnyLater, kMl},
    {"TreeEnsembleRegressor", regressor, 1, kAnyLater, kMl},
};

}  // namespace

std::span<const Row> tree_rows() { return kRows; }

}  // namespace stridec::onnx
