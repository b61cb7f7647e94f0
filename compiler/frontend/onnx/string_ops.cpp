// Operators on the contents of strings. Upper and lower case are those of ASCII.
#include <algorithm>
#include <map>

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

// The pool of n-grams as a trie. Level d maps (node of level d - 1, token) to a node. `column`: the output
// column of the n-gram that ends at the node, or -1.
struct NgramLevel {
  std::map<std::pair<int64_t, int64_t>, int64_t> nodes;
  std::vector<int64_t> column;
};

Outputs tfidf(Context& c) {
  Builder& b = c.b;
  const Dims starts = c.integers("ngram_counts"), columns = c.integers("ngram_indexes"),
             numbers = c.integers("pool_int64s");
  const std::vector<std::string> texts = c.texts("pool_strings");
  const std::vector<double> weights = c.numbers("weights");
  const int64_t shortest = c.integer("min_gram_length"), longest = c.integer("max_gram_length"),
                skips = c.integer("max_skip_count");
  const bool strings = !texts.empty();
  const size_t pool = strings ? texts.size() : numbers.size();
  if (shortest < 1 || longest < shortest || skips < 0 || columns.empty())
    c.does_not_fit("gram lengths, skips or indexes are out of range");

  // Token numbers.
  std::map<std::string, int64_t> words;
  std::map<int64_t, int64_t> values;
  std::vector<int64_t> tokens;
  for (size_t i = 0; i < pool; ++i)
    tokens.push_back(strings ? words.emplace(texts[i], static_cast<int64_t>(words.size())).first->second
                             : values.emplace(numbers[i], static_cast<int64_t>(values.size())).first->second);
  const auto vocabulary = static_cast<int64_t>(strings ? words.size() : values.size());
  std::vector<NgramLevel> levels(static_cast<size_t>(longest) + 1);
  size_t ngram = 0;
  for (size_t level = 0; level < starts.size(); ++level) {
    const auto length = level + 1;
    const auto from = static_cast<size_t>(starts[level]),
               to = level + 1 < starts.size() ? static_cast<size_t>(starts[level + 1]) : pool;
    if (starts[level] < 0 || from > to || to > pool || (to - from) % length)
      c.does_not_fit("ngram_counts do not divide the pool into n-grams");
    for (size_t at = from; at < to; at += length, ++ngram) {
      if (ngram >= columns.size() || columns[ngram] < 0)
        c.does_not_fit("ngram_indexes are too few or negative");
      if (static_cast<int64_t>(length) > longest) continue;
      int64_t node = 0;
      for (size_t d = 1; d <= length; ++d) {
        NgramLevel& l = levels[d];
        const auto [it, fresh] =
            l.nodes.emplace(std::pair(node, tokens[at + d - 1]), static_cast<int64_t>(l.nodes.size()));
        if (fresh) l.column.push_back(-1);
        node = it->second;
      }
      levels[length].column[static_cast<size_t>(node)] = columns[ngram];
    }
  }

  // The number of every token; -1 for unknown tokens.
  const bool row =
      c.slot(0).kind == Slot::Kind::kStrings ? strings_of(c, 0).index.rank() == 1 : c.in(0).rank() == 1;
  Term ids = number(b, DType::kI64, 0);
  const auto search = [&](const std::vector<int64_t>& keys, const std::vector<int64_t>& results, Term x) {
    if (keys.empty()) return filled(b, x.shape(), DType::kI64, -1);
    const Term table = integer_table(b, keys);
    const Term at = minimum(search_sorted(table, x), static_cast<double>(keys.size() - 1));
    return select(equal(gather(table, at, 0), x), gather(integer_table(b, results), at, 0), -1);
  };
  if (strings) {
    std::vector<std::string> keys(words.size());
    for (const auto& [word, id] : words) keys[static_cast<size_t>(id)] = word;
    ids = find_in(strings_of(c, 0), keys);
  } else {
    std::vector<int64_t> keys, results;
    for (const auto& [value, id] : values) keys.push_back(value), results.push_back(id);
    ids = search(keys, results, cast(c.in(0), DType::kI64));
  }
  if (row) ids = unsqueeze(ids, {0});
  const sym::Expr n = ids.dim(0), length = ids.dim(1);

  const int64_t width = *std::max_element(columns.begin(), columns.end()) + 1;
  std::vector<Term> hits;  // per row, the column of every n-gram; `width` for n-grams not in the pool
  for (int64_t skip = 1; skip <= skips + 1; ++skip) {
    std::optional<Term> node;  // trie node of each start, for n-grams up to the current length
    for (int64_t d = 1; d <= longest; ++d) {
      const sym::Expr reach = (d - 1) * skip, windows = b.simplify(sym::max(length - reach, 0));
      const Term token = slice(ids, 1, b.simplify(sym::min(reach, length)), windows);
      const NgramLevel& level = levels[static_cast<size_t>(d)];
      std::vector<int64_t> keys, results;
      for (const auto& [key, id] : level.nodes)
        keys.push_back(key.first * vocabulary + key.second), results.push_back(id);
      Term key = token;
      if (node) {
        const Term prefix = slice(*node, 1, 0, windows);
        key = select(logical_and(greater_equal(prefix, 0), greater_equal(token, 0)),
                     prefix * static_cast<double>(vocabulary) + token, -1);
      }
      node = search(keys, results, key);
      if (d < shortest || (d == 1 && skip > 1) || keys.empty()) continue;
      const Term column = gather(integer_table(b, level.column), maximum(*node, 0), 0);
      hits.push_back(select(logical_and(greater_equal(*node, 0), greater_equal(column, 0)), column,
                            static_cast<double>(width)));
    }
  }
  Term counts = filled(b, {n, width + 1}, DType::kF32, 0);
  if (!hits.empty()) {
    const Term all = concat(hits, 1);
    counts = scatter_elements(counts, all, filled(b, all.shape(), DType::kF32, 1), 1, "add");
  }
  counts = slice(counts, 1, 0, width);
  const std::string mode = c.text("mode", "TF");
  if (mode == "IDF") counts = cast(greater(counts, 0), DType::kF32);
  if (mode != "TF" && !weights.empty()) {
    std::vector<double> of_column(static_cast<size_t>(width), 1);
    for (size_t i = 0; i < std::min(weights.size(), columns.size()); ++i)
      of_column[static_cast<size_t>(columns[i])] = weights[i];
    counts = counts * float_table(b, of_column, DType::kF32);
  }
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
