// The exported symbol and the function table that it returns.
#include <stdlib.h>
#include <string.h>

#include "context_api.h"
#include "cpu_features.h"
#include "machine.h"
#include "model.h"
#include "parameters.h"

struct stridec_pool {
  stridec::runtime::Pool* pool;
};

namespace stridec::runtime {
namespace {

const char* status_name(int32_t status) {
  switch (status) {
    case STRIDEC_OK: return "STRIDEC_OK";
    case STRIDEC_INVALID_ARGUMENT: return "STRIDEC_INVALID_ARGUMENT";
    case STRIDEC_WRONG_TYPE: return "STRIDEC_WRONG_TYPE";
    case STRIDEC_WRONG_SHAPE: return "STRIDEC_WRONG_SHAPE";
    case STRIDEC_BAD_DATA: return "STRIDEC_BAD_DATA";
    case STRIDEC_OUT_OF_MEMORY: return "STRIDEC_OUT_OF_MEMORY";
    case STRIDEC_UNSUPPORTED_CPU: return "STRIDEC_UNSUPPORTED_CPU";
    case STRIDEC_BAD_WEIGHTS: return "STRIDEC_BAD_WEIGHTS";
    case STRIDEC_BAD_ARTIFACT: return "STRIDEC_BAD_ARTIFACT";
    case STRIDEC_BUSY: return "STRIDEC_BUSY";
    case STRIDEC_UNSUPPORTED_DEVICE: return "STRIDEC_UNSUPPORTED_DEVICE";
    case STRIDEC_DEVICE_ERROR: return "STRIDEC_DEVICE_ERROR";
    case STRIDEC_CANCELLED: return "STRIDEC_CANCELLED";
  }
  return "unknown status";
}

stridec_status model_open(const stridec_model_options* options, stridec_model** model, char* message,
                          size_t message_bytes) {
  return open_module(stridec_module, artifact_note(), artifact_base(), options, model, message,
                     message_bytes);
}

void model_close(stridec_model* model) { release(model); }

stridec_status model_info(const stridec_model* model, stridec_model_info* given) {
  if (!model || !given) return STRIDEC_INVALID_ARGUMENT;
  const stridec_abi_module& m = *model->module;
  const Function& f = model->functions[0];
  stridec_model_info info = {.name = m.name,
                             .compiler = m.compiler,
                             .variant = model->target->name,
                             .input_count = f.abi->input_count,
                             .output_count = f.abi->output_count,
                             .state_count = m.state_count,
                             .symbol_count = f.symbol_count,
                             .step_count = f.variant->step_count,
                             .weights_bytes = model->blob.weights.size,
                             .device = device_of(*model),
                             .parameter_count = m.parameter_count,
                             .function_count = m.function_count,
                             .context_size_count = m.size_count};
  return give_info(given, &info, sizeof info);
}

// Null: the model has no function of that number.
const Function* find_function(const stridec_model* model, int32_t function) {
  return model && function >= 0 && function < model->module->function_count ? &model->functions[function]
                                                                            : nullptr;
}

stridec_status model_function(const stridec_model* model, int32_t function, stridec_function_info* given) {
  const Function* f = find_function(model, function);
  if (!f || !given) return STRIDEC_INVALID_ARGUMENT;
  stridec_function_info info = {.name = f->abi->name,
                                .input_count = f->abi->input_count,
                                .output_count = f->abi->output_count,
                                .symbol_count = f->symbol_count,
                                .step_count = f->variant->step_count};
  return give_info(given, &info, sizeof info);
}

stridec_status give_value(const stridec_abi_value& value, const ValueTexts& texts, int32_t index,
                          stridec_value_info* given) {
  stridec_value_info info = {.name = value.name,
                             .dtype = texts.dtypes[index]->dlpack,
                             .dtype_name = texts.dtypes[index]->name,
                             .rank = value.rank,
                             .shape = texts.shapes[index],
                             .dims = value.rank ? texts.dims[index] : nullptr,
                             .memory_order = value.memory_order};
  return give_info(given, &info, sizeof info);
}

stridec_status model_function_input(const stridec_model* model, int32_t function, int32_t index,
                                    stridec_value_info* info) {
  const Function* f = find_function(model, function);
  if (!f || !info || index < 0 || index >= f->abi->input_count) return STRIDEC_INVALID_ARGUMENT;
  return give_value(f->abi->inputs[index], f->inputs, index, info);
}

stridec_status model_function_output(const stridec_model* model, int32_t function, int32_t index,
                                     stridec_value_info* info) {
  const Function* f = find_function(model, function);
  if (!f || !info || index < 0 || index >= f->abi->output_count) return STRIDEC_INVALID_ARGUMENT;
  return give_value(f->abi->outputs[index], f->outputs, index, info);
}

stridec_status give_symbol(const stridec_abi_symbol& s, bool of_context, stridec_symbol_info* given) {
  stridec_symbol_info info = {.name = s.name,
                              .minimum = s.minimum,
                              .maximum = s.maximum,
                              .multiple = s.multiple,
                              .from_data = s.from_data,
                              .of_context = of_context};
  return give_info(given, &info, sizeof info);
}

stridec_status model_context_size(const stridec_model* model, int32_t index, stridec_symbol_info* info) {
  if (!model || !info || index < 0 || index >= model->module->size_count) return STRIDEC_INVALID_ARGUMENT;
  return give_symbol(model->module->sizes[index], true, info);
}

stridec_status model_function_symbol(const stridec_model* model, int32_t function, int32_t index,
                                     stridec_symbol_info* given) {
  const Function* f = find_function(model, function);
  if (!f || !given || index < 0 || index >= f->symbol_count) return STRIDEC_INVALID_ARGUMENT;
  const int32_t symbol = f->shown_symbols[index];
  const bool of_context = f->abi->context_sizes && f->abi->context_sizes[symbol] >= 0;
  return give_symbol(f->abi->symbols[symbol], of_context, given);
}

stridec_status model_input(const stridec_model* model, int32_t index, stridec_value_info* info) {
  return model_function_input(model, 0, index, info);
}

stridec_status model_output(const stridec_model* model, int32_t index, stridec_value_info* info) {
  return model_function_output(model, 0, index, info);
}

stridec_status model_symbol(const stridec_model* model, int32_t index, stridec_symbol_info* info) {
  return model_function_symbol(model, 0, index, info);
}

stridec_status model_state(const stridec_model* model, int32_t index, stridec_value_info* info) {
  if (!model || !info || index < 0 || index >= model->module->state_count) return STRIDEC_INVALID_ARGUMENT;
  return give_value(model->module->states[index].value, model->states, index, info);
}

stridec_status model_parameter(const stridec_model* model, int32_t index, stridec_value_info* info) {
  if (!model || !info || index < 0 || index >= model->module->parameter_count)
    return STRIDEC_INVALID_ARGUMENT;
  return give_value(model->module->parameters[index].value, model->parameters, index, info);
}

int32_t find_value(const stridec_abi_value* values, int32_t count, const char* name) {
  for (int32_t i = 0; name && i < count; ++i)
    if (!strcmp(values[i].name, name)) return i;
  return -1;
}

int32_t model_find_input(const stridec_model* model, int32_t function, const char* name) {
  const Function* f = find_function(model, function);
  return f ? find_value(f->abi->inputs, f->abi->input_count, name) : -1;
}

int32_t model_find_output(const stridec_model* model, int32_t function, const char* name) {
  const Function* f = find_function(model, function);
  return f ? find_value(f->abi->outputs, f->abi->output_count, name) : -1;
}

stridec_status model_metadata(const stridec_model* model, int32_t index, const char** key,
                              const char** text) {
  if (!model || !key || !text || index < 0 || index >= model->module->metadata_count)
    return STRIDEC_INVALID_ARGUMENT;
  *key = model->module->metadata;
  for (int32_t i = 0; i < 2 * index; ++i) *key += strlen(*key) + 1;
  *text = *key + strlen(*key) + 1;
  return STRIDEC_OK;
}

const char* model_callback(const stridec_model* model, int32_t index) {
  return model && index >= 0 ? callback_name(*model->module, index) : nullptr;
}

stridec_status model_manifest(const stridec_model* model, const char** json, size_t* bytes) {
  if (!model || !json || !bytes) return STRIDEC_INVALID_ARGUMENT;
  *json = model->blob.manifest.data;
  *bytes = model->blob.manifest.size;
  return *json ? STRIDEC_OK : STRIDEC_BAD_ARTIFACT;
}

const char* model_variant(const stridec_model* model, int32_t index, int32_t* usable) {
  if (!model || index < 0 || index >= model->module->target_count) return nullptr;
  const stridec_abi_target& v = model->module->targets[index];
  char reason[256];
  Text text(reason, sizeof reason);
  if (usable)
    *usable =
        v.device == STRIDEC_ABI_CUDA ? cuda_usable(v, model->device_id, text) : !(v.features & ~model->cpu);
  return v.name;
}

stridec_status api_pool_create(const stridec_pool_options* given, stridec_pool** pool, char* message_out,
                               size_t message_bytes) {
  Text message(message_out, message_out ? message_bytes : 0);
  if (!pool) {
    message << "pool is null: there is nowhere to put the handle";
    return STRIDEC_INVALID_ARGUMENT;
  }
  *pool = nullptr;
  stridec_pool_options options;
  if (!take_options(&options, sizeof options, given)) {
    message << "the options are not those of this version of the API: set struct_size, and zero the rest";
    return STRIDEC_INVALID_ARGUMENT;
  }
  stridec_status status = check_threads(options.threads, options.spin_us, message);
  if (status != STRIDEC_OK) return status;
  int32_t threads = options.threads ? options.threads : default_threads(kMaxThreads);
  auto* made = static_cast<stridec_pool*>(calloc(1, sizeof(stridec_pool)));
  if (made) made->pool = pool_create(threads, options.spin_us);
  if (!made || !made->pool) {
    free(made);
    return out_of_memory(message, "threads", 0);
  }
  *pool = made;
  return STRIDEC_OK;
}

void api_pool_destroy(stridec_pool* pool) {
  if (!pool) return;
  pool_destroy(pool->pool);
  free(pool);
}

int32_t api_pool_threads(const stridec_pool* pool) { return pool ? pool_threads(pool->pool) : 0; }

void pool_parallel_for(void* pool, int32_t parts, void (*body)(void* arg, int32_t part), void* arg) {
  if (pool)
    pool_run(static_cast<stridec_pool*>(pool)->pool, parts, body, arg);
  else
    for (int32_t part = 0; part < parts; ++part) body(arg, part);
}

const char* context_error(const stridec_context* context) {
  if (!context) return "context is null";
  if (context->busy.load(std::memory_order_acquire))
    return "another thread is using the context; a context serves one call at a time";
  return context->error;
}

void context_cancel(stridec_context* context) {
  if (!context) return;
  context->cancelled.store(1);
  __atomic_store_n(&context->run.direct, 0,
                   __ATOMIC_SEQ_CST);  // launches go through the runtime, which looks
}

int32_t context_threads(const stridec_context* context) { return context ? context->threads : 0; }

// ---- function 0 ----

stridec_status context_output_shapes(stridec_context* context, const stridec_tensor* inputs,
                                     size_t input_count, stridec_tensor* outputs, size_t output_count) {
  return context_function_output_shapes(context, 0, inputs, input_count, outputs, output_count);
}

stridec_status context_reserve(stridec_context* context, const stridec_tensor* inputs, size_t input_count,
                               const stridec_tensor* outputs, size_t output_count) {
  return context_reserve_function(context, 0, inputs, input_count, outputs, output_count);
}

stridec_status context_warm_up(stridec_context* context, const stridec_tensor* inputs, size_t input_count,
                               const stridec_tensor* outputs, size_t output_count) {
  return context_warm_up_function(context, 0, inputs, input_count, outputs, output_count);
}

stridec_status context_run(stridec_context* context, const stridec_tensor* inputs, size_t input_count,
                           stridec_tensor* outputs, size_t output_count) {
  return context_run_function(context, 0, inputs, input_count, outputs, output_count);
}

stridec_status context_step(stridec_context* context, int32_t index, stridec_step_profile* profile) {
  return context_function_step(context, 0, index, profile);
}

constexpr stridec_api kApi = {.struct_size = sizeof(stridec_api),
                              .version = STRIDEC_API_VERSION,
                              .status_name = status_name,
                              .model_open = model_open,
                              .model_close = model_close,
                              .model_info = model_info,
                              .model_input = model_input,
                              .model_output = model_output,
                              .model_state = model_state,
                              .model_symbol = model_symbol,
                              .model_manifest = model_manifest,
                              .model_variant = model_variant,
                              .pool_create = api_pool_create,
                              .pool_destroy = api_pool_destroy,
                              .pool_threads = api_pool_threads,
                              .pool_parallel_for = pool_parallel_for,
                              .context_create = context_create,
                              .context_destroy = context_destroy,
                              .context_error = context_error,
                              .context_threads = context_threads,
                              .context_output_shapes = context_output_shapes,
                              .context_reserve = context_reserve,
                              .context_run = context_run,
                              .context_state = context_state,
                              .context_reset_state = context_reset_state,
                              .context_profile = context_profile,
                              .context_step = context_step,
                              .context_memory = context_memory,
                              .context_warm_up = context_warm_up,
                              .model_parameter = model_parameter,
                              .context_write_state = context_write_state,
                              .context_read_state = context_read_state,
                              .context_parameters = context_parameters,
                              .model_function = model_function,
                              .model_function_input = model_function_input,
                              .model_function_output = model_function_output,
                              .model_function_symbol = model_function_symbol,
                              .context_function_output_shapes = context_function_output_shapes,
                              .context_reserve_function = context_reserve_function,
                              .context_warm_up_function = context_warm_up_function,
                              .context_run_function = context_run_function,
                              .context_function_step = context_function_step,
                              .model_find_input = model_find_input,
                              .model_find_output = model_find_output,
                              .model_metadata = model_metadata,
                              .context_cancel = context_cancel,
                              .context_trace = context_trace,
                              .model_callback = model_callback,
                              .context_set_callback = context_set_callback,
                              .model_context_size = model_context_size};

}  // namespace
}  // namespace stridec::runtime

extern "C" __attribute__((visibility("default"))) const stridec_api* stridec_get_api(uint32_t version) {
  return version == STRIDEC_API_VERSION ? &stridec::runtime::kApi : nullptr;
}
