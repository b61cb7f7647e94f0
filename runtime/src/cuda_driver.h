// Declarations of the part of the CUDA driver API that the runtime uses. cuda.cpp loads the functions.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace stridec::runtime {

// Declarations from cuda.h (CUDA driver API 12.0; the interface is stable across later versions).
using CUresult = int32_t;
using CUdevice = int32_t;
using CUdeviceptr = uint64_t;
struct LaunchAttribute {
  int32_t id;
  char pad[4];
  union {
    char bytes[64];
    int32_t number;
  } value;
};
struct LaunchConfig {
  uint32_t grid[3], block[3];
  uint32_t shared_bytes;
  void* stream;
  LaunchAttribute* attributes;
  uint32_t attribute_count;
};
struct NodeParams {  // CUDA_KERNEL_NODE_PARAMS_v2
  void* function;
  uint32_t grid[3], block[3];
  uint32_t shared_bytes;
  void** parameters;
  void** extra;
  void* kernel;
  void* context;
};
enum {
  kDeviceMajor = 75,
  kDeviceMinor = 76,
  kSharedOptin = 97,
  kFunctionDynamicShared = 8,
  kFunctionCarveout = 9,
  kFunctionStaticShared = 1,
  kHostPortable = 1,
  kHostMapped = 2,
  kAttributeDependentLaunch = 6,
  kStreamNonBlocking = 1,
  kCaptureThreadLocal = 1,
  kCaptureSetDependencies = 1,
};

// name, symbol version to request, parameters
#define STRIDEC_CUDA_FUNCTIONS(F)                                                                            \
  F(Init, "cuInit", (uint32_t))                                                                              \
  F(DriverGetVersion, "cuDriverGetVersion", (int32_t*))                                                      \
  F(GetErrorString, "cuGetErrorString", (CUresult, const char**))                                            \
  F(DeviceGetCount, "cuDeviceGetCount", (int32_t*))                                                          \
  F(DeviceGet, "cuDeviceGet", (CUdevice*, int32_t))                                                          \
  F(DeviceGetName, "cuDeviceGetName", (char*, int32_t, CUdevice))                                            \
  F(DeviceGetAttribute, "cuDeviceGetAttribute", (int32_t*, int32_t, CUdevice))                               \
  F(PrimaryRetain, "cuDevicePrimaryCtxRetain", (void**, CUdevice))                                           \
  F(PrimaryRelease, "cuDevicePrimaryCtxRelease", (CUdevice))                                                 \
  F(Push, "cuCtxPushCurrent", (void*))                                                                       \
  F(Pop, "cuCtxPopCurrent", (void**))                                                                        \
  F(ModuleLoadData, "cuModuleLoadData", (void**, const void*))                                               \
  F(ModuleUnload, "cuModuleUnload", (void*))                                                                 \
  F(ModuleGetFunction, "cuModuleGetFunction", (void**, void*, const char*))                                  \
  F(FuncSetAttribute, "cuFuncSetAttribute", (void*, int32_t, int32_t))                                       \
  F(FuncGetAttribute, "cuFuncGetAttribute", (int32_t*, int32_t, void*))                                      \
  F(MemAlloc, "cuMemAlloc", (CUdeviceptr*, size_t))                                                          \
  F(MemFree, "cuMemFree", (CUdeviceptr))                                                                     \
  F(MemHostAlloc, "cuMemHostAlloc", (void**, size_t, uint32_t))                                              \
  F(MemFreeHost, "cuMemFreeHost", (void*))                                                                   \
  F(MemHostGetDevicePointer, "cuMemHostGetDevicePointer", (CUdeviceptr*, void*, uint32_t))                   \
  F(Upload, "cuMemcpyHtoDAsync", (CUdeviceptr, const void*, size_t, void*))                                  \
  F(Download, "cuMemcpyDtoHAsync", (void*, CUdeviceptr, size_t, void*))                                      \
  F(Memset, "cuMemsetD8Async", (CUdeviceptr, uint8_t, size_t, void*))                                        \
  F(StreamSynchronize, "cuStreamSynchronize", (void*))                                                       \
  F(LaunchKernelEx, "cuLaunchKernelEx", (const LaunchConfig*, void*, void**, void**))                        \
  F(EventCreate, "cuEventCreate", (void**, uint32_t))                                                        \
  F(EventDestroy, "cuEventDestroy", (void*))                                                                 \
  F(EventRecord, "cuEventRecord", (void*, void*))                                                            \
  F(EventSynchronize, "cuEventSynchronize", (void*))                                                         \
  F(EventQuery, "cuEventQuery", (void*))                                                                     \
  F(EventElapsedTime, "cuEventElapsedTime", (float*, void*, void*))                                          \
  F(StreamCreate, "cuStreamCreate", (void**, uint32_t))                                                      \
  F(StreamDestroy, "cuStreamDestroy", (void*))                                                               \
  F(StreamBeginCapture, "cuStreamBeginCapture", (void*, int32_t))                                            \
  F(StreamEndCapture, "cuStreamEndCapture", (void*, void**))                                                 \
  F(StreamGetCaptureInfo, "cuStreamGetCaptureInfo",                                                          \
    (void*, int32_t*, uint64_t*, void**, void* const**, size_t*))                                            \
  F(StreamUpdateCaptureDependencies, "cuStreamUpdateCaptureDependencies", (void*, void**, size_t, uint32_t)) \
  F(GraphInstantiate, "cuGraphInstantiateWithFlags", (void**, void*, uint64_t))                              \
  F(GraphSetParams, "cuGraphExecKernelNodeSetParams", (void*, void*, const NodeParams*))                     \
  F(GraphLaunch, "cuGraphLaunch", (void*, void*))                                                            \
  F(GraphExecDestroy, "cuGraphExecDestroy", (void*))                                                         \
  F(GraphDestroy, "cuGraphDestroy", (void*))                                                                 \
  F(TensorMapTiled, "cuTensorMapEncodeTiled",                                                                \
    (void*, int32_t, uint32_t, void*, const uint64_t*, const uint64_t*, const uint32_t*, const uint32_t*,    \
     int32_t, int32_t, int32_t, int32_t))                                                                    \
  F(TensorMapIm2col, "cuTensorMapEncodeIm2col",                                                              \
    (void*, int32_t, uint32_t, void*, const uint64_t*, const uint64_t*, const int32_t*, const int32_t*,      \
     uint32_t, uint32_t, const uint32_t*, int32_t, int32_t, int32_t, int32_t))

struct Driver {
#define STRIDEC_CUDA_MEMBER(member, name, parameters) CUresult(*member) parameters;
  STRIDEC_CUDA_FUNCTIONS(STRIDEC_CUDA_MEMBER)
#undef STRIDEC_CUDA_MEMBER
};

extern Driver driver;

}  // namespace stridec::runtime
