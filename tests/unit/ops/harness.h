// The op test harness. A case builds a small graph and has its inputs and expected outputs. Each case runs
// with constant shapes and with a symbol per input dim, through a replaceable runner (the interpreter or
// compiled code).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/loop/interpret.h"

namespace stridec::ops::test {

using graph::Builder;
using graph::ValueId;
using loop::HostTensor;

// The outputs of a program; nothing if its code was not run, so that there are no values to check.
using Outputs = std::optional<std::vector<HostTensor>>;
using Runner = std::function<Outputs(const loop::Program&, const std::vector<HostTensor>&)>;
Runner& runner();

struct Case {
  std::string name;
  std::vector<HostTensor> inputs;
  std::function<std::vector<ValueId>(Builder&, const std::vector<ValueId>&)> build;
  std::vector<HostTensor> expected;
  double tolerance = -1;              // relative and absolute; negative: depends on the dtype
  std::vector<size_t> constant = {};  // inputs that are constants of the graph
  std::vector<size_t> fixed = {};     // inputs whose shape stays constant
  bool symbolic = true;
};
void check(const Case& c);

// The error message of building or running the case; empty if it succeeds.
std::string failure(const Case& c, bool symbolic);

// ---- tensors
HostTensor tensor(DType dtype, std::vector<int64_t> shape, const std::vector<double>& values);
// Pseudo-random values of both signs, different for each seed; integers are in -9..9 (0..9 if unsigned).
HostTensor sample(DType dtype, std::vector<int64_t> shape, int seed = 1);
HostTensor sample_in(DType dtype, std::vector<int64_t> shape, double low, double high, int seed = 1);
// A tensor whose elements are computed from their coordinates.
using At = std::vector<int64_t>;
HostTensor compute(DType dtype, std::vector<int64_t> shape, const std::function<double(const At&)>& value);
double at(const HostTensor& tensor, const At& at);
void for_each(const std::vector<int64_t>& shape, const std::function<void(const At&)>& visit);
std::vector<int64_t> broadcast(const std::vector<int64_t>& a, const std::vector<int64_t>& b);
double at_broadcast(const HostTensor& tensor, const At& at);

}  // namespace stridec::ops::test
