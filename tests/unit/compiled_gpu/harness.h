// GPU artifacts on a fake driver (tests/support/fake_cuda.h): compiled from a graph, loaded, and run.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "compiler/base/text.h"
#include "compiler/graph/builder.h"
#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/op_table.h"
#include "tests/support/fake_cuda.h"
#include "tests/unit/compiled_artifact/harness.h"

namespace stridec::testing {

inline constexpr int64_t kWidth = 8;

// y = -x times `links` matrices: one kernel each, or only the negation.
inline graph::Graph model(int links) {
  graph::Graph g;
  g.name = "chain";
  graph::Builder b(g, ops::shape_table());
  graph::ValueId x = b.input("x", {DType::kF32, {sym::var("rows"), kWidth}});
  x = b.add1(graph::OpKind::kNeg, {x});
  for (int i = 0; i < links; ++i) {
    std::vector<uint8_t> bytes(sizeof(float) * kWidth * kWidth);
    const float value = 0.5f + static_cast<float>(i);
    for (size_t at = 0; at < bytes.size(); at += sizeof value)
      std::memcpy(bytes.data() + at, &value, sizeof value);
    const graph::ValueId w =
        b.constant(cat("w", i), {DType::kF32, {kWidth, kWidth}}, graph::own(std::move(bytes)));
    x = ops::matmul(b, x, w);
  }
  b.output("y", x);
  return g;
}

struct Artifact {
  Folder folder;
  std::string library;
  const stridec_api* api = nullptr;

  Artifact(int links, std::vector<std::string> targets, const std::string& mode = "default",
           std::vector<std::string> gpus = {"sm_90a"})
      : Artifact(model(links), std::move(targets), mode, std::move(gpus)) {}
  Artifact(const graph::Graph& graph, std::vector<std::string> targets, const std::string& mode = "default",
           std::vector<std::string> gpus = {"sm_90a"}) {
    CompileOptions options{.model = write_graph(folder, graph), .targets = std::move(targets)};
    options.gpus = std::move(gpus);
    options.mode = mode;
    make(options);
  }
  // Functions with the names of the graphs.
  Artifact(const std::vector<graph::Graph>& graphs, const std::string& mode) {
    CompileOptions options{.targets = {"cuda"}, .gpus = {"sm_90a"}, .mode = mode};
    for (const graph::Graph& graph : graphs)
      options.functions.push_back({graph.name, write_graph(folder, graph)});
    make(options);
  }

 private:
  void make(const CompileOptions& options) {
    fake_cuda_reset();
    library = folder.file("model.so");
    const Compilation made = compile(options);
    package::StagedArtifact(made.artifact, made.programs(), library).publish();
    void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    REQUIRE_MESSAGE(handle, dlerror());
    api = reinterpret_cast<stridec_get_api_fn>(dlsym(handle, "stridec_get_api"))(STRIDEC_API_VERSION);
  }
};

struct Running {
  const stridec_api* api;
  stridec_model* model = nullptr;
  stridec_context* context = nullptr;
  stridec_status status = STRIDEC_OK;
  char message[512] = "";

  explicit Running(const Artifact& artifact, int device = STRIDEC_DEVICE_CUDA, const char* variant = nullptr)
      : api(artifact.api) {
    stridec_model_options options{.struct_size = sizeof options, .variant = variant};
    options.device_type = device;
    status = api->model_open(&options, &model, message, sizeof message);
    if (status == STRIDEC_OK) status = api->context_create(model, nullptr, &context, message, sizeof message);
  }
  Running(const Running&) = delete;
  ~Running() {
    if (context) api->context_destroy(context);
    if (model) api->model_close(model);
  }
  static stridec_tensor tensor(std::vector<float>& data, int64_t* shape, int device) {
    shape[0] = static_cast<int64_t>(data.size()) / kWidth;
    shape[1] = kWidth;
    stridec_tensor t{};
    t.data = data.data();
    t.device = {device, 0};
    t.ndim = 2;
    t.dtype = {STRIDEC_DTYPE_FLOAT, 32, 1};
    t.shape = shape;
    return t;
  }
  stridec_status run(std::vector<float>& x, std::vector<float>& y, int device, int32_t function = 0) {
    int64_t in_shape[2], out_shape[2];
    y.resize(x.size());
    stridec_tensor in = tensor(x, in_shape, device), out = tensor(y, out_shape, device);
    return api->context_run_function(context, function, &in, 1, &out, 1);
  }
  std::string error() const { return api->context_error(context); }
};

// Registers a host version of model(0)'s kernel for `elements` elements: its first parameters are input and
// output.
inline void register_negation(int64_t elements) {
  static int64_t count;
  count = elements;
  fake_cuda_register(
      nullptr,
      [](const FakeLaunch* launch, void* user) {
        float *from, *to;
        std::memcpy(&from, launch->parameters, sizeof from);
        std::memcpy(&to, launch->parameters + 8, sizeof to);
        for (int64_t i = 0; i < *static_cast<const int64_t*>(user); ++i) to[i] = -from[i];
      },
      &count);
}

}  // namespace stridec::testing
