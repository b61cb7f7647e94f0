#include "compiler/tune/gpu_worker.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>

#include "compiler/base/numeric.h"
#include "compiler/tune/fill_buffer.h"
#include "compiler/tune/ipc.h"
#include "compiler/tune/worker.h"
#include "runtime/src/cuda.h"
#include "runtime/src/text.h"

namespace stridec::tune {
namespace {

using runtime::CudaContext;
using runtime::CudaModel;

// A target as the runtime sees it in an artifact.
stridec_abi_target abi_target(const GpuTarget& target) {
  stridec_abi_target abi{};
  abi.name = target.name.c_str();
  abi.graphs = 8;
  abi.device = STRIDEC_ABI_CUDA;
  abi.capability = target.capability;
  abi.exact = target.ptx ? 2 : target.exact ? 1 : 0;
  return abi;
}

// Buffer for a message of the runtime.
struct Sentence {
  char room[160] = "";
  runtime::Text text{room, sizeof room};
};

// The images of a subject in the format of an artifact.
std::string images_of(const Subject& subject) {
  const uint64_t count = subject.launches.size();
  std::string out(sizeof(stridec_abi_images) + count * 16, '\0');
  std::memcpy(out.data(), &count, sizeof count);
  for (size_t l = 0; l < count; ++l) {
    out.resize((out.size() + 15) / 16 * 16);
    const uint64_t entry[2] = {out.size(), subject.launches[l].image.size()};
    std::memcpy(out.data() + sizeof(stridec_abi_images) + 16 * l, entry, sizeof entry);
    out += subject.launches[l].image;
  }
  return out;
}

// Tolerance of an element, relative to the element and to the root mean square of all. Different summation
// orders differ by less, wrong results by more.
double tolerance(DType dtype) {
  switch (dtype) {
    case DType::kF64: return 1e-9;
    case DType::kF32: return 1e-3;
    case DType::kTF32:
    case DType::kF16: return 1e-2;
    default: return 4e-2;
  }
}

// The contents of a buffer after a subject, in comparable form: several hundred thousand float elements,
// spread over the buffer, or all bytes of integers.
struct ComparableResult {
  DType dtype = DType::kF32;
  std::string bytes;
  std::vector<double> elements;

  ComparableResult(std::string given, DType type) : dtype(type) {
    constexpr size_t kMost = 1 << 18;
    if (!is_float(dtype) || byte_size(dtype) == 1) {
      bytes = std::move(given);
      return;
    }
    const auto size = static_cast<size_t>(byte_size(dtype));
    const size_t count = given.size() / size, step = count / kMost | 1;
    for (size_t i = 0; i < count; i += step) {
      uint64_t bits = 0;
      std::memcpy(&bits, given.data() + i * size, size);
      elements.push_back(decode_float(dtype, bits));
    }
  }

  // Floats may differ by rounding; integers must be equal.
  bool agrees(const ComparableResult& wanted) const {
    if (bytes != wanted.bytes || elements.size() != wanted.elements.size()) return false;
    double squares = 0;
    size_t finite = 0;
    for (const double value : wanted.elements)
      if (std::isfinite(value)) squares += value * value, ++finite;
    const double usual = std::sqrt(squares / static_cast<double>(std::max<size_t>(finite, 1)));
    for (size_t i = 0; i < elements.size(); ++i) {
      const double a = elements[i], b = wanted.elements[i];
      if (std::isnan(a) && std::isnan(b)) continue;
      if (a != b && !(std::abs(a - b) <= tolerance(dtype) * (std::abs(b) + usual))) return false;
    }
    return true;
  }
};

class GpuRunner : public Runner {
 public:
  GpuRunner(const GpuTarget& target, CudaModel& device, Request& request)
      : target_(target), device_(device), request_(request), loaded_(request.subjects.size()) {}

  ~GpuRunner() override {
    for (const auto& loaded : loaded_) {
      if (!loaded) continue;
      runtime::cuda_context_destroy(loaded->context);
      runtime::cuda_close(loaded->model);
    }
    const runtime::Allocator allocator = runtime::cuda_allocator(device_);
    for (char* memory : memory_) allocator.release(allocator.user, memory, 0);
  }

  std::string load(size_t s) override {
    const Subject& subject = request_.subjects[s];
    loaded_[s] = std::make_unique<Loaded>();
    Loaded& loaded = *loaded_[s];
    loaded.target = abi_target(target_);
    for (const Subject::Launch& launch : subject.launches)
      loaded.kernels.push_back({launch.symbol.c_str(), launch.threads, launch.cluster,
                                launch.dynamic_shared ? 1 : 0, launch.dependent ? 1 : 0});
    loaded.target.kernels = loaded.kernels.data();
    loaded.target.kernel_count = static_cast<int32_t>(loaded.kernels.size());
    loaded.images = images_of(subject);
    Sentence why;
    if (runtime::cuda_open(loaded.target, 0, 0, {loaded.images.data(), loaded.images.size()}, {nullptr, 0},
                           &loaded.model, why.text) != STRIDEC_OK ||
        runtime::cuda_context_create(*loaded.model, 1, nullptr, &loaded.context, why.text) != STRIDEC_OK)
      return why.room;
    return "";
  }

  // All subjects share the arguments that are not weights: the n-th of a dtype, size and range is one buffer.
  void make_memory(const std::vector<bool>& alive) override {
    constexpr int64_t kMostCopies = 64;
    for (size_t s = 0; s < loaded_.size(); ++s) {
      if (!alive[s]) continue;
      const Subject& subject = request_.subjects[s];
      Loaded& loaded = *loaded_[s];
      int64_t weights = 0;
      for (const Subject::Argument& argument : subject.arguments)
        if (argument.weight) weights += aligned(argument.bytes);
      loaded.copies = std::clamp<int64_t>(request_.options.rotate_bytes / std::max<int64_t>(weights, 1), 1,
                                          weights ? kMostCopies : 1);
      std::map<Subject::Content, size_t> count;
      for (const Subject::Argument& argument : subject.arguments) {
        if (argument.weight) {
          loaded.arguments.push_back(weights_of(loaded, argument));
          continue;
        }
        const Subject::Content key = Subject::content_of(argument);
        auto& pool = shared_[key];
        const size_t n = count[key]++;
        if (n == pool.size()) pool.push_back(allocate(argument.bytes));
        if (!patterns_.contains(key))
          patterns_[key] = filled(argument.bytes, argument.dtype, argument.least, argument.most);
        loaded.arguments.push_back(pool[n]);
      }
      int64_t workspace = 0, counters = 0;
      for (const Subject::Launch& launch : subject.launches) {
        workspace = std::max(workspace, launch.workspace_bytes);
        counters = std::max(counters, launch.counter_bytes);
      }
      loaded.workspace = workspace ? allocate(workspace) : nullptr;
      loaded.counters = counters ? allocate(counters) : nullptr;
      good(loaded, runtime::cuda_fill_zero(*loaded.context, loaded.counters, counters));
      good(loaded, runtime::cuda_wait(*loaded.context));
    }
  }

  // Runs on fresh memory. Every subject must produce the results of the first one.
  Event first_call(size_t s) override {
    using Kind = Event::Kind;
    const Subject& subject = request_.subjects[s];
    Loaded& loaded = *loaded_[s];
    for (size_t a = 0; a < subject.arguments.size(); ++a) {
      const Subject::Argument& argument = subject.arguments[a];
      if (argument.weight) continue;
      good(loaded, runtime::cuda_upload(*loaded.context, loaded.arguments[a],
                                        patterns_.at(Subject::content_of(argument)).get(), argument.bytes));
    }
    if (!good(loaded, enqueue(s, 1, false))) return event_of(Kind::kFailed, s, error_of(loaded).c_str());
    good(loaded, runtime::cuda_wait(*loaded.context));
    if (runtime::cuda_failure(*loaded.context).code) {
      runtime::cuda_reset_failure(*loaded.context);
      return event_of(Kind::kFailed, s, "a check on the data failed");
    }
    size_t number = 0;
    for (size_t a = 0; a < subject.arguments.size(); ++a) {
      const Subject::Argument& argument = subject.arguments[a];
      if (!argument.written) continue;
      std::string bytes(static_cast<size_t>(argument.bytes), '\0');
      good(loaded,
           runtime::cuda_download(*loaded.context, bytes.data(), loaded.arguments[a], argument.bytes));
      ComparableResult result(std::move(bytes), argument.dtype);
      if (s == 0)
        results_.push_back(std::move(result));
      else if (!result.agrees(results_[number]))
        return event_of(Kind::kWrong, s, "its results are not those of the default schedule");
      ++number;
    }
    return event_of(Kind::kFailed, s);
  }

  // The launches of a sample are enqueued twice, and the second time is measured: by then the device has a
  // queue of work and does not wait for the host.
  double call(size_t s, size_t times) override {
    Loaded& loaded = *loaded_[s];
    while (loaded.warm.insert({times, 0}).first->second++ < 2) good(loaded, enqueue(s, times, true));
    good(loaded, enqueue(s, times, true));
    prepare(s, times, true);
    const bool marked = runtime::cuda_stamp(*loaded.context, runtime::kNobody);
    good(loaded, marked && runtime::cuda_end(*loaded.context) && runtime::cuda_stamp(*loaded.context, 0));
    int64_t nanoseconds = 0;
    const auto add = [](void* sum, const runtime::Stamped& work) {
      *static_cast<int64_t*>(sum) += work.nanoseconds;
    };
    good(loaded, runtime::cuda_read_stamps(*loaded.context, add, &nanoseconds) && nanoseconds > 0);
    return static_cast<double>(std::max<int64_t>(nanoseconds, 1)) * 1e-9 / static_cast<double>(times);
  }

  double sample_seconds() const override { return 300e-6; }

 private:
  struct Loaded {
    stridec_abi_target target;
    std::vector<stridec_abi_device_kernel> kernels;
    std::string images;
    CudaModel* model = nullptr;
    CudaContext* context = nullptr;
    std::vector<char*> arguments;  // for weights the first copy
    int64_t copies = 1;
    char *workspace = nullptr, *counters = nullptr;
    std::map<size_t, int> warm;  // recorded samples, by number of calls
    int64_t key = 0;             // graph key of a sample: its number of calls
  };

  struct Weights {
    const loop::WeightData* data;
    int64_t copies;
    char* memory;
  };

  static int64_t aligned(int64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

  char* allocate(int64_t bytes) {
    const runtime::Allocator allocator = runtime::cuda_allocator(device_);
    auto* memory = static_cast<char*>(
        allocator.allocate(allocator.user, static_cast<size_t>(std::max<int64_t>(bytes, 256)), 256));
    if (!memory) throw Fault{"the GPU's memory is too small for what is measured"};
    memory_.push_back(memory);
    return memory;
  }

  // Consecutive copies, shared by subjects with the same weight layout.
  char* weights_of(Loaded& loaded, const Subject::Argument& argument) {
    for (const Weights& known : weights_)
      if (known.copies == loaded.copies && known.data->size == argument.data.size &&
          !std::memcmp(known.data->bytes, argument.data.bytes, argument.data.size))
        return known.memory;
    char* memory = allocate(loaded.copies * aligned(argument.bytes));
    for (int64_t copy = 0; copy < loaded.copies; ++copy)
      good(loaded,
           runtime::cuda_upload(*loaded.context, memory + copy * aligned(argument.bytes), argument.data.bytes,
                                std::min(argument.bytes, static_cast<int64_t>(argument.data.size))));
    weights_.push_back({&argument.data, loaded.copies, memory});
    return memory;
  }

  static std::string error_of(const Loaded& loaded) {
    Sentence why;
    runtime::cuda_write_error(*loaded.context, why.text);
    return why.room;
  }

  // A launch that was refused is the subject's own failure; after a fault the driver refuses everything.
  bool good(Loaded& loaded, bool done) {
    if (done) return true;
    const std::string why = error_of(loaded);
    if (!runtime::cuda_wait(*loaded.context)) throw Fault{why};
    return false;
  }

  bool prepare(size_t s, size_t times, bool record) {
    const Subject& subject = request_.subjects[s];
    Loaded& loaded = *loaded_[s];
    loaded.key = static_cast<int64_t>(times);
    runtime::cuda_begin(*loaded.context, 0, {&loaded.key, nullptr, 1, 0}, record);
    for (size_t call = 0; call < times; ++call) {
      const auto address = [&](size_t argument) {
        const Subject::Argument& a = subject.arguments[argument];
        const int64_t copy = a.weight ? static_cast<int64_t>(call) % loaded.copies : 0;
        return loaded.arguments[argument] + copy * aligned(a.bytes);
      };
      for (size_t l = 0; l < subject.launches.size(); ++l) {
        const Subject::Launch& launch = subject.launches[l];
        std::vector<int64_t> words;
        for (const int32_t argument : launch.arguments)
          words.push_back(reinterpret_cast<int64_t>(address(static_cast<size_t>(argument))));
        words.insert(words.end(), launch.words.begin(), launch.words.end());
        std::vector<stridec_abi_tensor_map> maps;
        for (const Subject::Map& map : launch.maps) {
          maps.push_back(map.map);
          maps.back().address =
              address(static_cast<size_t>(map.argument)) + reinterpret_cast<intptr_t>(map.map.address);
        }
        const stridec_abi_device_launch given = {.kernel = static_cast<int32_t>(l),
                                                 .step = -1,
                                                 .grid = {launch.grid[0], launch.grid[1], launch.grid[2]},
                                                 .shared_bytes = launch.shared_bytes,
                                                 .workspace_bytes = launch.workspace_bytes,
                                                 .counter_bytes = launch.counter_bytes,
                                                 .words = words.data(),
                                                 .maps = maps.data(),
                                                 .word_count = static_cast<int32_t>(words.size()),
                                                 .map_count = static_cast<int32_t>(maps.size()),
                                                 .fails = launch.fails,
                                                 .concurrent = 0};
        if (runtime::cuda_launch(*loaded.context, given, loaded.workspace, loaded.counters)) return false;
      }
    }
    return true;
  }

  bool enqueue(size_t s, size_t times, bool record) {
    return prepare(s, times, record) && runtime::cuda_end(*loaded_[s]->context);
  }

  const GpuTarget& target_;
  CudaModel& device_;
  Request& request_;
  std::vector<std::unique_ptr<Loaded>> loaded_;
  std::map<Subject::Content, std::vector<char*>> shared_;
  std::map<Subject::Content, Memory> patterns_;
  std::vector<Weights> weights_;
  std::vector<char*> memory_;
  std::vector<ComparableResult> results_;  // of the first subject
};

bool receive(int descriptor, void* to, size_t size) {
  for (char* at = static_cast<char*>(to); size;) {
    const ssize_t n = read(descriptor, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n, size -= static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

void serve_gpu(const GpuTarget& target, int descriptor) {
  const auto answer = [&](size_t subject, const char* reason) {
    const Event event = event_of(Event::Kind::kReady, subject, reason);
    return send_all(descriptor, &event, sizeof event);
  };
  const stridec_abi_target abi = abi_target(target);
  Sentence why;
  CudaModel* device = nullptr;  // keeps the device's context alive
  if (!runtime::cuda_usable(abi, 0, why.text) ||
      runtime::cuda_open(abi, 0, 0, {nullptr, 0}, {nullptr, 0}, &device, why.text) != STRIDEC_OK) {
    answer(SIZE_MAX, why.room);
    return;
  }
  Sentence name;
  runtime::cuda_write_device_name(*device, name.text);
  if (!answer(0, name.room)) return;
  int64_t size = 0;
  while (receive(descriptor, &size, sizeof size)) {
    std::string bytes(static_cast<size_t>(size), '\0');
    if (!receive(descriptor, bytes.data(), bytes.size())) return;
    Request request = unpack(bytes);
    GpuRunner runner(target, *device, request);
    run_rounds(runner, request.options, request.alive, descriptor);
  }
}

}  // namespace stridec::tune
