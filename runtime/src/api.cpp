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
  }
  return "unknown status";
}

stridec_status model_open(const stridec_model_options* options, stridec_model** model, char* message,
                          size_t message_bytes) {
  return open_program(stridec_program, artifact_note(), artifact_base(), options, model, message,
                      message_bytes);
}

void model_close(stridec_model* model) { release(model); }

stridec_status model_info(const stridec_model* model, stridec_model_info* given) {
  if (!model || !given) return STRIDEC_INVALID_ARGUMENT;
  const stridec_abi_program& p = *model->program;
  stridec_model_info info = {.name = p.name,
                             .compiler = p.compiler,
                             .variant = model->variant->name,
                             .input_count = p.input_count,
                             .output_count = p.output_count,
                             .state_count = p.state_count,
                             .symbol_count = p.symbol_count,
                             .step_count = model->variant->step_count,
                             .weights_bytes = model->blob.weights.size,
                             .device = device_of(*model),
                             .parameter_count = p.parameter_count};
  give_info(given, &info, sizeof info);
  return STRIDEC_OK;
}

// `first` is the value's index among all inputs, outputs, states and parameters.
stridec_status give_value(const stridec_model& model, const stridec_abi_value& value, int32_t first,
                          stridec_value_info* given) {
  stridec_value_info info = {.name = value.name,
                             .dtype = model.dtypes[first]->dlpack,
                             .dtype_name = model.dtypes[first]->name,
                             .rank = value.rank,
                             .shape = model.shapes[first]};
  give_info(given, &info, sizeof info);
  return STRIDEC_OK;
}

stridec_status model_input(const stridec_model* model, int32_t index, stridec_value_info* info) {
  if (!model || !info || index < 0 || index >= model->program->input_count) return STRIDEC_INVALID_ARGUMENT;
  return give_value(*model, model->program->inputs[index], index, info);
}

stridec_status model_output(const stridec_model* model, int32_t index, stridec_value_info* info) {
  if (!model || !info || index < 0 || index >= model->program->output_count) return STRIDEC_INVALID_ARGUMENT;
  return give_value(*model, model->program->outputs[index], model->program->input_count + index, info);
}

stridec_status model_state(const stridec_model* model, int32_t index, stridec_value_info* info) {
  if (!model || !info || index < 0 || index >= model->program->state_count) return STRIDEC_INVALID_ARGUMENT;
  const stridec_abi_program& p = *model->program;
  return give_value(*model, p.states[index].value, p.input_count + p.output_count + index, info);
}

stridec_status model_parameter(const stridec_model* model, int32_t index, stridec_value_info* info) {
  if (!model || !info || index < 0 || index >= model->program->parameter_count)
    return STRIDEC_INVALID_ARGUMENT;
  const stridec_abi_program& p = *model->program;
  return give_value(*model, p.parameters[index].value, p.input_count + p.output_count + p.state_count + index,
                    info);
}

stridec_status model_symbol(const stridec_model* model, int32_t index, stridec_symbol_info* given) {
  if (!model || !given || index < 0 || index >= model->program->symbol_count) return STRIDEC_INVALID_ARGUMENT;
  const stridec_abi_symbol& s = model->program->symbols[index];
  stridec_symbol_info info = {.name = s.name,
                              .minimum = s.minimum,
                              .maximum = s.maximum,
                              .multiple = s.multiple,
                              .from_data = s.from_data};
  give_info(given, &info, sizeof info);
  return STRIDEC_OK;
}

stridec_status model_manifest(const stridec_model* model, const char** json, size_t* bytes) {
  if (!model || !json || !bytes) return STRIDEC_INVALID_ARGUMENT;
  *json = model->blob.manifest.data;
  *bytes = model->blob.manifest.size;
  return *json ? STRIDEC_OK : STRIDEC_BAD_ARTIFACT;
}

const char* model_variant(const stridec_model* model, int32_t index, int32_t* usable) {
  if (!model || index < 0 || index >= model->program->variant_count) return nullptr;
  const stridec_abi_variant& v = model->program->variants[index];
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
  int32_t threads = options.threads ? options.threads : usable_processors();
  auto* made = static_cast<stridec_pool*>(calloc(1, sizeof(stridec_pool)));
  if (made) made->pool = pool_create(threads < kMaxThreads ? threads : kMaxThreads, options.spin_us);
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
  pool_run(static_cast<stridec_pool*>(pool)->pool, parts, body, arg);
}

const char* context_error(const stridec_context* context) {
  return context ? context->error : "context is null";
}

int32_t context_threads(const stridec_context* context) { return context ? context->threads : 0; }

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
                              .context_parameters = context_parameters};

}  // namespace
}  // namespace stridec::runtime

extern "C" __attribute__((visibility("default"))) const stridec_api* stridec_get_api(uint32_t version) {
  return version == STRIDEC_API_VERSION ? &stridec::runtime::kApi : nullptr;
}
