// The op harness: a case builds a small graph, says what comes in and what must come out; every case runs
// with constant shapes and with a symbol per input dim, through a runner that others may replace (compiled
// code instead of the interpreter).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/loop/interpret.h"

namespace stridec::ops::test {

using graph::Builder;
using graph::ValueId;
using loop::HostTensor;

using Runner = std::function<std::vector<HostTensor>(const loop::Program&, const std::vector<HostTensor>&)>;
Runner& runner();

struct Case {
  std::string name;
  std::vector<HostTensor> inputs;
  std::function<std::vector<ValueId>(Builder&, const std::vector<ValueId>&)> build;
  std::vector<HostTensor> expected;
  double tolerance = -1;              // relative and absolute; below 0: by dtype
  std::vector<size_t> constant = {};  // inputs that are constants of the graph
  std::vector<size_t> fixed = {};     // inputs whose shape stays constant
  bool symbolic = true;
};
void check(const Case& c);

// The message of the error that building or running the case ends with; empty when it succeeds.
std::string failure(const Case& c, bool symbolic);

// ---- tensors
HostTensor tensor(DType dtype, std::vector<int64_t> shape, const std::vector<double>& values);
// Numbers of both signs without a pattern, a different sequence per seed; integers within -9..9 (0..9
// unsigned).
HostTensor sample(DType dtype, std::vector<int64_t> shape, int seed = 1);
HostTensor sample_in(DType dtype, std::vector<int64_t> shape, double low, double high, int seed = 1);
// The value of every element of a result from its coordinates.
using At = std::vector<int64_t>;
HostTensor compute(DType dtype, std::vector<int64_t> shape, const std::function<double(const At&)>& value);
double at(const HostTensor& tensor, const At& at);
void for_each(const std::vector<int64_t>& shape, const std::function<void(const At&)>& visit);
std::vector<int64_t> broadcast(const std::vector<int64_t>& a, const std::vector<int64_t>& b);
double at_broadcast(const HostTensor& tensor, const At& at);

}  // namespace stridec::ops::test
