/* stridec/abi.h: the interface between generated code and the runtime that is linked with it.
 *
 * Both are in one shared object and come from one version of stridec, so this is not a public interface (that
 * is runtime.h). STRIDEC_ABI_VERSION only detects a runtime and a program that do not match.
 * The file is plain C and valid C++. It is also pasted as text into generated sources, which have no headers:
 * with STRIDEC_ABI_FREESTANDING defined it includes nothing. Nothing here needs libc.
 */
#ifndef STRIDEC_ABI_H
#define STRIDEC_ABI_H

#ifdef STRIDEC_ABI_FREESTANDING
typedef __INT32_TYPE__ int32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT64_TYPE__ uint64_t;
#else
#include <stdint.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define STRIDEC_ABI_VERSION 11u
#define STRIDEC_ABI_OLDEST 4u /* artifacts from this number on are read through the C API and their note */
#define STRIDEC_ABI_INLINE static inline __attribute__((unused))

/* ---- Failures ---- */

enum { STRIDEC_ABI_VALUES = 4 };

/* A failure: an entry of the program's message table and the values for its text. All zero: no failure. */
typedef struct stridec_abi_failure {
  int32_t code; /* 0: none; otherwise 1 + index into stridec_abi_module.messages */
  int32_t reserved;
  int64_t values[STRIDEC_ABI_VALUES]; /* for the placeholders {0}..{3} of the message */
  int64_t padding[3];                 /* pads a slot to one cache line */
} stridec_abi_failure;

/* Records a failure unless the slot already has one. */
STRIDEC_ABI_INLINE void stridec_abi_record(stridec_abi_failure* slot, int32_t message, int64_t v0, int64_t v1,
                                           int64_t v2, int64_t v3) {
  if (slot->code) return;
  slot->code = message + 1;
  slot->values[0] = v0;
  slot->values[1] = v1;
  slot->values[2] = v2;
  slot->values[3] = v3;
}

/* A guard that is false (the artifact does not support these shapes), or a data check that failed in a
 * kernel. */
typedef enum stridec_abi_message_kind {
  STRIDEC_ABI_GUARD = 0,
  STRIDEC_ABI_DATA = 1
} stridec_abi_message_kind;

typedef struct stridec_abi_message {
  int32_t kind;     /* stridec_abi_message_kind */
  const char* text; /* "input 'x': dim 0 (batch) is {0}; this artifact serves 1..64" */
} stridec_abi_message;

/* ---- Kernels ---- */

/* Distribution of a launch: stridec_abi_parts gives the number of parts. Part p gets the tasks from
 * stridec_abi_share(.., p) to stridec_abi_share(.., p + 1), exclusive. The sizes of the parts differ by at
 * most one. */
STRIDEC_ABI_INLINE int64_t stridec_abi_parts(int64_t tasks, int64_t grain, int32_t threads) {
  const int64_t worth = tasks > 0 && grain > 1 ? (tasks - 1) / grain + 1 : tasks;
  return worth < threads ? worth : threads;
}
STRIDEC_ABI_INLINE int64_t stridec_abi_share(int64_t tasks, int64_t parts, int64_t part) {
  const int64_t more = tasks % parts;
  return part * (tasks / parts) + (part < more ? part : more);
}

/* The first weights of a later launch, so that an earlier launch can prefetch them. They are panels of
 * equal size. Each group of `run` consecutive tasks reads one panel; the panels follow each other in
 * memory and repeat cyclically. */
typedef struct stridec_abi_ahead {
  const char* weights;
  int64_t panel_bytes, panels, run;
  int64_t tasks, grain; /* of the later launch */
  int32_t threads;
} stridec_abi_ahead;

/* The first panel of a part; null if the part has no tasks. */
STRIDEC_ABI_INLINE const char* stridec_abi_panel_ahead(const stridec_abi_ahead* ahead, int32_t part) {
  const int64_t parts = stridec_abi_parts(ahead->tasks, ahead->grain, ahead->threads);
  if (part >= parts) return 0;
  const int64_t first = stridec_abi_share(ahead->tasks, parts, part);
  return ahead->weights + first / ahead->run % ahead->panels * ahead->panel_bytes;
}

/* The tasks of a part that have not begun: first << 32 | end. Its own kernel takes from the front, other
 * parts steal from the back. */
typedef struct stridec_abi_left {
  uint64_t tasks;
  char line[56]; /* each part has its own cache line */
} stridec_abi_left;

STRIDEC_ABI_INLINE uint64_t stridec_abi_tasks(int64_t first, int64_t end) {
  return (uint64_t)first << 32 | (uint64_t)end;
}

/* Arguments of one launch. The kernel's generator and its caller agree on the meaning of buffers and
 * sizes. */
typedef struct stridec_abi_args {
  void* const* buffers;
  const int64_t* sizes;
  char* scratch;                  /* of part 0; 64-byte aligned */
  int64_t scratch_stride;         /* bytes from one part's scratch to the next part's; a multiple of 64 */
  stridec_abi_failure* failures;  /* one slot per part; see stridec_abi_fail */
  const stridec_abi_ahead* ahead; /* null: no prefetch */
  stridec_abi_left* left;         /* one per part; null: each part runs exactly the tasks it was called for */
  int64_t grain;                  /* minimum number of tasks per access to `left` */
} stridec_abi_args;

/* Runs the tasks [begin, end) of the launch's flattened parallel domain, or those that other parts have
 * not stolen: it takes them with stridec_abi_take. `part` is the number of this share: it selects the
 * scratch and the failure slot, and is less than stridec_abi_run.threads. The results of a launch do not
 * depend on how the tasks are distributed. A kernel never allocates, locks or makes a system call, and
 * returns early only after it has recorded a failure. */
typedef void (*stridec_abi_kernel)(const stridec_abi_args* args, int64_t begin, int64_t end, int32_t part);

/* Takes the next tasks of a part: from `first`, its current position, up to the result (exclusive).
 * Returns `first` if none are left. Other parts have stolen the missing tasks before `end`. */
STRIDEC_ABI_INLINE int64_t stridec_abi_take(const stridec_abi_args* args, int32_t part, int64_t first,
                                            int64_t end) {
  if (!args->left) return end;
  uint64_t* const own = &args->left[part].tasks;
  uint64_t left = __atomic_load_n(own, __ATOMIC_RELAXED);
  for (;;) {
    const int64_t last = (int64_t)(left & 0xffffffff);
    if (first >= last) return first;
    const int64_t taken = last - first > args->grain ? first + args->grain : last;
    if (__atomic_compare_exchange_n(own, &left, stridec_abi_tasks(taken, last), 1, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED))
      return taken;
  }
}

STRIDEC_ABI_INLINE char* stridec_abi_scratch(const stridec_abi_args* args, int32_t part) {
  return args->scratch + args->scratch_stride * part;
}

/* Records a failure of a part. Shares are contiguous and in order, and each keeps its first failure. The
 * reported failure is that of the lowest part, so it is the same for every number of threads. */
STRIDEC_ABI_INLINE void stridec_abi_fail(const stridec_abi_args* args, int32_t part, int32_t message,
                                         int64_t v0, int64_t v1, int64_t v2, int64_t v3) {
  stridec_abi_record(&args->failures[part], message, v0, v1, v2, v3);
}

/* ---- Kernels on a GPU ---- */

/* The arguments of cuTensorMapEncodeTiled or cuTensorMapEncodeIm2col for one CUtensorMap. */
typedef struct stridec_abi_tensor_map {
  void* address;
  int32_t im2col; /* 0: tiled, uses box; 1: im2col, uses lower, upper and box = {channels, pixels} */
  int32_t dtype;  /* CUtensorMapDataType */
  int32_t rank;
  int32_t swizzle, l2_promotion; /* CUtensorMapSwizzle, CUtensorMapL2promotion */
  int32_t box[5], element_strides[5], lower[3], upper[3];
  int64_t dims[5], strides[4]; /* innermost first; strides in bytes, from dim 1 on */
} stridec_abi_tensor_map;

/* A kernel launch. The parameters of the kernel are the encoded maps, the words, the failure slot if it
 * can fail, private memory if it needs some, and counters if it needs some. Counters are zero before the
 * kernel, which leaves them zero. */
typedef struct stridec_abi_device_launch {
  int32_t kernel;  /* index into stridec_abi_target.kernels */
  int32_t step;    /* for the profile; -1: belongs to the preceding step */
  int64_t grid[3]; /* a launch with a zero does nothing */
  int64_t shared_bytes;
  int64_t workspace_bytes, counter_bytes; /* 0: none */
  const int64_t* words;
  const stridec_abi_tensor_map* maps;
  int32_t word_count, map_count;
  int32_t fails;      /* 1: one parameter is the failure slot */
  int32_t concurrent; /* 1: depends neither on the launch before it nor on those that that one may run with */
} stridec_abi_device_launch;

enum { STRIDEC_ABI_DEVICE_WORDS = 480, STRIDEC_ABI_DEVICE_MAPS = 16 }; /* maxima of one launch */

/* The parameters of the kernel that copies strided tensors: 8-byte words in this order. A loop is three
 * words: count, stride in the target, stride in the source, in elements. A block copies a tile of loops a
 * and b, for one index of each outer loop. */
enum {
  STRIDEC_ABI_COPY_TO = 0, /* addresses */
  STRIDEC_ABI_COPY_FROM = 1,
  STRIDEC_ABI_COPY_ELEMENT = 2, /* bytes: 1, 2, 4, 8 or 16 */
  STRIDEC_ABI_COPY_STAGED = 3,  /* 1: the tile passes through shared memory, read along b, written along a */
  STRIDEC_ABI_COPY_A = 4,
  STRIDEC_ABI_COPY_B = 7,
  STRIDEC_ABI_COPY_TILE_A = 10,
  STRIDEC_ABI_COPY_TILE_B = 11,
  STRIDEC_ABI_COPY_LOOPS = 12, /* the outer loops; unused ones have count 1 */
  STRIDEC_ABI_COPY_OUTER = 6,
  STRIDEC_ABI_COPY_WORDS = 30,
  STRIDEC_ABI_COPY_SHARED = 24576 /* bytes of a staged tile with an odd number of elements along b, at most */
};

/* A kernel of a GPU target. Kernel i uses image i of the target. */
typedef struct stridec_abi_device_kernel {
  const char* symbol;
  int32_t threads;        /* per block */
  int32_t cluster;        /* blocks per cluster */
  int32_t dynamic_shared; /* 1: launches request dynamic shared memory */
  int32_t dependent;      /* 1: may start while its predecessor runs; the kernel itself waits for it */
} stridec_abi_device_kernel;

/* ---- A run ---- */

/* A tensor of a call of the application: stridec_tensor of runtime.h. The runtime sets its type. */
typedef struct stridec_abi_tensor {
  void* data;
  int32_t device_type, device_id;
  int32_t rank;
  int32_t dtype;
  const int64_t* dims;
  const int64_t* strides; /* in elements */
  uint64_t byte_offset;
} stridec_abi_tensor;

/* An attribute of such a call: stridec_attribute of runtime.h. */
typedef struct stridec_abi_attribute {
  const char* name;
  int32_t real; /* 1: number has the value; 0: integer */
  int32_t reserved;
  int64_t integer;
  double number;
} stridec_abi_attribute;

/* A call of a function of the application. */
typedef struct stridec_abi_call {
  int32_t callback; /* index into stridec_abi_module.callbacks */
  int32_t step;     /* as of a launch */
  int32_t read_count, write_count, attribute_count;
  int32_t reserved;
  stridec_abi_tensor* tensors; /* reads, then writes */
  const int32_t* dtypes;       /* ONNX TensorProto.DataType numbers */
  const stridec_abi_attribute* attributes;
} stridec_abi_call;

typedef struct stridec_abi_run stridec_abi_run;

struct stridec_abi_run {
  int64_t* symbols; /* values by symbol index; the run writes the data-dependent ones */
  /* All are compact in their memory_order. Inputs and outputs are aligned only to their element size, and may
   * be null only if they have no elements. An output of data-dependent shape is null until resize_output.
   * States are 64-byte aligned. */
  const void* const* inputs;
  void** outputs;
  void* const* states;
  const char* weights; /* start of the weights section of the artifact */
  /* Add the offset of a replaceable parameter, or of one derived from it: these are in the weights section
   * too, or in a copy that the context makes when the first of them is replaced. */
  char* parameters;
  char* arena;                   /* workspace_bytes(symbols, threads) bytes, 64-byte aligned */
  stridec_abi_failure* failures; /* `threads` slots, all zero when the run begins */
  int32_t threads;               /* maximum number of parts of a launch */
  /* 1: run() may call single-part kernels directly; 0: every launch must go through `launch` */
  int32_t direct;

  /* Runs the kernel over [0, tasks) in at most min(threads, ceil(tasks / grain)) parts and returns when
   * all are done. One part runs on the caller's thread. grain is the smallest number of tasks that is
   * worth a thread (>= 1). movable: no task records a failure, so that a part that has finished may steal
   * tasks from parts that are late or have more work. step numbers the launch for the profile
   * (stridec_abi_variant.step_names). The caller copies args->failures from here. Returns nonzero if a
   * failure was recorded; run() must then return at once. */
  int32_t (*launch)(stridec_abi_run* run, stridec_abi_kernel kernel, const stridec_abi_args* args,
                    int64_t tasks, int64_t grain, int32_t step, int32_t movable);

  /* Sets the dims of an output whose shape depends on data. Returns compact memory for it and stores it in
   * outputs[output]. Returns null if the output does not fit the caller's tensor or memory is exhausted
   * (the runtime records its own failure); run() must then return 1 at once. */
  void* (*resize_output)(stridec_abi_run* run, int32_t output, const int64_t* dims);

  /* Allocates a buffer whose size is known only during the run: at least `bytes` bytes, 64-byte aligned,
   * valid until the next call for the same slot (< stridec_abi_function.slot_count). The contents are not
   * preserved. Returns null as above. */
  void* (*allocate)(stridec_abi_run* run, int32_t slot, int64_t bytes);

  /* For GPU variants, where all memory above except symbols and failures is device memory. Kernels run in
   * order; the call returns before they are done. Returns nonzero if the driver rejected the launch (the
   * runtime has the message). */
  int32_t (*launch_device)(stridec_abi_run* run, const stridec_abi_device_launch* launch);
  /* Copies bytes of the run's memory to the host, after all earlier launches have finished. */
  int32_t (*read)(stridec_abi_run* run, void* to, const void* from, int64_t bytes);

  /* Calls a function of the application, on the thread of the run. Returns nonzero if there is none or it
   * failed (the runtime has the message); run() must then return 1 at once. */
  int32_t (*call)(stridec_abi_run* run, const stridec_abi_call* call);

  void* context; /* owned by the runtime */
};

/* ---- A module ---- */

typedef struct stridec_abi_symbol {
  const char* name;
  int64_t minimum, maximum; /* the range that the guards allow */
  int64_t multiple;         /* >= 1 */
  int32_t from_data;        /* 1: bound during a run; -1 until then */
  int32_t shown;            /* 1: occurs in the shape of an input, output or state */
} stridec_abi_symbol;

enum { STRIDEC_ABI_READ_BY_BIND = 1 }; /* bind reads the values of this input, for example a shape */

/* An input, output or state. */
typedef struct stridec_abi_value {
  const char* name;
  int32_t dtype; /* ONNX TensorProto.DataType number; types narrower than a byte take one byte per element */
  int32_t rank;
  int32_t flags;
  int32_t reserved;
  /* text of each dim ("batch", "2*seq"), each zero-terminated; may be null at rank 0 */
  const char* dims;
  const int64_t* ranges; /* smallest and largest size of each dim; may be null at rank 0 */
  /* The dims in the order in which they lie in memory, outermost first; null: row-major. Dims, ranges and
   * the caller's tensors are in the order of the model. */
  const int32_t* memory_order;
} stridec_abi_value;

/* A state, or a parameter that the user may replace. It belongs to the module: all functions that name it use
 * the same memory. */
typedef struct stridec_abi_state {
  stridec_abi_value value;
  /* The memory of a context does not depend on the shapes of a run. Null: the module's bind_context computes
   * them, if the rank is not 0. */
  const int64_t* dims;
  int64_t initial; /* offset of the initial value in the weights; -1: zeros (of a state) */
} stridec_abi_state;

enum { STRIDEC_ABI_CPU = 0, STRIDEC_ABI_CUDA = 1 }; /* stridec_abi_target.device */

/* An instruction set, or a kind of GPU, that the module has code for. */
typedef struct stridec_abi_target {
  const char* name;   /* "x86-64-v3", "znver4", "sm_90a" */
  uint64_t features;  /* STRIDEC_CPU_* bits, all of which the machine must have */
  int32_t device;     /* STRIDEC_ABI_CPU, STRIDEC_ABI_CUDA */
  int32_t capability; /* GPU: 10 * major + minor of the compute capability of the code */
  /* 1: this capability only; 0: the same major version, at least this minor version; 2: PTX, at least this
   * capability */
  int32_t exact;
  /* GPU: number of graphs (recorded runs, one per shape) that a context keeps for each function; 0: separate
   * launches */
  int32_t graphs;
  int32_t kernel_count;
  int32_t copy_kernel;                      /* GPU: the number of the one that copies strided tensors */
  const stridec_abi_device_kernel* kernels; /* GPU: of all functions, each kernel once */
} stridec_abi_target;

/* The code of a function for one target. */
typedef struct stridec_abi_variant {
  /* Sizes. If a symbol is -1 (unknown), the result is for its maximum. Negative or over INT64_MAX/2: out
   * of memory. */
  int64_t (*workspace_bytes)(const int64_t* symbols, int64_t threads); /* may be null: 0 */
  int64_t (*scratch_bytes)(const int64_t* symbols); /* GPU: the maximum over all launches; may be null: 0 */
  int64_t (*counter_bytes)(const int64_t* symbols); /* likewise */
  int32_t (*run)(stridec_abi_run* run);             /* nonzero if a failure was recorded */
  int32_t step_count;
  int32_t reserved;
  const char* step_names; /* one per launch, in order, each zero-terminated */

  /* Computes the parameters that this variant derives from replaceable ones (packed, rounded, folded) again.
   * Runs on the host, also for a GPU variant: `parameters` and `weights` are host memory, `arena` has
   * derivation_bytes(symbols, threads) bytes, and no symbol has a value. Only launch and allocate are called.
   * Null: nothing is derived. */
  int32_t (*derive)(stridec_abi_run* run);
  int64_t (*derivation_bytes)(const int64_t* symbols, int64_t threads);
} stridec_abi_variant;

/* An entry point. */
typedef struct stridec_abi_function {
  const char* name;
  int32_t symbol_count, input_count, output_count, slot_count;
  const stridec_abi_symbol* symbols;
  const stridec_abi_value* inputs;
  const stridec_abi_value* outputs;
  const stridec_abi_variant* variants; /* one per target of the module */

  /* Computes the symbols from the inputs and checks every guard. Symbols that are sizes of the context have
   * their values already. The runtime has already checked dtype and rank. If STRIDEC_ABI_READ_BY_BIND is set
   * for input i, input_data[i] is compact, or null if its values are not known yet; for other inputs it is
   * always null. Returns nonzero and the failure if a guard is false. */
  int32_t (*bind)(const int64_t* const* input_dims, const void* const* input_data, int64_t* symbols,
                  stridec_abi_failure* failure);

  /* Dims of all outputs, concatenated; -1 for those that depend on data and are not known yet. */
  void (*output_dims)(const int64_t* symbols, int64_t* dims);

  /* Of each symbol: its index among the module's sizes, or -1. Null: none is a size of the context. */
  const int32_t* context_sizes;
} stridec_abi_function;

/* External weights: a file beside the artifact. Programs that write an artifact with other weights find the
 * mark in the library, where it occurs once, and change what follows it. */
#define STRIDEC_ABI_WEIGHTS_MARK "stridec.weights" /* 16 bytes with its zero */

typedef struct stridec_abi_weights_file {
  char mark[16];  /* STRIDEC_ABI_WEIGHTS_MARK */
  uint64_t hash;  /* XXH64 of the file's bytes (seed 0, stridec/xxh64.h) */
  char name[256]; /* zero-terminated, without a slash */
} stridec_abi_weights_file;

typedef struct stridec_abi_module {
  uint32_t abi_version; /* STRIDEC_ABI_VERSION */
  uint32_t struct_size; /* sizeof(stridec_abi_module) */
  const char* name;     /* of the model */
  const char* compiler; /* "stridec 0.1.0" */

  int32_t function_count, target_count, state_count, parameter_count, message_count;
  int32_t spin_us; /* default for contexts that do not set spin_us; 0: the default of the runtime */
  int32_t metadata_count;
  int32_t reserved;
  const char* metadata;                  /* keys and texts in turn, each zero-terminated; may be null */
  const stridec_abi_function* functions; /* at least one */
  const stridec_abi_target* targets;     /* best first */
  const stridec_abi_state* states;
  const stridec_abi_state* parameters; /* those that the user may replace, with the models' names */
  const stridec_abi_message* messages;

  /* Null: weights are in the artifact, see stridec_abi_note. weights_bytes applies to both cases. */
  const stridec_abi_weights_file* weights_file;
  uint64_t weights_bytes;
  /* Offset in the weights at which replaceable and derived parameters begin; they reach to the end. */
  uint64_t parameters_begin;

  /* Operators that the application computes: their names, each zero-terminated. */
  const char* callbacks;
  int32_t callback_count;

  /* Sizes that contexts are created with: the symbols in the shapes of states. */
  int32_t size_count;
  const stridec_abi_symbol* sizes;
  /* Checks the sizes of a context and computes the dims of all states, concatenated. Returns nonzero and the
   * failure if a size is not served. Null if size_count is 0. */
  int32_t (*bind_context)(const int64_t* sizes, int64_t* state_dims, stridec_abi_failure* failure);
} stridec_abi_module;

/* Defined by the generated code, read by the runtime. */
extern const stridec_abi_module stridec_module __attribute__((visibility("hidden")));

/* ---- Data appended to the artifact ----
 * The runtime defines stridec_note in section .note.stridec. The packager appends one blob (weights, then
 * the manifest), writes its location into the note, and changes the PT_NOTE program header into a
 * read-only PT_LOAD. Addresses are virtual addresses of the file, so they are relative to __ehdr_start
 * once loaded. Size 0: absent. */
#define STRIDEC_ABI_NOTE_SECTION ".note.stridec"
#define STRIDEC_ABI_NOTE_NAME "stridec.abi" /* 12 bytes with its zero */

typedef struct stridec_abi_note {
  uint32_t name_bytes;                     /* 12 */
  uint32_t desc_bytes;                     /* 48 */
  uint32_t type;                           /* STRIDEC_ABI_VERSION */
  char name[12];                           /* STRIDEC_ABI_NOTE_NAME */
  uint64_t weights_address, weights_bytes; /* the address is a multiple of 4096 */
  uint64_t manifest_address, manifest_bytes;
  uint64_t images_address, images_bytes; /* stridec_abi_images */
} stridec_abi_note;

/* The last bytes of the appended blob. The hash is the XXH64 of all that is loaded: for every program
 * header, in order, its type, flags, address and sizes in the file and in memory (five 64-bit numbers), and
 * for a PT_LOAD also its bytes in the file, without the ELF and program headers at the start of the file and
 * without the hash itself. The hash of each part is the seed of the next. */
#define STRIDEC_ABI_SEAL_MARK "sealed." /* 8 bytes with its zero */

typedef struct stridec_abi_seal {
  char mark[8]; /* STRIDEC_ABI_SEAL_MARK */
  uint64_t hash;
} stridec_abi_seal;

/* The images that the driver loads: cubins, or zero-terminated PTX text, for all kernels of all GPU
 * targets, in order. Offsets are relative to the start of this header and multiples of 16. Equal images
 * share one offset. */
typedef struct stridec_abi_images {
  uint64_t count;
  struct {
    uint64_t offset, bytes;
  } image[];
} stridec_abi_images;

/* ---- CPU features ----
 * A bit is set if the processor has the feature and the operating system saves its registers. */
#define STRIDEC_CPU_BIT(n) ((uint64_t)1 << (n))
#define STRIDEC_CPU_SSE3 STRIDEC_CPU_BIT(0)
#define STRIDEC_CPU_SSSE3 STRIDEC_CPU_BIT(1)
#define STRIDEC_CPU_SSE41 STRIDEC_CPU_BIT(2)
#define STRIDEC_CPU_SSE42 STRIDEC_CPU_BIT(3)
#define STRIDEC_CPU_POPCNT STRIDEC_CPU_BIT(4)
#define STRIDEC_CPU_CX16 STRIDEC_CPU_BIT(5)
#define STRIDEC_CPU_LAHF STRIDEC_CPU_BIT(6)
#define STRIDEC_CPU_AVX STRIDEC_CPU_BIT(7)
#define STRIDEC_CPU_AVX2 STRIDEC_CPU_BIT(8)
#define STRIDEC_CPU_BMI1 STRIDEC_CPU_BIT(9)
#define STRIDEC_CPU_BMI2 STRIDEC_CPU_BIT(10)
#define STRIDEC_CPU_F16C STRIDEC_CPU_BIT(11)
#define STRIDEC_CPU_FMA STRIDEC_CPU_BIT(12)
#define STRIDEC_CPU_LZCNT STRIDEC_CPU_BIT(13)
#define STRIDEC_CPU_MOVBE STRIDEC_CPU_BIT(14)
#define STRIDEC_CPU_ADX STRIDEC_CPU_BIT(15)
#define STRIDEC_CPU_AES STRIDEC_CPU_BIT(16)
#define STRIDEC_CPU_PCLMUL STRIDEC_CPU_BIT(17)
#define STRIDEC_CPU_SHA STRIDEC_CPU_BIT(18)
#define STRIDEC_CPU_SSE4A STRIDEC_CPU_BIT(19)
#define STRIDEC_CPU_PRFCHW STRIDEC_CPU_BIT(20)
#define STRIDEC_CPU_RDRND STRIDEC_CPU_BIT(21)
#define STRIDEC_CPU_RDSEED STRIDEC_CPU_BIT(22)
#define STRIDEC_CPU_GFNI STRIDEC_CPU_BIT(23)
#define STRIDEC_CPU_VAES STRIDEC_CPU_BIT(24)
#define STRIDEC_CPU_VPCLMULQDQ STRIDEC_CPU_BIT(25)
#define STRIDEC_CPU_AVX512F STRIDEC_CPU_BIT(26)
#define STRIDEC_CPU_AVX512BW STRIDEC_CPU_BIT(27)
#define STRIDEC_CPU_AVX512CD STRIDEC_CPU_BIT(28)
#define STRIDEC_CPU_AVX512DQ STRIDEC_CPU_BIT(29)
#define STRIDEC_CPU_AVX512VL STRIDEC_CPU_BIT(30)
#define STRIDEC_CPU_AVX512IFMA STRIDEC_CPU_BIT(31)
#define STRIDEC_CPU_AVX512VBMI STRIDEC_CPU_BIT(32)
#define STRIDEC_CPU_AVX512VBMI2 STRIDEC_CPU_BIT(33)
#define STRIDEC_CPU_AVX512VNNI STRIDEC_CPU_BIT(34)
#define STRIDEC_CPU_AVX512BITALG STRIDEC_CPU_BIT(35)
#define STRIDEC_CPU_AVX512VPOPCNTDQ STRIDEC_CPU_BIT(36)
#define STRIDEC_CPU_AVX512BF16 STRIDEC_CPU_BIT(37)
#define STRIDEC_CPU_AVX512FP16 STRIDEC_CPU_BIT(38)
#define STRIDEC_CPU_AVX512VP2INTERSECT STRIDEC_CPU_BIT(39)
#define STRIDEC_CPU_AVXVNNI STRIDEC_CPU_BIT(40)
#define STRIDEC_CPU_AMX_TILE STRIDEC_CPU_BIT(41)
#define STRIDEC_CPU_AMX_INT8 STRIDEC_CPU_BIT(42)
#define STRIDEC_CPU_AMX_BF16 STRIDEC_CPU_BIT(43)
#define STRIDEC_CPU_MOVDIRI STRIDEC_CPU_BIT(44)
#define STRIDEC_CPU_MOVDIR64B STRIDEC_CPU_BIT(45)

/* The features that code for a named CPU (clang's -march) may use: STRIDEC_CPU_ and the name in capitals with
 * underscores. Features whose instructions clang never selects by itself (cryptography, cache control, AMX,
 * random numbers) are not required, because virtual machines often hide them. */
#define STRIDEC_CPU_X86_64 ((uint64_t)0)
#define STRIDEC_CPU_X86_64_V2                                                                          \
  (STRIDEC_CPU_SSE3 | STRIDEC_CPU_SSSE3 | STRIDEC_CPU_SSE41 | STRIDEC_CPU_SSE42 | STRIDEC_CPU_POPCNT | \
   STRIDEC_CPU_CX16 | STRIDEC_CPU_LAHF)
#define STRIDEC_CPU_X86_64_V3                                                                         \
  (STRIDEC_CPU_X86_64_V2 | STRIDEC_CPU_AVX | STRIDEC_CPU_AVX2 | STRIDEC_CPU_BMI1 | STRIDEC_CPU_BMI2 | \
   STRIDEC_CPU_F16C | STRIDEC_CPU_FMA | STRIDEC_CPU_LZCNT | STRIDEC_CPU_MOVBE)
#define STRIDEC_CPU_X86_64_V4                                                                  \
  (STRIDEC_CPU_X86_64_V3 | STRIDEC_CPU_AVX512F | STRIDEC_CPU_AVX512BW | STRIDEC_CPU_AVX512CD | \
   STRIDEC_CPU_AVX512DQ | STRIDEC_CPU_AVX512VL)
#define STRIDEC_CPU_HASWELL STRIDEC_CPU_X86_64_V3
#define STRIDEC_CPU_SKYLAKE_AVX512 STRIDEC_CPU_X86_64_V4
#define STRIDEC_CPU_CASCADELAKE (STRIDEC_CPU_SKYLAKE_AVX512 | STRIDEC_CPU_AVX512VNNI)
#define STRIDEC_CPU_ICELAKE_SERVER                                                                       \
  (STRIDEC_CPU_CASCADELAKE | STRIDEC_CPU_AVX512IFMA | STRIDEC_CPU_AVX512VBMI | STRIDEC_CPU_AVX512VBMI2 | \
   STRIDEC_CPU_AVX512BITALG | STRIDEC_CPU_AVX512VPOPCNTDQ | STRIDEC_CPU_GFNI)
#define STRIDEC_CPU_SAPPHIRERAPIDS                                                                      \
  (STRIDEC_CPU_ICELAKE_SERVER | STRIDEC_CPU_AVX512BF16 | STRIDEC_CPU_AVX512FP16 | STRIDEC_CPU_AVXVNNI | \
   STRIDEC_CPU_AMX_TILE | STRIDEC_CPU_AMX_INT8 | STRIDEC_CPU_AMX_BF16)
#define STRIDEC_CPU_ZNVER2 (STRIDEC_CPU_X86_64_V3 | STRIDEC_CPU_SSE4A)
#define STRIDEC_CPU_ZNVER3 STRIDEC_CPU_ZNVER2
#define STRIDEC_CPU_ZNVER4 (STRIDEC_CPU_ICELAKE_SERVER | STRIDEC_CPU_ZNVER3 | STRIDEC_CPU_AVX512BF16)
#define STRIDEC_CPU_ZNVER5 (STRIDEC_CPU_ZNVER4 | STRIDEC_CPU_AVXVNNI)

#ifdef __cplusplus
}
#endif

#endif /* STRIDEC_ABI_H */
