// The public ONNX backend suite as data: its tests with inputs and expected outputs, and the comparison of
// ONNX's own runner (dtype and shape exactly, values with rtol 1e-3 and atol 1e-7).
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
  double of_largest = 0;  // additionally, relative to the tensor's largest finite magnitude
};

struct Test {
  std::string name;
  std::filesystem::path model;
  std::vector<std::filesystem::path> data_sets;  // empty: a light model
  std::filesystem::path light_output;
  Tolerance tolerance;
};

// DATA contains node/, simple/, light/, pytorch-*/. Tests are sorted by name.
std::vector<Test> find_tests(const std::filesystem::path& data);
// The operator under test: that of the model's only node, or of the test whose expanded form this is;
// otherwise the family in brackets.
std::string operator_of(const Test& test);

// The model whose expanded form this test's model is; empty if there is none.
std::filesystem::path unexpanded_model(const Test& test);

struct Data {
  std::vector<onnx::Value> inputs, outputs;  // of the model, in its order
};
Data load(const Test& test, const std::filesystem::path& folder, const onnx::Model& model);

// Strings in the artifact's format: u8 [shape..., bytes], zero-padded.
loop::HostTensor host(const onnx::Tensor& tensor);

// Returns an empty string if the values are equal within the tolerance.
std::string difference(const loop::HostTensor& got, const loop::HostTensor& want, Tolerance tolerance);
std::string difference(const std::vector<loop::HostTensor>& got, const Data& want, Tolerance tolerance);

std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace stridec::conformance
