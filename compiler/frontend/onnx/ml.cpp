// ai.onnx.ml, except for trees, support vector machines and maps: encoders, scalers and linear models.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "compiler/base/number.h"
#include "compiler/base/text.h"
#include "compiler/frontend/onnx/constant_tables.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/frontend/onnx/strings.h"
#include "compiler/ops/composite/activations.h"
#include "compiler/ops/composite/contraction.h"

namespace stridec::onnx {
namespace {

using namespace ops;

constexpr const char* kMl = "ai.onnx.ml";

Term as_rows(Term x) { return x.rank() == 1 ? unsqueeze(x, {0}) : x; }

// ---- features --------------------------------------------------------------------------------------------

Outputs binarizer(Context& c) { return {cast(greater(c.in(0), c.number("threshold", 0)), c.in(0).dtype())}; }

Outputs array_feature_extractor(Context& c) {
  const Term x = as_rows(c.in(0)), index = c.in(1);
  return {gather(x, reshape(index, {count(index.shape())}), x.rank() - 1)};
}

Outputs scaler(Context& c) {
  const Term x = cast(c.in(0), DType::kF32);
  const auto row = [&](const char* name, double otherwise) {
    const auto values = c.numbers(name);
    return values.size() < 2 ? c.number(DType::kF32, values.empty() ? otherwise : values[0])
                             : unidirectional(float_table(c.b, values, DType::kF32), x.shape(), name);
  };
  return {(x - row("offset", 0)) * row("scale", 1)};
}

Outputs imputer(Context& c) {
  const Term x = c.in(0);
  if (is_float(x.dtype())) {
    const auto values = c.numbers("imputed_value_floats");
    const double missing = c.number("replaced_value_float", 0);
    if (values.empty()) c.does_not_fit("imputed_value_floats is missing");
    const Term hit = std::isnan(missing) ? apply(OpKind::kIsNan, x) : equal(x, missing);
    const Term row = unidirectional(float_table(c.b, values, x.dtype()), x.shape(), "imputed_value_floats");
    return {select(hit, row, x)};
  }
  const Dims values = c.integers("imputed_value_int64s");
  if (values.empty()) c.does_not_fit("imputed_value_int64s is missing");
  const Term missing(c.b, c.b.integers({c.integer("replaced_value_int64", 0)}));
  const Term row = unidirectional(integer_table(c.b, values), x.shape(), "imputed_value_int64s");
  return {select(equal(x, reshape(missing, {})), row, x)};
}

Outputs normalizer(Context& c) {
  const Term x = cast(as_rows(c.in(0)), DType::kF32);
  const std::string norm = c.text("norm", "MAX");
  const Dims last{x.rank() - 1};
  Term size = x;
  if (norm == "MAX")
    size = reduce_max(x, last, kKeep);
  else if (norm == "L1")
    size = reduce_sum(abs(x), last, kKeep);
  else if (norm == "L2")
    size = sqrt(reduce_sum(square(x), last, kKeep));
  else
    c.does_not_fit("norm is '" + norm + "'");
  return {reshape(select(equal(size, 0), x, x / size), c.in(0).shape())};
}

Outputs feature_vectorizer(Context& c) {
  std::vector<Term> parts;
  const Dims sizes = c.integers("inputdimensions");
  for (size_t i = 0; i < c.input_count(); ++i) {
    const Term x = cast(as_rows(c.in(i)), DType::kF32);
    const Term flat = reshape(x, {x.dim(0), count(x.shape(), 1, x.rank())});
    parts.push_back(i < sizes.size() ? slice(flat, 1, 0, sizes[i]) : flat);
  }
  return {concat(parts, 1)};
}

// ---- labels ----------------------------------------------------------------------------------------------

// The keys or values of an encoder, of one of three types.
struct Labels {
  std::vector<std::string> strings;
  std::vector<int64_t> integers;
  std::vector<double> floats;
  DType dtype = DType::kF32;  // of the integers or floats

  size_t size() const { return strings.size() + integers.size() + floats.size(); }
};

Labels labels_of(const Tensor& t) {
  Labels out;
  if (t.elem_type == kElemString) {
    out.strings = t.strings;
    return out;
  }
  out.dtype = t.dtype().value_or(DType::kF32);
  if (is_float(out.dtype))
    out.floats = float_values(t);
  else
    out.integers = integer_values(t);
  return out;
}

Labels labels_of(const Context& c, const std::string& what) {
  if (const Tensor* t = c.tensor(what + "_tensor")) return labels_of(*t);
  Labels out;
  out.strings = c.texts(what + "_strings");
  out.integers = c.integers(what + "_int64s");
  out.floats = c.numbers(what + "_floats");
  if (!out.integers.empty()) out.dtype = DType::kI64;
  if ((out.strings.empty() ? 0 : 1) + (out.integers.empty() ? 0 : 1) + (out.floats.empty() ? 0 : 1) != 1)
    c.does_not_fit("expected exactly one list of " + what);
  return out;
}

Term find_label(const Context& c, size_t input, const Labels& keys) {
  if (c.slot(input).kind == Slot::Kind::kStrings) return find_in(strings_of(c, input), keys.strings);
  std::vector<std::pair<double, int64_t>> floats;
  std::vector<std::pair<int64_t, int64_t>> integers;
  for (size_t i = 0; i < keys.floats.size(); ++i)
    floats.emplace_back(keys.floats[i], static_cast<int64_t>(i));
  for (size_t i = 0; i < keys.integers.size(); ++i)
    integers.emplace_back(keys.integers[i], static_cast<int64_t>(i));
  return find_number(c.in(input), std::move(floats), std::move(integers));
}

// values[place]; where place is -1, the default, which is appended at the end.
Slot value_at(const Context& c, Term place, Labels values, const Labels& otherwise) {
  const auto last = static_cast<double>(values.size());
  const Term at = select(less(place, 0), last, place);
  values.strings.insert(values.strings.end(), otherwise.strings.begin(), otherwise.strings.end());
  values.integers.insert(values.integers.end(), otherwise.integers.begin(), otherwise.integers.end());
  values.floats.insert(values.floats.end(), otherwise.floats.begin(), otherwise.floats.end());
  if (!values.strings.empty()) {
    const Strings all = constant_strings(c.b, values.strings, {static_cast<int64_t>(values.strings.size())});
    return Strings{at, all.pool};
  }
  if (!values.integers.empty()) return gather(integer_table(c.b, values.integers, values.dtype), at, 0);
  return gather(float_table(c.b, values.floats, values.dtype), at, 0);
}

Outputs label_encoder(Context& c) {
  Labels keys, values, otherwise;
  if (c.version < 2) {
    Labels classes, places;
    classes.strings = c.texts("classes_strings");
    places.dtype = DType::kI64;
    places.integers.resize(classes.strings.size());
    std::iota(places.integers.begin(), places.integers.end(), 0);
    const bool from_strings = c.slot(0).kind == Slot::Kind::kStrings;
    keys = from_strings ? classes : places;
    values = from_strings ? places : classes;
  } else {
    keys = labels_of(c, "keys");
    values = labels_of(c, "values");
  }
  if (keys.size() != values.size()) c.does_not_fit(cat(keys.size(), " keys for ", values.size(), " values"));
  if (const Tensor* t = c.tensor("default_tensor"))
    otherwise = labels_of(*t);
  else if (!values.strings.empty())
    otherwise.strings = {c.text("default_string", "_Unused")};
  else if (!values.integers.empty())
    otherwise.integers = {c.integer("default_int64", -1)};
  else
    otherwise.floats = {c.number("default_float", -0.0)};
  return {value_at(c, find_label(c, 0, keys), std::move(values), otherwise)};
}

Outputs category_mapper(Context& c) {
  Labels strings, integers, otherwise;
  strings.strings = c.texts("cats_strings");
  integers.integers = c.integers("cats_int64s");
  integers.dtype = DType::kI64;
  if (c.slot(0).kind == Slot::Kind::kStrings) {
    otherwise.integers = {c.integer("default_int64", -1)};
    return {value_at(c, find_label(c, 0, strings), integers, otherwise)};
  }
  otherwise.strings = {c.text("default_string", "_Unused")};
  return {value_at(c, find_label(c, 0, integers), strings, otherwise)};
}

Outputs one_hot_encoder(Context& c) {
  Labels keys;
  keys.strings = c.texts("cats_strings");
  keys.integers = c.integers("cats_int64s");
  Term place(c.b, c.b.integers({0}));
  if (c.slot(0).kind != Slot::Kind::kStrings && is_float(c.in(0).dtype())) {  // compared as integers
    std::vector<std::pair<int64_t, int64_t>> all;
    for (size_t i = 0; i < keys.integers.size(); ++i)
      all.emplace_back(keys.integers[i], static_cast<int64_t>(i));
    place = find_number(cast(c.in(0), DType::kI64), {}, std::move(all));
  } else {
    place = find_label(c, 0, keys);
  }
  if (!c.integer("zeros", 1)) {
    const Term flat = reshape(place, {count(place.shape())});
    const Term known = reduce(OpKind::kReduceAnd, greater_equal(flat, 0), {0});
    const auto all = c.b.elements_of(known, "all_known", 0, 1);
    c.b.require(sym::eq(all.at(0), 1), "a category is not in the list");
  }
  const auto n = static_cast<int64_t>(keys.size());
  const Term hit = equal(unsqueeze(place, {place.rank()}), index_along(c.b, {n}, 0, DType::kI64));
  return {cast(hit, DType::kF32)};
}

// Represents the sequence of maps by the matrix of values: column i belongs to class label i.
Outputs zip_map(Context& c) { return {as_rows(c.in(0))}; }

// ---- linear models ---------------------------------------------------------------------------------------

// x [rows, features] times coefficients [targets, features] in the attribute, plus intercepts.
Term linear(const Context& c, Term x, int64_t targets) {
  const std::vector<double> coefficients = c.numbers("coefficients"), intercepts = c.numbers("intercepts");
  x = cast(as_rows(x), DType::kF32);
  const auto n = static_cast<int64_t>(coefficients.size());
  if (targets < 1 || n % targets) c.does_not_fit(cat(n, " coefficients for ", targets, " targets"));
  c.b.require(sym::eq(x.dim(1), n / targets), "rows of {0} features, but coefficients for {1}",
              {x.dim(1), n / targets});
  const Term w = float_table(c.b, coefficients, DType::kF32, {targets, n / targets});
  Term y = matmul(x, transpose(w, 0, 1));
  if (!intercepts.empty()) y = y + float_table(c.b, intercepts, DType::kF32);
  return y;
}

Outputs linear_regressor(Context& c) {
  return {post_transform(c, linear(c, c.in(0), c.integer("targets", 1)), c.text("post_transform", "NONE"))};
}

Term best_of(Term scores) {
  Builder& b = scores.builder();
  return {b, b.add1(OpKind::kArgMax, {scores.id()}, {{"dim", int64_t{1}}, {"last", int64_t{0}}})};
}

// With two labels and one row of coefficients, the sign decides, and the other class gets the complement.
Outputs linear_classifier(Context& c) {
  const size_t labels =
      std::max(c.texts("classlabels_strings").size(), c.integers("classlabels_ints").size());
  const auto intercepts = static_cast<int64_t>(c.numbers("intercepts").size());
  const int64_t classes = intercepts ? intercepts : static_cast<int64_t>(labels);
  const std::string transform = c.text("post_transform", "NONE");
  Term scores = linear(c, c.in(0), classes);
  const auto label = [&](Term index) {
    return class_labels(c, index, "classlabels_ints", "classlabels_strings");
  };
  if (classes == 1 && labels == 2) {
    const Term index = cast(greater(squeeze(scores, {1}), 0), DType::kI64);
    Term both = concat({-scores, scores}, 1);
    if (transform == "LOGISTIC")
      both = sigmoid(both);
    else if (transform == "PROBIT")
      both = post_transform(c, concat({scores, scores}, 1), transform);
    else
      both = concat({subtract_from(1, scores), scores}, 1);
    return {label(index), both};
  }
  return {label(best_of(scores)), post_transform(c, scores, transform)};
}

constexpr Row kRows[] = {
    {"ArrayFeatureExtractor", array_feature_extractor, 1, kAnyLater, kMl},
    {"Binarizer", binarizer, 1, kAnyLater, kMl},
    {"CategoryMapper", category_mapper, 1, kAnyLater, kMl},
    {"FeatureVectorizer", feature_vectorizer, 1, kAnyLater, kMl},
    {"Imputer", imputer, 1, kAnyLater, kMl},
    {"LabelEncoder", label_encoder, 1, kAnyLater, kMl},
    {"LinearClassifier", linear_classifier, 1, kAnyLater, kMl},
    {"LinearRegressor", linear_regressor, 1, kAnyLater, kMl},
    {"Normalizer", normalizer, 1, kAnyLater, kMl},
    {"OneHotEncoder", one_hot_encoder, 1, kAnyLater, kMl},
    {"Scaler", scaler, 1, kAnyLater, kMl},
    {"ZipMap", zip_map, 1, kAnyLater, kMl},
};

}  // namespace

std::span<const Row> ml_rows() { return kRows; }

}  // namespace stridec::onnx
