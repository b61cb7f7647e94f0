// Copies between the caller's tensors and compact memory.
#pragma once

#include "context.h"

namespace stridec::runtime {

inline bool on_device(const stridec_tensor& t) { return t.device.type == STRIDEC_DEVICE_CUDA; }

// Copies a tensor of the context's GPU to compact memory of the GPU, and back, in the order of the stream.
// The tensor's shape may be larger than the dims. False: device_error() says why.
bool gather_on_device(stridec_context& context, const stridec_tensor& from, const Compact& memory, char* to);
bool scatter_on_device(stridec_context& context, const char* from, const stridec_tensor& to,
                       const Compact& memory);

// Copies a tensor, strided or not, on the host or on the context's GPU, to compact host memory. The context's
// threads share the work.
stridec_status gather(stridec_context& context, const stridec_tensor& from, const Compact& memory, char* to,
                      Text& message);

// Copies compact host memory to such a tensor, whose shape may be larger than the dims. Returns when it is
// done.
stridec_status scatter(stridec_context& context, const char* from, const stridec_tensor& to,
                       const Compact& memory, Text& message);

}  // namespace stridec::runtime
