#include "harness.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/graph/text.h"
#include "compiler/graph/verify.h"
#include "compiler/loop/verify.h"
#include "compiler/ops/op_table.h"

namespace stridec::ops::test {

Runner& runner() {
  static Runner current = [](const loop::Program& program, const std::vector<HostTensor>& inputs) {
    return loop::interpret(program, inputs, {.poison = true});
  };
  return current;
}

namespace {

bool has(const std::vector<size_t>& list, size_t i) {
  return std::find(list.begin(), list.end(), i) != list.end();
}

// How many programs have values to check, and for how many the runner gave none; printed when the process
// ends (tests/unit.sh reads it).
struct ValueChecks {
  long asked = 0, skipped = 0;
  ~ValueChecks() {
    if (skipped) std::printf("value checks: %ld of %ld skipped\n", skipped, asked);
  }
};

ValueChecks& value_checks() {
  static ValueChecks all;
  return all;
}

Outputs run(const Case& c, bool symbolic) {
  graph::Graph g;
  g.name = "case";
  Builder b(g, shape_table());
  std::vector<ValueId> values;
  std::vector<HostTensor> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const HostTensor& t = c.inputs[i];
    graph::Type type{t.dtype, {}};
    for (size_t d = 0; d < t.shape.size(); ++d)
      type.shape.push_back(symbolic && !has(c.fixed, i) && !has(c.constant, i) ? sym::var(cat("x", i, "_", d))
                                                                               : sym::Expr(t.shape[d]));
    if (has(c.constant, i)) {
      values.push_back(b.constant(cat("c", i), type, graph::own(t.bytes)));
    } else {
      values.push_back(b.input(cat("x", i), type));
      inputs.push_back(t);
    }
  }
  const auto outputs = c.build(b, values);
  for (size_t i = 0; i < outputs.size(); ++i) b.output(cat("y", i), outputs[i]);
  graph::eliminate_dead_code(g);
  const std::vector<std::string> found = graph::problems(g, shape_table());
  CHECK_MESSAGE(found.empty(), join(found, "; "), "\n", graph::to_string(g));
  const std::string text = graph::to_string(g);
  CHECK(graph::to_string(graph::parse(text)) == text);
  const loop::Program program = lower(g);
  loop::verify(program);
  return runner()(program, inputs);
}

double default_tolerance(DType dtype) {
  switch (dtype) {
    case DType::kF64: return 1e-12;
    case DType::kF32: return 2e-6;
    case DType::kF16: return 2e-3;
    case DType::kBF16: return 1.6e-2;
    default: return is_float(dtype) ? 0.15 : 0;
  }
}

void compare(const HostTensor& got, const HostTensor& want, double tolerance) {
  REQUIRE(name(got.dtype) == name(want.dtype));
  REQUIRE(got.shape == want.shape);
  for (int64_t i = 0; i < loop::element_count(want); ++i) {
    const double x = get_number(got, i), y = get_number(want, i);
    if ((std::isnan(x) && std::isnan(y)) || x == y) continue;
    const double error = std::fabs(x - y) / std::max(1.0, std::fabs(y));
    INFO("element ", i, ": ", x, " where ", y, " is expected");
    CHECK(error <= tolerance);
    if (!(error <= tolerance)) return;
  }
}

}  // namespace

void check(const Case& c) {
  for (bool symbolic : {false, true}) {
    if (symbolic && !c.symbolic) continue;
    INFO(c.name, symbolic ? " with symbolic dims" : " with constant dims");
    Outputs got;
    try {
      got = run(c, symbolic);
    } catch (const Error& error) {
      FAIL_CHECK(render(error.diagnostic));
      continue;
    }
    ++value_checks().asked;
    if (!got) {
      ++value_checks().skipped;
      continue;
    }
    REQUIRE(got->size() == c.expected.size());
    for (size_t i = 0; i < got->size(); ++i)
      compare((*got)[i], c.expected[i],
              c.tolerance >= 0 ? c.tolerance : default_tolerance(c.expected[i].dtype));
  }
}

std::string failure(const Case& c, bool symbolic) {
  try {
    run(c, symbolic);
  } catch (const Error& error) {
    return error.diagnostic.message;
  }
  return "";
}

HostTensor tensor(DType dtype, std::vector<int64_t> shape, const std::vector<double>& values) {
  HostTensor t = loop::make_tensor(dtype, std::move(shape));
  REQUIRE(loop::element_count(t) == static_cast<int64_t>(values.size()));
  for (size_t i = 0; i < values.size(); ++i) set_number(t, static_cast<int64_t>(i), values[i]);
  return t;
}

HostTensor sample_in(DType dtype, std::vector<int64_t> shape, double low, double high, int seed) {
  HostTensor t = loop::make_tensor(dtype, std::move(shape));
  uint64_t state = 0x9E3779B97F4A7C15ull * static_cast<uint64_t>(seed + 1);
  for (int64_t i = 0; i < loop::element_count(t); ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const double unit = static_cast<double>(state >> 11) * 0x1p-53;
    double value = low + (high - low) * unit;
    if (!is_float(dtype)) value = std::floor(low + (high + 1 - low) * unit);
    set_number(t, i, value);
  }
  return t;
}

HostTensor sample(DType dtype, std::vector<int64_t> shape, int seed) {
  if (is_bool(dtype)) return sample_in(dtype, std::move(shape), 0, 1, seed);
  if (is_float(dtype)) return sample_in(dtype, std::move(shape), -3, 3, seed);
  return sample_in(dtype, std::move(shape), is_signed(dtype) ? -9 : 0, 9, seed);
}

void for_each(const std::vector<int64_t>& shape, const std::function<void(const At&)>& visit) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  At at(shape.size(), 0);
  for (int64_t i = 0; i < count; ++i) {
    visit(at);
    for (size_t d = at.size(); d-- > 0;) {
      if (++at[d] < shape[d]) break;
      at[d] = 0;
    }
  }
}

HostTensor compute(DType dtype, std::vector<int64_t> shape, const std::function<double(const At&)>& value) {
  HostTensor t = loop::make_tensor(dtype, std::move(shape));
  int64_t i = 0;
  for_each(t.shape, [&](const At& at) { set_number(t, i++, value(at)); });
  return t;
}

double at(const HostTensor& tensor, const At& at) {
  int64_t flat = 0;
  for (size_t d = 0; d < at.size(); ++d) flat = flat * tensor.shape[d] + at[d];
  return get_number(tensor, flat);
}

std::vector<int64_t> broadcast(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  std::vector<int64_t> out(std::max(a.size(), b.size()));
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t x = i < out.size() - a.size() ? 1 : a[i - (out.size() - a.size())];
    const int64_t y = i < out.size() - b.size() ? 1 : b[i - (out.size() - b.size())];
    out[i] = x == 1 ? y : x;
  }
  return out;
}

double at_broadcast(const HostTensor& tensor, const At& where) {
  At mine(where.end() - static_cast<std::ptrdiff_t>(tensor.shape.size()), where.end());
  for (size_t d = 0; d < mine.size(); ++d)
    if (tensor.shape[d] == 1) mine[d] = 0;
  return at(tensor, mine);
}

}  // namespace stridec::ops::test
