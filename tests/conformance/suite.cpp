#include "tests/conformance/suite.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"

namespace stridec::conformance {

namespace fs = std::filesystem;

namespace {

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

onnx::Value read_value(const fs::path& path, const onnx::Type& type) {
  const std::string content = read_file(path);
  return onnx::parse_value({reinterpret_cast<const std::byte*>(content.data()), content.size()}, type);
}

// Strings in the artifact's format: u8 [shape..., bytes], zero-padded.
loop::HostTensor host_strings(const onnx::Tensor& t) {
  size_t width = 0;
  for (const std::string& s : t.strings) width = std::max(width, s.size());
  loop::HostTensor out{
      .dtype = DType::kU8, .shape = t.dims, .bytes = std::vector<uint8_t>(width * t.strings.size())};
  out.shape.push_back(static_cast<int64_t>(width));
  for (size_t i = 0; i < t.strings.size(); ++i)
    std::copy(t.strings[i].begin(), t.strings[i].end(),
              out.bytes.begin() + static_cast<ptrdiff_t>(i * width));
  return out;
}

std::string string_difference(loop::HostTensor got, const onnx::Tensor& want) {
  if (got.dtype != DType::kU8 || got.shape.empty())
    return cat("dtype ", name(got.dtype), ", expected strings");
  const auto width = static_cast<size_t>(got.shape.back());
  got.shape.pop_back();
  if (got.shape != want.dims)
    return cat("shape ", shape_text(got.shape), ", expected ", shape_text(want.dims));
  for (size_t i = 0; i < want.strings.size(); ++i) {
    std::string text(got.bytes.begin() + static_cast<ptrdiff_t>(i * width),
                     got.bytes.begin() + static_cast<ptrdiff_t>((i + 1) * width));
    text.resize(std::min(text.find('\0'), text.size()));
    if (text != want.strings[i])
      return cat("element ", i, " is '", text, "', expected '", want.strings[i], "'");
  }
  return {};
}

double largest_magnitude(const loop::HostTensor& tensor) {
  double largest = 0;
  for (int64_t i = 0; i < loop::element_count(tensor); ++i)
    if (const double v = std::fabs(loop::get_number(tensor, i)); std::isfinite(v))
      largest = std::max(largest, v);
  return largest;
}

}  // namespace

loop::HostTensor host(const onnx::Tensor& t) {
  if (t.elem_type == onnx::kElemString) return host_strings(t);
  const auto type = t.dtype();
  if (!type) fail(ErrorKind::kUnsupported, "unsupported-dtype", onnx::elem_type_name(t.elem_type) + " data");
  loop::HostTensor out{.dtype = *type, .shape = t.dims, .bytes = std::vector<uint8_t>(t.bytes.size)};
  if (t.bytes.size) std::memcpy(out.bytes.data(), t.bytes.data, t.bytes.size);
  return out;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return "[" + join(shape, ",", [](int64_t d) { return std::to_string(d); }) + "]";
}

std::string difference(const loop::HostTensor& got, const loop::HostTensor& want, Tolerance tolerance) {
  if (got.dtype != want.dtype) return cat("dtype ", name(got.dtype), ", expected ", name(want.dtype));
  if (got.shape != want.shape)
    return cat("shape ", shape_text(got.shape), ", expected ", shape_text(want.shape));
  if (tolerance.of_largest > 0) tolerance.absolute += tolerance.of_largest * largest_magnitude(want);
  for (int64_t i = 0; i < loop::element_count(want); ++i) {
    const double a = loop::get_number(got, i), b = loop::get_number(want, i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    if (!(std::fabs(a - b) <= tolerance.absolute + tolerance.relative * std::fabs(b)))
      return cat("element ", i, " is ", a, ", expected ", b);
  }
  return {};
}

std::string difference(const std::vector<loop::HostTensor>& got, const Data& want, Tolerance tolerance) {
  std::vector<onnx::Tensor> wanted;
  for (const onnx::Value& v : want.outputs) wanted.insert(wanted.end(), v.tensors.begin(), v.tensors.end());
  if (got.size() != wanted.size()) return cat(got.size(), " outputs, expected ", wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const std::string why = wanted[i].elem_type == onnx::kElemString
                                ? string_difference(got[i], wanted[i])
                                : difference(got[i], host(wanted[i]), tolerance);
    if (!why.empty()) return cat("output ", i, ": ", why);
  }
  return {};
}

Data load(const Test& test, const fs::path& folder, const onnx::Model& model) {
  Data out;
  if (!test.light_output.empty()) {
    const auto& shape = *model.graph.inputs.at(0).type.shape;
    onnx::Tensor x{.name = "", .elem_type = 1, .dims = {}, .bytes = {}, .strings = {}};
    int64_t n = 1;
    for (const onnx::Dim& d : shape) {
      x.dims.push_back(d.value.value_or(1));
      n *= x.dims.back();
    }
    auto values = std::make_shared<std::vector<float>>(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i)
      (*values)[static_cast<size_t>(i)] = static_cast<float>(static_cast<double>(i) / static_cast<double>(n));
    x.bytes = {values, reinterpret_cast<const std::byte*>(values->data()), values->size() * 4};
    out.inputs.push_back({.tensors = {std::move(x)}});
    out.outputs.push_back(read_value(test.light_output, model.graph.outputs.at(0).type));
    return out;
  }
  for (size_t i = 0; fs::exists(folder / cat("input_", i, ".pb")); ++i)
    out.inputs.push_back(read_value(folder / cat("input_", i, ".pb"), model.graph.inputs.at(i).type));
  for (size_t i = 0; fs::exists(folder / cat("output_", i, ".pb")); ++i)
    out.outputs.push_back(read_value(folder / cat("output_", i, ".pb"), model.graph.outputs.at(i).type));
  return out;
}

std::vector<Test> find_tests(const fs::path& data) {
  std::vector<Test> out;
  for (const char* family : {"node", "simple", "pytorch-converted", "pytorch-operator"}) {
    if (!fs::exists(data / family)) continue;
    for (const auto& entry : fs::directory_iterator(data / family)) {
      if (!fs::exists(entry.path() / "model.onnx")) continue;
      Test test{.name = cat(family, "/", entry.path().filename().string()),
                .model = entry.path() / "model.onnx",
                .data_sets = {},
                .light_output = {}};
      if (std::ifstream file(entry.path() / "tolerance"); file)
        file >> test.tolerance.relative >> test.tolerance.absolute >> test.tolerance.of_largest;
      for (const auto& set : fs::directory_iterator(entry.path()))
        if (set.is_directory()) test.data_sets.push_back(set.path());
      out.push_back(std::move(test));
    }
  }
  if (fs::exists(data / "light"))
    for (const auto& entry : fs::directory_iterator(data / "light")) {
      if (entry.path().extension() != ".onnx") continue;
      const std::string stem = entry.path().stem().string();
      out.push_back({.name = "real/" + stem,
                     .model = entry.path(),
                     .data_sets = {},
                     .light_output = data / "light" / (stem + "_output_0.pb"),
                     .tolerance = {.relative = stem == "light_densenet121" ? 2e-3 : 1e-3}});
    }
  std::sort(out.begin(), out.end(), [](const Test& a, const Test& b) { return a.name < b.name; });
  return out;
}

fs::path unexpanded_model(const Test& test) {
  const fs::path folder = test.model.parent_path();
  const std::string name = folder.filename().string();
  const size_t at = name.find("_expanded");
  if (at == std::string::npos) return {};
  const fs::path whole = folder.parent_path() / name.substr(0, at) / "model.onnx";
  return fs::exists(whole) ? whole : fs::path();
}

std::string operator_of(const Test& test) {
  const fs::path whole = unexpanded_model(test);
  const std::string family = cat("(", test.name.substr(0, test.name.find('/')), ")");
  try {
    const onnx::Model read = onnx::read_model(whole.empty() ? test.model : whole);
    if (read.graph.nodes.size() != 1) return family;
    const onnx::Node& node = read.graph.nodes[0];
    return node.domain.empty() ? node.op_type : cat(node.domain, ".", node.op_type);
  } catch (const Error&) {
    return family;
  }
}

}  // namespace stridec::conformance
