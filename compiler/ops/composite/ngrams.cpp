#include "compiler/ops/composite/ngrams.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>

#include "compiler/ops/nodes.h"
#include "compiler/ops/shapes.h"
#include "compiler/ops/tables.h"

namespace stridec::ops {
namespace {

bool has_strings(const Ngrams& a) { return !a.texts.empty(); }
size_t pool_size(const Ngrams& a) { return has_strings(a) ? a.texts.size() : a.numbers.size(); }
int64_t width(const Ngrams& a) { return *std::max_element(a.columns.begin(), a.columns.end()) + 1; }

// Numbers for the distinct tokens of the pool.
struct Vocabulary {
  std::map<std::string, int64_t> words;
  std::map<int64_t, int64_t> values;
  std::vector<int64_t> pool;  // the number of each token

  int64_t size() const { return static_cast<int64_t>(words.size() + values.size()); }
};

Vocabulary vocabulary_of(const Ngrams& a) {
  Vocabulary out;
  for (size_t i = 0; i < pool_size(a); ++i)
    out.pool.push_back(has_strings(a) ? out.words.emplace(a.texts[i], out.size()).first->second
                                      : out.values.emplace(a.numbers[i], out.size()).first->second);
  return out;
}

// The pool of n-grams as a trie. Level d maps (node of level d - 1, token) to a node. `column`: the output
// column of the n-gram that ends at the node, or -1.
struct NgramLevel {
  std::map<std::pair<int64_t, int64_t>, int64_t> nodes;
  std::vector<int64_t> column;
};
using NgramTrie = std::vector<NgramLevel>;

void add_ngram(NgramTrie& levels, std::span<const int64_t> tokens, int64_t column) {
  int64_t node = 0;
  for (size_t d = 1; d <= tokens.size(); ++d) {
    NgramLevel& l = levels[d];
    const auto [it, fresh] =
        l.nodes.emplace(std::pair(node, tokens[d - 1]), static_cast<int64_t>(l.nodes.size()));
    if (fresh) l.column.push_back(-1);
    node = it->second;
  }
  levels[tokens.size()].column[static_cast<size_t>(node)] = column;
}

NgramTrie ngram_trie(const Ngrams& a, std::span<const int64_t> pool) {
  NgramTrie levels(static_cast<size_t>(a.longest) + 1);
  size_t ngram = 0;
  for (size_t level = 0; level < a.starts.size(); ++level) {
    const auto length = level + 1;
    const auto from = static_cast<size_t>(a.starts[level]),
               to = level + 1 < a.starts.size() ? static_cast<size_t>(a.starts[level + 1]) : pool.size();
    if (a.starts[level] < 0 || from > to || to > pool.size() || (to - from) % length)
      does_not_fit("ngram_counts do not divide the pool into n-grams");
    for (size_t at = from; at < to; at += length, ++ngram) {
      if (ngram >= a.columns.size() || a.columns[ngram] < 0)
        does_not_fit("ngram_indexes are too few or negative");
      if (static_cast<int64_t>(length) <= a.longest)
        add_ngram(levels, pool.subspan(at, length), a.columns[ngram]);
    }
  }
  return levels;
}

// For each element of x the result of the key that equals it, -1 if none does. Keys ascend.
Term look_up(Term x, const std::vector<int64_t>& keys, const std::vector<int64_t>& results) {
  Builder& b = x.builder();
  if (keys.empty()) return filled(b, x.shape(), DType::kI64, -1);
  const Term table = integer_table(b, keys);
  const Term at = minimum(search_sorted(table, x), static_cast<double>(keys.size() - 1));
  return select(equal(gather(table, at, 0), x), gather(integer_table(b, results), at, 0), -1);
}

// The number of every token; -1 for unknown tokens.
Term token_numbers(const TermOrStrings& tokens, const Ngrams& a, const Vocabulary& vocabulary) {
  if (has_strings(a)) {
    std::vector<std::string> keys(vocabulary.words.size());
    for (const auto& [word, id] : vocabulary.words) keys[static_cast<size_t>(id)] = word;
    return find_in(std::get<Strings>(tokens), keys);
  }
  std::vector<int64_t> keys, results;
  for (const auto& [value, id] : vocabulary.values) keys.push_back(value), results.push_back(id);
  return look_up(cast(std::get<Term>(tokens), DType::kI64), keys, results);
}

// The nodes of `level` that `token` leads to from the nodes `prefix` of the level before; -1: none.
Term next_nodes(const NgramLevel& level, const std::optional<Term>& prefix, Term token, int64_t vocabulary) {
  std::vector<int64_t> keys, results;
  for (const auto& [key, id] : level.nodes)
    keys.push_back(key.first * vocabulary + key.second), results.push_back(id);
  if (!prefix) return look_up(token, keys, results);
  const Term key = select(logical_and(greater_equal(*prefix, 0), greater_equal(token, 0)),
                          *prefix * static_cast<double>(vocabulary) + token, -1);
  return look_up(key, keys, results);
}

// Per row of `ids`, the column of every n-gram; width(a) for n-grams that are not in the pool.
std::vector<Term> ngram_columns(const Ngrams& a, const NgramTrie& trie, Term ids, int64_t vocabulary) {
  Builder& b = ids.builder();
  const sym::Expr length = ids.dim(1);
  std::vector<Term> hits;
  for (int64_t skip = 1; skip <= a.skips + 1; ++skip) {
    std::optional<Term> node;  // trie node of each start, for n-grams up to the current length
    for (int64_t d = 1; d <= a.longest; ++d) {
      const sym::Expr reach = (d - 1) * skip, windows = b.simplify(sym::max(length - reach, 0));
      const Term token = slice(ids, 1, b.simplify(sym::min(reach, length)), windows);
      const NgramLevel& level = trie[static_cast<size_t>(d)];
      if (node) node = slice(*node, 1, 0, windows);
      node = next_nodes(level, node, token, vocabulary);
      if (d < a.shortest || (d == 1 && skip > 1) || level.nodes.empty()) continue;
      const Term column = gather(integer_table(b, level.column), maximum(*node, 0), 0);
      hits.push_back(select(logical_and(greater_equal(*node, 0), greater_equal(column, 0)), column,
                            static_cast<double>(width(a))));
    }
  }
  return hits;
}

Term count_columns(Term ids, const std::vector<Term>& hits, int64_t width) {
  Builder& b = ids.builder();
  Term counts = filled(b, {ids.dim(0), width + 1}, DType::kF32, 0);
  if (!hits.empty()) {
    const Term all = concat(hits, 1);
    counts = scatter_elements(counts, all, filled(b, all.shape(), DType::kF32, 1), 1, "add");
  }
  return slice(counts, 1, 0, width);
}

Term weighted(Term counts, NgramWeighting weighting, const Ngrams& a) {
  if (weighting == NgramWeighting::kPresence) counts = cast(greater(counts, 0), DType::kF32);
  if (weighting == NgramWeighting::kCount || a.weights.empty()) return counts;
  std::vector<double> of_column(static_cast<size_t>(width(a)), 1);
  for (size_t i = 0; i < std::min(a.weights.size(), a.columns.size()); ++i)
    of_column[static_cast<size_t>(a.columns[i])] = a.weights[i];
  return counts * float_table(counts.builder(), of_column, DType::kF32);
}

}  // namespace

Term count_ngrams(const TermOrStrings& tokens, const Ngrams& ngrams, NgramWeighting weighting) {
  const Vocabulary vocabulary = vocabulary_of(ngrams);
  const NgramTrie trie = ngram_trie(ngrams, vocabulary.pool);
  const auto* const strings = std::get_if<Strings>(&tokens);
  const bool row = (strings ? strings->index : std::get<Term>(tokens)).rank() == 1;
  Term ids = token_numbers(tokens, ngrams, vocabulary);
  if (row) ids = unsqueeze(ids, {0});
  const std::vector<Term> hits = ngram_columns(ngrams, trie, ids, vocabulary.size());
  const Term counts = weighted(count_columns(ids, hits, width(ngrams)), weighting, ngrams);
  return row ? squeeze(counts, {0}) : counts;
}

}  // namespace stridec::ops
