// ai.onnx.ml, except for trees, support vector machines and maps: encoders, scalers and linear models.
#include <numeric>

#include "compiler/base/text.h"
#include "compiler/frontend/onnx/constant_tables.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/frontend/onnx/strings.h"
#include "compiler/ops/composite/features.h"
#include "compiler/ops/composite/linear_model.h"

namespace stridec::onnx {
namespace {

using namespace ops;

constexpr const char* kMl = "ai.onnx.ml";

// ---- features --------------------------------------------------------------------------------------------

Outputs binarizer(Context& c) { return {binarize(c.in(0), c.number("threshold", 0))}; }

Outputs array_feature_extractor(Context& c) { return {select_features(c.in(0), c.in(1))}; }

Outputs scaler(Context& c) { return {scale_features(c.in(0), c.numbers("offset"), c.numbers("scale"))}; }

Outputs imputer(Context& c) {
  const Term x = c.in(0);
  if (is_float(x.dtype())) {
    const auto values = c.numbers("imputed_value_floats");
    if (values.empty()) c.does_not_fit("imputed_value_floats is missing");
    return {impute(x, c.number("replaced_value_float", 0), values, "imputed_value_floats")};
  }
  const Dims values = c.integers("imputed_value_int64s");
  if (values.empty()) c.does_not_fit("imputed_value_int64s is missing");
  return {impute(x, c.integer("replaced_value_int64", 0), values, "imputed_value_int64s")};
}

Outputs normalizer(Context& c) {
  const std::string norm = c.text("norm", "MAX");
  if (norm != "MAX" && norm != "L1" && norm != "L2") c.does_not_fit("norm is '" + norm + "'");
  return {normalize_rows(c.in(0), norm == "MAX"  ? RowNorm::kMax
                                  : norm == "L1" ? RowNorm::kL1
                                                 : RowNorm::kL2)};
}

Outputs feature_vectorizer(Context& c) {
  std::vector<Term> parts;
  for (size_t i = 0; i < c.input_count(); ++i) parts.push_back(c.in(i));
  return {join_features(parts, c.integers("inputdimensions"))};
}

// ---- labels ----------------------------------------------------------------------------------------------

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
  return {labels_at(find_label(numbers_or_strings(c, 0), keys), std::move(values), otherwise)};
}

Outputs category_mapper(Context& c) {
  Labels strings, integers, otherwise;
  strings.strings = c.texts("cats_strings");
  integers.integers = c.integers("cats_int64s");
  integers.dtype = DType::kI64;
  if (c.slot(0).kind == Slot::Kind::kStrings) {
    otherwise.integers = {c.integer("default_int64", -1)};
    return {labels_at(find_label(strings_of(c, 0), strings), integers, otherwise)};
  }
  otherwise.strings = {c.text("default_string", "_Unused")};
  return {labels_at(find_label(c.in(0), integers), strings, otherwise)};
}

Outputs one_hot_encoder(Context& c) {
  Labels keys;
  keys.strings = c.texts("cats_strings");
  keys.integers = c.integers("cats_int64s");
  return {one_hot_labels(numbers_or_strings(c, 0), keys, c.integer("zeros", 1) == 0)};
}

// Represents the sequence of maps by the matrix of values: column i belongs to class label i.
Outputs zip_map(Context& c) { return {as_rows(c.in(0))}; }

// ---- linear models ---------------------------------------------------------------------------------------

LinearModel model_of(const Context& c, int64_t targets) {
  return {
      .targets = targets, .coefficients = c.numbers("coefficients"), .intercepts = c.numbers("intercepts")};
}

Outputs linear_regressor(Context& c) {
  const Term y = linear_scores(c.in(0), model_of(c, c.integer("targets", 1)));
  return {transform_scores(y, score_transform(c, c.text("post_transform", "NONE")))};
}

Outputs linear_classifier(Context& c) {
  const Labels labels = class_labels_of(c, "classlabels_ints", "classlabels_strings");
  const size_t intercepts = c.numbers("intercepts").size();
  const auto classes = static_cast<int64_t>(intercepts ? intercepts : labels.size());
  const Classified out = linear_classify(c.in(0), model_of(c, classes), labels,
                                         score_transform(c, c.text("post_transform", "NONE")));
  return {out.label, out.scores};
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
