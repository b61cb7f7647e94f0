/* stridec/runtime.h: the C API of every artifact that stridec writes.
 *
 * An artifact is a shared library that needs nothing but libc and exports one symbol, stridec_get_api, which
 * answers with the table of functions below. Link against it, or dlopen it; several artifacts may be loaded
 * in one process as long as each is asked for its own table.
 *
 *     void* lib = dlopen("./model.so", RTLD_NOW | RTLD_LOCAL);
 *     stridec_get_api_fn get_api = (stridec_get_api_fn)dlsym(lib, "stridec_get_api");
 *     const stridec_api* api = get_api(STRIDEC_API_VERSION);
 *     stridec_model* model;   api->model_open(NULL, &model, message, sizeof message);
 *     stridec_context* ctx;   api->context_create(model, NULL, &ctx, message, sizeof message);
 *     api->context_run(ctx, inputs, input_count, outputs, output_count);
 *
 * Rules that hold everywhere:
 * - A *model* is immutable and may be used by any number of threads. A *context* holds memory, threads and
 * state; one thread at a time uses it, and different contexts run at the same time.
 * - Whatever can fail returns a stridec_status and leaves a sentence: in the buffer given, or in
 * context_error(). Nothing aborts, throws, prints or calls exit.
 * - A run allocates nothing once the context has seen a run (or context_reserve) at shapes as large.
 * - Results do not depend on the number of threads.
 * - Structs that the caller fills begin with struct_size = sizeof(the struct) and are otherwise zero where
 * nothing is said. Structs that the runtime fills begin with it too: set it before the call; fields beyond it
 * are left.
 */
#ifndef STRIDEC_RUNTIME_H
#define STRIDEC_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STRIDEC_API_VERSION 1u

typedef enum stridec_status {
  STRIDEC_OK = 0,
  STRIDEC_INVALID_ARGUMENT = 1, /* a null pointer, a wrong count, an index out of range, a bad option */
  STRIDEC_WRONG_TYPE = 2,       /* a tensor's dtype, device or rank is not what the model declares */
  STRIDEC_WRONG_SHAPE =
      3,                /* sizes outside what the artifact serves (a guard), or an output tensor too small */
  STRIDEC_BAD_DATA = 4, /* values that the model cannot take: an index out of range, say */
  STRIDEC_OUT_OF_MEMORY = 5,
  STRIDEC_UNSUPPORTED_CPU = 6, /* no variant in the artifact fits this machine */
  STRIDEC_BAD_WEIGHTS = 7,     /* the weights file beside the artifact is missing or is not the right one */
  STRIDEC_BAD_ARTIFACT = 8,    /* the artifact contradicts itself: damaged, or cut short */
  STRIDEC_BUSY = 9,            /* the context is being used by another thread */
  STRIDEC_UNSUPPORTED_DEVICE = 10, /* a GPU was asked for, and there is no driver or no device that fits */
  STRIDEC_DEVICE_ERROR = 11,       /* the GPU's driver refused a call, or a kernel failed */
} stridec_status;

/* ---- Tensors ----
 * Laid out as DLPack's DLTensor (dlpack.h 0.6 to 1.x), so that a DLTensor* may be cast. Device type 1: the
 * CPU. Device type 2: the memory of an NVIDIA GPU, for models that run on that one (model_options); they take host
 * tensors too and copy them.
 *
 * dtype codes are DLPack's: 0 int, 1 uint, 2 float, 4 bfloat, 6 bool, 10.. the 8-bit floats. Types narrower
 * than a byte take one byte per element and count as int8 (i4, i2) or uint8 (u4, u2, f4e2m1, f6e2m3, f6e3m2). Types that
 * NumPy lacks (bf16, the 8-bit floats) may be given as unsigned integers of their size, bool as uint8 of 0
 * and 1.
 *
 * strides count elements, may be zero or negative for inputs, and may be null: compact, row-major. The first
 * element is at (char*)data + byte_offset. Only elements that the shape names are ever touched.
 */
typedef struct stridec_device {
  int32_t type;
  int32_t id;
} stridec_device;

enum { STRIDEC_DEVICE_CPU = 1, STRIDEC_DEVICE_CUDA = 2 };

typedef struct stridec_dtype {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} stridec_dtype;

enum {
  STRIDEC_DTYPE_INT = 0,
  STRIDEC_DTYPE_UINT = 1,
  STRIDEC_DTYPE_FLOAT = 2,
  STRIDEC_DTYPE_BFLOAT = 4,
  STRIDEC_DTYPE_BOOL = 6,
};

typedef struct stridec_tensor {
  void* data;
  stridec_device device;
  int32_t ndim;
  stridec_dtype dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} stridec_tensor;

/* ---- Handles and options ---- */

typedef struct stridec_model stridec_model;
typedef struct stridec_context stridec_context;
typedef struct stridec_pool stridec_pool;

typedef struct stridec_model_options {
  size_t struct_size;
  const char* variant;     /* name of the variant to use; null: the best that this machine runs */
  const char* weights_dir; /* folder of a separate weights file; null: that of the artifact */
  uint32_t flags;          /* STRIDEC_MODEL_* */
  /* Where it runs: STRIDEC_DEVICE_CPU, STRIDEC_DEVICE_CUDA, which fails where no GPU fits, or 0: on a GPU if the
   * artifact has code for it and the machine one that fits and a driver that loads it, else on the CPU. */
  int32_t device_type;
  int32_t device_id; /* of a GPU, as CUDA numbers them */
} stridec_model_options;

enum {
  STRIDEC_MODEL_SKIP_WEIGHTS_HASH = 1, /* trust a separate weights file by its size alone */
  /* On a CPU: copy the weights into huge pages of the process's own, which its memory then counts, rather than use the file's
   * pages, which processes share. Runs that read each weight once (a decoder's step) gain some percent. Where there
   * are no huge pages, or no memory, the file's are used all the same. */
  STRIDEC_MODEL_COPY_WEIGHTS = 2
};

/* Calls body(arg, part) once for every part in [0, parts), in any order and on any threads, and returns when
 * all are done. */
typedef void (*stridec_parallel_for)(void* user, int32_t parts, void (*body)(void* arg, int32_t part),
                                     void* arg);

typedef struct stridec_pool_options {
  size_t struct_size;
  int32_t threads; /* the caller's included; 0: as many as this process may use (affinity, cgroup quota) */
  /* How long an idle thread spins before it sleeps. 0: 100, and none with more threads than processors; -1:
   * none. */
  int32_t spin_us;
} stridec_pool_options;

typedef struct stridec_context_options {
  size_t struct_size;
  int32_t threads; /* as in stridec_pool_options; with parallel_for, the number of parts to cut work into */
  int32_t spin_us; /* as in stridec_pool_options */
  stridec_parallel_for parallel_for; /* null: the context has threads of its own */
  void* parallel_user;
  /* Memory for arena, scratch, staging and state; both or neither. Null: libc. allocate answers with memory
   * aligned to `alignment` (a power of two) or null; release gets what it answered. */
  void* (*allocate)(void* user, size_t bytes, size_t alignment);
  void (*release)(void* user, void* memory, size_t bytes);
  void* memory_user;
  uint32_t flags; /* STRIDEC_CONTEXT_* */
  void* stream;   /* of a model on a GPU: a CUstream or cudaStream_t; null: the device's default stream */
} stridec_context_options;

enum {
  STRIDEC_CONTEXT_NO_HUGE_PAGES = 1, /* do not ask for transparent huge pages */
  /* On a GPU, a run whose tensors all lie there returns before it is done, in the order of the stream. What goes wrong
   * meanwhile is the status of a later call. */
  STRIDEC_CONTEXT_ASYNC = 2
};

/* ---- What a model is ---- */

typedef struct stridec_model_info {
  size_t struct_size;
  const char* name;
  const char* compiler; /* "stridec 0.1.0" */
  const char* variant;  /* the variant in use */
  int32_t input_count, output_count, state_count, symbol_count, step_count;
  uint64_t weights_bytes;
  stridec_device device; /* where the model runs */
} stridec_model_info;

typedef struct stridec_value_info {
  size_t struct_size;
  const char* name;
  stridec_dtype dtype;
  const char* dtype_name; /* "f32", "i64", "u4" ... */
  int32_t rank;
  const char* shape; /* "[batch, 2*seq, 768]" */
} stridec_value_info;

typedef struct stridec_symbol_info {
  size_t struct_size;
  const char* name;
  int64_t minimum, maximum; /* what the artifact serves; maximum is INT64_MAX where there is none */
  int64_t multiple;         /* values are multiples of this */
  int32_t from_data;        /* 1: known only after a run (number of non-zeros, say) */
} stridec_symbol_info;

typedef struct stridec_step_profile {
  size_t struct_size;
  const char* name; /* as in the manifest */
  int64_t calls;
  int64_t nanoseconds; /* wall time over all calls */
  int64_t minimum;     /* of one call, nanoseconds */
} stridec_step_profile;

typedef struct stridec_memory_info {
  size_t struct_size;
  /* Held now. scratch_bytes: for one launch at a time, on a GPU; on a CPU the arena has what threads need. */
  uint64_t arena_bytes, scratch_bytes, staging_bytes, state_bytes;
  uint64_t allocations; /* how often memory was obtained since the context was made */
} stridec_memory_info;

/* ---- The functions ---- */

typedef struct stridec_api {
  size_t struct_size;
  uint32_t version;

  /* "STRIDEC_WRONG_SHAPE" and so on; never null. */
  const char* (*status_name)(int32_t status);

  /* Chooses a variant and maps the weights. options may be null. On failure a sentence is written to message
   * (message_bytes of room, always ended by a zero; message may be null). */
  stridec_status (*model_open)(const stridec_model_options* options, stridec_model** model, char* message,
                               size_t message_bytes);
  /* Contexts keep their model alive: it goes with the last of them. Null is fine, here and in the others. */
  void (*model_close)(stridec_model* model);
  stridec_status (*model_info)(const stridec_model* model, stridec_model_info* info);
  stridec_status (*model_input)(const stridec_model* model, int32_t index, stridec_value_info* info);
  stridec_status (*model_output)(const stridec_model* model, int32_t index, stridec_value_info* info);
  stridec_status (*model_state)(const stridec_model* model, int32_t index, stridec_value_info* info);
  stridec_status (*model_symbol)(const stridec_model* model, int32_t index, stridec_symbol_info* info);
  /* The manifest that was written beside the artifact; json is not ended by a zero. */
  stridec_status (*model_manifest)(const stridec_model* model, const char** json, size_t* bytes);
  /* Name of the i-th variant, best first, and whether this machine runs it; null beyond the last. */
  const char* (*model_variant)(const stridec_model* model, int32_t index, int32_t* usable);

  /* Threads that several contexts, also of other artifacts, share: pass pool_parallel_for and the pool as a
   * context's parallel_for and parallel_user. A caller that finds the pool busy does its work itself. */
  stridec_status (*pool_create)(const stridec_pool_options* options, stridec_pool** pool, char* message,
                                size_t message_bytes);
  void (*pool_destroy)(stridec_pool* pool);
  int32_t (*pool_threads)(const stridec_pool* pool);
  void (*pool_parallel_for)(void* pool, int32_t parts, void (*body)(void* arg, int32_t part), void* arg);

  stridec_status (*context_create)(stridec_model* model, const stridec_context_options* options,
                                   stridec_context** context, char* message, size_t message_bytes);
  void (*context_destroy)(stridec_context* context);
  /* The sentence of the last call on this context that failed; "" if none has. Valid until the next call. */
  const char* (*context_error)(const stridec_context* context);
  int32_t (*context_threads)(const stridec_context* context);

  /* The shapes of all outputs for inputs of these shapes: fills ndim and dtype of each output and, where
   * shape is not null, shape[0..rank) (ask model_output for the rank first). -1: known only after the run.
   * The data of inputs may be null; where an output's shape depends on an input's values, they are read if
   * given. */
  stridec_status (*context_output_shapes)(stridec_context* context, const stridec_tensor* inputs,
                                          size_t input_count, stridec_tensor* outputs, size_t output_count);

  /* Obtains all memory that a run with such tensors needs. Data may be null. outputs may be null: the run
   * will be given compact memory for each; where they are given, data null means what it means in a run. */
  stridec_status (*context_reserve)(stridec_context* context, const stridec_tensor* inputs,
                                    size_t input_count, const stridec_tensor* outputs, size_t output_count);

  /* Runs the model. Inputs and outputs are in the order of the manifest and may not overlap.
   * An output is one of two:
   * - data not null: the caller's memory. shape says how large it is: each dim must be at least the real one
   * and, where strides is null, only dim 0 may be larger. After the run shape holds the real dims. Strides
   * may be given but may not make elements overlap.
   * - data null: memory of the context, compact, valid until the next run, on the GPU where device.type asks for it. data, ndim, dtype, and shape are
   * filled; where shape was null it points to memory of the context as well. strides is set to null. An input
   * without elements may have null data. After a failure the outputs' contents are unspecified, and state is
   * that from before the run or, when data was bad, unspecified. */
  stridec_status (*context_run)(stridec_context* context, const stridec_tensor* inputs, size_t input_count,
                                stridec_tensor* outputs, size_t output_count);

  /* State lives in the context and starts at its initial value. view is filled with a compact tensor over it,
   * valid until the context goes: read it to save, write to it to restore. */
  stridec_status (*context_state)(stridec_context* context, int32_t index, stridec_tensor* view);
  /* Back to the initial value; index -1: all. */
  stridec_status (*context_reset_state)(stridec_context* context, int32_t index);

  /* Starts (enable != 0, counts from zero) or stops timing every step. */
  stridec_status (*context_profile)(stridec_context* context, int32_t enable);
  stridec_status (*context_step)(stridec_context* context, int32_t index, stridec_step_profile* profile);
  stridec_status (*context_memory)(stridec_context* context, stridec_memory_info* info);

  /* Optional: context_reserve, after which the first run is as fast as later ones. Starts the context's threads, makes
   * the pages of its memory and of the outputs' present, and reads the weights and the code, from disk where they are
   * not in memory yet. What the tensors hold is neither read nor changed, nor is state. Takes about as long as all that
   * would take during runs, but by all threads (parallel_for is called once). On a GPU, where model_open has loaded
   * kernels and weights, it obtains memory alone. Fails as context_reserve does; what the system refuses beyond that
   * is left to the first run. Artifacts of earlier compilers end their table before it: compare struct_size. */
  stridec_status (*context_warm_up)(stridec_context* context, const stridec_tensor* inputs,
                                    size_t input_count, const stridec_tensor* outputs, size_t output_count);
} stridec_api;

/* Null if the artifact does not speak this version. Later versions only append to the table. */
typedef const stridec_api* (*stridec_get_api_fn)(uint32_t version);
const stridec_api* stridec_get_api(uint32_t version);

#ifdef __cplusplus
}
#endif

#endif /* STRIDEC_RUNTIME_H */
