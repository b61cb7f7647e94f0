// Compares the registry of the linked ONNX library with the importer's tables.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "compiler/base/dtype.h"
#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/frontend/onnx/schema.h"

using namespace stridec;
using namespace stridec::onnx;

namespace {

constexpr int kComplex64 = 14,
              kComplex128 = 15;  // element types of TensorProto.DataType without arithmetic

struct Domain {
  const char* name;
  int oldest;  // version
};
constexpr Domain kDomains[] = {{"", 7}, {"ai.onnx.ml", 1}, {"ai.onnx.preview.training", 1}};

// The operator versions that a model may use if its opset is `oldest` or later.
std::vector<int> in_force(const std::vector<int>& since, int oldest) {
  std::vector<int> out;
  for (size_t i = 0; i < since.size(); ++i)
    if (i + 1 == since.size() || since[i + 1] > oldest) out.push_back(since[i]);
  return out;
}

}  // namespace

TEST_CASE("every operator of ONNX has a row or a function body in every version, or a reason") {
  int operators = 0;
  for (const Domain& domain : kDomains)
    for (const auto& [op_type, since] : operators_of(domain.name)) {
      ++operators;
      for (int version : in_force(since, domain.oldest)) {
        const Node node{
            .op_type = op_type, .domain = domain.name, .version = std::max(version, domain.oldest)};
        const bool supported = find_row(node) || find_schema(op_type, domain.name, version)->has_function;
        CHECK_MESSAGE(
            (supported || !limits_of(domain.name, op_type).empty()),
            cat(domain.name, " ", op_type, " ", version, " is neither supported nor in the list of limits"));
      }
    }
  CHECK(operators > 200);  // the library is linked with its schemas
}

TEST_CASE("every element type that an operator of ONNX may have has a dtype here") {
  for (const Domain& domain : kDomains)
    for (const auto& [op_type, since] : operators_of(domain.name))
      for (int version : in_force(since, domain.oldest))
        for (const TypeParameter& parameter : type_parameters(op_type, domain.name, version))
          for (int type : parameter.elem_types)
            CHECK_MESSAGE(
                (dtype_from_onnx(type) || type == kElemString || type == kComplex64 || type == kComplex128),
                cat(op_type, " ", version, ": ", parameter.name, " may be of element type ", type));
}

TEST_CASE("limits are those of operators that there are") {
  std::set<std::string> names;
  for (const auto& info : operators())
    if (!info.limits.empty()) names.insert(info.name);
  CHECK(names.size() == limits().size());
}

TEST_CASE("'stridec ops' says of every operator how it is covered, or why not") {
  for (const auto& info : operators()) {
    CHECK_MESSAGE((!info.through.empty() || !info.limits.empty()), info.name);
    CHECK_MESSAGE(info.through.empty() == info.versions.empty(), info.name);
  }
}
