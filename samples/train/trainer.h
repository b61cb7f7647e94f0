/* What the samples in C share: opening an artifact of `stridec compile --train`, and running its functions by
 * name. A failure prints a sentence and ends the program. */
#ifndef TRAINER_H
#define TRAINER_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "stridec/runtime.h"

typedef struct trainer {
  const stridec_api* api;
  stridec_model* model;
  stridec_context* context; /* one training run: it owns the weights and the optimizer's states */
} trainer;

static inline void fail(const char* what, const char* why) {
  fprintf(stderr, "%s: %s\n", what, why);
  exit(1);
}

static inline trainer open_trainer(const char* path) {
  trainer t;
  char message[512];
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) fail(path, dlerror());
  stridec_get_api_fn get_api = (stridec_get_api_fn)dlsym(library, "stridec_get_api");
  t.api = get_api ? get_api(STRIDEC_API_VERSION) : NULL;
  if (!t.api) fail(path, "no artifact of stridec");
  if (t.api->model_open(NULL, &t.model, message, sizeof message) != STRIDEC_OK ||
      t.api->context_create(t.model, NULL, &t.context, message, sizeof message) != STRIDEC_OK)
    fail(path, message);
  return t;
}

static inline void close_trainer(trainer* t) {
  t->api->context_destroy(t->context);
  t->api->model_close(t->model);
}

static inline stridec_tensor tensor(void* data, stridec_dtype dtype, int32_t rank, int64_t* shape) {
  stridec_tensor out;
  memset(&out, 0, sizeof out);
  out.data = data;
  out.device.type = STRIDEC_DEVICE_CPU;
  out.ndim = rank;
  out.dtype = dtype;
  out.shape = shape;
  return out;
}

static const stridec_dtype kFloat = {STRIDEC_DTYPE_FLOAT, 32, 1}, kInteger = {STRIDEC_DTYPE_INT, 64, 1};

/* The outputs are in memory of the context, valid until the function's next run. */
static inline void run(trainer* t, const char* function, const stridec_tensor* inputs, size_t input_count,
                stridec_tensor* outputs, size_t output_count) {
  stridec_model_info info;
  info.struct_size = sizeof info;
  t->api->model_info(t->model, &info);
  for (int32_t i = 0; i < info.function_count; ++i) {
    stridec_function_info f;
    f.struct_size = sizeof f;
    if (t->api->model_function(t->model, i, &f) != STRIDEC_OK || strcmp(f.name, function) != 0) continue;
    memset(outputs, 0, output_count * sizeof *outputs);
    if (t->api->context_run_function(t->context, i, inputs, input_count, outputs, output_count) != STRIDEC_OK)
      fail(function, t->api->context_error(t->context));
    return;
  }
  fail(function, "the artifact has no such function");
}

static inline float scalar(const stridec_tensor* output) { return *(const float*)output->data; }

/* Writes all weights and states to a file, or reads them back. */
static inline void copy_states(trainer* t, const char* path, int restore) {
  FILE* file = fopen(path, restore ? "rb" : "wb");
  if (!file) fail(path, "cannot be opened");
  stridec_model_info info;
  info.struct_size = sizeof info;
  t->api->model_info(t->model, &info);
  for (int32_t i = 0; i < info.state_count; ++i) {
    stridec_tensor state;
    size_t bytes;
    if (t->api->context_state(t->context, i, &state) != STRIDEC_OK) fail(path, "a state is missing");
    bytes = state.dtype.bits / 8;
    for (int32_t d = 0; d < state.ndim; ++d) bytes *= (size_t)state.shape[d];
    if ((restore ? fread(state.data, 1, bytes, file) : fwrite(state.data, 1, bytes, file)) != bytes)
      fail(path, "is too short, or the disk is full");
  }
  fclose(file);
}

static inline double seconds(void) {
  struct timespec now;
  timespec_get(&now, TIME_UTC);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Random numbers below `limit`; the same ones in every run. */
static inline unsigned pick(unsigned limit) {
  static unsigned long long state = 0x2545f4914f6cdd1dULL;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (unsigned)((state >> 32) % limit);
}

#endif
