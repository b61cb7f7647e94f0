// Operators on maps. Slots hold a map as its keys and its values.
#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/frontend/onnx/strings.h"
#include "compiler/ops/composite/maps.h"

namespace stridec::onnx {
namespace {

using namespace ops;

constexpr const char* kMl = "ai.onnx.ml";

TermOrStrings part_of(const Context& c, const Slot& part) {
  if (part.kind == Slot::Kind::kStrings) return strings_of(c.b, part);
  return Term(c.b, part.tensor);
}

Map map_of(const Context& c, size_t input) {
  const Slot& s = c.slot(input);
  if (s.kind != Slot::Kind::kMap) c.does_not_fit(cat("input ", input, " is not a map"));
  return {part_of(c, s.items.at(0)), part_of(c, s.items.at(1))};
}

// The map's values in the order of the vocabulary; zero or empty if the map lacks a key.
Outputs dict_vectorizer(Context& c) {
  const Map map = map_of(c, 0);
  Labels vocabulary;
  vocabulary.strings = c.texts("string_vocabulary");
  vocabulary.integers = c.integers("int64_vocabulary");
  if (vocabulary.strings.empty() == vocabulary.integers.empty())
    c.does_not_fit("expected exactly one vocabulary");
  if (std::holds_alternative<Strings>(map.keys) == vocabulary.strings.empty())
    c.does_not_fit("the vocabulary is of another type than the map's keys");
  return {values_of_vocabulary(map, std::move(vocabulary), {.number = 0, .text = ""})};
}

// Values by ascending key (dense), or each at the column given by its key (sparse). Missing columns are 0, or
// the text "0.f", as in onnxruntime.
Outputs cast_map(Context& c) {
  const Map map = map_of(c, 0);
  if (!std::holds_alternative<Term>(map.keys)) c.does_not_fit("the map's keys are not integers");
  const std::string to = c.text("cast_to", "TO_FLOAT"), form = c.text("map_form", "DENSE");
  const int64_t columns = c.integer("max_map", 1);
  if (form != "DENSE" && (form != "SPARSE" || columns < 1))
    c.does_not_fit(cat("map_form is '", form, "', max_map ", columns));
  if (to != "TO_FLOAT" && to != "TO_INT64" && to != "TO_STRING") c.does_not_fit("cast_to is '" + to + "'");
  const MissingValue missing{.number = 0, .text = "0.f"};
  const TermOrStrings taken =
      form == "DENSE" ? values_by_key(map, missing) : values_at_key(map, columns, missing);
  if (std::holds_alternative<Strings>(taken) != (to == "TO_STRING"))
    c.unsupported("CastMap between strings and numbers is not supported",
                  "convert the values before the model");
  if (to == "TO_STRING") return {taken};
  return {cast(std::get<Term>(taken), to == "TO_FLOAT" ? DType::kF32 : DType::kI64)};
}

constexpr Row kRows[] = {
    {"CastMap", cast_map, 1, kAnyLater, kMl},
    {"DictVectorizer", dict_vectorizer, 1, kAnyLater, kMl},
};

}  // namespace

std::span<const Row> map_rows() { return kRows; }

}  // namespace stridec::onnx
