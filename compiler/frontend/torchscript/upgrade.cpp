#include "compiler/frontend/torchscript/upgrade.h"

#include <algorithm>

namespace stridec::torchscript {
namespace {

constexpr int kTrueDivision = 4, kTypedFull = 5, kLinspaceSteps = 8, kLogspaceSteps = 9;
constexpr int64_t kFloat32 = 6, kOldSteps = 100;

bool has(const Arguments& a, const std::string& name) { return std::ranges::count(a.names, name) > 0; }

bool is_floating(Evaluator& e, const Value& v) {
  if (v.is(Value::Kind::kTensor)) return is_float(aten::read(e.b, v.tensor).dtype());
  return v.is(Value::Kind::kFloat) || v.is(Value::Kind::kComplex);
}

}  // namespace

void upgrade(Evaluator& e, const std::string& space, const std::string& name, Arguments& arguments) {
  if (space != "aten") return;
  if (e.version < kTrueDivision && (name == "div" || name == "div_") && !has(arguments, "rounding_mode") &&
      arguments.values.size() >= 2) {
    const bool tensors = arguments.values[0].is_tensor() || arguments.values[1].is_tensor();
    if (tensors && !is_floating(e, arguments.values[0]) && !is_floating(e, arguments.values[1]))
      arguments.add(Value::of_string("trunc"), "rounding_mode");
  }
  const bool typed = has(arguments, "dtype") || has(arguments, "out") || arguments.values.size() > 2;
  if (e.version < kTypedFull && name == "full" && !typed) arguments.add(Value::of_integer(kFloat32), "dtype");
  const bool steps = has(arguments, "steps") || arguments.values.size() > 2;
  if (e.version < kLinspaceSteps && name == "linspace" && !steps)
    arguments.add(Value::of_integer(kOldSteps), "steps");
  if (e.version < kLogspaceSteps && name == "logspace" && !steps)
    arguments.add(Value::of_integer(kOldSteps), "steps");
}

}  // namespace stridec::torchscript
