#include "cuda.h"

#include <stdlib.h>
#include <string.h>

#include <atomic>

#include "cuda_driver.h"
#include "cuda_graph.h"
#include "device_copy.h"
#include "text.h"

// Weak: before glibc 2.34 they are not in libc.so.6. Applications that use CUDA link libdl.
extern "C" void* dlopen(const char*, int) __attribute__((weak));
extern "C" void* dlsym(void*, const char*) __attribute__((weak));

namespace stridec::runtime {

Driver driver;

namespace {

constexpr int32_t kVersion = 12000;
enum class State : int32_t { kUnknown, kLoading, kReady, kNoLibrary, kTooOld, kNoDevice };

std::atomic<State> state;
CUresult init_status;
int32_t driver_version;

State load() {
  if (!dlopen || !dlsym) return State::kNoLibrary;
  void* library = dlopen("libcuda.so.1", 2 /* RTLD_NOW */);
  if (!library) return State::kNoLibrary;
  using Get2 = CUresult (*)(const char*, void**, int32_t, uint64_t, int32_t*);
  using Get1 = CUresult (*)(const char*, void**, int32_t, uint64_t);
  auto get2 = reinterpret_cast<Get2>(dlsym(library, "cuGetProcAddress_v2"));
  auto get1 = reinterpret_cast<Get1>(dlsym(library, "cuGetProcAddress"));
  bool all = get2 || get1;
  auto find = [&](const char* name, bool needed) -> void* {
    void* function = nullptr;
    int32_t found = 0;
    CUresult status = get2 ? get2(name, &function, kVersion, 0, &found) : get1(name, &function, kVersion, 0);
    if (status || !function) {
      all = all && !needed;
      return nullptr;
    }
    return function;
  };
  if (!all) return State::kTooOld;
#define STRIDEC_CUDA_FIND(member, name, parameters) \
  driver.member = reinterpret_cast<decltype(driver.member)>(find(name, name[2] != 'T'));
  STRIDEC_CUDA_FUNCTIONS(STRIDEC_CUDA_FIND)
#undef STRIDEC_CUDA_FIND
  if (!all) return State::kTooOld;
  init_status = driver.Init(0);
  driver.DriverGetVersion(&driver_version);
  return init_status ? State::kNoDevice : State::kReady;
}

// Loads the driver once, on the first thread that calls.
State loaded() {
  for (;;) {
    State now = state.load(std::memory_order_acquire);
    if (now != State::kUnknown && now != State::kLoading) return now;
    State expected = State::kUnknown;
    if (!state.compare_exchange_strong(expected, State::kLoading)) continue;
    now = load();
    state.store(now, std::memory_order_release);
    return now;
  }
}

void write_status(CUresult status, Text& message) {
  const char* text = nullptr;
  if (driver.GetErrorString) driver.GetErrorString(status, &text);
  message << (text ? text : "unknown error") << " (CUDA error " << status << ")";
}

struct MapEntry {
  stridec_abi_tensor_map given;
  alignas(64) char encoded[128];
};

// Compares word by word: memcmp used only for equality becomes bcmp, which old C libraries lack.
bool same(const stridec_abi_tensor_map& a, const stridec_abi_tensor_map& b) {
  static_assert(sizeof a % 8 == 0);
  uint64_t x[sizeof a / 8], y[sizeof a / 8], differ = 0;
  memcpy(x, &a, sizeof a);
  memcpy(y, &b, sizeof b);
  for (size_t i = 0; i < sizeof a / 8; ++i) differ |= x[i] ^ y[i];
  return !differ;
}

// Requires a current context.
CUresult encode(const stridec_abi_tensor_map& map, char* out) {
  constexpr CUresult kNotSupported = 801;
  uint64_t dims[5], strides[4];
  uint32_t box[5], steps[5];
  for (int32_t i = 0; i < map.rank; ++i) {
    dims[i] = static_cast<uint64_t>(map.dims[i]);
    box[i] = static_cast<uint32_t>(map.box[i]);
    steps[i] = static_cast<uint32_t>(map.element_strides[i]);
    if (i) strides[i - 1] = static_cast<uint64_t>(map.strides[i - 1]);
  }
  auto rank = static_cast<uint32_t>(map.rank);
  if (!(map.im2col ? driver.TensorMapIm2col != nullptr : driver.TensorMapTiled != nullptr))
    return kNotSupported;
  if (map.im2col)
    return driver.TensorMapIm2col(out, map.dtype, rank, map.address, dims, strides, map.lower, map.upper,
                                  box[0], box[1], steps, 0, map.swizzle, map.l2_promotion, 0);
  return driver.TensorMapTiled(out, map.dtype, rank, map.address, dims, strides, box, steps, 0, map.swizzle,
                               map.l2_promotion, 0);
}

}  // namespace

struct CudaModel {
  CUdevice device;
  int32_t id;
  void* context;
  const stridec_abi_target* target;
  void** modules;    // per kernel
  void** functions;  // per kernel
  CUdeviceptr weights;
};

struct CudaContext {
  CudaModel* model;
  void* stream;
  stridec_abi_failure* failure;  // in host memory
  CUdeviceptr failure_address;
  Stamps stamps;
  bool timed;       // launches record stamps
  CUresult status;  // of the last call that failed
  const char* what;
  MapEntry* maps;  // in the order in which a run uses them
  int32_t map_count, map_room, map_next;
  CudaGraphs** graphs_of;  // per function; null: its launches are enqueued directly
  int32_t function_count;
  CudaGraphs* graphs;  // of the function that runs
  bool in_group;       // a launch that runs came since the last one that was not concurrent
};

namespace {

struct Current {
  explicit Current(const CudaModel& model) { driver.Push(model.context); }
  ~Current() {
    void* old;
    driver.Pop(&old);
  }
};

bool ok(CudaContext& c, const char* what, CUresult status) {
  if (!status) return true;
  c.status = status;
  c.what = what;
  return false;
}

// For launches of the run.
Stamps* stamps_of(CudaContext& c) { return c.timed ? &c.stamps : nullptr; }

void* allocate(void* user, size_t bytes, size_t) {
  Current current(*static_cast<CudaModel*>(user));
  CUdeviceptr memory = 0;
  return driver.MemAlloc(&memory, bytes) == 0 ? reinterpret_cast<void*>(memory) : nullptr;
}

void release_memory(void* user, void* memory, size_t) {
  Current current(*static_cast<CudaModel*>(user));
  driver.MemFree(reinterpret_cast<CUdeviceptr>(memory));
}

const void* image_of(Bytes images, int32_t i) {
  if (images.size < sizeof(stridec_abi_images)) return nullptr;
  auto* table = reinterpret_cast<const stridec_abi_images*>(images.data);
  auto n = static_cast<uint64_t>(i);
  if (n >= table->count || images.size < sizeof(stridec_abi_images) + table->count * sizeof table->image[0])
    return nullptr;
  uint64_t offset = table->image[n].offset, bytes = table->image[n].bytes;
  return offset < images.size && bytes && bytes <= images.size - offset ? images.data + offset : nullptr;
}

stridec_status load_kernels(CudaModel& m, int32_t first, Bytes images, Text& message) {
  int32_t shared_most = 0;
  driver.DeviceGetAttribute(&shared_most, kSharedOptin, m.device);
  for (int32_t i = 0; i < m.target->kernel_count; ++i) {
    const stridec_abi_device_kernel& kernel = m.target->kernels[i];
    const void* image = image_of(images, first + i);
    if (!image) {
      message << "the artifact lacks the image of GPU kernel " << kernel.symbol;
      return STRIDEC_BAD_ARTIFACT;
    }
    CUresult status = driver.ModuleLoadData(&m.modules[i], image);
    if (!status) status = driver.ModuleGetFunction(&m.functions[i], m.modules[i], kernel.symbol);
    if (!status && kernel.dynamic_shared) {
      int32_t fixed = 0;
      driver.FuncGetAttribute(&fixed, kFunctionStaticShared, m.functions[i]);
      status = driver.FuncSetAttribute(m.functions[i], kFunctionDynamicShared, shared_most - fixed);
      // Kernels that need different shared-memory carveouts cannot run at the same time on one
      // multiprocessor.
      if (!status) status = driver.FuncSetAttribute(m.functions[i], kFunctionCarveout, 100);
    }
    if (status) {
      message << "the NVIDIA driver, of CUDA " << driver_version / 1000 << '.' << driver_version % 1000 / 10
              << ", does not load GPU kernel " << kernel.symbol << ": ";
      write_status(status, message);
      return STRIDEC_UNSUPPORTED_DEVICE;
    }
  }
  return STRIDEC_OK;
}

}  // namespace

bool cuda_usable(const stridec_abi_target& target, int32_t id, Text& reason) {
  switch (loaded()) {
    case State::kReady: break;
    case State::kNoLibrary: reason << "there is no NVIDIA driver (libcuda.so.1)"; return false;
    case State::kTooOld: reason << "the NVIDIA driver is older than 525.60"; return false;
    default:
      reason << "the NVIDIA driver cannot be initialised: ";
      write_status(init_status, reason);
      return false;
  }
  int32_t count = 0, major = 0, minor = 0;
  CUdevice device;
  if (driver.DeviceGetCount(&count) || id < 0 || id >= count || driver.DeviceGet(&device, id)) {
    reason << "there is no GPU " << id << " (the machine has " << count << ")";
    return false;
  }
  driver.DeviceGetAttribute(&major, kDeviceMajor, device);
  driver.DeviceGetAttribute(&minor, kDeviceMinor, device);
  int32_t has = 10 * major + minor, wants = target.capability;
  bool fits = target.exact == 1   ? has == wants
              : target.exact == 2 ? has >= wants
                                  : has / 10 == wants / 10 && has >= wants;
  if (!fits) {
    char name[128] = "?";
    driver.DeviceGetName(name, sizeof name, device);
    reason << name << " has compute capability " << major << '.' << minor;
  }
  return fits;
}

stridec_status cuda_open(const stridec_abi_target& target, int32_t first_image, int32_t id, Bytes images,
                         Bytes weights, CudaModel** model, Text& message) {
  auto* m = static_cast<CudaModel*>(calloc(1, sizeof(CudaModel)));
  if (m) {
    m->id = id;
    m->target = &target;
    m->modules = make_array<void*>(target.kernel_count);
    m->functions = make_array<void*>(target.kernel_count);
  }
  *model = m;
  if (!m || !m->modules || !m->functions) {
    message << "no memory for the model";
    return STRIDEC_OUT_OF_MEMORY;
  }
  CUresult status = driver.DeviceGet(&m->device, id);
  if (!status) status = driver.PrimaryRetain(&m->context, m->device);
  if (status) {
    m->context = nullptr;
    message << "GPU " << id << " cannot be used: ";
    write_status(status, message);
    return STRIDEC_UNSUPPORTED_DEVICE;
  }
  Current current(*m);
  stridec_status loading = load_kernels(*m, first_image, images, message);
  if (loading != STRIDEC_OK || !weights.size) return loading;
  status = driver.MemAlloc(&m->weights, weights.size);
  if (status) {
    m->weights = 0;
    message << "no memory on GPU " << id << " for the weights (" << weights.size << " bytes)";
    return STRIDEC_OUT_OF_MEMORY;
  }
  // The source is pageable memory: the call returns when it has been read, and the stream orders the rest.
  status = driver.Upload(m->weights, weights.data, weights.size, nullptr);
  if (!status) status = driver.StreamSynchronize(nullptr);
  if (status) {
    message << "the weights cannot be copied to GPU " << id << ": ";
    write_status(status, message);
    return STRIDEC_DEVICE_ERROR;
  }
  return STRIDEC_OK;
}

void cuda_close(CudaModel* m) {
  if (!m) return;
  if (m->context) {
    driver.Push(m->context);
    if (m->weights) driver.MemFree(m->weights);
    for (int32_t i = 0; m->modules && i < m->target->kernel_count; ++i)
      if (m->modules[i]) driver.ModuleUnload(m->modules[i]);
    void* old;
    driver.Pop(&old);
    driver.PrimaryRelease(m->device);
  }
  free(m->modules);
  free(m->functions);
  free(m);
}

const char* cuda_weights(const CudaModel& model) { return reinterpret_cast<const char*>(model.weights); }
int32_t cuda_device(const CudaModel& model) { return model.id; }
void cuda_write_device_name(const CudaModel& model, Text& name) {
  char text[128] = "?";
  driver.DeviceGetName(text, sizeof text, model.device);
  name << text;
}

Allocator cuda_allocator(CudaModel& model) { return {allocate, release_memory, &model, false, 0}; }

stridec_status cuda_context_create(CudaModel& model, int32_t function_count, void* stream,
                                   CudaContext** context, Text& message) {
  auto* c = static_cast<CudaContext*>(calloc(1, sizeof(CudaContext)));
  *context = c;
  if (!c) {
    message << "no memory for the context";
    return STRIDEC_OUT_OF_MEMORY;
  }
  c->model = &model;
  c->stream = stream;
  Current current(model);
  void* slot = nullptr;
  if (!ok(*c, "cuMemHostAlloc",
          driver.MemHostAlloc(&slot, sizeof(stridec_abi_failure), kHostPortable | kHostMapped)) ||
      !ok(*c, "cuMemHostGetDevicePointer", driver.MemHostGetDevicePointer(&c->failure_address, slot, 0))) {
    if (slot) driver.MemFreeHost(slot);
    cuda_write_error(*c, message);
    return STRIDEC_DEVICE_ERROR;
  }
  c->failure = static_cast<stridec_abi_failure*>(slot);
  c->function_count = function_count;
  c->graphs_of = make_array<CudaGraphs*>(function_count);
  const int32_t room = model.target->graphs;
  bool made = c->graphs_of != nullptr;
  for (int32_t i = 0; made && room > 0 && i < function_count; ++i)
    made = (c->graphs_of[i] = graphs_create(room)) != nullptr;
  if (!made) {
    message << "no memory for graphs";
    return STRIDEC_OUT_OF_MEMORY;
  }
  cuda_reset_failure(*c);
  return STRIDEC_OK;
}

void cuda_context_destroy(CudaContext* c) {
  if (!c) return;
  if (c->model) {
    Current current(*c->model);
    driver.StreamSynchronize(c->stream);
    for (int32_t i = 0; c->graphs_of && i < c->function_count; ++i) graphs_destroy(c->graphs_of[i]);
    stamps_free(c->stamps);
    if (c->failure) driver.MemFreeHost(c->failure);
  }
  free(c->graphs_of);
  free(c->maps);
  free(c);
}

bool cuda_upload(CudaContext& c, void* to, const void* from, int64_t bytes) {
  if (!bytes) return true;
  Current current(*c.model);
  return ok(c, "cuMemcpyHtoDAsync",
            driver.Upload(reinterpret_cast<CUdeviceptr>(to), from, static_cast<size_t>(bytes), c.stream));
}

bool cuda_fill_zero(CudaContext& c, void* to, int64_t bytes) {
  if (!bytes) return true;
  Current current(*c.model);
  return ok(c, "cuMemsetD8Async",
            driver.Memset(reinterpret_cast<CUdeviceptr>(to), 0, static_cast<size_t>(bytes), c.stream));
}

bool cuda_download(CudaContext& c, void* to, const void* from, int64_t bytes) {
  if (!bytes) return true;
  Current current(*c.model);
  return ok(c, "cuMemcpyDtoHAsync",
            driver.Download(to, reinterpret_cast<CUdeviceptr>(from), static_cast<size_t>(bytes), c.stream)) &&
         ok(c, "cuStreamSynchronize", driver.StreamSynchronize(c.stream));
}

bool cuda_wait(CudaContext& c) {
  Current current(*c.model);
  return ok(c, "cuStreamSynchronize", driver.StreamSynchronize(c.stream));
}

bool cuda_copy_strided(CudaContext& c, const StridedCopy& copy) {
  Current current(*c.model);
  return for_each_copy_launch(
      copy,
      [](void* user, const CopyLaunch& next) {
        auto& c = *static_cast<CudaContext*>(user);
        const stridec_abi_target& target = *c.model->target;
        const stridec_abi_device_kernel& kernel = target.kernels[target.copy_kernel];
        void* parameters[STRIDEC_ABI_COPY_WORDS];
        for (int32_t i = 0; i < STRIDEC_ABI_COPY_WORDS; ++i)
          parameters[i] = const_cast<int64_t*>(&next.words[i]);
        const KernelLaunch launch = {.function = c.model->functions[target.copy_kernel],
                                     .grid = {static_cast<uint32_t>(next.blocks), 1, 1},
                                     .threads = static_cast<uint32_t>(kernel.threads),
                                     .parameters = parameters,
                                     .count = STRIDEC_ABI_COPY_WORDS};
        return ok(c, kernel.symbol, launch_kernel(launch, c.stream, nullptr));
      },
      &c);
}

void cuda_begin(CudaContext& c, int32_t function, const RunKey& key, bool record) {
  c.map_next = 0;
  c.graphs = c.graphs_of[function];
  c.stamps.function = function;
  if (c.graphs) graphs_begin(*c.graphs, key, record, stamps_of(c));
}

bool cuda_replay(CudaContext& c) {
  if (!c.graphs) return false;
  Current current(*c.model);
  return graphs_replay(*c.graphs, c.stream);
}

bool cuda_flush(CudaContext& c) {
  if (!c.graphs) return true;
  Current current(*c.model);
  return ok(c, "a launch", graphs_flush(*c.graphs, c.stream));
}

bool cuda_end(CudaContext& c) {
  if (!c.graphs) return true;
  Current current(*c.model);
  return ok(c, "a graph of launches", graphs_end(*c.graphs, c.stream));
}

int32_t cuda_launch(CudaContext& c, const stridec_abi_device_launch& l, void* workspace, void* counters) {
  if (!l.concurrent) c.in_group = false;  // even if it does nothing
  if (l.grid[0] <= 0 || l.grid[1] <= 0 || l.grid[2] <= 0) return 0;
  const stridec_abi_device_kernel& kernel = c.model->target->kernels[l.kernel];
  // One pointer per parameter; the driver knows the offsets (maps are aligned to 64 bytes).
  void* parameters[STRIDEC_ABI_DEVICE_MAPS + STRIDEC_ABI_DEVICE_WORDS + 3];
  if (l.grid[0] > INT32_MAX || l.grid[1] > 65535 || l.grid[2] > 65535 ||
      l.map_count > STRIDEC_ABI_DEVICE_MAPS || l.word_count > STRIDEC_ABI_DEVICE_WORDS)
    return !ok(c, kernel.symbol, 1 /* invalid value */);
  for (int32_t i = 0; i < l.map_count; ++i, ++c.map_next) {
    if (c.map_next == c.map_room) {
      int32_t room = c.map_room ? 2 * c.map_room : 64;
      void* more = nullptr;
      if (posix_memalign(&more, 64, static_cast<size_t>(room) * sizeof(MapEntry)) != 0)
        return !ok(c, "maps", 2);
      if (c.maps) memcpy(more, c.maps, static_cast<size_t>(c.map_count) * sizeof(MapEntry));
      free(c.maps);
      c.maps = static_cast<MapEntry*>(more);
      c.map_room = room;
    }
    MapEntry& entry = c.maps[c.map_next];
    if (c.map_next >= c.map_count || !same(entry.given, l.maps[i])) {
      entry.given = l.maps[i];
      Current current(*c.model);
      if (!ok(c, "cuTensorMapEncode", encode(entry.given, entry.encoded))) {
        memset(&entry.given, 0xff, sizeof entry.given);
        return 1;
      }
      if (c.map_next >= c.map_count) c.map_count = c.map_next + 1;
    }
  }
  int32_t count = 0;
  for (; count < l.map_count; ++count) parameters[count] = c.maps[c.map_next - l.map_count + count].encoded;
  for (int32_t i = 0; i < l.word_count; ++i) parameters[count++] = const_cast<int64_t*>(&l.words[i]);
  if (l.fails) parameters[count++] = &c.failure_address;
  if (l.workspace_bytes) parameters[count++] = &workspace;
  if (l.counter_bytes) parameters[count++] = &counters;
  const KernelLaunch launch = {
      c.model->functions[l.kernel],
      {static_cast<uint32_t>(l.grid[0]), static_cast<uint32_t>(l.grid[1]), static_cast<uint32_t>(l.grid[2])},
      static_cast<uint32_t>(kernel.threads),
      static_cast<uint32_t>(l.shared_bytes),
      kernel.dependent != 0,
      l.concurrent && c.in_group,
      parameters,
      l.map_count,
      count,
      l.step >= 0 ? l.step : kSame};
  c.in_group = true;
  if (c.graphs && graphs_add(*c.graphs, launch)) return 0;
  Current current(*c.model);
  if (c.graphs && !ok(c, kernel.symbol, graphs_flush(*c.graphs, c.stream))) return 1;
  return !ok(c, kernel.symbol, launch_kernel(launch, c.stream, stamps_of(c)));
}

const stridec_abi_failure& cuda_failure(const CudaContext& c) { return *c.failure; }
void cuda_reset_failure(CudaContext& c) { memset(c.failure, 0, sizeof *c.failure); }

bool cuda_stamp(CudaContext& c, int32_t tag) {
  Current current(*c.model);
  return ok(c, "cuEventRecord", stamps_record(c.stamps, tag, c.stream));
}

void cuda_time_launches(CudaContext& c, bool enable, int64_t run) {
  c.timed = enable;
  c.stamps.run = run;
}

int32_t cuda_stamp_count(const CudaContext& c) { return c.stamps.count; }

bool cuda_read_stamps(CudaContext& c, void (*tell)(void* user, const Stamped& work), void* user) {
  Current current(*c.model);
  return ok(c, "cuEventElapsedTime", stamps_read(c.stamps, tell, user));
}

bool cuda_stamps_ready(CudaContext& c, int64_t patience) {
  Current current(*c.model);
  return stamps_ready(c.stamps, patience);
}

void cuda_discard_stamps(CudaContext& c) { c.stamps.count = 0; }

int64_t cuda_anchor(CudaContext& c, bool wait) {
  Current current(*c.model);
  const bool done = ok(c, "cuEventRecord", stamps_anchor(c.stamps, c.stream, wait));
  return done && c.stamps.anchor ? c.stamps.anchor_error : -1;
}

void cuda_write_error(const CudaContext& c, Text& message) {
  message << "the GPU's driver refused " << (c.what ? c.what : "a call") << ": ";
  write_status(c.status, message);
}

}  // namespace stridec::runtime
