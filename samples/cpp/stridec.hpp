// A thin C++17 cover over stridec/runtime.h for applications: handles that close themselves, failures as
// exceptions, arrays instead of pointers. Copy it and make it yours.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "stridec/runtime.h"

namespace stridec {

struct Failure : std::runtime_error {
  stridec_status status;
  Failure(stridec_status s, const std::string& sentence) : std::runtime_error(sentence), status(s) {}
};

template <class T>
constexpr stridec_dtype dtype_of() {
  static_assert(std::is_arithmetic_v<T>);
  uint8_t code = std::is_same_v<T, bool>       ? STRIDEC_DTYPE_BOOL
                 : std::is_floating_point_v<T> ? STRIDEC_DTYPE_FLOAT
                 : std::is_signed_v<T>         ? STRIDEC_DTYPE_INT
                                               : STRIDEC_DTYPE_UINT;
  return {code, sizeof(T) * 8, 1};
}

// A view of memory that lives elsewhere, compact unless strides are given (in elements).
class Tensor {
 public:
  template <class T>
  Tensor(T* data, std::vector<int64_t> shape, std::vector<int64_t> strides = {})
      : data_(const_cast<std::remove_const_t<T>*>(data)),
        dtype_(dtype_of<std::remove_const_t<T>>()),
        shape_(std::move(shape)),
        strides_(std::move(strides)) {}

  stridec_tensor c() {
    return {data_,  {STRIDEC_DEVICE_CPU, 0}, static_cast<int32_t>(shape_.size()),
            dtype_, shape_.data(),           strides_.empty() ? nullptr : strides_.data(),
            0};
  }

 private:
  void* data_;
  stridec_dtype dtype_;
  std::vector<int64_t> shape_, strides_;
};

// What a run has made: memory of the context, valid until its next run.
struct Result {
  stridec_tensor tensor;
  std::vector<int64_t> shape() const { return {tensor.shape, tensor.shape + tensor.ndim}; }
  template <class T>
  const T* data() const {
    stridec_dtype t = dtype_of<T>();
    if (std::memcmp(&t, &tensor.dtype, sizeof t))
      throw Failure(STRIDEC_WRONG_TYPE, "the output has another dtype");
    return static_cast<const T*>(tensor.data);
  }
};

// A loaded library and its model. Share one between all threads.
class Model {
 public:
  explicit Model(const std::string& path, const stridec_model_options* options = nullptr) {
    std::shared_ptr<void> library(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL), [](void* l) {
      if (l) dlclose(l);
    });
    if (!library) throw Failure(STRIDEC_BAD_ARTIFACT, dlerror());
    auto get_api = reinterpret_cast<stridec_get_api_fn>(dlsym(library.get(), "stridec_get_api"));
    api_ = get_api ? get_api(STRIDEC_API_VERSION) : nullptr;
    if (!api_)
      throw Failure(STRIDEC_BAD_ARTIFACT, path + " is not a model of stridec, or one of another version");
    char message[512];
    stridec_model* model;
    stridec_status status = api_->model_open(options, &model, message, sizeof message);
    if (status != STRIDEC_OK) throw Failure(status, path + ": " + message);
    const stridec_api* api = api_;
    model_ = {model, [api, library](stridec_model* m) { api->model_close(m); }};
  }

  const stridec_api& api() const { return *api_; }
  stridec_model* handle() const { return model_.get(); }
  stridec_model_info info() const {
    stridec_model_info info{};
    info.struct_size = sizeof info;
    api_->model_info(handle(), &info);
    return info;
  }
  // Artifacts of earlier compilers have one function, and an API that ends before the calls that name one.
  bool has_functions() const {
    return api_->struct_size >= offsetof(stridec_api, context_function_step) + sizeof(void*);
  }
  stridec_function_info function(int32_t f) const {
    stridec_function_info info{};
    info.struct_size = sizeof info;
    const stridec_model_info m = this->info();
    if (!has_functions() && f == 0)
      info = {sizeof info, m.name, m.input_count, m.output_count, m.symbol_count, m.step_count};
    else if (!has_functions() || api_->model_function(handle(), f, &info) != STRIDEC_OK)
      throw Failure(STRIDEC_INVALID_ARGUMENT, "no function number " + std::to_string(f));
    return info;
  }
  // The number of an entry point, for Context::run and warm_up.
  int32_t function(const std::string& name) const {
    for (int32_t f = 0; f == 0 || f < info().function_count; ++f)
      if (function(f).name == name) return f;
    throw Failure(STRIDEC_INVALID_ARGUMENT, "no function '" + name + "'");
  }
  stridec_value_info input(int32_t i, int32_t f = 0) const { return value(i, f, true); }
  stridec_value_info output(int32_t i, int32_t f = 0) const { return value(i, f, false); }

 private:
  stridec_value_info value(int32_t i, int32_t f, bool is_input) const {
    function(f);  // throws if there is none
    stridec_value_info info{};
    info.struct_size = sizeof info;
    stridec_status status =
        f == 0 ? (is_input ? api_->model_input : api_->model_output)(handle(), i, &info)
               : (is_input ? api_->model_function_input : api_->model_function_output)(handle(), f, i, &info);
    if (status != STRIDEC_OK) throw Failure(status, "no value number " + std::to_string(i));
    return info;
  }

  const stridec_api* api_ = nullptr;
  std::shared_ptr<stridec_model> model_;
};

// Memory and threads to run a model in; one per thread of the application that runs it.
class Context {
 public:
  explicit Context(Model model, const stridec_context_options* options = nullptr) : model_(std::move(model)) {
    char message[512];
    stridec_context* context;
    stridec_status status =
        model_.api().context_create(model_.handle(), options, &context, message, sizeof message);
    if (status != STRIDEC_OK) throw Failure(status, message);
    context_ = {context, model_.api().context_destroy};
  }

  // Optional: makes the first run on tensors of these shapes as fast as later ones; what they hold does not matter.
  void warm_up(const std::vector<stridec_tensor>& inputs, int32_t function = 0) {
    const stridec_api& api = model_.api();
    if (api.struct_size < offsetof(stridec_api, context_warm_up) + sizeof api.context_warm_up)
      return;  // compiled before there was such a function
    std::vector<stridec_tensor> outputs(static_cast<size_t>(model_.function(function).output_count));
    stridec_status status = function
                                ? api.context_warm_up_function(context_.get(), function, inputs.data(),
                                                               inputs.size(), outputs.data(), outputs.size())
                                : api.context_warm_up(context_.get(), inputs.data(), inputs.size(),
                                                      outputs.data(), outputs.size());
    if (status != STRIDEC_OK) throw Failure(status, api.context_error(context_.get()));
  }

  // Results in memory of the context. `function`: which entry point; all of them share the states.
  std::vector<Result> run(std::vector<Tensor> inputs, int32_t function = 0) {
    std::vector<stridec_tensor> outputs(static_cast<size_t>(model_.function(function).output_count));
    run_c(c_of(inputs), outputs, function);
    std::vector<Result> results;
    for (const stridec_tensor& t : outputs) results.push_back({t});
    return results;
  }

  // Results in the caller's memory, whose shapes must be those of the outputs.
  void run(std::vector<Tensor> inputs, std::vector<Tensor> outputs, int32_t function = 0) {
    std::vector<stridec_tensor> c = c_of(outputs);
    run_c(c_of(inputs), c, function);
  }

  // With the C structs, as runtime.h describes.
  void run_c(const std::vector<stridec_tensor>& inputs, std::vector<stridec_tensor>& outputs,
             int32_t function = 0) {
    stridec_status status =
        function ? model_.api().context_run_function(context_.get(), function, inputs.data(), inputs.size(),
                                                     outputs.data(), outputs.size())
                 : model_.api().context_run(context_.get(), inputs.data(), inputs.size(), outputs.data(),
                                            outputs.size());
    if (status != STRIDEC_OK) throw Failure(status, model_.api().context_error(context_.get()));
  }

 private:
  static std::vector<stridec_tensor> c_of(std::vector<Tensor>& tensors) {
    std::vector<stridec_tensor> c;
    for (Tensor& t : tensors) c.push_back(t.c());
    return c;
  }

  Model model_;  // before context_, which goes first
  std::unique_ptr<stridec_context, void (*)(stridec_context*)> context_{nullptr, nullptr};
};

}  // namespace stridec
