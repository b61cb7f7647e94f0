#include "compiler/frontend/onnx/constant_tables.h"

#include "compiler/base/number.h"
#include "compiler/base/text.h"

namespace stridec::onnx {

using namespace ops;

std::vector<double> float_values(const Tensor& t) {
  const auto dtype = t.dtype();
  if (!dtype || !is_float(*dtype))
    fail(ErrorKind::kDoesNotFit, "table-type",
         cat("a table of floats is given as ", elem_type_name(t.elem_type)));
  std::vector<double> out;
  const auto* bytes = reinterpret_cast<const uint8_t*>(t.bytes.data);
  for (int64_t i = 0; i < t.count(); ++i) out.push_back(read_float(*dtype, bytes + i * byte_size(*dtype)));
  return out;
}

std::vector<int64_t> integer_values(const Tensor& t) {
  const auto dtype = t.dtype();
  if (!dtype || is_float(*dtype))
    fail(ErrorKind::kDoesNotFit, "table-type",
         cat("a table of integers is given as ", elem_type_name(t.elem_type)));
  std::vector<int64_t> out;
  const auto* bytes = reinterpret_cast<const uint8_t*>(t.bytes.data);
  for (int64_t i = 0; i < t.count(); ++i) out.push_back(read_integer(*dtype, bytes + i * byte_size(*dtype)));
  return out;
}

std::vector<double> float_attribute(const Context& c, const std::string& name) {
  if (const Tensor* t = c.tensor(name + "_as_tensor")) return float_values(*t);
  if (const Tensor* t = c.tensor(name)) return float_values(*t);
  return c.numbers(name);
}

ScoreTransform score_transform(const Context& c, const std::string& name) {
  constexpr std::pair<std::string_view, ScoreTransform> kKinds[] = {
      {"NONE", ScoreTransform::kNone},
      {"LOGISTIC", ScoreTransform::kLogistic},
      {"SOFTMAX", ScoreTransform::kSoftmax},
      {"SOFTMAX_ZERO", ScoreTransform::kSoftmaxZero},
      {"PROBIT", ScoreTransform::kProbit}};
  for (const auto& [kind, transform] : kKinds)
    if (kind == name) return transform;
  c.does_not_fit("post_transform is '" + name + "'");
}

}  // namespace stridec::onnx
