// Ranges for tools that take NVTX (Nsight Systems and others): the environment variable
// NVTX_INJECTION64_PATH names the tool's library, as it does for the headers of NVTX 3. Without it nothing
// is loaded.
#pragma once

namespace stridec::runtime {

// Whether a tool takes ranges. Loads it on the first call.
bool nvtx_attached();
// The tool's handle of a name that many ranges have; null: it takes none.
void* nvtx_register(const char* name);
// Begins a range on this thread, in the domain "stridec". `handle`: of nvtx_register.
void nvtx_push(void* handle, const char* name);
void nvtx_pop();

}  // namespace stridec::runtime
