// Copies between the caller's tensors and compact host memory.
#pragma once

#include "context.h"

namespace stridec::runtime {

inline bool on_device(const stridec_tensor& t) { return t.device.type == STRIDEC_DEVICE_CUDA; }

// Copies a tensor, strided or not, on the host or on the context's GPU, to compact host memory.
stridec_status gather(stridec_context& context, const stridec_tensor& from, const int64_t* dims, int32_t rank,
                      int64_t element, char* to, Text& message);

// Copies compact host memory to such a tensor, whose shape may be larger than dims. Returns when it is done.
stridec_status scatter(stridec_context& context, const char* from, const stridec_tensor& to,
                       const int64_t* dims, int32_t rank, int64_t element, Text& message);

}  // namespace stridec::runtime
