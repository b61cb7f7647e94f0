// Operators on the contents of strings. Upper and lower case are those of ASCII.
#include <algorithm>
#include <map>
#include <span>

#include "compiler/base/text.h"
#include "compiler/frontend/onnx/constant_tables.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/frontend/onnx/regex.h"
#include "compiler/frontend/onnx/strings.h"
#include "compiler/ops/helpers.h"
#include "compiler/ops/nodes.h"

namespace stridec::onnx {
namespace {

using namespace ops;

Term cumulative(Term x) { return cumulative_sum(x, x.rank() - 1); }
Term all_of(Term x) { return reduce(OpKind::kReduceAnd, x, {x.rank() - 1}); }
Term length_of(Term bytes) {
  return reduce_sum(cast(logical_not(equal(bytes, 0)), DType::kI64), {bytes.rank() - 1});
}
Term widened(Term bytes, sym::Expr width) {
  Shape none(bytes.shape().size(), 0), more = none;
  more.back() = bytes.builder().simplify(width - bytes.shape().back());
  return more.back().is_const(0) ? bytes : pad(bytes, none, more, 0);
}
Term scatter_along_last(Term data, Term index, Term updates) {
  return scatter_elements(data, index, updates, data.rank() - 1);
}
sym::Expr width_of(Term bytes) { return bytes.shape().back(); }

// The largest element of a tensor at run time, as a symbol.
sym::Expr largest(const Context& c, Term x, const std::string& hint, sym::Expr upper) {
  const Term flat = reshape(x, {count(x.shape())});
  return c.b.elements_of(maximum(reduce_max(flat, {0}), 0), hint, 0, upper).at(0);
}

Outputs string_concat(Context& c) {
  const Term a = to_bytes(strings_of(c, 0)), b = to_bytes(strings_of(c, 1));
  const sym::Expr width = c.b.simplify(width_of(a) + width_of(b));
  const Term first = widened(a, width), second = widened(b, width);
  const Term at = index_along(c.b, {width}, 0, DType::kI64), from = unsqueeze(length_of(a), {a.rank() - 1});
  const Shape shape = (first + second).shape();  // broadcast
  const Term behind = expand(second, shape), place = expand(maximum(at - from, 0), shape);
  const Term moved = gather_elements(behind, place, behind.rank() - 1);
  return {from_bytes(select(less(at, from), expand(first, shape), moved))};
}

Term with_case(Term bytes, bool upper) {
  const double low = upper ? 'a' : 'A', high = upper ? 'z' : 'Z';
  const Term letter = logical_and(greater_equal(bytes, low), less_equal(bytes, high));
  return select(letter, apply(OpKind::kBitXor, bytes, 32), bytes);
}

Outputs string_normalizer(Context& c) {
  const Strings x = strings_of(c, 0);
  const Shape shape = x.index.shape();
  const sym::Expr n = count(shape);
  const bool sensitive = c.integer("is_case_sensitive", 0) != 0;
  const std::string action = c.text("case_change_action", "NONE");
  std::vector<std::string> stop = c.texts("stopwords");
  const Term bytes = reshape(to_bytes(x), {n, width_of(x.pool)});
  Strings rows = from_bytes(bytes);
  if (!stop.empty()) {
    const auto lower = [](std::string s) {
      std::transform(s.begin(), s.end(), s.begin(),
                     [](char ch) { return ch >= 'A' && ch <= 'Z' ? static_cast<char>(ch + 32) : ch; });
      return s;
    };
    if (!sensitive) std::transform(stop.begin(), stop.end(), stop.begin(), lower);
    const Strings compared{rows.index, sensitive ? bytes : with_case(bytes, false)};
    const Term kept = less(find_in(compared, stop), 0);
    const sym::Expr found = c.b.fresh_symbol("kept", 0, n);
    const Term places = reshape(coordinates(kept, found), {found});
    // If nothing is left, return one empty string: the row after all others.
    const sym::Expr missing = sym::max(1 - found, 0);
    const Term empty = expand(size_as(c.b, DType::kI64, n), {missing});
    rows = {concat({places, empty}, 0), bytes};
    rows.pool = pad(bytes, {0, 0}, {1, 0}, 0);
  }
  if (action == "LOWER" || action == "UPPER") rows.pool = with_case(rows.pool, action == "UPPER");
  if (shape.size() == 2) rows.index = unsqueeze(rows.index, {0});
  return {rows};
}

// Selects non-overlapping matches from the left.
Term without_overlap(Term match, int64_t size) {
  Builder& b = match.builder();
  const sym::Expr n = match.dim(0), width = match.dim(1);
  const LoopResult result =
      loop(b, width, std::nullopt, {filled(b, {n}, DType::kI64, 0).id()}, [&](const LoopState& s) {
        const Term free_from(b, s.carried[0]), here = squeeze(slice(match, 1, s.counter, 1), {1}),
                                               at(b, s.counter_value);
        const Term taken = logical_and(here, greater_equal(at, free_from));
        const Term next = select(taken, at + static_cast<double>(size), free_from);
        return LoopStep{.condition = std::nullopt, .carried = {next.id()}, .stacked = {taken.id()}};
      });
  return transpose(Term(b, result.stacked[0]), 0, 1);
}

Outputs string_split(Context& c) {
  Builder& b = c.b;
  const Strings x = strings_of(c, 0);
  const Shape outer = x.index.shape();
  const sym::Expr n = count(outer), width = width_of(x.pool) + 1;
  const Term bytes = widened(reshape(to_bytes(x), {n, width_of(x.pool)}), width);
  const std::string delimiter = c.text("delimiter", "");
  const bool limited = c.has_attribute("maxsplit");
  const auto limit = static_cast<double>(c.integer("maxsplit", 0));
  const auto size = static_cast<int64_t>(delimiter.size());
  const Term at = index_along(b, {1, width}, 1, DType::kI64), whole = unsqueeze(length_of(bytes), {1});
  const auto rank_of = [&](Term flags) { return cumulative(cast(flags, DType::kI64)); };
  const auto number_of = [&](Term flags) { return reduce_sum(cast(flags, DType::kI64), {1}); };

  Term begins = bytes, ends = bytes, found = at;  // flags; flags; number of substrings per string
  if (delimiter.empty()) {
    const Term blank = logical_or(logical_or(equal(bytes, 0), equal(bytes, 32)),
                                  logical_and(greater_equal(bytes, 9), less_equal(bytes, 13)));
    const Term before = gather(blank, squeeze(maximum(at - 1.0, 0), {0}), 1);
    begins = logical_and(logical_not(blank), logical_or(before, equal(at, 0)));
    ends = logical_and(blank, logical_not(logical_or(before, equal(at, 0))));
    if (limited) {
      begins = logical_and(begins, less_equal(rank_of(begins), limit + 1));
      ends = logical_and(ends, less_equal(rank_of(ends), limit));
    }
    found = number_of(begins);
  } else {
    const Term ahead = widened(bytes, width + size);
    std::optional<Term> match;
    for (int64_t k = 0; k < size; ++k) {
      const Term same = equal(slice(ahead, 1, k, width),
                              static_cast<double>(static_cast<uint8_t>(delimiter[static_cast<size_t>(k)])));
      match = match ? logical_and(*match, same) : same;
    }
    bool overlaps = false;
    for (size_t k = 1; k < delimiter.size(); ++k)
      overlaps |= delimiter.compare(k, std::string::npos, delimiter, 0, delimiter.size() - k) == 0;
    ends = overlaps ? without_overlap(*match, size) : *match;
    if (limited) ends = logical_and(ends, less_equal(rank_of(ends), limit));
    found = number_of(ends) + 1.0;
  }
  const sym::Expr most = largest(c, found, "substrings", width);
  // Writes `value` at the column of each substring; other values go to an extra last column.
  const Shape table{n, most + 1};
  const auto placed = [&](Term flags, Term start, Term value, int64_t shift) {
    const Term index =
        select(flags, minimum(rank_of(flags) + static_cast<double>(shift), size_as(b, DType::kI64, most)),
               size_as(b, DType::kI64, most));
    return slice(scatter_along_last(expand(start, table), index, expand(value, index.shape())), 1, 0, most);
  };
  const Term zero = filled(b, {1, 1}, DType::kI64, 0);
  const Term starts = delimiter.empty() ? placed(begins, zero, at, -1)
                                        : placed(ends, zero, at + static_cast<double>(size), 0);
  const Term stops = placed(ends, whole, at, -1);
  const Term k = index_along(b, {1, 1, width}, 2, DType::kI64), start = unsqueeze(starts, {2});
  const Term place = minimum(start + k, size_as(b, DType::kI64, width - 1));
  const Term exists = less(index_along(b, {1, most, 1}, 1, DType::kI64), reshape(found, {n, 1, 1}));
  const Term inside = logical_and(exists, less(start + k, unsqueeze(stops, {2})));
  const Strings out = from_bytes(select(inside, gather(bytes, place, 1, 1), 0));
  Shape shape = outer;
  shape.push_back(most);
  return {Strings{reshape(out.index, shape), out.pool}, reshape(found, outer)};
}

// One DFA step per byte, for all strings of the pool in parallel.
Outputs regex_full_match(Context& c) {
  const Strings x = strings_of(c, 0);
  const RegexTable table = compile_regex(c.text("pattern", ""));
  const Term next = integer_table(c.b, {table.next.begin(), table.next.end()}, DType::kI32),
             accepts = integer_table(c.b, {table.accepts.begin(), table.accepts.end()}, DType::kBool);
  const sym::Expr n = x.pool.dim(0);
  const LoopResult result = loop(c.b, x.pool.dim(1), std::nullopt, {filled(c.b, {n}, DType::kI32, 0).id()},
                                 [&](const LoopState& s) {
                                   const Term state(c.b, s.carried[0]),
                                       byte = cast(squeeze(slice(x.pool, 1, s.counter, 1), {1}), DType::kI32);
                                   return LoopStep{.condition = std::nullopt,
                                                   .carried = {gather(next, state * 256.0 + byte, 0).id()},
                                                   .stacked = {}};
                                 });
  return {gather(gather(accepts, Term(c.b, result.carried[0]), 0), x.index, 0)};
}

// ---- TfIdfVectorizer -------------------------------------------------------------------------------------

struct TfidfAttributes {
  Dims starts, columns, numbers;   // numbers: the pool, if its tokens are integers
  std::vector<std::string> texts;  // the pool, if its tokens are strings
  std::vector<double> weights;
  int64_t shortest, longest, skips;

  bool strings() const { return !texts.empty(); }
  size_t pool() const { return strings() ? texts.size() : numbers.size(); }
  int64_t width() const { return *std::max_element(columns.begin(), columns.end()) + 1; }
};

TfidfAttributes tfidf_attributes(const Context& c) {
  TfidfAttributes a{.starts = c.integers("ngram_counts"),
                    .columns = c.integers("ngram_indexes"),
                    .numbers = c.integers("pool_int64s"),
                    .texts = c.texts("pool_strings"),
                    .weights = c.numbers("weights"),
                    .shortest = c.integer("min_gram_length"),
                    .longest = c.integer("max_gram_length"),
                    .skips = c.integer("max_skip_count")};
  if (a.shortest < 1 || a.longest < a.shortest || a.skips < 0 || a.columns.empty())
    c.does_not_fit("gram lengths, skips or indexes are out of range");
  return a;
}

// Numbers for the distinct tokens of the pool.
struct Vocabulary {
  std::map<std::string, int64_t> words;
  std::map<int64_t, int64_t> values;
  std::vector<int64_t> pool;  // the number of each token

  int64_t size() const { return static_cast<int64_t>(words.size() + values.size()); }
};

Vocabulary vocabulary_of(const TfidfAttributes& a) {
  Vocabulary out;
  for (size_t i = 0; i < a.pool(); ++i)
    out.pool.push_back(a.strings() ? out.words.emplace(a.texts[i], out.size()).first->second
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

NgramTrie ngram_trie(const Context& c, const TfidfAttributes& a, std::span<const int64_t> pool) {
  NgramTrie levels(static_cast<size_t>(a.longest) + 1);
  size_t ngram = 0;
  for (size_t level = 0; level < a.starts.size(); ++level) {
    const auto length = level + 1;
    const auto from = static_cast<size_t>(a.starts[level]),
               to = level + 1 < a.starts.size() ? static_cast<size_t>(a.starts[level + 1]) : pool.size();
    if (a.starts[level] < 0 || from > to || to > pool.size() || (to - from) % length)
      c.does_not_fit("ngram_counts do not divide the pool into n-grams");
    for (size_t at = from; at < to; at += length, ++ngram) {
      if (ngram >= a.columns.size() || a.columns[ngram] < 0)
        c.does_not_fit("ngram_indexes are too few or negative");
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
Term token_numbers(const Context& c, const TfidfAttributes& a, const Vocabulary& vocabulary) {
  if (a.strings()) {
    std::vector<std::string> keys(vocabulary.words.size());
    for (const auto& [word, id] : vocabulary.words) keys[static_cast<size_t>(id)] = word;
    return find_in(strings_of(c, 0), keys);
  }
  std::vector<int64_t> keys, results;
  for (const auto& [value, id] : vocabulary.values) keys.push_back(value), results.push_back(id);
  return look_up(cast(c.in(0), DType::kI64), keys, results);
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

// Per row of `ids`, the column of every n-gram; a.width() for n-grams that are not in the pool.
std::vector<Term> ngram_columns(const TfidfAttributes& a, const NgramTrie& trie, Term ids,
                                int64_t vocabulary) {
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
                            static_cast<double>(a.width())));
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

Term weighted(Term counts, const std::string& mode, const TfidfAttributes& a) {
  if (mode == "IDF") counts = cast(greater(counts, 0), DType::kF32);
  if (mode == "TF" || a.weights.empty()) return counts;
  std::vector<double> of_column(static_cast<size_t>(a.width()), 1);
  for (size_t i = 0; i < std::min(a.weights.size(), a.columns.size()); ++i)
    of_column[static_cast<size_t>(a.columns[i])] = a.weights[i];
  return counts * float_table(counts.builder(), of_column, DType::kF32);
}

Outputs tfidf(Context& c) {
  const TfidfAttributes a = tfidf_attributes(c);
  const Vocabulary vocabulary = vocabulary_of(a);
  const NgramTrie trie = ngram_trie(c, a, vocabulary.pool);
  const bool row =
      c.slot(0).kind == Slot::Kind::kStrings ? strings_of(c, 0).index.rank() == 1 : c.in(0).rank() == 1;
  Term ids = token_numbers(c, a, vocabulary);
  if (row) ids = unsqueeze(ids, {0});
  const std::vector<Term> hits = ngram_columns(a, trie, ids, vocabulary.size());
  const Term counts = weighted(count_columns(ids, hits, a.width()), c.text("mode", "TF"), a);
  return {row ? squeeze(counts, {0}) : counts};
}

constexpr Row kRows[] = {
    {"RegexFullMatch", regex_full_match},
    {"StringConcat", string_concat},
    {"StringNormalizer", string_normalizer},
    {"StringSplit", string_split},
    {"TfIdfVectorizer", tfidf},
};

}  // namespace

Outputs equal_strings(Context& c) {
  const Term a = to_bytes(strings_of(c, 0)), b = to_bytes(strings_of(c, 1));
  const sym::Expr width = c.b.simplify(sym::max(width_of(a), width_of(b)));
  return {all_of(equal(widened(a, width), widened(b, width)))};
}

std::span<const Row> string_rows() { return kRows; }

}  // namespace stridec::onnx
