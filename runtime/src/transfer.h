// Copies between the caller's tensors and compact host memory.
#pragma once

#include "context.h"

namespace stridec::runtime {

inline bool on_device(const stridec_tensor& t) { return t.device.type == STRIDEC_DEVICE_CUDA; }

// Copies a tensor, strided or not, on the host or on the context's GPU, to compact host memory. The context's
// threads share the work.
stridec_status gather(stridec_context& context, const stridec_tensor& from, const Compact& memory, char* to,
                      Text& message);

// Copies compact host memory to such a tensor, whose shape may be larger than the dims. Returns when it is
// done.
stridec_status scatter(stridec_context& context, const char* from, const stridec_tensor& to,
                       const Compact& memory, Text& message);

}  // namespace stridec::runtime
