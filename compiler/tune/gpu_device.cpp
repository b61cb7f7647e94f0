#include "compiler/tune/gpu_device.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/kernels/cuda_matrix.h"
#include "compiler/kernels/streamed_chain.h"
#include "runtime/src/cuda.h"
#include "runtime/src/cuda_driver.h"
#include "runtime/src/text.h"

namespace stridec::tune {
namespace {

enum { kMultiprocessors = 16, kClockKhz = 13 };  // CUdevice_attribute

// Driver functions that runtime/src/cuda_driver.h omits because no artifact needs them.
template <class Function>
Function find(const char* name) {
  using Get = int32_t (*)(const char*, void**, int32_t, uint64_t, int32_t*);
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  const auto get = library ? reinterpret_cast<Get>(dlsym(library, "cuGetProcAddress_v2")) : nullptr;
  void* function = nullptr;
  int32_t found = 0;
  return get && get(name, &function, 12000, 0, &found) == 0 ? reinterpret_cast<Function>(function) : nullptr;
}

// A host function in the stream. Later work of the stream does not start until the gate is opened.
class Gate {
 public:
  static void wait(void* self) {
    constexpr auto kLongest = std::chrono::milliseconds(20);
    auto& gate = *static_cast<Gate*>(self);
    std::unique_lock lock(gate.mutex_);
    gate.changed_.wait_for(lock, kLongest, [&] { return gate.open_; });
    gate.passed_ = true;
    gate.changed_.notify_all();
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void wait_until_passed() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return passed_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false, passed_ = false;
};

}  // namespace

struct GpuDevice::State {
  stridec_abi_target target{};
  runtime::CudaModel* model = nullptr;  // keeps the device's context alive
  runtime::CudaContext* context = nullptr;
  void* driver_context = nullptr;
  int32_t device = 0;
  std::string name;
  std::vector<void*> memory;
  int32_t (*launch_host)(void* stream, void (*)(void*), void*) = nullptr;
  int32_t (*copy)(uint64_t to, uint64_t from, size_t bytes, void* stream) = nullptr;

  [[noreturn]] void refuse() const {
    char sentence[256] = "";
    runtime::Text text(sentence, sizeof sentence);
    runtime::cuda_write_error(*context, text);
    fail(ErrorKind::kUsage, "run-failed", sentence);
  }
  void check(bool done) const {
    if (!done) refuse();
  }
  void* allocate(size_t bytes) {
    const runtime::Allocator allocator = runtime::cuda_allocator(*model);
    void* block = allocator.allocate(allocator.user, std::max<size_t>(bytes, 256), 256);
    if (block) memory.push_back(block);
    return block;
  }
  void release_behind(size_t count) {
    const runtime::Allocator allocator = runtime::cuda_allocator(*model);
    for (; memory.size() > count; memory.pop_back()) allocator.release(allocator.user, memory.back(), 0);
  }
};

GpuDevice::GpuDevice(int32_t id) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.target.name = "";
  s.target.device = STRIDEC_ABI_CUDA;
  s.target.exact = 2;
  char sentence[256] = "";
  runtime::Text text(sentence, sizeof sentence);
  if (!runtime::cuda_usable(s.target, id, text) ||
      runtime::cuda_open(s.target, 0, id, {nullptr, 0}, {nullptr, 0}, &s.model, text) != STRIDEC_OK ||
      runtime::cuda_context_create(*s.model, 1, nullptr, &s.context, text) != STRIDEC_OK ||
      runtime::driver.DeviceGet(&s.device, id) || runtime::driver.PrimaryRetain(&s.driver_context, s.device))
    fail(ErrorKind::kUsage, "cannot-open", sentence);
  char name[128] = "";
  runtime::Text name_text(name, sizeof name);
  runtime::cuda_write_device_name(*s.model, name_text);
  s.name = name;
  s.launch_host = find<decltype(s.launch_host)>("cuLaunchHostFunc");
  s.copy = find<decltype(s.copy)>("cuMemcpyDtoDAsync");
}

GpuDevice::~GpuDevice() {
  State& s = *state_;
  if (s.context) runtime::cuda_wait(*s.context);
  s.release_behind(0);
  runtime::cuda_context_destroy(s.context);
  if (s.driver_context) runtime::driver.PrimaryRelease(s.device);
  runtime::cuda_close(s.model);
}

const std::string& GpuDevice::name() const { return state_->name; }

void* GpuDevice::copy(const void* from, size_t bytes) {
  void* to = state_->allocate(bytes);
  if (!to) fail(ErrorKind::kOverBudget, "out-of-memory", "the GPU's memory is too small for the inputs");
  state_->check(runtime::cuda_upload(*state_->context, to, from, static_cast<int64_t>(bytes)) &&
                runtime::cuda_wait(*state_->context));
  return to;
}

double GpuDevice::time(const std::function<void()>& enqueue) {
  State& s = *state_;
  Gate gate;
  runtime::driver.Push(s.driver_context);
  const bool gated = s.launch_host && s.launch_host(nullptr, Gate::wait, &gate) == 0;
  void* old = nullptr;
  runtime::driver.Pop(&old);
  // Opens the gate even if enqueue() throws, because the stream refers to it.
  struct Opened {
    Gate& gate;
    bool gated;
    ~Opened() {
      gate.open();
      if (gated) gate.wait_until_passed();
    }
  };
  bool marked = false;
  {
    const Opened opened{gate, gated};
    marked = runtime::cuda_stamp(*s.context, runtime::kNobody);
    enqueue();
    marked = runtime::cuda_stamp(*s.context, 0) && marked;
  }
  double seconds = 0;
  const auto add = [](void* sum, const runtime::Stamped& work) {
    *static_cast<double*>(sum) += static_cast<double>(work.nanoseconds) * 1e-9;
  };
  s.check(marked && runtime::cuda_read_stamps(*s.context, add, &seconds));
  return seconds;
}

double GpuDevice::Peaks::flops_of(std::string_view schedule) const {
  const std::string_view name = schedule.substr(0, schedule.find(':'));
  if (name.starts_with("flash.") || name == kernels::kStreamedChain) return tensor;
  const kernels::MatrixKernel* kernel = kernels::find_matrix_kernel(name);
  if (!kernel) return name.starts_with("words.") ? tensor : scalar;
  return kernel->is_tensor() ? tensor * 2 / kernel->element_bytes : scalar * 4 / kernel->element_bytes;
}

GpuDevice::Peaks GpuDevice::measure_peaks(const GpuTarget& target) {
  State& s = *state_;
  int32_t processors = 0, khz = 0;
  runtime::driver.DeviceGetAttribute(&processors, kMultiprocessors, s.device);
  runtime::driver.DeviceGetAttribute(&khz, kClockKhz, s.device);
  const double cycles = static_cast<double>(processors) * static_cast<double>(khz) * 1e3;
  Peaks peaks{.tensor = cycles * target.tensor_flops, .scalar = cycles * target.scalar_flops};
  constexpr size_t kBytes = 256 << 20;  // per side; much larger than any L2
  const size_t others = s.memory.size();
  void* from = s.allocate(kBytes);
  void* to = from ? s.allocate(kBytes) : nullptr;
  double least = 0;
  for (int i = 0; to && s.copy && i < 8; ++i) {
    const double seconds = time([&] {
      runtime::driver.Push(s.driver_context);
      s.copy(reinterpret_cast<uint64_t>(to), reinterpret_cast<uint64_t>(from), kBytes, nullptr);
      void* old = nullptr;
      runtime::driver.Pop(&old);
    });
    if (i == 1 || (i > 1 && seconds < least)) least = seconds;
  }
  if (least > 0) peaks.memory = 2.0 * kBytes / least;
  s.release_behind(others);
  return peaks;
}

}  // namespace stridec::tune
