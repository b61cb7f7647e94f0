// Checks gradients against central differences.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/ops/term.h"
#include "harness.h"

namespace stridec::ops::test {

using Function = std::function<ValueId(Builder&, const std::vector<ValueId>&)>;

// The sum of the elements, each with a weight of its own; `seed` chooses the weights.
Term weighted_sum(Builder& b, ValueId value, double seed = 0.5);

// What differences cannot or need not decide.
struct GradientCheck {
  std::vector<size_t> fixed = {};  // inputs whose shape stays constant
  bool symbolic = true;            // with a symbol for each size, too
  bool second = true;              // the gradient of the gradient, too
  bool strided = true;             // with transposed inputs, too
};

// Whether check_gradient also takes transposed inputs and the second order: true unless set.
bool& thorough();

// f's gradients in all inputs that are floats: with constant and with symbolic sizes, and of contiguous and
// of transposed inputs. Then the gradients of a weighted sum of them, in the inputs and in the cotangent,
// which is a Jacobian-vector product.
void check_gradient(const std::string& name, const std::vector<HostTensor>& inputs, const Function& f,
                    const GradientCheck& options = {});

// f's gradients in all inputs that are floats are these.
void check_gradient_is(const std::string& name, const std::vector<HostTensor>& inputs, const Function& f,
                       const std::vector<HostTensor>& expected, bool symbolic = true);

HostTensor numbers(std::vector<int64_t> shape, int seed = 1);
HostTensor places(std::vector<int64_t> shape, const std::vector<double>& values);
Function of(graph::OpKind kind, graph::Attributes attributes = {});

}  // namespace stridec::ops::test
