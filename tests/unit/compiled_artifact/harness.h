// An artifact compiled into a folder of its own and loaded through the C API.
#pragma once

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <string>

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

// Writes the graph to a file of the folder; its path.
inline std::string write_graph(const Folder& folder, const graph::Graph& g) {
  const std::string path = folder.file(g.name + ".graph");
  UnfinishedFile file(path);
  graph::serialize(g, [&](const uint8_t* bytes, size_t size) { file.write(bytes, size); });
  file.commit();
  return path;
}

}  // namespace stridec::testing
