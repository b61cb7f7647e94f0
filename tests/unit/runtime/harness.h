// RAII handles and tensors that own their shape, over the C API.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "runtime/src/model.h"
#include "stridec/runtime.h"
#include "tests/unit/runtime/fake_programs.h"

// ThreadSanitizer does not support fork in a process with threads.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define STRIDEC_UNDER_TSAN
#endif
#elif defined(__SANITIZE_THREAD__)
#define STRIDEC_UNDER_TSAN
#endif

namespace fake {

inline const stridec_api& api() { return *stridec_get_api(STRIDEC_API_VERSION); }

// The note that the packager would write for fake::weights.
inline stridec_abi_note note_for_weights(uint64_t bytes) {
  return {.name_bytes = 12,
          .desc_bytes = 48,
          .type = STRIDEC_ABI_VERSION,
          .name = STRIDEC_ABI_NOTE_NAME,
          .weights_address = 0,
          .weights_bytes = bytes};
}

struct Model {
  stridec_model* handle = nullptr;
  stridec_status status;
  char message[512] = "unset";

  explicit Model(const stridec_abi_module& program, const stridec_model_options* options = nullptr) {
    stridec_abi_note note = note_for_weights(program.weights_file ? 0 : program.weights_bytes);
    status = stridec::runtime::open_module(program, note, reinterpret_cast<const char*>(weights), options,
                                           &handle, message, sizeof message);
  }
  ~Model() { api().model_close(handle); }
  Model(const Model&) = delete;
};

struct Context {
  stridec_context* handle = nullptr;
  stridec_status status;
  char message[512] = "unset";

  explicit Context(stridec_model* model, const stridec_context_options* options = nullptr) {
    status = api().context_create(model, options, &handle, message, sizeof message);
  }
  explicit Context(const Model& model, int32_t threads = 1) {
    stridec_context_options options = {.struct_size = sizeof options, .threads = threads};
    status = api().context_create(model.handle, &options, &handle, message, sizeof message);
  }
  ~Context() { api().context_destroy(handle); }
  Context(const Context&) = delete;

  std::string error() const { return api().context_error(handle); }
};

template <class T>
constexpr stridec_dtype dtype_of();
template <>
constexpr stridec_dtype dtype_of<float>() {
  return {STRIDEC_DTYPE_FLOAT, 32, 1};
}
template <>
constexpr stridec_dtype dtype_of<double>() {
  return {STRIDEC_DTYPE_FLOAT, 64, 1};
}
template <>
constexpr stridec_dtype dtype_of<int64_t>() {
  return {STRIDEC_DTYPE_INT, 64, 1};
}
template <>
constexpr stridec_dtype dtype_of<uint8_t>() {
  return {STRIDEC_DTYPE_UINT, 8, 1};
}
template <>
constexpr stridec_dtype dtype_of<uint16_t>() {
  return {STRIDEC_DTYPE_UINT, 16, 1};
}

inline int64_t product(const std::vector<int64_t>& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

// Elements and their shape; compact unless strides are set.
template <class T>
struct Array {
  std::vector<int64_t> shape;
  std::vector<T> data;
  std::vector<int64_t> strides = {};
  int64_t first = 0;  // index of the tensor's first element

  explicit Array(std::vector<int64_t> dims, T value = T()) : shape(dims), data(product(dims), value) {}
  Array(std::vector<int64_t> dims, std::vector<T> values) : shape(dims), data(values) {}

  stridec_tensor tensor() {
    return {.data = data.data(),
            .device = {STRIDEC_DEVICE_CPU, 0},
            .ndim = static_cast<int32_t>(shape.size()),
            .dtype = dtype_of<T>(),
            .shape = shape.data(),
            .strides = strides.empty() ? nullptr : strides.data(),
            .byte_offset = static_cast<uint64_t>(first) * sizeof(T)};
  }
};

template <class T>
std::vector<T> elements(const stridec_tensor& t) {
  int64_t n = 1;
  for (int32_t i = 0; i < t.ndim; ++i) n *= t.shape[i];
  auto* p = reinterpret_cast<const T*>(static_cast<const char*>(t.data) + t.byte_offset);
  return {p, p + n};
}

inline std::vector<int64_t> shape_of(const stridec_tensor& t) { return {t.shape, t.shape + t.ndim}; }

inline stridec_status run(Context& context, std::vector<stridec_tensor> inputs,
                          std::vector<stridec_tensor>& outputs) {
  return api().context_run(context.handle, inputs.data(), inputs.size(), outputs.data(), outputs.size());
}

}  // namespace fake
