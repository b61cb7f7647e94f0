// Measures the host's time for a call: artifacts called through the C API, and the bare driver for the same
// number of launches. The device is kept busy, so that no call waits for it.
//
//   gpu_host_cost ROWS WIDTH KERNELS:FILE...     artifacts of one f16 input and one output [ROWS, WIDTH]
//
// One line for each file, medians in microseconds: a call with the same buffers, a call with an output that
// moves, the driver's time for KERNELS launches, and its time for a graph of as many.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "runtime/src/cuda_driver.h"
#include "stridec/runtime.h"

namespace stridec::runtime {
Driver driver;
}

namespace {

using stridec::runtime::CUdeviceptr;
using stridec::runtime::driver;
using stridec::runtime::LaunchAttribute;
using stridec::runtime::LaunchConfig;

constexpr int kCalls =
    15;  // of at most 48 launches: far from the 1024 that a stream holds before a launch waits
constexpr int kRounds = 100;
constexpr uint64_t kBusyCycles = 4'000'000;

const char kKernels[] = R"(.version 7.8
.target sm_80
.address_size 64
.visible .entry busy(.param .u64 cycles) {
  .reg .u64 %t<4>;
  .reg .pred %p;
  ld.param.u64 %t0, [cycles];
  mov.u64 %t1, %clock64;
again:
  mov.u64 %t2, %clock64;
  sub.u64 %t2, %t2, %t1;
  setp.lt.u64 %p, %t2, %t0;
  @%p bra again;
  ret;
}
.visible .entry nothing(.param .align 64 .b8 map0[128], .param .align 64 .b8 map1[128], .param .u64 word0,
                        .param .u64 word1, .param .u64 word2) {
  ret;
}
)";

[[noreturn]] void give_up(const std::string& why) {
  fprintf(stderr, "%s\n", why.c_str());
  exit(1);
}

void good(int32_t status, const char* what) {
  if (status) give_up(std::string(what) + ": CUDA error " + std::to_string(status));
}

void load_driver() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) give_up("there is no NVIDIA driver (libcuda.so.1)");
  using Get = int32_t (*)(const char*, void**, int32_t, uint64_t, int32_t*);
  auto get = reinterpret_cast<Get>(dlsym(library, "cuGetProcAddress_v2"));
  if (!get) give_up("the NVIDIA driver is older than 12.0");
#define STRIDEC_FIND(member, name, parameters) \
  get(name, reinterpret_cast<void**>(&driver.member), 12000, 0, nullptr);
  STRIDEC_CUDA_FUNCTIONS(STRIDEC_FIND)
#undef STRIDEC_FIND
}

struct Kernels {
  void* busy;
  void* nothing;
};

int32_t launch(void* function, void** parameters, bool dependent, void* stream) {
  LaunchAttribute attribute = {stridec::runtime::kAttributeDependentLaunch, {}, {}};
  attribute.value.number = 1;
  const LaunchConfig config = {{1, 1, 1}, {32, 1, 1}, 0, stream, &attribute, dependent ? 1u : 0u};
  return driver.LaunchKernelEx(&config, function, parameters, nullptr);
}

// Microseconds a call.
template <class Call>
double median_us(const Kernels& kernels, void* stream, Call call) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  for (int round = -1; round < kRounds; ++round) {  // the first: what is done once
    uint64_t cycles = round < 0 ? 0 : kBusyCycles;
    void* parameters[] = {&cycles};
    good(launch(kernels.busy, parameters, false, stream), "a launch");
    const auto start = Clock::now();
    for (int i = 0; i < kCalls; ++i) call();
    const std::chrono::duration<double, std::micro> passed = Clock::now() - start;
    if (round >= 0) times.push_back(passed.count() / kCalls);
    good(driver.StreamSynchronize(stream), "cuStreamSynchronize");
  }
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  return times[kRounds / 2];
}

void launch_chain(const Kernels& kernels, int count, void* stream) {
  alignas(64) char maps[2][128] = {};
  uint64_t words[3] = {};
  void* parameters[] = {maps[0], maps[1], &words[0], &words[1], &words[2]};
  for (int i = 0; i < count; ++i) good(launch(kernels.nothing, parameters, true, stream), "a launch");
}

double graph_us(const Kernels& kernels, int count, void* stream) {
  void *recording = nullptr, *graph = nullptr, *exec = nullptr;
  good(driver.StreamCreate(&recording, stridec::runtime::kStreamNonBlocking), "cuStreamCreate");
  good(driver.StreamBeginCapture(recording, stridec::runtime::kCaptureThreadLocal), "cuStreamBeginCapture");
  launch_chain(kernels, count, recording);
  good(driver.StreamEndCapture(recording, &graph), "cuStreamEndCapture");
  good(driver.GraphInstantiate(&exec, graph, 0), "cuGraphInstantiate");
  const double us = median_us(kernels, stream, [&] { driver.GraphLaunch(exec, stream); });
  driver.GraphExecDestroy(exec);
  driver.GraphDestroy(graph);
  driver.StreamDestroy(recording);
  return us;
}

void measure(const Kernels& kernels, const std::string& argument, int64_t rows, int64_t width) {
  const size_t colon = argument.find(':');
  if (colon == std::string::npos) give_up(argument + ": KERNELS:FILE is expected");
  const int count = atoi(argument.c_str());
  const char* path = argument.c_str() + colon + 1;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) give_up(dlerror());
  auto get_api = reinterpret_cast<stridec_get_api_fn>(dlsym(library, "stridec_get_api"));
  const stridec_api* api = get_api ? get_api(STRIDEC_API_VERSION) : nullptr;
  if (!api) give_up(std::string(path) + " is not an artifact of this version");
  void* stream = nullptr;
  good(driver.StreamCreate(&stream, stridec::runtime::kStreamNonBlocking), "cuStreamCreate");
  stridec_model* model = nullptr;
  stridec_context* context = nullptr;
  char message[512];
  stridec_model_options on{};
  on.struct_size = sizeof on;
  on.device_type = STRIDEC_DEVICE_CUDA;
  stridec_context_options how{};
  how.struct_size = sizeof how;
  how.flags = STRIDEC_CONTEXT_ASYNC;
  how.stream = stream;
  if (api->model_open(&on, &model, message, sizeof message) ||
      api->context_create(model, &how, &context, message, sizeof message))
    give_up(std::string(path) + ": " + message);
  const auto bytes = static_cast<size_t>(rows * width * 2);
  CUdeviceptr x = 0, y[2] = {};
  for (CUdeviceptr* memory : {&x, &y[0], &y[1]}) good(driver.MemAlloc(memory, bytes), "cuMemAlloc");
  good(driver.Memset(x, 0, bytes, stream), "cuMemsetD8Async");
  int64_t in_shape[] = {rows, width}, out_shape[] = {rows, width};
  stridec_tensor in{}, out{};
  in.device = out.device = {STRIDEC_DEVICE_CUDA, 0};
  in.ndim = out.ndim = 2;
  in.dtype = out.dtype = {STRIDEC_DTYPE_FLOAT, 16, 1};
  in.shape = in_shape, out.shape = out_shape;
  in.data = reinterpret_cast<void*>(x), out.data = reinterpret_cast<void*>(y[0]);
  const auto call = [&] {
    if (api->context_run(context, &in, 1, &out, 1)) give_up(api->context_error(context));
  };
  const double same = median_us(kernels, stream, call);
  int turn = 0;
  const double moving = median_us(kernels, stream, [&] {
    out.data = reinterpret_cast<void*>(y[++turn & 1]);
    call();
  });
  const double launches = median_us(kernels, stream, [&] { launch_chain(kernels, count, stream); });
  printf("%s: %.2f us a call, %.2f where the output moves; the driver's %d launches %.2f, as a graph %.2f\n",
         path, same, moving, count, launches, graph_us(kernels, count, stream));
  api->context_destroy(context);
  api->model_close(model);
  for (CUdeviceptr memory : {x, y[0], y[1]}) driver.MemFree(memory);
  driver.StreamDestroy(stream);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) give_up("usage: gpu_host_cost ROWS WIDTH KERNELS:FILE...");
  load_driver();
  void *context = nullptr, *module = nullptr;
  int32_t device = 0;
  good(driver.Init(0), "cuInit");
  good(driver.DeviceGet(&device, 0), "cuDeviceGet");
  good(driver.PrimaryRetain(&context, device), "cuDevicePrimaryCtxRetain");
  good(driver.Push(context), "cuCtxPushCurrent");
  good(driver.ModuleLoadData(&module, kKernels), "cuModuleLoadData");
  Kernels kernels{};
  good(driver.ModuleGetFunction(&kernels.busy, module, "busy"), "cuModuleGetFunction");
  good(driver.ModuleGetFunction(&kernels.nothing, module, "nothing"), "cuModuleGetFunction");
  for (int i = 3; i < argc; ++i) measure(kernels, argv[i], atoll(argv[1]), atoll(argv[2]));
}
