// Compiles an artifact into a temporary folder and loads it through the C API.
#pragma once

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "compiler/base/files.h"
#include "compiler/compile.h"
#include "compiler/graph/serialize.h"
#include "runtime/include/stridec/runtime.h"
#include "tests/support/folder.h"

namespace stridec::testing {

struct Loaded {
  const stridec_api* api = nullptr;
  stridec_model* model = nullptr;
  stridec_context* context = nullptr;

  explicit Loaded(const std::string& path) {
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    REQUIRE_MESSAGE(handle, dlerror());
    const auto get_api = reinterpret_cast<stridec_get_api_fn>(dlsym(handle, "stridec_get_api"));
    api = get_api(STRIDEC_API_VERSION);
    char message[256] = "";
    REQUIRE_MESSAGE(api->model_open(nullptr, &model, message, sizeof(message)) == STRIDEC_OK, message);
    REQUIRE_MESSAGE(api->context_create(model, nullptr, &context, message, sizeof(message)) == STRIDEC_OK,
                    message);
  }
  ~Loaded() {
    api->context_destroy(context);
    api->model_close(model);
  }
};

// A vector of f32 in host memory; `data` and `count` must outlive it.
inline stridec_tensor tensor_of(std::vector<float>& data, int64_t& count) {
  count = static_cast<int64_t>(data.size());
  stridec_tensor tensor{};
  tensor.data = data.data();
  tensor.device = {STRIDEC_DEVICE_CPU, 0};
  tensor.ndim = 1;
  tensor.dtype = {STRIDEC_DTYPE_FLOAT, 32, 1};
  tensor.shape = &count;
  return tensor;
}

// Writes the graph to a file in the folder and returns its path.
inline std::string write_graph(const Folder& folder, const graph::Graph& g) {
  const std::string path = folder.file(g.name + ".graph");
  UnfinishedFile file(path);
  graph::serialize(g, [&](const uint8_t* bytes, size_t size) { file.write(bytes, size); });
  file.commit();
  return path;
}

}  // namespace stridec::testing
