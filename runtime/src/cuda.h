// GPU variants: the driver, which is loaded when an artifact with GPU variants is opened, and the device data
// of models and contexts. Only cuda.cpp uses the driver's interface.
//
// A model holds the device's primary context (shared with PyTorch and others), the kernels and one copy of
// the weights. A context holds a stream, and a slot in host memory that the device writes for the first
// failure of a kernel's data checks. Every function pushes the device's context and pops it again.
#pragma once

#include "cuda_graph.h"
#include "memory.h"
#include "stridec/abi.h"
#include "tensor.h"
#include "weights.h"

namespace stridec::runtime {

class Text;

struct CudaModel;
struct CudaContext;

// Whether this machine has a driver and device `id` can run code for the target. If not, writes the reason as
// part of a sentence.
bool cuda_usable(const stridec_abi_target& target, int32_t id, Text& reason);

// Loads the target's images, starting at image number first_image, and uploads the weights.
stridec_status cuda_open(const stridec_abi_target& target, int32_t first_image, int32_t id, Bytes images,
                         Bytes weights, CudaModel** model, Text& message);
void cuda_close(CudaModel* model);
const char* cuda_weights(const CudaModel& model);
int32_t cuda_device(const CudaModel& model);
void cuda_write_device_name(const CudaModel& model, Text& name);

// stream: the caller's CUstream; null: the device's default stream.
stridec_status cuda_context_create(CudaModel& model, int32_t function_count, void* stream,
                                   CudaContext** context, Text& message);
void cuda_context_destroy(CudaContext* context);
Allocator cuda_allocator(CudaModel& model);

// In stream order. Host memory may be reused when the call returns.
bool cuda_upload(CudaContext& context, void* to, const void* from, int64_t bytes);
bool cuda_fill_zero(CudaContext& context, void* to, int64_t bytes);
// Waits until all earlier work of the stream is done.
bool cuda_download(CudaContext& context, void* to, const void* from, int64_t bytes);
bool cuda_wait(CudaContext& context);
// Copies between strided tensors of the GPU. The copy is not part of a graph.
bool cuda_copy_strided(CudaContext& context, const StridedCopy& copy);

// Brackets the launches of a run of a function. If the target uses graphs and `record` is true, launches
// are collected until cuda_end(), which enqueues all of them at once. If symbols and addresses equal those
// of the last run of the graph, cuda_replay(), called before the first launch, enqueues the graph and
// returns true; no work is left. cuda_flush() enqueues the collected launches. It must be called before
// anything reads what they write or frees memory that they use.
void cuda_begin(CudaContext& context, int32_t function, const RunKey& key, bool record);
bool cuda_replay(CudaContext& context);
bool cuda_flush(CudaContext& context);
bool cuda_end(CudaContext& context);
int32_t cuda_launch(CudaContext& context, const stridec_abi_device_launch& launch, void* workspace,
                    void* counters);
// The failure that a kernel recorded since the last reset. The caller must have waited for the stream.
const stridec_abi_failure& cuda_failure(const CudaContext& context);
void cuda_reset_failure(CudaContext& context);

// Records a stamp in stream order (cuda_stamps.h).
bool cuda_stamp(CudaContext& context, int32_t tag);
// Makes the following runs record stamps before and after each launch that is enqueued by itself and each
// replay of a graph. `run`: the number that they have.
void cuda_time_launches(CudaContext& context, bool enable, int64_t run);
int32_t cuda_stamp_count(const CudaContext& context);
bool cuda_stamps_ready(CudaContext& context, int64_t patience);
void cuda_discard_stamps(CudaContext& context);
bool cuda_read_stamps(CudaContext& context, void (*tell)(void* user, const Stamped& work), void* user);
// As stamps_anchor; returns nanoseconds by which the clocks may differ, or -1.
int64_t cuda_anchor(CudaContext& context, bool wait);

// Writes the last error of the driver ("an illegal memory access was encountered") and the call that returned
// it.
void cuda_write_error(const CudaContext& context, Text& message);

}  // namespace stridec::runtime
