// GPU variants: the driver, loaded when an artifact that has them is opened, and what a model and a context keep
// on a device. cuda.cpp alone knows the driver's interface.
//
// A model holds the device's primary context (which PyTorch and others share), the kernels and one copy of the
// weights. A context holds a stream and a slot for the first failure of a kernel's data checks, in host memory that
// the device writes. Every function pushes the device's context and pops it again.
#pragma once

#include "cuda_graph.h"
#include "memory.h"
#include "stridec/abi.h"
#include "weights.h"

namespace stridec::runtime {

class Text;

struct CudaModel;
struct CudaContext;

// Whether this machine has a driver and device `id` runs the variant; otherwise why not, as part of a sentence.
bool cuda_usable(const stridec_abi_variant& variant, int32_t id, Text& reason);

// Loads the variant's images, the first of which is number first_image, and uploads the weights.
stridec_status cuda_open(const stridec_abi_variant& variant, int32_t first_image, int32_t id, Bytes images,
                         Bytes weights, CudaModel** model, Text& message);
void cuda_close(CudaModel* model);
const char* cuda_weights(const CudaModel& model);
int32_t cuda_device(const CudaModel& model);
void cuda_write_device_name(const CudaModel& model, Text& name);

// stream: the caller's CUstream; null: the device's default stream.
stridec_status cuda_context_create(CudaModel& model, void* stream, CudaContext** context, Text& message);
void cuda_context_destroy(CudaContext* context);
Allocator cuda_allocator(CudaModel& model);

// In the order of the stream. Host memory may be reused when the call returns.
bool cuda_upload(CudaContext& context, void* to, const void* from, int64_t bytes);
bool cuda_fill_zero(CudaContext& context, void* to, int64_t bytes);
// Waits for all that was enqueued before.
bool cuda_download(CudaContext& context, void* to, const void* from, int64_t bytes);
bool cuda_wait(CudaContext& context);

// Around the launches of a run. Where the variant wants graphs and `record` is true, launches wait for cuda_end(), which
// enqueues all of them at once; where they would be those of an earlier run of the same key cuda_replay(), before the first
// of them, has enqueued them: then it is true, and nothing is left to do. cuda_flush() enqueues those so far, and must come before anything that reads what they
// write or frees memory that they use.
void cuda_begin(CudaContext& context, const RunKey& key, bool record);
bool cuda_replay(CudaContext& context);
bool cuda_flush(CudaContext& context);
bool cuda_end(CudaContext& context);
int32_t cuda_launch(CudaContext& context, const stridec_abi_device_launch& launch, void* workspace,
                    void* counters);
// What a kernel recorded since the last reset; the stream has been waited for.
const stridec_abi_failure& cuda_failure(const CudaContext& context);
void cuda_reset_failure(CudaContext& context);

// Notes the device's time, in the order of the stream. tag: whose time ends here (>= 0), or kNobody.
enum : int32_t { kNobody = -1, kSame = -2 };  // kSame: what the stamp before it belongs to
bool cuda_stamp(CudaContext& context, int32_t tag);
// Waits for the stamps so far, tells each one's time since the one before it and forgets them.
bool cuda_read_stamps(CudaContext& context, void (*tell)(void* user, int32_t tag, int64_t nanoseconds),
                      void* user);

// What the driver said last ("an illegal memory access was encountered"), and to which call.
void cuda_write_error(const CudaContext& context, Text& message);

}  // namespace stridec::runtime
