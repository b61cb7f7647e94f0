#include "gradient_harness.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "compiler/base/text.h"
#include "compiler/ops/gradient.h"
#include "compiler/ops/nodes.h"

namespace stridec::ops::test {
namespace {

using graph::OpKind;

std::vector<ValueId> floats(Builder& b, const std::vector<ValueId>& values) {
  std::vector<ValueId> out;
  for (ValueId v : values)
    if (is_float(b.dtype(v))) out.push_back(v);
  return out;
}

// Differences are taken with the interpreter, whatever runs the gradients.
double value_at(const Function& f, const std::vector<HostTensor>& inputs) {
  graph::Graph g;
  Builder b(g, shape_table());
  std::vector<ValueId> ids;
  for (size_t i = 0; i < inputs.size(); ++i) {
    graph::Type type{inputs[i].dtype, {}};
    for (int64_t size : inputs[i].shape) type.shape.emplace_back(size);
    ids.push_back(b.input(cat("x", i), type));
  }
  b.output("y", weighted_sum(b, f(b, ids)));
  graph::eliminate_dead_code(g);
  return loop::get_number(loop::interpret(lower(g), inputs, {.poison = true})[0], 0);
}

std::vector<HostTensor> differences(const Function& f, std::vector<HostTensor> inputs) {
  std::vector<HostTensor> out;
  for (HostTensor& x : inputs) {
    if (!is_float(x.dtype)) continue;
    HostTensor slopes = loop::make_tensor(x.dtype, x.shape);
    for (int64_t i = 0; i < loop::element_count(x); ++i) {
      const double at = loop::get_number(x, i), step = 1e-5;
      double sides[2];
      for (int side : {0, 1}) {
        loop::set_number(x, i, side ? at + step : at - step);
        sides[side] = value_at(f, inputs);
      }
      loop::set_number(x, i, at);
      loop::set_number(slopes, i, (sides[1] - sides[0]) / (2 * step));
    }
    out.push_back(std::move(slopes));
  }
  return out;
}

std::vector<ValueId> gradients_of(const Function& f, Builder& b, const std::vector<ValueId>& in) {
  return gradients(b, weighted_sum(b, f(b, in)), floats(b, in));
}

HostTensor transposed(const HostTensor& x) {
  std::vector<int64_t> shape(x.shape.rbegin(), x.shape.rend());
  return compute(x.dtype, shape, [&](const At& i) { return at(x, {i.rbegin(), i.rend()}); });
}

void check_first(const std::string& name, const std::vector<HostTensor>& inputs, const Function& f,
                 const GradientCheck& options, double tolerance) {
  Case c{.name = name,
         .inputs = inputs,
         .build = [&](Builder& b, const std::vector<ValueId>& in) { return gradients_of(f, b, in); },
         .expected = differences(f, inputs),
         .tolerance = tolerance,
         .fixed = options.fixed,
         .symbolic = options.symbolic};
  check(c);
}

}  // namespace

bool& thorough() {
  static bool value = true;
  return value;
}

Term weighted_sum(Builder& b, ValueId value, double seed) {
  const Term y(b, value);
  Dims all;
  Term weight = number_like(y, seed);
  for (int64_t d = 0; d < y.rank(); ++d) {
    all.push_back(d);
    const Term at = index_along(b, y.shape(), d, y.dtype());
    weight = weight * 0.7 + apply(OpKind::kSin, at * 1.3 + static_cast<double>(d) + seed - 0.5);
  }
  const Term product = y * weight;
  return all.empty() ? product : reduce_sum(product, all);
}

void check_gradient(const std::string& name, const std::vector<HostTensor>& inputs, const Function& f,
                    const GradientCheck& options) {
  INFO(name);
  check_first(name, inputs, f, options, 2e-6);
  if (!thorough()) return;
  if (options.strided) {
    std::vector<HostTensor> turned;
    for (const HostTensor& x : inputs) turned.push_back(transposed(x));
    const Function through = [&](Builder& b, const std::vector<ValueId>& in) {
      std::vector<ValueId> views;
      for (ValueId v : in) {
        Dims order;
        for (int64_t d = b.rank(v); d-- > 0;) order.push_back(d);
        views.push_back(permute(b, v, order));
      }
      return f(b, views);
    };
    check_first(cat(name, ", transposed"), turned, through, options, 2e-6);
  }
  if (!options.second) return;
  // The cotangent is the last input times fixed weights.
  std::vector<HostTensor> more = inputs;
  more.push_back(sample_in(DType::kF64, {}, 0.5, 1.5));
  const Function slope = [&](Builder& b, const std::vector<ValueId>& in) {
    const std::vector<ValueId> xs(in.begin(), in.end() - 1);
    const Term y = weighted_sum(b, f(b, xs), 0.8) * Term(b, in.back());
    Term sum = number_like(y, 0);
    for (ValueId g : gradients(b, y, floats(b, xs))) sum = sum + weighted_sum(b, g, 1.1);
    return sum.id();
  };
  check_first(cat(name, ", second order"), more, slope, options, 2e-5);
}

void check_gradient_is(const std::string& name, const std::vector<HostTensor>& inputs, const Function& f,
                       const std::vector<HostTensor>& expected, bool symbolic) {
  check({.name = name,
         .inputs = inputs,
         .build = [&](Builder& b,
                      const std::vector<ValueId>& in) { return gradients(b, f(b, in), floats(b, in)); },
         .expected = expected,
         .symbolic = symbolic});
}

HostTensor numbers(std::vector<int64_t> shape, int seed) {
  return sample(DType::kF64, std::move(shape), seed);
}

HostTensor places(std::vector<int64_t> shape, const std::vector<double>& values) {
  return tensor(DType::kI64, std::move(shape), values);
}

Function of(OpKind kind, graph::Attributes attributes) {
  return [kind, attributes](Builder& b, const std::vector<ValueId>& in) {
    return b.add(kind, in, attributes)[0];
  };
}

}  // namespace stridec::ops::test
