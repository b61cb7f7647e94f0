// The public ONNX backend suite as data: its tests, their inputs and expected outputs, and how ONNX's own runner
// compares (dtype and shape exactly, numbers with rtol 1e-3 and atol 1e-7).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/model.h"
#include "compiler/frontend/onnx/proto.h"
#include "compiler/frontend/onnx/read.h"
#include "compiler/loop/interpret.h"

namespace stridec::conformance {

struct Tolerance {
  double relative = 1e-3, absolute = 1e-7;
  double of_largest = 0;  // of the tensor's largest finite magnitude, in addition
};

struct Test {
  std::string name;
  std::filesystem::path model;
  std::vector<std::filesystem::path> data_sets;  // none: a light model
  std::filesystem::path light_output;
  Tolerance tolerance;
};

// DATA holds node/, simple/, light/, pytorch-*/. Sorted by name.
std::vector<Test> find_tests(const std::filesystem::path& data);
// The operator that the test is about: of the model's only node, of the test that this one is the expanded form of,
// otherwise the family in brackets.
std::string operator_of(const Test& test);

// The model that this test's model is an expanded form of; empty: none.
std::filesystem::path unexpanded_model(const Test& test);

struct Data {
  std::vector<onnx::Value> inputs, outputs;  // of the model, in its order
};
Data load(const Test& test, const std::filesystem::path& folder, const onnx::Model& model);

// Strings as the artifact takes them: u8 [shape..., bytes], padded with zero bytes.
loop::HostTensor host(const onnx::Tensor& tensor);

// Empty: equal within the tolerance.
std::string difference(const loop::HostTensor& got, const loop::HostTensor& want, Tolerance tolerance);
std::string difference(const std::vector<loop::HostTensor>& got, const Data& want, Tolerance tolerance);

std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace stridec::conformance
