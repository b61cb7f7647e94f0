/* The entry points of a compiled model in C: lists the functions of an artifact with what they take and
 * return, and the states that they share. Runs each function whose sizes are all fixed once, on zeros.
 *
 *     cc -O2 -I <folder of stridec/runtime.h> functions.c -o functions -ldl
 *     ./functions model.so
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stridec/runtime.h"

enum { MAX_VALUES = 64, MAX_RANK = 16 };

static stridec_status model_value(const stridec_api* api, const stridec_model* model, int32_t function,
                                  int output, int32_t index, stridec_value_info* info) {
  info->struct_size = sizeof *info;
  return output ? api->model_function_output(model, function, index, info)
                : api->model_function_input(model, function, index, info);
}

/* Makes a tensor of zeros of a declared shape such as "[1, 64]". Returns 0 if a size is not a number. */
static int zeros(const stridec_value_info* info, int64_t* shape, stridec_tensor* tensor) {
  const char* at = info->shape + 1;
  size_t bytes = info->dtype.bits / 8;
  for (int32_t i = 0; i < info->rank; ++i) {
    char* end;
    shape[i] = strtoll(at, &end, 10);
    if (end == at || (*end != ',' && *end != ']')) return 0;
    bytes *= (size_t)shape[i];
    at = end + 2;
  }
  memset(tensor, 0, sizeof *tensor);
  tensor->data = calloc(1, bytes ? bytes : 1);
  tensor->device.type = STRIDEC_DEVICE_CPU;
  tensor->ndim = info->rank;
  tensor->dtype = info->dtype;
  tensor->shape = shape;
  return tensor->data != NULL;
}

static void run_once(const stridec_api* api, const stridec_model* model, stridec_context* context,
                     int32_t function, const stridec_function_info* f) {
  static int64_t shapes[MAX_VALUES][MAX_RANK];
  stridec_tensor inputs[MAX_VALUES], outputs[MAX_VALUES];
  int32_t made = 0;
  stridec_value_info info;
  if (f->input_count > MAX_VALUES || f->output_count > MAX_VALUES) return;
  while (made < f->input_count && model_value(api, model, function, 0, made, &info) == STRIDEC_OK &&
         info.rank <= MAX_RANK && zeros(&info, shapes[made], &inputs[made]))
    ++made;
  if (made == f->input_count) {
    memset(outputs, 0, sizeof outputs); /* memory of the context */
    const stridec_status status =
        api->context_run_function(context, function, inputs, (size_t)made, outputs, (size_t)f->output_count);
    printf("  a run on zeros: %s\n", status == STRIDEC_OK ? "done" : api->context_error(context));
  }
  while (made > 0) free(inputs[--made].data);
}

static void list(const char* what, const stridec_value_info* info) {
  printf("  %-6s %s %s %s\n", what, info->name, info->dtype_name, info->shape);
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: functions model.so\n");
    return 2;
  }
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  stridec_get_api_fn get_api = library ? (stridec_get_api_fn)dlsym(library, "stridec_get_api") : NULL;
  const stridec_api* api = get_api ? get_api(STRIDEC_API_VERSION) : NULL;
  if (!api) {
    fprintf(stderr, "%s: %s\n", argv[1], library ? "no artifact of stridec" : dlerror());
    return 1;
  }
  /* The table of an artifact from an earlier compiler ends before the functions that are used here. */
  if (api->struct_size < offsetof(stridec_api, context_function_step) + sizeof api->context_function_step) {
    fprintf(stderr, "%s: compiled before there were functions; use model_input, context_run ...\n", argv[1]);
    return 1;
  }
  char message[512];
  stridec_model* model;
  stridec_context* context;
  if (api->model_open(NULL, &model, message, sizeof message) != STRIDEC_OK ||
      api->context_create(model, NULL, &context, message, sizeof message) != STRIDEC_OK) {
    fprintf(stderr, "%s: %s\n", argv[1], message);
    return 1;
  }
  stridec_model_info info;
  info.struct_size = sizeof info;
  api->model_info(model, &info);
  stridec_value_info value;
  value.struct_size = sizeof value;
  for (int32_t i = 0; i < info.state_count && api->model_state(model, i, &value) == STRIDEC_OK; ++i)
    printf("state %s %s %s\n", value.name, value.dtype_name, value.shape);
  for (int32_t i = 0; i < info.function_count; ++i) {
    stridec_function_info f;
    f.struct_size = sizeof f;
    api->model_function(model, i, &f);
    printf("function %s\n", f.name);
    for (int32_t v = 0; v < f.input_count && model_value(api, model, i, 0, v, &value) == STRIDEC_OK; ++v)
      list("input", &value);
    for (int32_t v = 0; v < f.output_count && model_value(api, model, i, 1, v, &value) == STRIDEC_OK; ++v)
      list("output", &value);
    run_once(api, model, context, i, &f);
  }
  api->context_destroy(context);
  api->model_close(model);
  return 0;
}
