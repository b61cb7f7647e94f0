#include <algorithm>
#include <map>

#include "compiler/base/diagnostic.h"
#include "compiler/codegen/cpu/clang.h"
#include "compiler/loop/rewrite.h"
#include "compiler/schedule/analysis/effects.h"
#include "compiler/schedule/layout/order_weights.h"
#include "compiler/schedule/layout/pack_weights.h"
#include "compiler/tune/backend.h"

namespace stridec::tune {

loop::Program only_nest(const loop::Program& program, loop::NestId nest) {
  loop::Program alone = program;
  alone.steps.clear();
  alone.steps.push_back({loop::Launch{nest}});
  alone.prepack.clear();
  alone.inputs.clear(), alone.outputs.clear(), alone.states.clear();
  loop::eliminate_dead_code(alone);
  alone.nests[0].schedule = {};
  return alone;
}

int64_t value_of(sym::Expr e, const Values& values) {
  const auto value = sym::evaluate(e, values);
  if (!value) fail(ErrorKind::kDoesNotFit, "no-size", "a size of the kernel has no value");
  return *value;
}

void set_range(Subject::Argument& argument, const Ranges& ranges, loop::BufferId id, const Values& values) {
  const auto found = ranges.find(id);
  if (argument.weight || found == ranges.end() || !found->second.least || !found->second.most) return;
  const auto least = sym::evaluate(*found->second.least, values),
             most = sym::evaluate(*found->second.most, values);
  if (least && most && *least <= *most) argument.least = *least, argument.most = *most;
}

namespace {

using Object = std::shared_ptr<const std::string>;

struct CpuCode : Code {
  loop::Program program;  // with weights in the layout of the schedule
  Ranges ranges;
  codegen::Kernel kernel;
  std::string symbol;
  std::vector<Object> objects;

  Subject subject_at(const Values& values) const override {
    Subject subject{.symbol = symbol};
    for (const Object& object : objects) subject.objects.push_back(object.get());
    for (const loop::BufferId id : kernel.buffers) {
      const loop::Buffer& buffer = program[id];
      const int64_t bytes = value_of(schedule::extent_in_elements(buffer), values) * byte_size(buffer.dtype);
      subject.arguments.push_back(
          {.bytes = bytes, .dtype = buffer.dtype, .weight = buffer.storage == loop::Storage::kParameter});
      set_range(subject.arguments.back(), ranges, id, values);
    }
    for (const sym::Expr e : kernel.sizes) subject.sizes.push_back(value_of(e, values));
    for (size_t m = 0; m < kernel.messages.size(); ++m) subject.sizes.push_back(static_cast<int64_t>(m));
    subject.tasks = value_of(kernel.tasks, values);
    subject.grain = std::max<int64_t>(1, value_of(kernel.grain, values));
    subject.scratch_bytes = value_of(kernel.scratch_bytes, values);
    return subject;
  }
};

class CpuBackend : public BackendOf<CpuTarget> {
 public:
  CpuBackend(const CpuTarget& target, int threads, const codegen::cpu::BuildOptions& build)
      : BackendOf(target), threads_(threads), build_(build) {}

  Key machine() const override {
    return {.target = target_.name, .threads = threads_, .compiler = this_compiler()};
  }

  std::string problem() override {
    const auto wanted = codegen::cpu_features(target_.name),
               have = codegen::cpu_features(cpu_target("native").name);
    return std::includes(have.begin(), have.end(), wanted.begin(), wanted.end())
               ? ""
               : "this processor does not run code for " + target_.name;
  }

  std::vector<schedule::Candidate> candidates(const loop::Program& alone, const std::vector<Values>&,
                                              const loop::Schedule*) const override {
    return schedule::candidates(alone, alone.nests[0], target_);
  }

  std::vector<std::unique_ptr<Code>> build(const std::vector<Wanted>& wanted) override {
    std::vector<std::unique_ptr<Code>> all;
    std::vector<CpuCode*> emitted;
    std::vector<codegen::Kernel> kernels;
    for (const auto& [alone, schedule] : wanted) {
      auto code = std::make_unique<CpuCode>();
      try {
        code->program = *alone;
        code->ranges = loop::integer_ranges(*alone);
        code->program.nests[0].schedule = *schedule;
        schedule::pack_weights(code->program);
        schedule::order_staged_weights(code->program);
        code->kernel = codegen::cpu::emit_kernel(code->program, code->program.nests[0], target_);
        kernels.push_back(code->kernel);
        emitted.push_back(code.get());
      } catch (const Error& error) {
        code->problem = error.text;
      }
      all.push_back(std::move(code));
    }
    if (emitted.empty()) return all;
    const auto built = codegen::cpu::build_kernels(kernels, target_, build_);
    for (size_t k = 0; k < emitted.size(); ++k) {
      const auto own = static_cast<size_t>(built.uses[k][0]);
      emitted[k]->symbol = built.kernels[own].symbol;
      emitted[k]->problem = built.errors[own];
      for (const int used : built.uses[k])
        emitted[k]->objects.push_back(shared(built.kernels[static_cast<size_t>(used)]));
    }
    return all;
  }

  std::vector<Outcome> race(const std::vector<Subject>& subjects, const MeasureOptions& options) override {
    return measure(subjects, options);
  }
  bool races_runs() const override { return true; }
  int64_t rotation() const override { return 64 << 20; }
  double least_patience() const override { return 2; }

 private:
  // Candidates share micro-kernels. A measuring process may load each of them only once.
  Object shared(const codegen::cpu::BuiltKernel& kernel) {
    std::weak_ptr<const std::string>& known = objects_[kernel.symbol];
    Object object = known.lock();
    if (!object) known = object = std::make_shared<const std::string>(kernel.object);
    return object;
  }

  const int threads_;
  const codegen::cpu::BuildOptions& build_;
  std::map<std::string, std::weak_ptr<const std::string>> objects_;  // by symbol
};

}  // namespace

std::unique_ptr<Backend> cpu_backend(const CpuTarget& target, int threads,
                                     const codegen::cpu::BuildOptions& build) {
  return std::make_unique<CpuBackend>(target, threads, build);
}

}  // namespace stridec::tune
