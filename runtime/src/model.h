// The immutable part of a loaded model: the program, the variant chosen for this machine, and the weights.
#pragma once

#include <atomic>

#include "cuda.h"
#include "dtype.h"
#include "stridec/abi.h"
#include "weights.h"

struct stridec_model {
  std::atomic<int64_t> references;  // the handle's reference and one per context
  const stridec_abi_program* program;
  const stridec_abi_variant* variant;
  stridec::runtime::Blob blob;
  uint64_t cpu;                       // STRIDEC_CPU_* bits of this machine
  stridec::runtime::CudaModel* cuda;  // null: the variant runs on a CPU
  int32_t device_id;                  // the requested GPU
  bool no_run;                        // STRIDEC_MODEL_NO_RUN
  // Per input, output, state and parameter, in that order.
  const stridec::runtime::DType** dtypes;
  char** shapes;             // "[batch, 768]"
  const char** step_names;   // pointers into the variant's text
  int32_t output_dim_count;  // sum of the ranks of all outputs
};

namespace stridec::runtime {

// Implements stridec_api.model_open for a given program and note.
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

// The device that the model runs on.
inline stridec_device device_of(const stridec_model& m) {
  return m.cuda ? stridec_device{STRIDEC_DEVICE_CUDA, cuda_device(*m.cuda)}
                : stridec_device{STRIDEC_DEVICE_CPU, 0};
}

// Reads a struct that begins with its size. The caller's struct may be shorter (older; missing fields are
// zero) or longer (newer) if the surplus is zero. Returns false if it sets fields that this version does not
// know.
bool take_options(void* out, size_t out_bytes, const void* given);
void give_info(void* given, const void* info, size_t info_bytes);

}  // namespace stridec::runtime
