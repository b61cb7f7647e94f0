/* stridec/runtime.h: the C API of every artifact that stridec writes.
 *
 * An artifact is a shared library that depends only on libc. It exports one symbol, stridec_get_api, which
 * returns the table of functions below. Link against the artifact, or dlopen it. A process may load
 * several artifacts if it obtains the table of each one separately.
 *
 *     void* lib = dlopen("./model.so", RTLD_NOW | RTLD_LOCAL);
 *     stridec_get_api_fn get_api = (stridec_get_api_fn)dlsym(lib, "stridec_get_api");
 *     const stridec_api* api = get_api(STRIDEC_API_VERSION);
 *     stridec_model* model;   api->model_open(NULL, &model, message, sizeof message);
 *     stridec_context* ctx;   api->context_create(model, NULL, &ctx, message, sizeof message);
 *     api->context_run(ctx, inputs, input_count, outputs, output_count);
 *
 * Rules for all functions:
 * - A *model* is immutable and any number of threads may use it at once. A *context* holds memory, threads
 *   and state. Only one thread at a time may use a context; different contexts may run at the same time.
 * - A function that can fail returns a stridec_status and writes a message of one sentence: into the
 *   buffer that the caller passed, or to context_error(). No function aborts, throws, prints or calls
 *   exit.
 * - A run allocates no memory if the context has already had a run (or context_reserve) of the same
 *   function with shapes at least as large.
 * - Results do not depend on the number of threads.
 * - The caller sets struct_size = sizeof(the struct) in every struct that has this field, also in those
 *   that the runtime fills; 0 is an invalid argument. In structs that the caller fills, zero selects the
 *   default of each field. In structs that the runtime fills, fields beyond struct_size are not written.
 * - Strings and arrays that the runtime returns are valid until the model is closed, unless stated
 *   otherwise. */
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
  /* sizes outside the range that the artifact supports (a guard), or an output tensor that is too small */
  STRIDEC_WRONG_SHAPE = 3,
  STRIDEC_BAD_DATA = 4, /* input values that the model does not accept, such as an index out of range */
  STRIDEC_OUT_OF_MEMORY = 5,
  STRIDEC_UNSUPPORTED_CPU = 6,     /* no variant in the artifact runs on this machine */
  STRIDEC_BAD_WEIGHTS = 7,         /* the external weights file is missing, or does not match the artifact */
  STRIDEC_BAD_ARTIFACT = 8,        /* the artifact is inconsistent: damaged or truncated */
  STRIDEC_BUSY = 9,                /* another thread is using the context */
  STRIDEC_UNSUPPORTED_DEVICE = 10, /* a GPU was requested, but there is no driver or no compatible device */
  STRIDEC_DEVICE_ERROR = 11,       /* the GPU driver rejected a call, or a kernel failed */
  STRIDEC_CANCELLED = 12,          /* context_cancel was called during the run */
} stridec_status;

/* ---- Tensors ----
 * The layout is that of DLPack's DLTensor (dlpack.h 0.6 to 1.x), so a DLTensor* may be cast to
 * stridec_tensor*. Device type 1 is the CPU. Device type 2 is the memory of an NVIDIA GPU; it is valid for
 * models that run on that GPU (see stridec_model_options). Such models also accept host tensors and copy
 * them.
 *
 * dtype codes are those of DLPack: 0 int, 1 uint, 2 float, 4 bfloat, 6 bool, 10 and up the 8-bit floats.
 * Types narrower than a byte take one byte per element and are declared as int8 (i4, i2) or uint8 (u4, u2,
 * f4e2m1, f6e2m3, f6e3m2). Types that NumPy lacks (bf16, the 8-bit floats) may be passed as unsigned
 * integers of the same size, and bool as uint8 with values 0 and 1.
 *
 * strides are in elements and may be zero or negative for inputs. A null pointer means compact and
 * row-major. The first element is at (char*)data + byte_offset. The runtime accesses only the elements
 * that shape and strides address. */
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

/* A message about what the runtime decided, for the log of the application: one sentence. Called on the
 * caller's thread, while it is in model_open. */
typedef void (*stridec_log)(void* user, const char* message);

typedef struct stridec_model_options {
  size_t struct_size;
  const char* variant;     /* name of the variant to use; null: the best one that this machine runs */
  const char* weights_dir; /* folder of an external weights file; null: the folder of the artifact */
  uint32_t flags;          /* STRIDEC_MODEL_* */
  /* The device to run on. STRIDEC_DEVICE_CPU; STRIDEC_DEVICE_CUDA, which fails if no GPU is compatible; or
   * 0: on a GPU if the artifact has code for it and the machine has a compatible device and driver,
   * otherwise on the CPU. */
  int32_t device_type;
  int32_t device_id; /* index of the GPU, in CUDA's numbering */
  /* Receives what model_open chose and why it passed over better variants: "no GPU is used: ...", and which
   * environment variables have no effect. May be null. */
  stridec_log log;
  void* log_user;
} stridec_model_options;

enum {
  STRIDEC_MODEL_SKIP_WEIGHTS_HASH = 1, /* check only the size of an external weights file, not its hash */
  /* CPU: copy the weights into huge pages of this process instead of using the pages of the file, which
   * are shared between processes. The copy counts towards the memory of the process. Runs that read each
   * weight once (a decoder step) become a few percent faster. If huge pages or memory are not available,
   * the pages of the file are used. */
  STRIDEC_MODEL_COPY_WEIGHTS = 2,
  /* Open the artifact although this machine may run none of its variants: to read its manifest, or to read
   * and write its parameters. Contexts refuse to run, and may be created without the sizes of states. */
  STRIDEC_MODEL_NO_RUN = 4,
  /* Compare the contents of the artifact's file with the hash that it carries (XXH64, at memory speed), and
   * fail with STRIDEC_BAD_ARTIFACT if they differ. Detects damage, not forgery. */
  STRIDEC_MODEL_CHECK_HASH = 8
};

/* Calls body(arg, part) exactly once for every part in [0, parts), in any order and on any threads.
 * Returns when all calls have returned. */
typedef void (*stridec_parallel_for)(void* user, int32_t parts, void (*body)(void* arg, int32_t part),
                                     void* arg);

typedef struct stridec_pool_options {
  size_t struct_size;
  /* Including the caller's thread. 0: the number in the environment variable STRIDEC_THREADS, or as many as
   * this process may use (affinity, cgroup quota). */
  int32_t threads;
  /* How long an idle thread spins before it sleeps, in microseconds. 0 selects 100, and 1000 between the
   * launches of a run, or no spinning if there are more threads than processors. -1: no spinning. */
  int32_t spin_us;
} stridec_pool_options;

/* A size of the states of a context. */
typedef struct stridec_size {
  const char* name;
  int64_t value;
} stridec_size;

typedef struct stridec_context_options {
  size_t struct_size;
  int32_t threads; /* as in stridec_pool_options; with parallel_for: the number of parts to split work into */
  int32_t spin_us; /* as in stridec_pool_options */
  stridec_parallel_for parallel_for; /* null: the context creates its own threads */
  void* parallel_user;
  /* Allocator for arena, scratch, staging and state. Set both functions or neither; null selects libc.
   * allocate returns memory aligned to `alignment` bytes (a power of two), or null. release receives what
   * allocate returned. */
  void* (*allocate)(void* user, size_t bytes, size_t alignment);
  void (*release)(void* user, void* memory, size_t bytes);
  void* memory_user;
  uint32_t flags; /* STRIDEC_CONTEXT_* */
  void* stream;   /* for a model on a GPU: a CUstream or cudaStream_t; null: the device's default stream */
  /* The sizes of the model's states (model_context_size), each once, in any order. Runs of the context have
   * these sizes: inputs whose shapes name them must agree. May be null if the model has none. */
  const stridec_size* sizes;
  size_t size_count;
} stridec_context_options;

enum {
  STRIDEC_CONTEXT_NO_HUGE_PAGES = 1, /* do not request transparent huge pages */
  /* GPU: a run whose tensors are all in device memory returns before it has finished; its work is ordered
   * by the stream. A later call returns the status of an error that occurs meanwhile. */
  STRIDEC_CONTEXT_ASYNC = 2
};

/* ---- Model properties ---- */

typedef struct stridec_model_info {
  size_t struct_size;
  const char* name;
  const char* compiler; /* "stridec 0.1.0" */
  const char* variant;  /* the variant in use */
  /* of function 0 */
  int32_t input_count, output_count, state_count, symbol_count, step_count;
  uint64_t weights_bytes;
  stridec_device device;   /* where the model runs */
  int32_t parameter_count; /* weights that may be replaced (compiled with --refit) */
  int32_t function_count;
  int32_t context_size_count; /* sizes that contexts are created with */
} stridec_model_info;

/* An entry point of the model. Functions have their own inputs, outputs and sizes, and share weights and
 * states. */
typedef struct stridec_function_info {
  size_t struct_size;
  const char* name;
  int32_t input_count, output_count, symbol_count, step_count;
} stridec_function_info;

/* A size. minimum == maximum: a constant. */
typedef struct stridec_dim {
  int64_t minimum, maximum; /* maximum is INT64_MAX if there is no upper bound */
  /* If the size is one symbol: its index for model_symbol, of a state for model_context_size. Otherwise -1 */
  int32_t symbol;
  const char* text; /* "768", "batch", "2*seq" */
} stridec_dim;

typedef struct stridec_value_info {
  size_t struct_size;
  const char* name;
  stridec_dtype dtype;
  const char* dtype_name; /* "f32", "i64", "u4" ... */
  int32_t rank;
  const char* shape;       /* "[batch, 2*seq, 768]" */
  const stridec_dim* dims; /* [rank]; null at rank 0. Symbols are those of the value's function */
  /* [rank]; the dims in the order in which they lie in memory, outermost first, if --layout declared one;
   * otherwise null: row-major. Tensors have the model's dims. Strides of this order need no copy. */
  const int32_t* memory_order;
} stridec_value_info;

/* A symbolic size that occurs in the shape of an input, output or state. */
typedef struct stridec_symbol_info {
  size_t struct_size;
  const char* name;
  int64_t minimum, maximum; /* the supported range; maximum is INT64_MAX if there is no upper bound */
  int64_t multiple;         /* values are multiples of it */
  int32_t from_data;        /* 1: known only after a run, such as a number of non-zero elements */
  int32_t of_context;       /* 1: contexts are created with it (stridec_context_options.sizes) */
} stridec_symbol_info;

typedef struct stridec_step_profile {
  size_t struct_size;
  const char* name; /* as in the manifest */
  int64_t calls;
  int64_t nanoseconds; /* wall time over all calls */
  int64_t minimum;     /* shortest call, in nanoseconds */
} stridec_step_profile;

typedef struct stridec_memory_info {
  size_t struct_size;
  /* Bytes allocated now. scratch_bytes is the memory of one launch at a time, on a GPU. On a CPU the arena
   * includes the memory of the threads. */
  uint64_t arena_bytes, scratch_bytes, staging_bytes, state_bytes;
  uint64_t allocations; /* number of allocations since the context was created */
} stridec_memory_info;

/* ---- Traces ---- */

typedef enum stridec_event_kind {
  STRIDEC_EVENT_RUN = 0,    /* a call of context_run or context_run_function, with its checks and copies */
  STRIDEC_EVENT_STEP = 1,   /* a kernel, or a routine of the library */
  STRIDEC_EVENT_PART = 2,   /* the share of a step that one call of a kernel does on one thread */
  STRIDEC_EVENT_WAIT = 3,   /* in a step: a thread has done its parts and others have not */
  STRIDEC_EVENT_COPY = 4,   /* of an input or output that is strided or on another device, in the run */
  STRIDEC_EVENT_KERNEL = 5, /* a kernel on a GPU that was launched by itself */
  STRIDEC_EVENT_REPLAY = 6  /* all kernels of a run, as a recorded graph on a GPU */
} stridec_event_kind;

/* The begin or the end of an event. Events of one thread nest: parts and waits lie in the step, steps and
 * copies in the run. A step begins when the step before it ends, unless the run did something in between.
 * Kernels and replays are in the time of the GPU's stream, where they do not overlap. */
typedef struct stridec_event {
  size_t struct_size;
  int32_t kind; /* stridec_event_kind */
  int32_t ends; /* 0: it begins; 1: it ends */
  int64_t time; /* nanoseconds of CLOCK_MONOTONIC */
  int64_t run;  /* number of the run since the trace began */
  int32_t function;
  int32_t step;     /* as in the manifest; -1: the run, a copy or a replay */
  int32_t part;     /* of a part, or the last part before a wait; of a kernel on a GPU its number
                     * among those of the step; otherwise -1 */
  int32_t status;   /* of a run that ends: stridec_status */
  const char* name; /* of the function, the step, or the input or output that is copied */
} stridec_event;

/* Called when an event begins and when it ends, on the thread that does the work: the caller's for runs and
 * steps, any thread of the context for parts. Calls for parts may run at the same time. Of waits it sees
 * those of the caller's thread, both ends when the step ends; of kernels and replays both ends when the run
 * has ended, or later if the context is asynchronous. The event is valid until the function returns.
 * It must not call the API with the same context. */
typedef void (*stridec_sink)(void* user, const stridec_event* event);

typedef struct stridec_trace_options {
  size_t struct_size;
  uint32_t flags; /* STRIDEC_TRACE_* */
  int32_t runs;   /* end the trace after this number of runs; 0: no limit */
  /* A file to write, which is replaced: an array of trace events in JSON that Perfetto and chrome://tracing
   * read. It is whole whenever the process dies. Runs are written when they end, but not more often than
   * every 20 ms: a process that is killed loses the events since then. Null: no file. */
  const char* path;
  stridec_sink sink; /* may be null */
  void* user;
  /* Room for events that were not written yet, allocated by context_trace. When half of it or 2048 are used,
   * they are written at the end of the run; if a run has more, also during the run. 0: 16384. */
  int32_t events;
  int32_t reserved;
} stridec_trace_options;

/* What is traced besides runs and steps. */
enum {
  STRIDEC_TRACE_PARTS = 1,
  STRIDEC_TRACE_WAITS = 2, /* takes the time of parts, as PARTS does */
  STRIDEC_TRACE_COPIES = 4,
  /* Kernels and replays on a GPU. Runs of an asynchronous context have none while the times of 2048 are not
   * known yet, nor has the last run of a trace of limited runs that the GPU has not done 20 ms later. */
  STRIDEC_TRACE_KERNELS = 8
};

/* ---- Operators that the application computes ---- */

/* A number that an operator is called with: an attribute of the model, or a size. */
typedef struct stridec_attribute {
  const char* name;
  int32_t real; /* 1: number has the value; 0: integer */
  int32_t reserved;
  int64_t integer;
  double number;
} stridec_attribute;

/* A call of an operator. Tensors have shapes and, in elements, strides, which may be negative; those that the
 * operator's declaration leaves dense are row-major. Inputs are not to be written. */
typedef struct stridec_call {
  size_t struct_size;
  const char* name; /* "acme::Op" */
  const stridec_tensor* inputs;
  const stridec_tensor* outputs; /* the callback writes their elements, and nothing else */
  const stridec_attribute* attributes;
  size_t input_count, output_count, attribute_count;
  /* A callback that fails may write a sentence here, zero-terminated, of at most message_bytes bytes. */
  char* message;
  size_t message_bytes;
} stridec_call;

/* Computes the outputs. Called on the thread that runs the model; it may not call functions of the context.
 * Returns 0, or another number if it failed: the run then returns STRIDEC_BAD_DATA with the number and the
 * message. */
typedef int32_t (*stridec_callback)(void* user, const stridec_call* call);

/* ---- Functions ---- */

typedef struct stridec_api {
  size_t struct_size;
  uint32_t version;

  /* The name of a status, such as "STRIDEC_WRONG_SHAPE"; never null. */
  const char* (*status_name)(int32_t status);

  /* Selects a variant and maps the weights. options may be null. On failure an error message is written to
   * message, which has room for message_bytes bytes. The text is always zero-terminated; message may be
   * null. */
  stridec_status (*model_open)(const stridec_model_options* options, stridec_model** model, char* message,
                               size_t message_bytes);
  /* Releases the caller's reference. Contexts keep their model alive, so it is freed with its last
   * context. Null is allowed, here and in the other functions that destroy an object. */
  void (*model_close)(stridec_model* model);
  stridec_status (*model_info)(const stridec_model* model, stridec_model_info* info);
  stridec_status (*model_input)(const stridec_model* model, int32_t index, stridec_value_info* info);
  stridec_status (*model_output)(const stridec_model* model, int32_t index, stridec_value_info* info);
  stridec_status (*model_state)(const stridec_model* model, int32_t index, stridec_value_info* info);
  stridec_status (*model_symbol)(const stridec_model* model, int32_t index, stridec_symbol_info* info);
  /* The manifest that is also written next to the artifact as a file. json is not zero-terminated. */
  stridec_status (*model_manifest)(const stridec_model* model, const char** json, size_t* bytes);
  /* Returns the name of the variant with this index, best first, and sets *usable to whether this machine
   * runs it. Returns null for an index past the last variant. */
  const char* (*model_variant)(const stridec_model* model, int32_t index, int32_t* usable);

  /* A thread pool that several contexts share, also contexts of other artifacts. Pass pool_parallel_for
   * and the pool as a context's parallel_for and parallel_user. A caller that finds the pool busy does its
   * work on its own thread. */
  stridec_status (*pool_create)(const stridec_pool_options* options, stridec_pool** pool, char* message,
                                size_t message_bytes);
  void (*pool_destroy)(stridec_pool* pool);
  int32_t (*pool_threads)(const stridec_pool* pool);
  /* Without a pool (null) the caller's thread does all the work. */
  void (*pool_parallel_for)(void* pool, int32_t parts, void (*body)(void* arg, int32_t part), void* arg);

  stridec_status (*context_create)(stridec_model* model, const stridec_context_options* options,
                                   stridec_context** context, char* message, size_t message_bytes);
  void (*context_destroy)(stridec_context* context);
  /* The error message of the last call on this context; "" if that call did not fail. Valid until the next
   * call. While another thread is in a call on the context, the message says that. */
  const char* (*context_error)(const stridec_context* context);
  int32_t (*context_threads)(const stridec_context* context);

  /* Computes the shapes of all outputs for inputs of the given shapes. Fills ndim and dtype of each output
   * and, unless shape is null, shape[0..rank) (call model_output for the rank first). A dim of -1 is known
   * only after the run. The data of inputs may be null. If the shape of an output depends on the values of
   * an input, they are read if present. */
  stridec_status (*context_output_shapes)(stridec_context* context, const stridec_tensor* inputs,
                                          size_t input_count, stridec_tensor* outputs, size_t output_count);

  /* Allocates all memory that a run with such tensors needs. The data of tensors may be null. outputs may
   * be null: the run will then receive compact memory for each output. If outputs is given, null data has
   * the same meaning as in context_run. */
  stridec_status (*context_reserve)(stridec_context* context, const stridec_tensor* inputs,
                                    size_t input_count, const stridec_tensor* outputs, size_t output_count);

  /* Runs the model. Inputs and outputs are in the order of the manifest and may not overlap. An input
   * without elements may have null data. Each output is one of two cases:
   * - data is not null: the memory of the caller. shape gives its size: each dim must be at least the
   *   actual dim, and if strides is null only dim 0 may be larger. After the run shape holds the actual
   *   dims. Strides may be given but may not make elements overlap.
   * - data is null: memory of the context, compact and valid until the next run; on the GPU if device.type
   *   requests it. The run fills data, ndim, dtype and shape. It sets strides to null, or to those of the
   *   declared order in memory of the context. If shape was null it points to memory of the context too.
   * After a failure the contents of the outputs are unspecified. State then has its values from before the
   * run, except after STRIDEC_BAD_DATA, when it is unspecified. */
  stridec_status (*context_run)(stridec_context* context, const stridec_tensor* inputs, size_t input_count,
                                stridec_tensor* outputs, size_t output_count);

  /* The context owns the state, which starts at its initial value. view is filled with a compact tensor
   * over the state's memory, with strides if it has a memory_order, valid until the context is destroyed.
   * Read it to save the state, write to it to restore the state. */
  stridec_status (*context_state)(stridec_context* context, int32_t index, stridec_tensor* view);
  /* Resets a state to its initial value; index -1 resets all. */
  stridec_status (*context_reset_state)(stridec_context* context, int32_t index);

  /* Starts (enable != 0; counters start at zero) or stops timing of every step. */
  stridec_status (*context_profile)(stridec_context* context, int32_t enable);
  stridec_status (*context_step)(stridec_context* context, int32_t index, stridec_step_profile* profile);
  stridec_status (*context_memory)(stridec_context* context, stridec_memory_info* info);

  /* Optional: allocates like context_reserve and also prepares the first run to be as fast as later ones.
   * Starts the threads of the context, touches the pages of its memory and of the outputs, and reads the
   * weights and the code, from disk if they are not in memory yet. Neither reads nor changes the contents
   * of the tensors or the state. Takes about as long as the same work would take during runs, but all
   * threads share it (parallel_for is called once). On a GPU, where model_open has loaded kernels and
   * weights, it only allocates memory. Fails as context_reserve does; if the system refuses anything else,
   * the first run does that work. Tables of artifacts from earlier compilers end before this function:
   * compare struct_size. */
  stridec_status (*context_warm_up)(stridec_context* context, const stridec_tensor* inputs,
                                    size_t input_count, const stridec_tensor* outputs, size_t output_count);

  /* Parameters are weights that the artifact was compiled to replace (--refit). */
  stridec_status (*model_parameter)(const stridec_model* model, int32_t index, stridec_value_info* info);
  /* Writes a state or a parameter, by name, from a tensor of its dtype and shape, strided or not, on the host
   * or on the model's GPU. A context has the artifact's parameters until it writes the first one, and copies
   * them then; other contexts keep theirs. Values that are derived from parameters (packed or rounded
   * weights) are computed again before the next run. */
  stridec_status (*context_write_state)(stridec_context* context, const char* name,
                                        const stridec_tensor* tensor);
  /* Copies a state or a parameter to the tensor, whose shape is given and whose data is the caller's. */
  stridec_status (*context_read_state)(stridec_context* context, const char* name, stridec_tensor* tensor);
  /* The end of the weights section with the context's parameters, and the ones derived from them for every
   * variant of every function: bytes[0..count) belong at `offset` of the section. For tools that write an
   * artifact with other parameters. The memory is valid until the next call. */
  stridec_status (*context_parameters)(stridec_context* context, uint64_t* offset, const void** bytes,
                                       uint64_t* count);

  /* The functions of a model, 0 to stridec_model_info.function_count - 1. The functions above that do not
   * name one are about function 0: model_input is model_function_input with 0, context_run is
   * context_run_function with 0. A context's states and parameters are those of all functions: what one
   * writes the others read. Memory of the context that an output points to is valid until the next run of
   * the same function. Tables of artifacts from earlier compilers end before model_function: compare
   * struct_size. */
  stridec_status (*model_function)(const stridec_model* model, int32_t function, stridec_function_info* info);
  stridec_status (*model_function_input)(const stridec_model* model, int32_t function, int32_t index,
                                         stridec_value_info* info);
  stridec_status (*model_function_output)(const stridec_model* model, int32_t function, int32_t index,
                                          stridec_value_info* info);
  stridec_status (*model_function_symbol)(const stridec_model* model, int32_t function, int32_t index,
                                          stridec_symbol_info* info);
  stridec_status (*context_function_output_shapes)(stridec_context* context, int32_t function,
                                                   const stridec_tensor* inputs, size_t input_count,
                                                   stridec_tensor* outputs, size_t output_count);
  stridec_status (*context_reserve_function)(stridec_context* context, int32_t function,
                                             const stridec_tensor* inputs, size_t input_count,
                                             const stridec_tensor* outputs, size_t output_count);
  stridec_status (*context_warm_up_function)(stridec_context* context, int32_t function,
                                             const stridec_tensor* inputs, size_t input_count,
                                             const stridec_tensor* outputs, size_t output_count);
  stridec_status (*context_run_function)(stridec_context* context, int32_t function,
                                         const stridec_tensor* inputs, size_t input_count,
                                         stridec_tensor* outputs, size_t output_count);
  stridec_status (*context_function_step)(stridec_context* context, int32_t function, int32_t index,
                                          stridec_step_profile* profile);

  /* The index of the input or output with this name; -1 if there is none. */
  int32_t (*model_find_input)(const stridec_model* model, int32_t function, const char* name);
  int32_t (*model_find_output)(const stridec_model* model, int32_t function, const char* name);
  /* Text that the model's file or `compile --metadata` gave, sorted by key. Returns
   * STRIDEC_INVALID_ARGUMENT for an index past the last. */
  stridec_status (*model_metadata)(const stridec_model* model, int32_t index, const char** key,
                                   const char** text);
  /* Ends the run that is in progress on the context: it returns STRIDEC_CANCELLED before its next step. May
   * be called from any thread and from a signal handler. Without a run in progress it does nothing. Outputs
   * and state are then unspecified. */
  void (*context_cancel)(stridec_context* context);

  /* Starts a trace of all runs of the context: names and times of its steps, to a file and to a function of
   * the caller. Null options end it; so does context_destroy. Results do not change. A traced run allocates
   * no memory. If the file cannot be written any more, the trace goes on without it, and the call that ends
   * the trace says so. A file for which there is no room is STRIDEC_OUT_OF_MEMORY, one that cannot be written
   * for another reason STRIDEC_INVALID_ARGUMENT. On a GPU runs are traced, but not the steps that the GPU
   * executes. Without this call a context traces to the file that the
   * environment variable STRIDEC_PROFILE names (docs/inspecting.md). Tables of artifacts from earlier
   * compilers end before this function: compare struct_size. */
  stridec_status (*context_trace)(stridec_context* context, const stridec_trace_options* options);

  /* The name of an operator that the application computes ("acme::Op": docs/operators.md), or null for an
   * index past the last. Tables of artifacts from earlier compilers end before this function: compare
   * struct_size. */
  const char* (*model_callback)(const stridec_model* model, int32_t index);
  /* Sets the function that computes such an operator in runs of this context; null removes it. A run that
   * needs one that is not set fails with STRIDEC_INVALID_ARGUMENT. */
  stridec_status (*context_set_callback)(stridec_context* context, const char* name,
                                         stridec_callback callback, void* user);

  /* A size that contexts are created with, because the shape of a state names it. Tables of artifacts from
   * earlier compilers end before this function: compare struct_size. Their states have constant sizes. */
  stridec_status (*model_context_size)(const stridec_model* model, int32_t index, stridec_symbol_info* info);
} stridec_api;

/* Returns the function table, or null if the artifact does not support this version. Later versions only
 * append to the table. */
typedef const stridec_api* (*stridec_get_api_fn)(uint32_t version);
const stridec_api* stridec_get_api(uint32_t version);

#ifdef __cplusplus
}
#endif

#endif /* STRIDEC_RUNTIME_H */
