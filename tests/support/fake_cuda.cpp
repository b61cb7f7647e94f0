#include "tests/support/fake_cuda.h"

#include <elf.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace {

// Values of the CUDA driver API, 12.0, that the runtime uses.
enum Result : int32_t {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kInvalidHandle = 400,
  kNotFound = 500,
};

struct Node {
  std::string symbol;
  uint32_t grid[3], block[3], shared_bytes;
  std::string parameters;
  std::vector<void*> after;  // of a captured launch: nodes of its graph
};
struct Graph {
  std::vector<std::unique_ptr<Node>> nodes;
};
struct Exec {  // an instance: its own parameters, found by the graph's nodes
  std::vector<std::pair<const Node*, Node>> nodes;
};
struct Parameter {
  size_t offset = 0, bytes = 0;  // offset from the first parameter
};
struct Function {
  std::string name;
  std::vector<Parameter> parameters;
};
struct Module {
  const char* image = nullptr;
  std::map<std::string, std::unique_ptr<Function>> functions;
};
struct Stream {
  bool capturing = false;
  Graph* graph = nullptr;
  std::vector<void*> last;  // nodes of `graph` on which the next launch depends
};

constexpr FakeCuda kSettings = {1, 90, 1 << 30, nullptr, 0, 0, 0, 0, 0, 0};

struct State {
  std::mutex mutex;
  FakeCuda settings = kSettings;
  FakeCounts counts{};
  std::map<std::string, std::pair<FakeKernel, void*>> kernels;
  std::map<void*, size_t> memory;
  std::map<void*, Stream> streams;
  int32_t calls = 0;  // calls of fail_call
};
State& state() {
  static State* const one = new State;  // lives as long as the process
  return *one;
}

// Whether the settings make the call fail.
bool fails(const char* call) {
  State& s = state();
  const FakeCuda& settings = s.settings;
  return settings.fail_call && !std::strcmp(settings.fail_call, call) && s.calls++ >= settings.fail_after;
}
thread_local std::vector<void*> current;  // stack of contexts

#define FAKE_CALL(name)                                  \
  const std::lock_guard<std::mutex> lock(state().mutex); \
  if (fails(name)) return state().settings.fail_status;
// For functions that work in the thread's context.
#define FAKE_CONTEXT_CALL(name)                \
  FAKE_CALL(name)                              \
  if (current.empty()) return kInvalidContext; \
  if (state().settings.fault) return state().settings.fault;

void run(const Node& node, void* stream, bool replayed) {
  State& s = state();
  const FakeLaunch launch{node.symbol.c_str(),
                          {node.grid[0], node.grid[1], node.grid[2]},
                          {node.block[0], node.block[1], node.block[2]},
                          node.shared_bytes,
                          stream,
                          node.parameters.data(),
                          node.parameters.size(),
                          replayed};
  if (s.settings.log)
    std::fprintf(stderr, "launch %s grid %u %u %u block %u shared %u parameters %zu%s\n", launch.symbol,
                 launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0], launch.shared_bytes,
                 launch.parameter_bytes, replayed ? " (graph)" : "");
  s.settings.clock += 1;
  auto found = s.kernels.find(node.symbol);
  if (found == s.kernels.end()) found = s.kernels.find("");
  if (found != s.kernels.end()) found->second.first(&launch, found->second.second);
}

// The parameters of a kernel, from section .nv.info.NAME of its cubin: attributes 0x17 (KPARAM_INFO) have
// ordinal, offset and, in bits 18 and up of the last word, size in bytes. Nothing is known for PTX.
std::vector<Parameter> kernel_parameters(const char* image, const std::string& name) {
  std::vector<Parameter> out;
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return out;
  auto section = [&](int i) {
    Elf64_Shdr s;
    std::memcpy(&s, image + header.e_shoff + static_cast<size_t>(i) * sizeof s, sizeof s);
    return s;
  };
  const char* names = image + section(header.e_shstrndx).sh_offset;
  for (int i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr s = section(i);
    if (names + s.sh_name != ".nv.info." + name) continue;
    const char *at = image + s.sh_offset, *end = at + s.sh_size;
    while (at + 4 <= end) {
      uint16_t bytes = 0;
      std::memcpy(&bytes, at + 2, sizeof bytes);
      if (at[0] == 4 && at[1] == 0x17) {
        uint16_t ordinal = 0, offset = 0;
        uint32_t last = 0;
        std::memcpy(&ordinal, at + 8, sizeof ordinal);
        std::memcpy(&offset, at + 10, sizeof offset);
        std::memcpy(&last, at + 12, sizeof last);
        if (out.size() <= ordinal) out.resize(ordinal + size_t{1});
        out[ordinal] = {offset, last >> 18};
      }
      at += 4 + (at[0] == 4 ? bytes : 0);
    }
  }
  const size_t first = out.empty() ? 0 : out[0].offset;
  for (Parameter& parameter : out) parameter.offset -= first;
  return out;
}

// ---- driver functions ----

int32_t init(uint32_t) {
  FAKE_CALL("cuInit")
  return state().settings.devices ? kSuccess : kNoDevice;
}
int32_t driver_version(int32_t* version) {
  *version = 12000;
  return kSuccess;
}
int32_t error_string(int32_t status, const char** text) {
  *text = status == kOutOfMemory    ? "out of memory"
          : status == kNoDevice     ? "no CUDA-capable device is detected"
          : status == kInvalidImage ? "device kernel image is invalid"
          : status == 700           ? "an illegal memory access was encountered"
                                    : "invalid argument";
  return kSuccess;
}
int32_t device_count(int32_t* count) {
  FAKE_CALL("cuDeviceGetCount")
  *count = state().settings.devices;
  return kSuccess;
}
int32_t device_get(int32_t* device, int32_t ordinal) {
  FAKE_CALL("cuDeviceGet")
  *device = ordinal;
  return ordinal >= 0 && ordinal < state().settings.devices ? kSuccess : kInvalidDevice;
}
int32_t device_name(char* name, int32_t room, int32_t) {
  std::snprintf(name, static_cast<size_t>(room), "Fake GPU");
  return kSuccess;
}
int32_t device_attribute(int32_t* value, int32_t attribute, int32_t) {
  const int32_t capability = state().settings.capability;
  *value = attribute == 75   ? capability / 10
           : attribute == 76 ? capability % 10
           : attribute == 97 ? 232448
           : attribute == 16 ? 4        // multiprocessors
           : attribute == 13 ? 1000000  // kHz
                             : 0;
  return kSuccess;
}
int32_t retain(void** context, int32_t device) {
  FAKE_CALL("cuDevicePrimaryCtxRetain")
  *context = reinterpret_cast<void*>(static_cast<intptr_t>(device) + 1);
  return kSuccess;
}
int32_t release(int32_t) { return kSuccess; }
int32_t push(void* context) {
  current.push_back(context);
  ++state().counts.pushes;
  return kSuccess;
}
int32_t pop(void** context) {
  if (current.empty()) return kInvalidValue;
  *context = current.back();
  current.pop_back();
  return kSuccess;
}
int32_t module_load(void** module, const void* image) {
  FAKE_CONTEXT_CALL("cuModuleLoadData")
  const bool cubin = image && std::memcmp(image, ELFMAG, SELFMAG) == 0;
  if (!image || (cubin && state().settings.refuse_cubins)) return kInvalidImage;
  *module = new Module{.image = static_cast<const char*>(image), .functions = {}};
  return kSuccess;
}
int32_t module_unload(void* module) {
  delete static_cast<Module*>(module);
  return kSuccess;
}
int32_t module_function(void** function, void* module, const char* name) {
  FAKE_CONTEXT_CALL("cuModuleGetFunction")
  auto& slot = static_cast<Module*>(module)->functions[name];
  if (!slot)
    slot = std::make_unique<Function>(
        Function{name, kernel_parameters(static_cast<const Module*>(module)->image, name)});
  *function = slot.get();
  return kSuccess;
}
int32_t set_attribute(void*, int32_t, int32_t) {
  FAKE_CONTEXT_CALL("cuFuncSetAttribute")
  return kSuccess;
}
int32_t get_attribute(int32_t* value, int32_t, void*) {
  *value = 0;
  return kSuccess;
}
int32_t allocate(uint64_t* address, size_t bytes) {
  FAKE_CONTEXT_CALL("cuMemAlloc")
  State& s = state();
  if (!bytes) return kInvalidValue;
  if (bytes > static_cast<size_t>(s.settings.memory_bytes - s.counts.memory)) return kOutOfMemory;
  void* memory = nullptr;
  if (posix_memalign(&memory, 256, bytes)) return kOutOfMemory;
  std::memset(memory, 0xab, bytes);
  s.memory[memory] = bytes;
  s.counts.memory += static_cast<int64_t>(bytes);
  ++s.counts.allocations;
  *address = reinterpret_cast<uint64_t>(memory);
  return kSuccess;
}
int32_t deallocate(uint64_t address) {
  const std::lock_guard<std::mutex> lock(state().mutex);
  State& s = state();
  const auto found = s.memory.find(reinterpret_cast<void*>(address));
  if (found == s.memory.end()) return kInvalidValue;
  s.counts.memory -= static_cast<int64_t>(found->second);
  --s.counts.allocations;
  std::free(found->first);
  s.memory.erase(found);
  return kSuccess;
}
int32_t host_allocate(void** memory, size_t bytes, uint32_t) {
  FAKE_CONTEXT_CALL("cuMemHostAlloc")
  return posix_memalign(memory, 64, bytes) ? kOutOfMemory : kSuccess;
}
int32_t host_free(void* memory) {
  std::free(memory);
  return kSuccess;
}
int32_t host_address(uint64_t* address, void* memory, uint32_t) {
  *address = reinterpret_cast<uint64_t>(memory);
  return kSuccess;
}
int32_t upload(uint64_t to, const void* from, size_t bytes, void*) {
  FAKE_CONTEXT_CALL("cuMemcpyHtoDAsync")
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  ++state().counts.uploads;
  state().counts.uploaded_bytes += static_cast<int64_t>(bytes);
  return kSuccess;
}
int32_t download(void* to, uint64_t from, size_t bytes, void*) {
  FAKE_CONTEXT_CALL("cuMemcpyDtoHAsync")
  std::memcpy(to, reinterpret_cast<void*>(from), bytes);
  ++state().counts.downloads;
  return kSuccess;
}
int32_t copy(uint64_t to, uint64_t from, size_t bytes, void*) {
  FAKE_CONTEXT_CALL("cuMemcpyDtoDAsync")
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  return kSuccess;
}
int32_t launch_host(void*, void (*function)(void*), void* user) {
  FAKE_CONTEXT_CALL("cuLaunchHostFunc")
  function(user);
  return kSuccess;
}
int32_t fill(uint64_t to, uint8_t value, size_t bytes, void*) {
  FAKE_CONTEXT_CALL("cuMemsetD8Async")
  std::memset(reinterpret_cast<void*>(to), value, bytes);
  return kSuccess;
}
int32_t wait(void*) {
  FAKE_CONTEXT_CALL("cuStreamSynchronize")
  return kSuccess;
}

struct LaunchConfig {
  uint32_t grid[3], block[3];
  uint32_t shared_bytes;
  void* stream;
  void* attributes;
  uint32_t attribute_count;
};
// Lays out the parameters as the kernel's code expects them; false if too few are known.
bool parameters_of(const Function& function, void** given, std::string& out) {
  for (const Parameter& parameter : function.parameters) {
    if (!given || !*given) return false;
    if (out.size() < parameter.offset + parameter.bytes) out.resize(parameter.offset + parameter.bytes);
    std::memcpy(out.data() + parameter.offset, *given++, parameter.bytes);
  }
  return true;
}
int32_t launch(const LaunchConfig* config, void* given, void** parameters, void**) {
  FAKE_CONTEXT_CALL("cuLaunchKernelEx")
  const auto& function = *static_cast<const Function*>(given);
  Node node{function.name, {}, {}, config->shared_bytes, {}, {}};
  std::memcpy(node.grid, config->grid, sizeof node.grid);
  std::memcpy(node.block, config->block, sizeof node.block);
  if (!parameters_of(function, parameters, node.parameters)) return kInvalidValue;
  State& s = state();
  Stream& stream = s.streams[config->stream];
  if (stream.capturing) {
    node.after = stream.last;
    stream.graph->nodes.push_back(std::make_unique<Node>(std::move(node)));
    stream.last = {stream.graph->nodes.back().get()};
    return kSuccess;
  }
  ++s.counts.launches;
  run(node, config->stream, false);
  return kSuccess;
}
int32_t stream_create(void** stream, uint32_t) {
  FAKE_CONTEXT_CALL("cuStreamCreate")
  *stream = new char;
  return kSuccess;
}
int32_t stream_destroy(void* stream) {
  const std::lock_guard<std::mutex> lock(state().mutex);
  state().streams.erase(stream);
  delete static_cast<char*>(stream);
  return kSuccess;
}
int32_t begin_capture(void* handle, int32_t) {
  FAKE_CONTEXT_CALL("cuStreamBeginCapture")
  Stream& stream = state().streams[handle];
  if (!handle || stream.capturing) return kInvalidValue;  // the default stream cannot be captured
  stream = {.capturing = true, .graph = new Graph, .last = {}};
  ++state().counts.captures;
  return kSuccess;
}
int32_t end_capture(void* handle, void** graph) {
  FAKE_CONTEXT_CALL("cuStreamEndCapture")
  Stream& stream = state().streams[handle];
  if (!stream.capturing) return kInvalidValue;
  *graph = stream.graph;
  stream = {};
  return kSuccess;
}
int32_t capture_info(void* handle, int32_t* status, uint64_t* id, void** graph, void* const** last,
                     size_t* count) {
  FAKE_CONTEXT_CALL("cuStreamGetCaptureInfo")
  Stream& stream = state().streams[handle];
  *status = stream.capturing;
  *id = 1;
  *graph = stream.graph;
  *last = stream.last.data();
  *count = stream.last.size();
  return kSuccess;
}
int32_t update_dependencies(void* handle, void** nodes, size_t count, uint32_t flags) {
  FAKE_CONTEXT_CALL("cuStreamUpdateCaptureDependencies")
  Stream& stream = state().streams[handle];
  constexpr uint32_t kSet = 1;
  if (!stream.capturing || flags != kSet) return kInvalidValue;
  stream.last.assign(nodes, nodes + count);
  return kSuccess;
}
int32_t instantiate(void** exec, void* graph, uint64_t) {
  FAKE_CONTEXT_CALL("cuGraphInstantiateWithFlags")
  auto made = std::make_unique<Exec>();
  for (const auto& node : static_cast<const Graph*>(graph)->nodes)
    made->nodes.emplace_back(node.get(), *node);
  *exec = made.release();
  ++state().counts.instantiations;
  return kSuccess;
}
struct NodeParams {
  void* function;
  uint32_t grid[3], block[3];
  uint32_t shared_bytes;
  void** parameters;
  void** extra;
  void *kernel, *context;
};
int32_t set_params(void* exec, void* node, const NodeParams* params) {
  FAKE_CONTEXT_CALL("cuGraphExecKernelNodeSetParams")
  const auto& function = *static_cast<const Function*>(params->function);
  for (auto& [origin, own] : static_cast<Exec*>(exec)->nodes) {
    if (origin != node) continue;
    std::memcpy(own.grid, params->grid, sizeof own.grid);
    std::memcpy(own.block, params->block, sizeof own.block);
    own.shared_bytes = params->shared_bytes;
    own.symbol = function.name;
    if (!parameters_of(function, params->parameters, own.parameters)) return kInvalidValue;
    ++state().counts.updates;
    return kSuccess;
  }
  return kInvalidHandle;
}
// Of the nodes whose predecessors have run, the one that was captured last runs first, so that a missing edge
// shows.
int32_t graph_launch(void* exec, void* stream) {
  FAKE_CONTEXT_CALL("cuGraphLaunch")
  ++state().counts.replays;
  const auto& nodes = static_cast<const Exec*>(exec)->nodes;
  std::set<const void*> done;
  while (done.size() < nodes.size())
    for (size_t i = nodes.size(); i-- > 0;) {
      const auto& [origin, node] = nodes[i];
      const bool ready = std::ranges::all_of(node.after, [&](void* before) { return done.contains(before); });
      if (!ready || done.contains(origin)) continue;
      done.insert(origin);
      run(node, stream, true);
      break;
    }
  return kSuccess;
}
int32_t exec_destroy(void* exec) {
  delete static_cast<Exec*>(exec);
  return kSuccess;
}
int32_t graph_destroy(void* graph) {
  delete static_cast<Graph*>(graph);
  return kSuccess;
}
int32_t event_create(void** event, uint32_t) {
  FAKE_CONTEXT_CALL("cuEventCreate")
  *event = new double(0);
  return kSuccess;
}
int32_t event_destroy(void* event) {
  delete static_cast<double*>(event);
  return kSuccess;
}
int32_t event_record(void* event, void*) {
  FAKE_CONTEXT_CALL("cuEventRecord")
  *static_cast<double*>(event) = state().settings.clock;
  return kSuccess;
}
int32_t event_wait(void*) {
  FAKE_CONTEXT_CALL("cuEventSynchronize")
  return kSuccess;
}
int32_t event_query(void*) {
  FAKE_CONTEXT_CALL("cuEventQuery")
  return kSuccess;
}
int32_t event_time(float* ms, void* from, void* to) {
  *ms =
      std::max(0.001f, static_cast<float>((*static_cast<double*>(to) - *static_cast<double*>(from)) * 1e-3));
  return kSuccess;
}
// Checks the rules that the CUDA driver's documentation gives for cuTensorMapEncodeTiled without
// interleaving. Rejects maps that break a rule, as the driver does; the log names the rule.
int32_t encode(void* map, int32_t dtype, uint32_t rank, void* address, const uint64_t* dims,
               const uint64_t* strides, const uint32_t* box, const uint32_t* steps, int32_t interleave,
               int32_t swizzle, int32_t, int32_t) {
  FAKE_CONTEXT_CALL("cuTensorMapEncodeTiled")
  constexpr uint32_t kBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};  // of CUtensorMapDataType
  constexpr uint64_t kSwizzled[] = {0, 32, 64, 128};                      // maximum bytes per row; 0: any
  const auto rule = [&](bool holds, const char* what) {
    if (!holds) std::fprintf(stderr, "fake libcuda: a tensor map's %s\n", what);
    return holds;
  };
  bool good = rule(dtype >= 0 && dtype < static_cast<int32_t>(std::size(kBytes)), "type is unknown") &&
              rule(rank >= 1 && rank <= 5, "rank is not 1 to 5") &&
              rule(interleave == 0, "interleaving is untested") &&
              rule(swizzle >= 0 && swizzle < 4, "swizzle is unknown") &&
              rule(reinterpret_cast<uintptr_t>(address) % 16 == 0, "address is not aligned to 16 bytes");
  if (!good) return kInvalidValue;
  const uint64_t bytes = kBytes[dtype], inner = box[0] * bytes;
  for (uint32_t i = 0; i < rank; ++i) {
    good &= rule(dims[i] >= 1 && dims[i] <= uint64_t{1} << 32, "dim is not 1 to 2^32");
    good &= rule(box[i] >= 1 && box[i] <= 256, "box is not 1 to 256");
    good &= rule(steps[i] >= 1 && steps[i] <= 8, "element stride is not 1 to 8");
    if (i + 1 < rank)
      good &= rule(strides[i] % 16 == 0 && strides[i] < uint64_t{1} << 40,
                   "stride is not a multiple of 16 below 2^40");
  }
  good &= rule(inner % 16 == 0, "box has rows of no multiple of 16 bytes");
  good &= rule(!kSwizzled[swizzle] || inner <= kSwizzled[swizzle], "box has rows wider than its swizzle");
  if (!good) return kInvalidValue;
  std::memset(map, 0, 128);
  std::memcpy(map, &address, sizeof address);
  std::memcpy(static_cast<char*>(map) + 8, dims, sizeof *dims);
  return kSuccess;
}

// Checks only the alignment that cuTensorMapEncodeIm2col requires for the copy engine.
int32_t encode_im2col(void* map, int32_t, uint32_t rank, void* address, const uint64_t* dims,
                      const uint64_t* strides, const int32_t*, const int32_t*, uint32_t channels,
                      uint32_t pixels, const uint32_t*, int32_t, int32_t, int32_t, int32_t) {
  FAKE_CONTEXT_CALL("cuTensorMapEncodeIm2col")
  bool good = rank >= 3 && rank <= 5 && reinterpret_cast<uintptr_t>(address) % 16 == 0 && channels <= 256 &&
              pixels <= 1024;
  for (uint32_t i = 0; i + 1 < rank; ++i) good = good && dims[i] && strides[i] % 16 == 0;
  if (!good) return kInvalidValue;
  std::memset(map, 0, 128);
  std::memcpy(map, &address, sizeof address);
  std::memcpy(static_cast<char*>(map) + 8, dims, sizeof *dims);
  return kSuccess;
}

const std::map<std::string, void*>& functions() {
  static const std::map<std::string, void*> all = {
      {"cuInit", reinterpret_cast<void*>(init)},
      {"cuDriverGetVersion", reinterpret_cast<void*>(driver_version)},
      {"cuGetErrorString", reinterpret_cast<void*>(error_string)},
      {"cuDeviceGetCount", reinterpret_cast<void*>(device_count)},
      {"cuDeviceGet", reinterpret_cast<void*>(device_get)},
      {"cuDeviceGetName", reinterpret_cast<void*>(device_name)},
      {"cuDeviceGetAttribute", reinterpret_cast<void*>(device_attribute)},
      {"cuDevicePrimaryCtxRetain", reinterpret_cast<void*>(retain)},
      {"cuDevicePrimaryCtxRelease", reinterpret_cast<void*>(release)},
      {"cuCtxPushCurrent", reinterpret_cast<void*>(push)},
      {"cuCtxPopCurrent", reinterpret_cast<void*>(pop)},
      {"cuModuleLoadData", reinterpret_cast<void*>(module_load)},
      {"cuModuleUnload", reinterpret_cast<void*>(module_unload)},
      {"cuModuleGetFunction", reinterpret_cast<void*>(module_function)},
      {"cuFuncSetAttribute", reinterpret_cast<void*>(set_attribute)},
      {"cuFuncGetAttribute", reinterpret_cast<void*>(get_attribute)},
      {"cuMemAlloc", reinterpret_cast<void*>(allocate)},
      {"cuMemFree", reinterpret_cast<void*>(deallocate)},
      {"cuMemHostAlloc", reinterpret_cast<void*>(host_allocate)},
      {"cuMemFreeHost", reinterpret_cast<void*>(host_free)},
      {"cuMemHostGetDevicePointer", reinterpret_cast<void*>(host_address)},
      {"cuMemcpyHtoDAsync", reinterpret_cast<void*>(upload)},
      {"cuMemcpyDtoHAsync", reinterpret_cast<void*>(download)},
      {"cuMemcpyDtoDAsync", reinterpret_cast<void*>(copy)},
      {"cuLaunchHostFunc", reinterpret_cast<void*>(launch_host)},
      {"cuMemsetD8Async", reinterpret_cast<void*>(fill)},
      {"cuStreamSynchronize", reinterpret_cast<void*>(wait)},
      {"cuLaunchKernelEx", reinterpret_cast<void*>(launch)},
      {"cuEventCreate", reinterpret_cast<void*>(event_create)},
      {"cuEventDestroy", reinterpret_cast<void*>(event_destroy)},
      {"cuEventRecord", reinterpret_cast<void*>(event_record)},
      {"cuEventSynchronize", reinterpret_cast<void*>(event_wait)},
      {"cuEventQuery", reinterpret_cast<void*>(event_query)},
      {"cuEventElapsedTime", reinterpret_cast<void*>(event_time)},
      {"cuStreamCreate", reinterpret_cast<void*>(stream_create)},
      {"cuStreamDestroy", reinterpret_cast<void*>(stream_destroy)},
      {"cuStreamBeginCapture", reinterpret_cast<void*>(begin_capture)},
      {"cuStreamEndCapture", reinterpret_cast<void*>(end_capture)},
      {"cuStreamGetCaptureInfo", reinterpret_cast<void*>(capture_info)},
      {"cuStreamUpdateCaptureDependencies", reinterpret_cast<void*>(update_dependencies)},
      {"cuGraphInstantiateWithFlags", reinterpret_cast<void*>(instantiate)},
      {"cuGraphExecKernelNodeSetParams", reinterpret_cast<void*>(set_params)},
      {"cuGraphLaunch", reinterpret_cast<void*>(graph_launch)},
      {"cuGraphExecDestroy", reinterpret_cast<void*>(exec_destroy)},
      {"cuGraphDestroy", reinterpret_cast<void*>(graph_destroy)},
      {"cuTensorMapEncodeTiled", reinterpret_cast<void*>(encode)},
      {"cuTensorMapEncodeIm2col", reinterpret_cast<void*>(encode_im2col)},
  };
  return all;
}

}  // namespace

extern "C" {

FakeCuda* fake_cuda() { return &state().settings; }
FakeCounts* fake_cuda_counts() { return &state().counts; }
void fake_cuda_reset() {
  State& s = state();
  const FakeCounts old = s.counts;
  s.counts = {};
  s.counts.memory = old.memory;
  s.counts.allocations = old.allocations;
  s.settings = kSettings;
  s.kernels.clear();
  s.calls = 0;
}
void fake_cuda_register(const char* symbol, FakeKernel kernel, void* user) {
  state().kernels[symbol ? symbol : ""] = {kernel, user};
}

int32_t cuGetProcAddress_v2(const char* name, void** function, int32_t, uint64_t, int32_t*) {
  const auto found = functions().find(name);
  *function = found == functions().end() ? nullptr : found->second;
  return *function ? kSuccess : kNotFound;
}
}
