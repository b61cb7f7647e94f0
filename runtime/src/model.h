// The immutable half: a program, the variant chosen for this machine, and its weights.
#pragma once

#include <atomic>

#include "cuda.h"
#include "dtype.h"
#include "stridec/abi.h"
#include "weights.h"

struct stridec_model {
  std::atomic<int64_t> references;  // the handle's and one per context
  const stridec_abi_program* program;
  const stridec_abi_variant* variant;
  stridec::runtime::Blob blob;
  uint64_t cpu;                       // STRIDEC_CPU_* of this machine
  stridec::runtime::CudaModel* cuda;  // null: the variant is a CPU's
  int32_t device_id;                  // of the GPU asked for
  // Per input, output and state, in that order.
  const stridec::runtime::DType** dtypes;
  char** shapes;             // "[batch, 768]"
  const char** step_names;   // pointers into the variant's text
  int32_t output_dim_count;  // ranks of all outputs added up
};

namespace stridec::runtime {

// stridec_api.model_open for a given program and note.
stridec_status open_program(const stridec_abi_program& program, const stridec_abi_note& note,
                            const char* base, const stridec_model_options* options, stridec_model** model,
                            char* message, size_t message_bytes);
void retain(stridec_model* model);
void release(stridec_model* model);

inline const DType& input_dtype(const stridec_model& m, int32_t i) { return *m.dtypes[i]; }
inline const DType& output_dtype(const stridec_model& m, int32_t i) {
  return *m.dtypes[m.program->input_count + i];
}
inline const DType& state_dtype(const stridec_model& m, int32_t i) {
  return *m.dtypes[m.program->input_count + m.program->output_count + i];
}

// Where the model runs.
inline stridec_device device_of(const stridec_model& m) {
  return m.cuda ? stridec_device{STRIDEC_DEVICE_CUDA, cuda_device(*m.cuda)}
                : stridec_device{STRIDEC_DEVICE_CPU, 0};
}

// Structs that begin with their size. The caller's may be an older, shorter one (the rest counts as zero) or
// a newer, longer one whose surplus is zero; false: it asks for what this version does not know.
bool take_options(void* out, size_t out_bytes, const void* given);
void give_info(void* given, const void* info, size_t info_bytes);

}  // namespace stridec::runtime
