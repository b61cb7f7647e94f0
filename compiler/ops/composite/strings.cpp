#include "compiler/ops/composite/strings.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "compiler/ops/composite/regex.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/tables.h"

namespace stridec::ops {

using graph::OpKind;

namespace {

// Byte rows of length `width`.
Term byte_table(Builder& b, const std::vector<std::string>& texts, size_t width) {
  std::vector<uint8_t> bytes(texts.size() * width);
  for (size_t i = 0; i < texts.size(); ++i)
    if (!texts[i].empty()) std::memcpy(bytes.data() + i * width, texts[i].data(), texts[i].size());
  return {b, b.constant("", {DType::kU8, {static_cast<int64_t>(texts.size()), static_cast<int64_t>(width)}},
                        graph::own(std::move(bytes)))};
}

size_t longest(const std::vector<std::string>& texts) {
  size_t out = 0;
  for (const auto& t : texts) {
    if (t.find('\0') != std::string::npos)
      fail(ErrorKind::kUnsupported, "zero-byte", "strings with zero bytes are not supported");
    out = std::max(out, t.size());
  }
  return out;
}

}  // namespace

Strings constant_strings(Builder& b, const std::vector<std::string>& texts, Shape shape) {
  std::vector<int64_t> places(texts.size());
  for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int64_t>(i);
  return {reshape(integer_table(b, places), shape),
          byte_table(b, texts, std::max<size_t>(longest(texts), 1))};
}

Strings from_bytes(Term bytes) {
  const Shape shape(bytes.shape().begin(), bytes.shape().end() - 1);
  const sym::Expr rows = count(shape);
  return {reshape(index_along(bytes.builder(), {rows}, 0, DType::kI64), shape),
          reshape(bytes, {rows, bytes.dim(bytes.rank() - 1)})};
}

Term to_bytes(const Strings& s) { return gather(s.pool, s.index, 0); }

Term find_in(const Strings& s, const std::vector<std::string>& keys) {
  Builder& b = s.index.builder();
  if (keys.empty()) return filled(b, s.index.shape(), DType::kI64, -1);
  // One byte more than the longest key, to distinguish longer strings from it.
  const size_t width = longest(keys) + 1;
  const auto bytes = static_cast<int64_t>(width);
  const Term padded = pad(s.pool, {0, 0}, {0, bytes}, 0), rows = slice(padded, 1, 0, bytes);

  // A polynomial hash with an odd base: the first base without collisions among the keys.
  uint64_t base = 0x9E3779B97F4A7C15u;
  std::vector<uint64_t> powers;
  std::map<uint64_t, size_t> by_hash;
  std::map<std::string, size_t> number;
  for (size_t i = 0; i < keys.size(); ++i) number[keys[i]] = i;
  do {
    base += 2;
    powers.assign(1, 1);
    while (powers.size() < width) powers.push_back(powers.back() * base);
    by_hash.clear();
    for (const auto& [key, i] : number) {
      uint64_t hash = 0;
      for (size_t k = 0; k < key.size(); ++k) hash += static_cast<uint8_t>(key[k]) * powers[k];
      by_hash[hash] = i;
    }
  } while (by_hash.size() < number.size());
  std::vector<int64_t> hashes, places;
  std::vector<std::string> texts;
  for (const auto& [hash, i] : by_hash) {
    hashes.push_back(static_cast<int64_t>(hash));
    places.push_back(static_cast<int64_t>(i));
    texts.push_back(keys[i]);
  }
  const Term weights = integer_table(b, {powers.begin(), powers.end()}, DType::kU64);
  const Term hash = reduce_sum(cast(rows, DType::kU64) * weights, {1});
  const Term place = search_sorted(integer_table(b, hashes, DType::kU64), hash);
  const Term candidate = minimum(place, static_cast<double>(hashes.size() - 1));
  const Term same =
      reduce(OpKind::kReduceAnd, equal(gather(byte_table(b, texts, width), candidate, 0), rows), {1});
  const Term found = select(same, gather(integer_table(b, places), candidate, 0), -1);
  return gather(found, s.index, 0);
}

Term join_pools(std::vector<Strings>& parts) {
  bool shared = true;
  for (const Strings& s : parts) shared &= s.pool.id() == parts[0].pool.id();
  if (shared) return parts[0].pool;
  Builder& b = parts[0].pool.builder();
  sym::Expr width = 0, start = 0;
  for (const Strings& s : parts) width = b.simplify(sym::max(width, s.pool.dim(1)));
  std::vector<Term> pools;
  for (Strings& s : parts) {
    pools.push_back(pad(s.pool, {0, 0}, {0, b.simplify(width - s.pool.dim(1))}, 0));
    s.index = s.index + size_as(b, DType::kI64, start);
    start = b.simplify(start + s.pool.dim(0));
  }
  return concat(pools, 0);
}

Strings take_strings(const Strings& s, Term at, const std::string& otherwise) {
  Builder& b = at.builder();
  const Strings missing = constant_strings(b, {otherwise}, {1});
  const sym::Expr width = sym::max(s.pool.dim(1), missing.pool.dim(1));
  const auto widened = [&](Term pool) { return pad(pool, {0, 0}, {0, b.simplify(width - pool.dim(1))}, 0); };
  const Term pool = concat({widened(s.pool), widened(missing.pool)}, 0);
  const Term rows = concat({s.index, missing.index + size_as(b, DType::kI64, s.pool.dim(0))}, 0);
  const Term place = select(less(at, 0), size_as(b, DType::kI64, s.index.dim(0)), at);
  return {gather(rows, place, 0), pool};
}

namespace {

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
sym::Expr largest(Term x, const std::string& hint, sym::Expr upper) {
  const Term flat = reshape(x, {count(x.shape())});
  return x.builder().elements_of(maximum(reduce_max(flat, {0}), 0), hint, 0, upper).at(0);
}

}  // namespace

Term equal_strings(const Strings& x, const Strings& y) {
  const Term a = to_bytes(x), b = to_bytes(y);
  const sym::Expr width = a.builder().simplify(sym::max(width_of(a), width_of(b)));
  return all_of(equal(widened(a, width), widened(b, width)));
}

Strings concat_strings(const Strings& x, const Strings& y) {
  const Term a = to_bytes(x), b = to_bytes(y);
  Builder& builder = a.builder();
  const sym::Expr width = builder.simplify(width_of(a) + width_of(b));
  const Term first = widened(a, width), second = widened(b, width);
  const Term at = index_along(builder, {width}, 0, DType::kI64),
             from = unsqueeze(length_of(a), {a.rank() - 1});
  const Shape shape = (first + second).shape();  // broadcast
  const Term behind = expand(second, shape), place = expand(maximum(at - from, 0), shape);
  const Term moved = gather_elements(behind, place, behind.rank() - 1);
  return from_bytes(select(less(at, from), expand(first, shape), moved));
}

namespace {

Term with_case(Term bytes, bool upper) {
  const double low = upper ? 'a' : 'A', high = upper ? 'z' : 'Z';
  const Term letter = logical_and(greater_equal(bytes, low), less_equal(bytes, high));
  return select(letter, apply(OpKind::kBitXor, bytes, 32), bytes);
}

std::string lower_case(std::string s) {
  std::transform(s.begin(), s.end(), s.begin(),
                 [](char ch) { return ch >= 'A' && ch <= 'Z' ? static_cast<char>(ch + 32) : ch; });
  return s;
}

}  // namespace

Strings normalize_strings(const Strings& s, const StringNormalization& normalization) {
  Builder& b = s.index.builder();
  const Shape shape = s.index.shape();
  const sym::Expr n = count(shape);
  const bool sensitive = normalization.case_sensitive;
  std::vector<std::string> stop = normalization.stop_words;
  const Term bytes = reshape(to_bytes(s), {n, width_of(s.pool)});
  Strings rows = from_bytes(bytes);
  if (!stop.empty()) {
    if (!sensitive) std::transform(stop.begin(), stop.end(), stop.begin(), lower_case);
    const Strings compared{rows.index, sensitive ? bytes : with_case(bytes, false)};
    const Term kept = less(find_in(compared, stop), 0);
    const sym::Expr found = b.fresh_symbol("kept", 0, n);
    const Term places = reshape(coordinates(kept, found), {found});
    // If nothing is left, return one empty string: the row after all others.
    const sym::Expr missing = sym::max(1 - found, 0);
    const Term empty = expand(size_as(b, DType::kI64, n), {missing});
    rows = {concat({places, empty}, 0), bytes};
    rows.pool = pad(bytes, {0, 0}, {1, 0}, 0);
  }
  if (normalization.change != CaseChange::kNone)
    rows.pool = with_case(rows.pool, normalization.change == CaseChange::kUpper);
  if (shape.size() == 2) rows.index = unsqueeze(rows.index, {0});
  return rows;
}

namespace {

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

// Where substrings begin and end in bytes [n, width], as flags, and the number of substrings per string.
struct Substrings {
  Term begins, ends, found;
};

Term rank_of(Term flags) { return cumulative(cast(flags, DType::kI64)); }
Term number_of(Term flags) { return reduce_sum(cast(flags, DType::kI64), {1}); }

Substrings split_at_blanks(Term bytes, Term at, std::optional<int64_t> limit) {
  const Term blank = logical_or(logical_or(equal(bytes, 0), equal(bytes, 32)),
                                logical_and(greater_equal(bytes, 9), less_equal(bytes, 13)));
  const Term before = gather(blank, squeeze(maximum(at - 1.0, 0), {0}), 1);
  Term begins = logical_and(logical_not(blank), logical_or(before, equal(at, 0)));
  Term ends = logical_and(blank, logical_not(logical_or(before, equal(at, 0))));
  if (limit) {
    const auto most = static_cast<double>(*limit);
    begins = logical_and(begins, less_equal(rank_of(begins), most + 1));
    ends = logical_and(ends, less_equal(rank_of(ends), most));
  }
  return {begins, ends, number_of(begins)};
}

Substrings split_at_delimiter(Term bytes, sym::Expr width, const std::string& delimiter,
                              std::optional<int64_t> limit) {
  const auto size = static_cast<int64_t>(delimiter.size());
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
  Term ends = overlaps ? without_overlap(*match, size) : *match;
  if (limit) ends = logical_and(ends, less_equal(rank_of(ends), static_cast<double>(*limit)));
  return {ends, ends, number_of(ends) + 1.0};
}

}  // namespace

SplitStrings split_strings(const Strings& s, const std::string& delimiter, std::optional<int64_t> limit) {
  Builder& b = s.index.builder();
  const Shape outer = s.index.shape();
  const sym::Expr n = count(outer), width = width_of(s.pool) + 1;
  const Term bytes = widened(reshape(to_bytes(s), {n, width_of(s.pool)}), width);
  const auto size = static_cast<double>(delimiter.size());
  const Term at = index_along(b, {1, width}, 1, DType::kI64), whole = unsqueeze(length_of(bytes), {1});
  const auto [begins, ends, found] = delimiter.empty() ? split_at_blanks(bytes, at, limit)
                                                       : split_at_delimiter(bytes, width, delimiter, limit);
  const sym::Expr most = largest(found, "substrings", width);
  // Writes `value` at the column of each substring; other values go to an extra last column.
  const Shape table{n, most + 1};
  const auto placed = [&](Term flags, Term start, Term value, int64_t shift) {
    const Term index =
        select(flags, minimum(rank_of(flags) + static_cast<double>(shift), size_as(b, DType::kI64, most)),
               size_as(b, DType::kI64, most));
    return slice(scatter_along_last(expand(start, table), index, expand(value, index.shape())), 1, 0, most);
  };
  const Term zero = filled(b, {1, 1}, DType::kI64, 0);
  const Term starts = delimiter.empty() ? placed(begins, zero, at, -1) : placed(ends, zero, at + size, 0);
  const Term stops = placed(ends, whole, at, -1);
  const Term k = index_along(b, {1, 1, width}, 2, DType::kI64), start = unsqueeze(starts, {2});
  const Term place = minimum(start + k, size_as(b, DType::kI64, width - 1));
  const Term exists = less(index_along(b, {1, most, 1}, 1, DType::kI64), reshape(found, {n, 1, 1}));
  const Term inside = logical_and(exists, less(start + k, unsqueeze(stops, {2})));
  const Strings out = from_bytes(select(inside, gather(bytes, place, 1, 1), 0));
  Shape shape = outer;
  shape.push_back(most);
  return {{reshape(out.index, shape), out.pool}, reshape(found, outer)};
}

// One DFA step per byte, for all strings of the pool in parallel.
Term matches_regex(const Strings& s, const std::string& pattern) {
  Builder& b = s.index.builder();
  const RegexTable table = compile_regex(pattern);
  const Term next = integer_table(b, {table.next.begin(), table.next.end()}, DType::kI32),
             accepts = integer_table(b, {table.accepts.begin(), table.accepts.end()}, DType::kBool);
  const sym::Expr n = s.pool.dim(0);
  const LoopResult result =
      loop(b, s.pool.dim(1), std::nullopt, {filled(b, {n}, DType::kI32, 0).id()}, [&](const LoopState& at) {
        const Term state(b, at.carried[0]),
            byte = cast(squeeze(slice(s.pool, 1, at.counter, 1), {1}), DType::kI32);
        return LoopStep{.condition = std::nullopt,
                        .carried = {gather(next, state * 256.0 + byte, 0).id()},
                        .stacked = {}};
      });
  return gather(gather(accepts, Term(b, result.carried[0]), 0), s.index, 0);
}

}  // namespace stridec::ops
