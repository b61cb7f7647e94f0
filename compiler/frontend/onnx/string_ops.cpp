// Operators on the contents of strings.
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/frontend/onnx/strings.h"
#include "compiler/ops/composite/ngrams.h"

namespace stridec::onnx {
namespace {

using namespace ops;

Outputs string_concat(Context& c) {
  const Strings x = strings_of(c, 0), y = strings_of(c, 1);
  return {concat_strings(x, y)};
}

Outputs string_normalizer(Context& c) {
  const std::string action = c.text("case_change_action", "NONE");
  return {normalize_strings(strings_of(c, 0), {.stop_words = c.texts("stopwords"),
                                               .case_sensitive = c.integer("is_case_sensitive", 0) != 0,
                                               .change = action == "LOWER"   ? CaseChange::kLower
                                                         : action == "UPPER" ? CaseChange::kUpper
                                                                             : CaseChange::kNone})};
}

Outputs string_split(Context& c) {
  const std::optional<int64_t> limit =
      c.has_attribute("maxsplit") ? std::optional(c.integer("maxsplit", 0)) : std::nullopt;
  const SplitStrings split = split_strings(strings_of(c, 0), c.text("delimiter", ""), limit);
  return {split.parts, split.count};
}

Outputs regex_full_match(Context& c) { return {matches_regex(strings_of(c, 0), c.text("pattern", ""))}; }

Outputs tfidf(Context& c) {
  const Ngrams ngrams{.texts = c.texts("pool_strings"),
                      .numbers = c.integers("pool_int64s"),
                      .starts = c.integers("ngram_counts"),
                      .columns = c.integers("ngram_indexes"),
                      .weights = c.numbers("weights"),
                      .shortest = c.integer("min_gram_length"),
                      .longest = c.integer("max_gram_length"),
                      .skips = c.integer("max_skip_count")};
  if (ngrams.shortest < 1 || ngrams.longest < ngrams.shortest || ngrams.skips < 0 || ngrams.columns.empty())
    c.does_not_fit("gram lengths, skips or indexes are out of range");
  const std::string mode = c.text("mode", "TF");
  const auto weighting = mode == "TF"    ? NgramWeighting::kCount
                         : mode == "IDF" ? NgramWeighting::kPresence
                                         : NgramWeighting::kWeightedCount;
  const TermOrStrings tokens = ngrams.texts.empty() ? TermOrStrings(c.in(0)) : strings_of(c, 0);
  return {count_ngrams(tokens, ngrams, weighting)};
}

constexpr Row kRows[] = {
    {"RegexFullMatch", regex_full_match},
    {"StringConcat", string_concat},
    {"StringNormalizer", string_normalizer},
    {"StringSplit", string_split},
    {"TfIdfVectorizer", tfidf},
};

}  // namespace

std::span<const Row> string_rows() { return kRows; }

}  // namespace stridec::onnx
