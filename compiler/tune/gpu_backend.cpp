#include <algorithm>
#include <map>
#include <memory>

#include "compiler/base/diagnostic.h"
#include "compiler/codegen/cuda/emit.h"
#include "compiler/loop/analysis.h"
#include "compiler/schedule/analysis/effects.h"
#include "compiler/schedule/layout/order_weights.h"
#include "compiler/tune/backend.h"
#include "compiler/tune/fill_buffer.h"
#include "compiler/tune/gpu.h"

namespace stridec::tune {
namespace {

using codegen::DeviceKernel;
using codegen::cuda::BuiltKernel;

struct Built {
  BuiltKernel kernel;
  std::string problem;  // why there is no image
};

struct GpuCode : Code {
  loop::Program program;  // with weights in the layout of the schedule, and their bytes
  Ranges ranges;
  codegen::DeviceNest nest;
  std::vector<std::vector<std::shared_ptr<Built>>> kernels;  // per choice

  // Does what the host program of an artifact does (codegen/host_run.cpp), with values for the sizes. Memory
  // is aligned.
  Subject subject_at(const Values& values) const override {
    const auto at = [&](sym::Expr e) { return value_of(e, values); };
    size_t choice = 0;
    while (!at(nest.choices[choice].condition)) ++choice;
    const loop::Effects effects = loop::effects_of(program.nests[0]);
    Subject subject{.tasks = 1};
    std::map<loop::BufferId, int32_t> numbers;
    const auto argument = [&](loop::BufferId id) {
      const auto [found, fresh] = numbers.emplace(id, static_cast<int32_t>(subject.arguments.size()));
      if (!fresh) return found->second;
      const loop::Buffer& buffer = program[id];
      const bool weight = buffer.storage == loop::Storage::kParameter;
      subject.arguments.push_back(
          {.bytes = at(schedule::extent_in_elements(buffer)) * byte_size(buffer.dtype),
           .dtype = buffer.dtype,
           .weight = weight,
           .written = std::count(effects.writes.begin(), effects.writes.end(), id) > 0,
           .data = weight ? buffer.weight : loop::WeightData{}});
      set_range(subject.arguments.back(), ranges, id, values);
      return found->second;
    };
    for (size_t k = 0; k < nest.choices[choice].launches.size(); ++k) {
      const DeviceKernel& kernel = nest.choices[choice].launches[k];
      const BuiltKernel& built = kernels[choice][k]->kernel;
      Subject::Launch launch{.symbol = built.symbol,
                             .image = built.image,
                             .threads = kernel.threads,
                             .cluster = kernel.cluster,
                             .dynamic_shared = !kernel.shared_bytes.is_const(0),
                             .dependent = kernel.dependent_launch,
                             .fails = kernel.fails,
                             .grid = {at(kernel.grid[0]), at(kernel.grid[1]), at(kernel.grid[2])},
                             .shared_bytes = at(kernel.shared_bytes),
                             .workspace_bytes = at(kernel.workspace_bytes),
                             .counter_bytes = at(kernel.counter_bytes)};
      if (launch.grid[0] * launch.grid[1] * launch.grid[2] <= 0) subject.tasks = 0;
      for (const loop::BufferId id : kernel.code.buffers) launch.arguments.push_back(argument(id));
      for (const sym::Expr e : kernel.code.sizes) launch.words.push_back(at(e));
      for (size_t m = 0; m < kernel.code.messages.size(); ++m)
        launch.words.push_back(static_cast<int64_t>(m));
      for (const codegen::TensorMap& map : kernel.maps)
        launch.maps.push_back(map_at(map, argument(map.buffer), at));
      subject.launches.push_back(std::move(launch));
    }
    return subject;
  }

  template <class At>
  static Subject::Map map_at(const codegen::TensorMap& map, int32_t argument, const At& at) {
    Subject::Map out{.argument = argument};
    stridec_abi_tensor_map& given = out.map;
    given.address = reinterpret_cast<void*>(at(map.offset));
    given.im2col = !map.lower.empty();
    given.dtype = codegen::driver_dtype(map);
    given.rank = static_cast<int32_t>(map.dims.size());
    given.swizzle = codegen::driver_swizzle(map);
    given.l2_promotion = codegen::driver_promotion(map);
    std::copy(map.box.begin(), map.box.end(), given.box);
    std::fill_n(given.element_strides, map.dims.size(), 1);
    std::copy(map.element_strides.begin(), map.element_strides.end(), given.element_strides);
    std::copy(map.lower.begin(), map.lower.end(), given.lower);
    std::copy(map.upper.begin(), map.upper.end(), given.upper);
    std::transform(map.dims.begin(), map.dims.end(), given.dims, at);
    std::transform(map.strides.begin(), map.strides.end(), given.strides, at);
    return out;
  }
};

// Weights that are computed at compile time have no bytes yet; they get synthetic values.
void make_weights(loop::Program& program) {
  for (loop::Buffer& buffer : program.buffers) {
    if (buffer.storage != loop::Storage::kParameter || buffer.weight.bytes) continue;
    const int64_t bytes =
        value_of(schedule::extent_in_elements(buffer), [](sym::Expr) { return std::nullopt; }) *
        byte_size(buffer.dtype);
    std::shared_ptr<char> memory = filled(bytes, buffer.dtype);
    if (!memory) fail(ErrorKind::kOverBudget, "memory", "there is no memory for a weight");
    buffer.weight = {memory, reinterpret_cast<const uint8_t*>(memory.get()), static_cast<size_t>(bytes)};
  }
}

class GpuBackend : public BackendOf<GpuTarget> {
 public:
  GpuBackend(const GpuTarget& target, const codegen::cuda::BuildOptions& build)
      : BackendOf(target), build_(build) {}

  Key machine() const override {
    return {.target = target_.name,
            .device = gpu_ ? gpu_->name() : "",
            .threads = 0,
            .compiler = this_gpu_compiler()};
  }

  std::string problem() override {
    if (!gpu_) gpu_ = std::make_unique<Gpu>(target_);
    return gpu_->problem();
  }

  std::vector<schedule::Candidate> candidates(const loop::Program& alone, const std::vector<Values>& shapes,
                                              const loop::Schedule* around) const override {
    return schedule::candidates(alone, alone.nests[0], target_, shapes, around);
  }

  std::vector<std::unique_ptr<Code>> build(const std::vector<Wanted>& wanted) override {
    std::vector<std::unique_ptr<Code>> all;
    std::vector<GpuCode*> emitted;
    std::vector<std::shared_ptr<Built>> fresh;
    for (const auto& [alone, schedule] : wanted) {
      auto code = std::make_unique<GpuCode>();
      try {
        emit(*code, *alone, *schedule, fresh);
        emitted.push_back(code.get());
      } catch (const Error& error) {
        code->problem = error.text;
      }
      all.push_back(std::move(code));
    }
    std::vector<BuiltKernel*> kernels;
    for (const auto& built : fresh) kernels.push_back(&built->kernel);
    const auto errors = codegen::cuda::compile_kernels(kernels, build_);
    for (size_t k = 0; k < errors.size(); ++k)
      if (errors[k]) fresh[k]->problem = errors[k]->message;
    for (GpuCode* code : emitted)
      for (const auto& choice : code->kernels)
        for (const auto& built : choice)
          if (code->problem.empty()) code->problem = built->problem;
    return all;
  }

  std::vector<Outcome> race(const std::vector<Subject>& subjects, const MeasureOptions& options) override {
    return measure(subjects, options, gpu_.get());
  }
  int64_t rotation() const override { return 2 * int64_t{target_.l2_bytes}; }
  double least_patience() const override { return 10; }

 private:
  // Adds kernels without code to `fresh`. Candidates may have kernels for other sizes in common.
  void emit(GpuCode& code, const loop::Program& alone, const loop::Schedule& schedule,
            std::vector<std::shared_ptr<Built>>& fresh) {
    code.program = alone;
    code.ranges = loop::integer_ranges(alone);
    make_weights(code.program);
    code.program.nests[0].schedule = schedule;
    schedule::order_weights(code.program);
    codegen::cpu::run_prepack(code.program, cpu_target("native"), {.use_cache = build_.use_cache});
    code.nest = codegen::cuda::emit_nest(code.program, code.program.nests[0], target_);
    for (const codegen::DeviceChoice& choice : code.nest.choices) {
      code.kernels.emplace_back();
      for (const DeviceKernel& kernel : choice.launches) {
        BuiltKernel named = codegen::cuda::named(kernel, target_);
        std::weak_ptr<Built>& known = kernels_[named.symbol];
        std::shared_ptr<Built> built = known.lock();
        if (!built) {
          known = built = std::make_shared<Built>(Built{std::move(named), {}});
          fresh.push_back(built);
        }
        code.kernels.back().push_back(std::move(built));
      }
    }
  }

  const codegen::cuda::BuildOptions build_;
  std::unique_ptr<Gpu> gpu_;
  std::map<std::string, std::weak_ptr<Built>> kernels_;  // by symbol
};

}  // namespace

std::unique_ptr<Backend> gpu_backend(const GpuTarget& target, const codegen::cuda::BuildOptions& build) {
  return std::make_unique<GpuBackend>(target, build);
}

}  // namespace stridec::tune
