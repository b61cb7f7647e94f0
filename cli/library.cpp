#include "cli/library.h"

#include <dlfcn.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/artifact_file.h"
#include "cli/checks.h"
#include "cli/mapped_text.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/strided.h"
#include "compiler/base/text.h"
#include "compiler/package/read_manifest.h"

namespace stridec::cli {
ErrorKind kind_of(stridec_status status) {
  switch (status) {
    case STRIDEC_WRONG_TYPE:
    case STRIDEC_WRONG_SHAPE:
    case STRIDEC_BAD_DATA: return ErrorKind::kDoesNotFit;
    case STRIDEC_OUT_OF_MEMORY: return ErrorKind::kOverBudget;
    case STRIDEC_UNSUPPORTED_CPU: return ErrorKind::kUnsupported;
    case STRIDEC_BAD_WEIGHTS: return ErrorKind::kUnreadable;
    case STRIDEC_BAD_ARTIFACT: return ErrorKind::kMalformed;
    case STRIDEC_UNSUPPORTED_DEVICE:
    case STRIDEC_DEVICE_ERROR: return ErrorKind::kToolchain;
    default: return ErrorKind::kUsage;
  }
}

stridec_dtype dlpack_dtype(DType dtype) {
  const auto& row = info(dtype);
  const uint8_t bits = static_cast<uint8_t>(row.bytes * 8);
  switch (row.kind) {
    case DTypeKind::kBool: return {STRIDEC_DTYPE_BOOL, 8, 1};
    case DTypeKind::kSigned: return {STRIDEC_DTYPE_INT, bits, 1};
    case DTypeKind::kUnsigned: return {STRIDEC_DTYPE_UINT, bits, 1};
    case DTypeKind::kFloat: break;
  }
  if (dtype == DType::kF16 || dtype == DType::kF32 || dtype == DType::kF64)
    return {STRIDEC_DTYPE_FLOAT, bits, 1};
  return {STRIDEC_DTYPE_UINT, bits, 1};
}

namespace {

template <class Query>
std::vector<ValueDeclaration> declarations(int count, Query&& query) {
  std::vector<ValueDeclaration> out;
  for (int i = 0; i < count; ++i) {
    stridec_value_info value{};
    value.struct_size = sizeof(value);
    query(i, &value);
    const auto dtype = parse_dtype(value.dtype_name);
    if (!dtype)
      fail(ErrorKind::kMalformed, "bad-artifact",
           cat("'", value.name, "' has the unknown type '", value.dtype_name, "'"));
    ValueDeclaration& made = out.emplace_back(value.name, value.shape, *dtype, value.rank);
    for (int32_t d = 0; value.dims && d < value.rank; ++d)
      made.sizes.push_back(value.dims[d].minimum == value.dims[d].maximum ? value.dims[d].minimum : -1);
    if (value.memory_order) made.memory_order.assign(value.memory_order, value.memory_order + value.rank);
  }
  return out;
}

// The loader maps the segments that a file's headers describe. An access beyond the end of a truncated file
// would end the process.
void check_whole(const std::string& path) {
  const MappedText file(path);
  if (file.text().empty()) fail(ErrorKind::kMalformed, "bad-artifact", cat("'", path, "' is empty"));
  layout_of(file.text(), path);
}

}  // namespace

const stridec_api* load_api(const std::string& path) {
  check_whole(path);
  const std::string full = std::filesystem::absolute(path).string();
  void* const handle = dlopen(full.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* why = dlerror();
    fail(ErrorKind::kMalformed, "bad-artifact",
         cat("'", path, "' cannot be loaded: ", why ? why : "unknown reason"));
  }
  const auto get_api = reinterpret_cast<stridec_get_api_fn>(dlsym(handle, "stridec_get_api"));
  const stridec_api* const api = get_api ? get_api(STRIDEC_API_VERSION) : nullptr;
  if (!api)
    fail(ErrorKind::kMalformed, "bad-artifact",
         cat("'", path, "' is not an artifact of stridec, or has a format that this version does not know"));
  // The handle is not closed: the process may still have threads that run code of the library.
  return api;
}

void declare_library_flags(CLI::App& app, int& threads, std::string& function, std::string& variant) {
  app.add_option("--threads", threads,
                 "threads of a run (default: STRIDEC_THREADS, or as many as the process may use)")
      ->check(zero_or_more)
      ->type_name("NUMBER");
  app.add_option("--function", function, "the function of the artifact to run (default: the first)")
      ->type_name("NAME");
  app.add_option("--variant", variant,
                 "the variant of its code, of those that 'stridec inspect' lists (default: the best that "
                 "this machine runs)")
      ->type_name("NAME");
}

Library::Library(const std::string& path, int threads, const std::string& variant)
    : api_(load_api(path)), threads_(threads) {
  char message[512] = "";
  stridec_model_options model_options{};
  model_options.struct_size = sizeof(model_options);
  model_options.variant = variant.empty() ? nullptr : variant.c_str();
  if (const auto status = api_->model_open(&model_options, &model_, message, sizeof(message)))
    fail(kind_of(status), "cannot-open", message);
  stridec_model_info info{};
  info.struct_size = sizeof(info);
  check(api_->model_info(model_, &info));
  for (int32_t i = 0; i < info.context_size_count; ++i) {
    stridec_symbol_info size{.struct_size = sizeof(size)};
    check(api_->model_context_size(model_, i, &size));
    context_sizes_.push_back({size.name, size.minimum, size.maximum, size.multiple, true});
  }
  if (context_sizes_.empty()) bind_context({});
  device_ = info.device;
  if (!has_functions()) functions_ = {info.name};
  for (int32_t i = 0; has_functions() && i < info.function_count; ++i) {
    stridec_function_info function{.struct_size = sizeof(function)};
    check(api_->model_function(model_, i, &function));
    functions_.push_back(function.name);
  }
  select("");
}

void Library::bind_context(const Sizes& sizes) {
  Sizes own;
  for (const SymbolDeclaration& size : context_sizes_) {
    if (const auto found = sizes.find(size.name); found != sizes.end())
      own.insert(*found);
    else if (std::ranges::none_of(symbols(), [&](const auto& own) { return own.name == size.name; }))
      own.emplace(size.name,
                  (std::max<int64_t>(size.minimum, 1) + size.multiple - 1) / size.multiple * size.multiple);
  }
  if (context_ && own == bound_) return;
  api_->context_destroy(context_);
  context_ = nullptr;
  std::vector<stridec_size> given;
  for (const auto& [name, value] : own) given.push_back({name.c_str(), value});
  stridec_context_options options{.struct_size = sizeof(options)};
  // Sizes are set only if there are any: artifacts of earlier compilers have none and refuse unknown options.
  if (!given.empty()) options.sizes = given.data(), options.size_count = given.size();
  options.threads = threads_;
  options.flags = STRIDEC_CONTEXT_ASYNC;
  char message[512] = "";
  if (const auto status = api_->context_create(model_, &options, &context_, message, sizeof(message)))
    fail(kind_of(status), "cannot-open", message);
  bound_ = std::move(own);
  for (const auto& [name, function] : operators_) register_operator(name);
}

std::vector<std::string> Library::context_sizes() const {
  std::vector<std::string> names;
  for (const SymbolDeclaration& size : context_sizes_) names.push_back(size.name);
  return names;
}

stridec_context* Library::context() const {
  if (!context_)
    fail(ErrorKind::kUsage, "missing-size",
         cat("the states of the artifact have sizes that are not given: ", join(context_sizes(), ", ")),
         "the command needs an artifact whose states have constant sizes");
  return context_;
}

void Library::select(const std::string& function) {
  const auto found = std::find(functions_.begin(), functions_.end(), function);
  if (found == functions_.end() && !function.empty())
    fail(
        ErrorKind::kUsage, "unknown-function", cat("the artifact has no function '", function, "'"),
        cat(functions_.size() == 1 ? "its only function is " : "its functions are ", join(functions_, ", ")));
  function_ = function.empty() ? 0 : static_cast<int32_t>(found - functions_.begin());
  const stridec_function_info info = function_info();
  inputs_ = declarations(info.input_count, [&](int i, stridec_value_info* value) {
    check(has_functions() ? api_->model_function_input(model_, function_, i, value)
                          : api_->model_input(model_, i, value));
  });
  outputs_ = declarations(info.output_count, [&](int i, stridec_value_info* value) {
    check(has_functions() ? api_->model_function_output(model_, function_, i, value)
                          : api_->model_output(model_, i, value));
  });
}

bool Library::has_functions() const {
  return api_->struct_size >= offsetof(stridec_api, context_function_step) + sizeof(void*);
}

stridec_function_info Library::function_info() const {
  stridec_function_info info{.struct_size = sizeof(info)};
  if (has_functions()) {
    check(api_->model_function(model_, function_, &info));
    return info;
  }
  stridec_model_info model{};
  model.struct_size = sizeof(model);
  check(api_->model_info(model_, &model));
  return {.struct_size = sizeof(info),
          .name = model.name,
          .input_count = model.input_count,
          .output_count = model.output_count,
          .symbol_count = model.symbol_count,
          .step_count = model.step_count};
}

Library::~Library() {
  api_->context_destroy(context_);
  api_->model_close(model_);
}

void Library::check(stridec_status status) const {
  if (status == STRIDEC_OK) return;
  if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
  const char* sentence = context_ ? api_->context_error(context_) : "";
  fail(kind_of(status), "run-failed", *sentence ? sentence : api_->status_name(status));
}

std::vector<SymbolDeclaration> Library::symbols() const {
  std::vector<SymbolDeclaration> symbols;
  const int32_t count = function_info().symbol_count;
  for (int32_t i = 0; i < count; ++i) {
    stridec_symbol_info info{};
    info.struct_size = sizeof(info);
    check(has_functions() ? api_->model_function_symbol(model_, function_, i, &info)
                          : api_->model_symbol(model_, i, &info));
    if (!info.from_data)
      symbols.push_back({info.name, info.minimum, info.maximum, info.multiple, info.of_context != 0});
  }
  return symbols;
}

std::string Library::manifest() const {
  const char* json = nullptr;
  size_t bytes = 0;
  check(api_->model_manifest(model_, &json, &bytes));
  return std::string(json, bytes);
}

nlohmann::ordered_json Library::function_manifest() const {
  const auto all = package::read_manifest(manifest(), "the artifact");
  return package::functions_of(all).at(static_cast<size_t>(function_));
}

std::string Library::variant() const {
  stridec_model_info info{};
  info.struct_size = sizeof(info);
  check(api_->model_info(model_, &info));
  return info.variant;
}

stridec_tensor Library::describe(Array& array) const {
  stridec_tensor tensor{};
  tensor.data = array.bytes.data();
  tensor.device = {STRIDEC_DEVICE_CPU, 0};
  tensor.ndim = static_cast<int32_t>(array.shape.size());
  tensor.dtype = dlpack_dtype(array.dtype);
  tensor.shape = array.shape.data();
  return tensor;
}

Library::Inputs Library::in_memory_order(std::vector<Array> arrays) const {
  Inputs made{.arrays = std::move(arrays), .strides = {}, .tensors = {}};
  made.strides.resize(made.arrays.size());
  for (size_t i = 0; i < made.arrays.size(); ++i) {
    Array& array = made.arrays[i];
    const std::vector<int32_t>& order = inputs_[i].memory_order;
    if (!order.empty() && order.size() == array.shape.size()) {
      made.strides[i] = strides_in_order(array.shape, order);
      array.bytes = scattered(array.bytes, array.shape, made.strides[i], byte_size(array.dtype));
    }
    made.tensors.push_back(describe(array));
    if (!made.strides[i].empty()) made.tensors[i].strides = made.strides[i].data();
  }
  return made;
}

std::vector<Array> Library::run(const std::vector<Array>& given) {
  const Inputs inputs = in_memory_order(given);
  std::vector<stridec_tensor> outputs(outputs_.size(), stridec_tensor{});
  check_run(inputs.tensors, outputs);
  std::vector<Array> results;
  for (size_t i = 0; i < outputs.size(); ++i) {
    Array& result = results.emplace_back();
    result.dtype = outputs_[i].dtype;
    result.shape.assign(outputs[i].shape, outputs[i].shape + outputs[i].ndim);
    result.bytes.resize(static_cast<size_t>(result.count()) * static_cast<size_t>(byte_size(result.dtype)));
    if (!result.bytes.empty())
      std::memcpy(result.bytes.data(), static_cast<char*>(outputs[i].data) + outputs[i].byte_offset,
                  result.bytes.size());
    if (outputs[i].strides)
      result.bytes = gathered(result.bytes, result.shape, std::span(outputs[i].strides, result.shape.size()),
                              byte_size(result.dtype));
  }
  return results;
}

void Library::place(std::vector<Array> inputs) {
  placed_ = in_memory_order(std::move(inputs));
  if (device_.type == STRIDEC_DEVICE_CUDA && !gpu_) gpu_ = std::make_unique<tune::GpuDevice>(device_.id);
  for (size_t i = 0; i < placed_.arrays.size(); ++i) {
    const Array& array = placed_.arrays[i];
    // Small integer tensors may hold sizes, which the host program reads. Callers usually keep such
    // tensors in host memory.
    constexpr size_t kSizes = 64;
    const bool sizes = !is_float(array.dtype) && array.bytes.size() <= kSizes;
    if (!gpu_ || sizes) continue;
    placed_.tensors[i].data = gpu_->copy(array.bytes.data(), array.bytes.size());
    placed_.tensors[i].device = device_;
  }
}

std::vector<stridec_tensor> Library::outputs_in_place() const {
  stridec_tensor output{};
  output.device = device_;
  return std::vector(outputs_.size(), output);
}

void Library::warm_up() {
  if (api_->struct_size < offsetof(stridec_api, context_warm_up) + sizeof(api_->context_warm_up)) return;
  const std::vector<stridec_tensor> outputs = outputs_in_place();
  const std::vector<stridec_tensor>& inputs = placed_.tensors;
  check(has_functions()
            ? api_->context_warm_up_function(context(), function_, inputs.data(), inputs.size(),
                                             outputs.data(), outputs.size())
            : api_->context_warm_up(context(), inputs.data(), inputs.size(), outputs.data(), outputs.size()));
}

void Library::run_in_place() {
  std::vector<stridec_tensor> outputs = outputs_in_place();
  check_run(placed_.tensors, outputs);
}

void Library::check_run(const std::vector<stridec_tensor>& inputs,
                        std::vector<stridec_tensor>& outputs) const {
  check(has_functions()
            ? api_->context_run_function(context(), function_, inputs.data(), inputs.size(), outputs.data(),
                                         outputs.size())
            : api_->context_run(context(), inputs.data(), inputs.size(), outputs.data(), outputs.size()));
}

double Library::timed_run(int row) {
  double host = 0;
  const auto enqueue = [&] {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < row; ++i) run_in_place();
    host = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / row;
  };
  if (!gpu_) {
    enqueue();
    return host;
  }
  const double seconds = gpu_->time(enqueue) / row;
  enqueue_seconds_ = enqueue_seconds_ > 0 ? std::min(enqueue_seconds_, host) : host;
  return seconds;
}

std::vector<std::string> Library::operators() const {
  std::vector<std::string> names;
  if (api_->struct_size < offsetof(stridec_api, context_set_callback) + sizeof(api_->context_set_callback))
    return names;
  while (const char* name = api_->model_callback(model_, static_cast<int32_t>(names.size())))
    names.emplace_back(name);
  return names;
}

int32_t Library::call_operator(void* user, const stridec_call* call) {
  auto& self = *static_cast<Library*>(user);
  try {
    self.operators_.find(call->name)->second(*call);
    return 0;
  } catch (...) {
    self.thrown_ = std::current_exception();
    return 1;
  }
}

void Library::set_operator(const std::string& name, Operator function) {
  operators_.insert_or_assign(name, std::move(function));
  if (context_) register_operator(name);
}

void Library::register_operator(const std::string& name) {
  check(api_->context_set_callback(context_, name.c_str(), call_operator, this));
}

void Library::reset_state() { check(api_->context_reset_state(context(), -1)); }

std::vector<ValueDeclaration> Library::states() const {
  stridec_model_info info{};
  info.struct_size = sizeof(info);
  check(api_->model_info(model_, &info));
  auto states = declarations(info.state_count, [&](int i, stridec_value_info* value) {
    check(api_->model_state(model_, i, value));
  });
  for (size_t i = 0; i < states.size() && !context_sizes_.empty(); ++i) {
    stridec_tensor view{};
    check(api_->context_state(context(), static_cast<int32_t>(i), &view));
    states[i].sizes.assign(view.shape, view.shape + view.ndim);
  }
  return states;
}

Array Library::read_state(const ValueDeclaration& state) const {
  Array array{.dtype = state.dtype, .shape = state.sizes, .bytes = {}};
  array.bytes.resize(static_cast<size_t>(array.count()) * static_cast<size_t>(byte_size(array.dtype)));
  stridec_tensor tensor = describe(array);
  check(api_->context_read_state(context(), state.name.c_str(), &tensor));
  return array;
}

void Library::write_state(const std::string& name, const Array& value) {
  Array array = value;
  stridec_tensor tensor = describe(array);
  check(api_->context_write_state(context(), name.c_str(), &tensor));
}

void Library::profile(bool enable) { check(api_->context_profile(context(), enable)); }

void Library::trace(const stridec_trace_options* options) {
  if (api_->struct_size < offsetof(stridec_api, context_trace) + sizeof(api_->context_trace))
    fail(ErrorKind::kUnsupported, "old-artifact", "the artifact's runtime cannot trace runs",
         "compile the model again; 'stridec bench' times its kernels as it is");
  const bool to_file = options ? options->path != nullptr : traces_to_file_;
  const stridec_status status = api_->context_trace(context(), options);
  traces_to_file_ = options && options->path;
  if (status == STRIDEC_OK || !to_file) return check(status);
  const bool space = status == STRIDEC_OUT_OF_MEMORY;
  fail(space ? ErrorKind::kOverBudget : ErrorKind::kUnreadable, space ? "no-space" : "cannot-write",
       api_->context_error(context()));
}

std::vector<Library::Step> Library::steps() const {
  std::vector<Step> steps;
  const int32_t count = function_info().step_count;
  for (int32_t i = 0; i < count; ++i) {
    stridec_step_profile step{};
    step.struct_size = sizeof(step);
    check(has_functions() ? api_->context_function_step(context(), function_, i, &step)
                          : api_->context_step(context(), i, &step));
    steps.push_back({step.name, step.calls, step.nanoseconds, step.minimum});
  }
  return steps;
}

stridec_memory_info Library::memory() const {
  stridec_memory_info info{};
  info.struct_size = sizeof(info);
  check(api_->context_memory(context(), &info));
  return info;
}

int Library::threads() const { return api_->context_threads(context()); }

}  // namespace stridec::cli
