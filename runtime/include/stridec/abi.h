/* stridec/abi.h: the contract between the code that the compiler generates and the runtime linked beside it.
 *
 * Both live in one shared object and are made by one version of stridec, so this is no public interface (that
 * is runtime.h); STRIDEC_ABI_VERSION only catches a runtime and a program that do not belong together.
 * The file is plain C, is valid C++, and is also pasted as text into generated sources, which have no
 * headers: with STRIDEC_ABI_FREESTANDING defined it includes nothing. Nothing here needs libc.
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

#define STRIDEC_ABI_VERSION 4u
#define STRIDEC_ABI_INLINE static inline __attribute__((unused))

/* ---- Failures ---- */

enum { STRIDEC_ABI_VALUES = 4 };

/* What went wrong: an entry of the program's message table and the numbers for its sentence. All zero:
 * nothing. */
typedef struct stridec_abi_failure {
  int32_t code; /* 0: none; otherwise 1 + index into stridec_abi_program.messages */
  int32_t reserved;
  int64_t values[STRIDEC_ABI_VALUES]; /* for the places {0}..{3} of the sentence */
  int64_t padding[3];                 /* a slot fills one cache line */
} stridec_abi_failure;

/* The first failure stays. */
STRIDEC_ABI_INLINE void stridec_abi_record(stridec_abi_failure* slot, int32_t message, int64_t v0, int64_t v1,
                                           int64_t v2, int64_t v3) {
  if (slot->code) return;
  slot->code = message + 1;
  slot->values[0] = v0;
  slot->values[1] = v1;
  slot->values[2] = v2;
  slot->values[3] = v3;
}

/* A guard that is false (the shapes do not fit this artifact), or a check on data that failed in a kernel. */
typedef enum stridec_abi_message_kind {
  STRIDEC_ABI_GUARD = 0,
  STRIDEC_ABI_DATA = 1
} stridec_abi_message_kind;

typedef struct stridec_abi_message {
  int32_t kind;     /* stridec_abi_message_kind */
  const char* text; /* "input 'x': dim 0 (batch) is {0}; this artifact serves 1..64" */
} stridec_abi_message;

/* ---- Kernels ---- */

/* How a launch is shared out: at most so many parts, of which part p gets the tasks from stridec_abi_share(.., p) up to
 * stridec_abi_share(.., p + 1); their numbers differ by one at most. */
STRIDEC_ABI_INLINE int64_t stridec_abi_parts(int64_t tasks, int64_t grain, int32_t threads) {
  const int64_t worth = tasks > 0 && grain > 1 ? (tasks - 1) / grain + 1 : tasks;
  return worth < threads ? worth : threads;
}
STRIDEC_ABI_INLINE int64_t stridec_abi_share(int64_t tasks, int64_t parts, int64_t part) {
  const int64_t more = tasks % parts;
  return part * (tasks / parts) + (part < more ? part : more);
}

/* The weights that a later launch begins with, for what runs before it to ask for them. They are panels of equal size, read
 * by `run` neighbouring tasks each, one panel behind the other and from the first one on again. */
typedef struct stridec_abi_ahead {
  const char* weights;
  int64_t panel_bytes, panels, run;
  int64_t tasks, grain; /* of that launch */
  int32_t threads;
} stridec_abi_ahead;

/* The first panel of a part; null where that part has nothing to do. */
STRIDEC_ABI_INLINE const char* stridec_abi_panel_ahead(const stridec_abi_ahead* ahead, int32_t part) {
  const int64_t parts = stridec_abi_parts(ahead->tasks, ahead->grain, ahead->threads);
  if (part >= parts) return 0;
  const int64_t first = stridec_abi_share(ahead->tasks, parts, part);
  return ahead->weights + first / ahead->run % ahead->panels * ahead->panel_bytes;
}

/* The tasks that a part has not begun: first << 32 | end. Its own kernel takes from the front, other parts from the back. */
typedef struct stridec_abi_left {
  uint64_t tasks;
  char line[56]; /* two parts do not meet in a cache line */
} stridec_abi_left;

STRIDEC_ABI_INLINE uint64_t stridec_abi_tasks(int64_t first, int64_t end) {
  return (uint64_t)first << 32 | (uint64_t)end;
}

/* Arguments of one launch. Buffers and sizes mean what the kernel's generator and its caller agree on. */
typedef struct stridec_abi_args {
  void* const* buffers;
  const int64_t* sizes;
  char* scratch;                  /* of part 0; 64-byte aligned */
  int64_t scratch_stride;         /* bytes from one part's scratch to the next one's; a multiple of 64 */
  stridec_abi_failure* failures;  /* one slot per part; see stridec_abi_fail */
  const stridec_abi_ahead* ahead; /* null: nothing is known */
  stridec_abi_left* left;         /* one per part; null: a part has all that it was called for */
  int64_t grain;                  /* tasks that are worth an access to it */
} stridec_abi_args;

/* Does the tasks [begin, end) of the launch's flattened parallel domain, or those of them that other parts leave it: it takes
 * them by stridec_abi_take. `part` numbers this share: it selects the scratch and the failure slot, and is below
 * stridec_abi_run.threads. The results of a launch do not depend on how the tasks are shared out. A kernel never allocates,
 * locks or makes a system call, and returns early only after recording a failure. */
typedef void (*stridec_abi_kernel)(const stridec_abi_args* args, int64_t begin, int64_t end, int32_t part);

/* Takes tasks from `first` on, where the part has arrived, up to the result: `first` where none is left. Others have taken what
 * is missing before `end`. */
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

/* Shares are contiguous and in order, and each keeps its first failure, so that the failure reported (the one
 * of the lowest part) is the same for every number of threads. */
STRIDEC_ABI_INLINE void stridec_abi_fail(const stridec_abi_args* args, int32_t part, int32_t message,
                                         int64_t v0, int64_t v1, int64_t v2, int64_t v3) {
  stridec_abi_record(&args->failures[part], message, v0, v1, v2, v3);
}

/* ---- Kernels on a GPU ---- */

/* A CUtensorMap to be: what cuTensorMapEncodeTiled, or cuTensorMapEncodeIm2col, is given. */
typedef struct stridec_abi_tensor_map {
  void* address;
  int32_t im2col; /* 0: tiled, by box; 1: im2col, by lower, upper and box = {channels, pixels} */
  int32_t dtype;  /* CUtensorMapDataType */
  int32_t rank;
  int32_t swizzle, l2_promotion; /* CUtensorMapSwizzle, CUtensorMapL2promotion */
  int32_t box[5], element_strides[5], lower[3], upper[3];
  int64_t dims[5], strides[4]; /* innermost first; strides in bytes, of dims 1 and up */
} stridec_abi_tensor_map;

/* Parameters of the kernel: the encoded maps, the words, the failure slot where it fails, private memory where it wants
 * some, and counters where it wants some: memory of zeros that it leaves as zeros. */
typedef struct stridec_abi_device_launch {
  int32_t kernel;  /* index into stridec_abi_variant.kernels */
  int32_t step;    /* for the profile; -1: part of the step before it */
  int64_t grid[3]; /* nothing runs where one is 0 */
  int64_t shared_bytes;
  int64_t workspace_bytes, counter_bytes; /* 0: none */
  const int64_t* words;
  const stridec_abi_tensor_map* maps;
  int32_t word_count, map_count;
  int32_t fails; /* 1: has the failure slot as a parameter */
  int32_t reserved;
} stridec_abi_device_launch;

enum { STRIDEC_ABI_DEVICE_WORDS = 480, STRIDEC_ABI_DEVICE_MAPS = 16 }; /* most of one launch */

/* A kernel of a GPU variant; its image is the i-th of the variant's images. */
typedef struct stridec_abi_device_kernel {
  const char* symbol;
  int32_t threads;        /* of a block */
  int32_t cluster;        /* blocks of a cluster */
  int32_t dynamic_shared; /* 1: launches ask for dynamic shared memory */
  int32_t dependent;      /* 1: may start while its predecessor runs, and waits by itself */
} stridec_abi_device_kernel;

/* ---- A run ---- */

typedef struct stridec_abi_run stridec_abi_run;

struct stridec_abi_run {
  int64_t* symbols; /* values by symbol index; the run writes those that depend on data */
  /* Inputs and outputs are compact and row-major, aligned to their element and no more, and null at worst
   * where they have no elements. An output of data-dependent shape is null until resize_output. States are
   * 64-byte aligned. */
  const void* const* inputs;
  void** outputs;
  void* const* states;
  const char* weights;           /* start of the weights section of the artifact */
  char* arena;                   /* workspace_bytes(symbols, threads) bytes, 64-byte aligned */
  stridec_abi_failure* failures; /* threads slots, all zero when the run begins */
  int32_t threads;               /* most parts that a launch is cut into */
  int32_t direct;                /* 1: run() may call kernels of one part itself; 0: launch wants to see all */

  /* Runs the kernel over [0, tasks) in at most min(threads, ceil(tasks / grain)) parts and returns when all
   * is done; one part runs on the caller. grain is the least number of tasks that is worth a thread (>= 1).
   * movable: no task records a failure, so that a part that is through with its own may take over from others, which
   * are late or have more to do.
   * step numbers the launch for the profile (stridec_abi_variant.step_names). args->failures
   * is copied from here by the caller. Not 0: a failure was recorded; run() returns at once. */
  int32_t (*launch)(stridec_abi_run* run, stridec_abi_kernel kernel, const stridec_abi_args* args,
                    int64_t tasks, int64_t grain, int32_t step, int32_t movable);

  /* Fixes the dims of an output whose shape depends on data and returns compact memory for it, also in
   * outputs[output]. Null: it does not fit the caller's tensor or memory is short (a failure of the runtime's
   * own is recorded); run() returns 1 at once. */
  void* (*resize_output)(stridec_abi_run* run, int32_t output, const int64_t* dims);

  /* Memory for a buffer whose size is known only during the run: at least bytes, 64-byte aligned, kept in the
   * slot (below stridec_abi_program.slot_count) until the next call for the same slot, contents not
   * preserved. Null as above. */
  void* (*allocate)(stridec_abi_run* run, int32_t slot, int64_t bytes);

  /* Of variants for a GPU, where all memory above but symbols and failures is the device's. Kernels run in order; the
   * call returns before they are done. 0, or not 0 when the driver refused (the runtime has the sentence). */
  int32_t (*launch_device)(stridec_abi_run* run, const stridec_abi_device_launch* launch);
  /* Bytes of the run's memory for the host, after all that was launched before. */
  int32_t (*read)(stridec_abi_run* run, void* to, const void* from, int64_t bytes);

  void* context; /* the runtime's own */
};

/* ---- A program ---- */

typedef struct stridec_abi_symbol {
  const char* name;
  int64_t minimum, maximum; /* the range that the guards admit */
  int64_t multiple;         /* >= 1 */
  int32_t from_data;        /* 1: bound during a run, -1 before */
  int32_t reserved;
} stridec_abi_symbol;

enum { STRIDEC_ABI_READ_BY_BIND = 1 }; /* bind looks at the values of this input (a shape, say) */

/* An input, output or state. */
typedef struct stridec_abi_value {
  const char* name;
  int32_t dtype; /* ONNX TensorProto.DataType number; types under a byte take a byte per element */
  int32_t rank;
  int32_t flags;
  int32_t reserved;
  const char*
      dims; /* text of each dim ("batch", "2*seq"), each ended by a zero byte; may be null at rank 0 */
} stridec_abi_value;

typedef struct stridec_abi_state {
  stridec_abi_value value;
  const int64_t* dims; /* constant: memory of a context, whatever the shapes of a run */
  int64_t initial;     /* offset of the initial value in the weights, -1: zeros */
} stridec_abi_state;

enum { STRIDEC_ABI_CPU = 0, STRIDEC_ABI_CUDA = 1 }; /* stridec_abi_variant.device */

/* The program for one instruction set, or for one kind of GPU. */
typedef struct stridec_abi_variant {
  const char* name;  /* "x86-64-v3", "znver4", "sm_90a" */
  uint64_t features; /* STRIDEC_CPU_* bits, all of which the machine must have */
  /* A symbol not yet known is -1: answer by its maximum. Negative or over INT64_MAX/2: out of memory. */
  int64_t (*workspace_bytes)(const int64_t* symbols, int64_t threads); /* may be null: 0 */
  int64_t (*scratch_bytes)(
      const int64_t* symbols); /* of a GPU: the most that a launch needs; may be null: 0 */
  int64_t (*counter_bytes)(const int64_t* symbols); /* likewise */
  int32_t (*run)(stridec_abi_run* run);             /* 0, or not 0 when a failure was recorded */
  int32_t step_count;
  int32_t graphs; /* of a GPU: recorded runs that a context keeps, one for each shape; 0: launches one by one */
  const char* step_names; /* one per launch, in order, each ended by a zero byte */

  int32_t device;     /* STRIDEC_ABI_CPU, STRIDEC_ABI_CUDA */
  int32_t capability; /* of a GPU: 10 * major + minor that the code is for */
  int32_t
      exact; /* 1: that capability alone; 0: the same major version and at least that; 2: PTX, at least that */
  int32_t kernel_count;
  const stridec_abi_device_kernel* kernels;
} stridec_abi_variant;

typedef struct stridec_abi_program {
  uint32_t abi_version; /* STRIDEC_ABI_VERSION */
  uint32_t struct_size; /* sizeof(stridec_abi_program) */
  const char* name;     /* of the model */
  const char* compiler; /* "stridec 0.1.0" */

  int32_t symbol_count, input_count, output_count, state_count, message_count, slot_count, variant_count;
  int32_t spin_us; /* for contexts that do not say how long their idle threads spin; 0: the runtime's default */
  const stridec_abi_symbol* symbols;
  const stridec_abi_value* inputs;
  const stridec_abi_value* outputs;
  const stridec_abi_state* states;
  const stridec_abi_message* messages;
  const stridec_abi_variant* variants; /* best first */

  /* Computes the symbols from the inputs and checks every guard. The runtime has checked dtype and rank
   * before. input_data[i] is null where the values are not known yet, and compact where
   * STRIDEC_ABI_READ_BY_BIND is set; for other inputs it is always null. 0, or not 0 and the failure. */
  int32_t (*bind)(const int64_t* const* input_dims, const void* const* input_data, int64_t* symbols,
                  stridec_abi_failure* failure);

  /* Dims of all outputs, one after the other; -1 where they depend on data and are not yet known. */
  void (*output_dims)(const int64_t* symbols, int64_t* dims);

  /* Weights beside the artifact (null: within it, see stridec_abi_note): a file name without a slash, and the
   * XXH64 (seed 0, stridec/xxh64.h) of its bytes. The size holds for both. */
  const char* weights_file;
  uint64_t weights_bytes;
  uint64_t weights_hash;
} stridec_abi_program;

/* Defined by the generated code, read by the runtime. */
extern const stridec_abi_program stridec_program __attribute__((visibility("hidden")));

/* ---- Data appended to the artifact ----
 * The runtime defines stridec_note in section .note.stridec. The packager appends one blob (weights, then the
 * manifest), writes where it lies into the note, and turns the PT_NOTE program header into a read-only
 * PT_LOAD. Addresses are virtual addresses of the file, that is, relative to __ehdr_start once loaded. Size
 * 0: absent.
 */
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

/* What the driver loads: cubins, or PTX text ended by a zero, of all GPU variants in order, and of each its kernels in
 * order. Offsets from the header's start, multiples of 16; equal images have equal offsets. */
typedef struct stridec_abi_images {
  uint64_t count;
  struct {
    uint64_t offset, bytes;
  } image[];
} stridec_abi_images;

/* ---- CPU features ----
 * A bit stands for "the processor has it and the operating system saves its registers".
 */
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

/* What code built for a named CPU (clang's -march) may use: STRIDEC_CPU_ and the name in capitals with
 * underscores. Instructions that clang never chooses by itself (cryptography, cache control, AMX, random
 * numbers) are not demanded: virtual machines often hide them. */
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
