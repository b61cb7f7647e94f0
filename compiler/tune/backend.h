// What the tuner needs from a kind of target: its schedule space, code for a schedule, and races.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/base/target.h"
#include "compiler/codegen/cpu/build.h"
#include "compiler/codegen/cuda/build.h"
#include "compiler/loop/program.h"
#include "compiler/loop/value_range.h"
#include "compiler/schedule/heuristics/candidates.h"
#include "compiler/tune/database.h"
#include "compiler/tune/measure.h"

namespace stridec::tune {

using Values = std::function<std::optional<int64_t>(sym::Expr)>;  // of symbols

// The program reduced to one nest, with no schedule.
loop::Program only_nest(const loop::Program& program, loop::NestId nest);

// The built code of a nest with a schedule.
struct Code {
  virtual ~Code() = default;
  // The subject to measure at the given sizes. Throws Error if a size has no value.
  virtual Subject subject_at(const Values& values) const = 0;
  std::string problem;  // why there is no code; "": there is
};

class Backend {
 public:
  struct Wanted {
    const loop::Program* alone;  // result of only_nest()
    const loop::Schedule* schedule;
  };

  virtual ~Backend() = default;
  // The target, device, threads and compiler in the keys of measurements made here. Without a device the key
  // matches any.
  virtual Key machine() const = 0;
  // Why this machine cannot run the code, as part of a sentence; "": it can. Opens the GPU to find out.
  virtual std::string problem() = 0;
  // `around`: null, or one of these candidates; the space is then formed around it and may contain others.
  virtual std::vector<schedule::Candidate> candidates(const loop::Program& alone,
                                                      const std::vector<Values>& shapes,
                                                      const loop::Schedule* around) const = 0;
  virtual loop::Schedule default_schedule(const loop::Program& alone) const = 0;
  virtual std::string refusal(const loop::Program& program, const loop::Nest& nest,
                              const loop::Schedule& schedule) const = 0;
  // Builds all of them together.
  virtual std::vector<std::unique_ptr<Code>> build(const std::vector<Wanted>& wanted) = 0;
  virtual std::vector<Outcome> race(const std::vector<Subject>& subjects, const MeasureOptions& options) = 0;
  virtual bool races_runs() const { return false; }  // Subject::kernels
  virtual int64_t rotation() const = 0;              // bytes of weights that evict all caches
  virtual double least_patience() const = 0;         // silence of this many seconds is not yet a hang
};

// Uses the schedule space that the schedule layer has for the kind of target.
template <typename Target>
class BackendOf : public Backend {
 public:
  loop::Schedule default_schedule(const loop::Program& alone) const override {
    return schedule::default_schedule(alone, alone.nests[0], target_);
  }
  std::string refusal(const loop::Program& program, const loop::Nest& nest,
                      const loop::Schedule& schedule) const override {
    return schedule::refusal(program, nest, target_, schedule);
  }

 protected:
  explicit BackendOf(const Target& target) : target_(target) {}
  const Target& target_;
};

std::unique_ptr<Backend> cpu_backend(const CpuTarget& target, int threads,
                                     const codegen::cpu::BuildOptions& build);
std::unique_ptr<Backend> gpu_backend(const GpuTarget& target, const codegen::cuda::BuildOptions& build);

// The value of one of a kernel's sizes. Throws Error if it has none.
int64_t value_of(sym::Expr e, const Values& values);

// Ranges of the integer arguments of a kernel, so that indices are within bounds.
using Ranges = std::map<loop::BufferId, loop::ValueRange>;
void set_range(Subject::Argument& argument, const Ranges& ranges, loop::BufferId id, const Values& values);

}  // namespace stridec::tune
