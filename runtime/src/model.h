// The immutable part of a loaded model: the module, the target chosen for this machine, and the weights.
#pragma once

#include <atomic>

#include "cuda.h"
#include "dtype.h"
#include "stridec/abi.h"
#include "weights.h"

namespace stridec::runtime {

// The dtypes, shape texts ("[batch, 768]") and dims of a list of values.
struct ValueTexts {
  const DType** dtypes;
  char** shapes;
  stridec_dim** dims;
};

// An entry point, with its code for the chosen target.
struct Function {
  const stridec_abi_function* abi;
  const stridec_abi_variant* variant;
  int32_t index;
  ValueTexts inputs, outputs;
  const char** step_names;   // pointers into the variant's text
  int32_t* shown_symbols;    // the symbols that the API lists
  int32_t symbol_count;      // how many
  int32_t output_dim_count;  // sum of the ranks of all outputs
};

}  // namespace stridec::runtime

struct stridec_model {
  std::atomic<int64_t> references;  // the handle's reference and one per context
  const stridec_abi_module* module;
  const stridec_abi_target* target;
  stridec::runtime::Blob blob;
  uint64_t cpu;                       // STRIDEC_CPU_* bits of this machine
  stridec::runtime::CudaModel* cuda;  // null: the target is a CPU
  int32_t device_id;                  // the requested GPU
  bool no_run;                        // STRIDEC_MODEL_NO_RUN
  stridec::runtime::Function* functions;
  stridec::runtime::ValueTexts states, parameters;
};

namespace stridec::runtime {

// Implements stridec_api.model_open for a given module and note.
stridec_status open_module(const stridec_abi_module& module, const stridec_abi_note& note, const char* base,
                           const stridec_model_options* options, stridec_model** model, char* message,
                           size_t message_bytes);
void retain(stridec_model* model);
void release(stridec_model* model);

inline const DType& state_dtype(const stridec_model& m, int32_t i) { return *m.states.dtypes[i]; }

// The device that the model runs on.
inline stridec_device device_of(const stridec_model& m) {
  return m.cuda ? stridec_device{STRIDEC_DEVICE_CUDA, cuda_device(*m.cuda)}
                : stridec_device{STRIDEC_DEVICE_CPU, 0};
}

// Reads a struct that begins with its size. The caller's struct may be shorter (older; missing fields are
// zero) or longer (newer) if the surplus is zero. Returns false if it sets fields that this version does not
// know.
bool take_options(void* out, size_t out_bytes, const void* given);
// Fills a struct that begins with its size, as far as that reaches. A size of 0 is an invalid argument.
stridec_status give_info(void* given, const void* info, size_t info_bytes);

}  // namespace stridec::runtime
