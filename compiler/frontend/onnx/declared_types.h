// Compares the types that a model declares for its values with the types that the importer computes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/frontend/onnx/import.h"
#include "compiler/frontend/onnx/import_context.h"

namespace stridec::onnx {

// A mismatch of shapes is a warning, as in onnxruntime, because exporters declare output shapes from
// example inputs: the computed shape holds. A mismatch of element types is an error, because callers rely
// on them.
void check_output(const Model& model, const Builder& b, const ValueInfo& v, ValueId value, Imported& out);

// Declared shapes of inner values have no effect: one warning covers all mismatches.
// `find` returns the value of a name, or null.
void check_inner_shapes(const Model& model, const Builder& b,
                        const std::function<const Slot*(const std::string&)>& find,
                        std::vector<Diagnostic>& warnings);

}  // namespace stridec::onnx
