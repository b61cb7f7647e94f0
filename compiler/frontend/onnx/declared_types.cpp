#include "compiler/frontend/onnx/declared_types.h"

#include <algorithm>

#include "compiler/base/text.h"

namespace stridec::onnx {
namespace {

// "node 3 'head/Relu'", a node of the top-level graph.
std::string producer(const Model& model, const std::string& name) {
  for (const Node& n : model.graph.nodes)
    if (std::find(n.outputs.begin(), n.outputs.end(), name) != n.outputs.end()) return describe(n);
  return "";
}

std::string text_of(const Type& type) {
  std::string text = elem_type_name(type.elem_type);
  if (!type.shape) return text;
  return cat(text, "[",
             join(*type.shape, ", ",
                  [](const Dim& d) {
                    return d.value ? std::to_string(*d.value) : d.param.empty() ? "?" : d.param;
                  }),
             "]");
}

// Whether the rank differs, or a declared fixed size differs from the computed size or may differ from it.
// Dim names are ignored, since names are computed.
bool declares_other_shape(const Builder& b, const ValueInfo& v, const graph::Type& computed) {
  if (v.type.kind != Type::Kind::kTensor || !v.type.shape) return false;
  if (v.type.shape->size() != computed.shape.size()) return true;
  for (size_t i = 0; i < computed.shape.size(); ++i)
    if (const auto& fixed = (*v.type.shape)[i].value; fixed && !b.holds(sym::eq(computed.shape[i], *fixed)))
      return true;
  return false;
}

}  // namespace

void check_output(const Model& model, const Builder& b, const ValueInfo& v, graph::ValueId value,
                  Imported& out) {
  const graph::Type& computed = b.type(value);
  if (v.type.kind != Type::Kind::kTensor) return;
  Diagnostic found{
      .kind = ErrorKind::kDoesNotFit,
      .code = "declared-type",
      .message = cat("the model declares ", text_of(v.type), ", but computes ", graph::to_string(computed)),
      .where = {.file = model.file, .node = producer(model, v.name), .tensor = "output '" + v.name + "'"},
      .help = "correct the declaration, or the graph"};
  if (v.type.elem_type && v.type.elem_type != info(computed.dtype).onnx_type) {
    out.problems.push_back(std::move(found));
  } else if (declares_other_shape(b, v, computed)) {
    found.code = "declared-shape";
    found.help = "the artifact has the computed shape";
    out.warnings.push_back(std::move(found));
  }
}

void check_inner_shapes(const Model& model, const Builder& b,
                        const std::function<const Slot*(const std::string&)>& find,
                        std::vector<Diagnostic>& warnings) {
  constexpr size_t kNamed = 3;
  std::vector<std::string> differ;
  size_t count = 0;
  for (const ValueInfo& v : model.graph.value_infos) {
    const Slot* slot = find(v.name);
    if (!slot || slot->kind != Slot::Kind::kTensor) continue;
    const graph::Type& computed = b.type(slot->tensor);
    if (!declares_other_shape(b, v, computed)) continue;
    if (++count <= kNamed)
      differ.push_back(
          cat("'", v.name, "' is declared ", text_of(v.type), ", computed ", graph::to_string(computed)));
  }
  if (count == 0) return;
  warnings.push_back({.kind = ErrorKind::kDoesNotFit,
                      .code = "declared-shape",
                      .message = cat(count == 1 ? "an inner value has" : cat(count, " inner values have"),
                                     " another shape than the model declares: ", join(differ, "; "),
                                     count > kNamed ? cat("; and ", count - kNamed, " more") : ""),
                      .where = {.file = model.file},
                      .help = "the computed shapes hold"});
}

}  // namespace stridec::onnx
