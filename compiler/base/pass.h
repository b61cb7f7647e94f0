// Passes as data: what a pass is, what it may read, and the runner that dumps, stops, times and verifies.
//
// A layer lists its passes as an array of Pass; compiler/pipeline.cpp concatenates the arrays. The types that
// a pass works on belong to higher layers and are only forward-declared here.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "compiler/base/dtype.h"
#include "compiler/base/options.h"

namespace stridec {

namespace graph {
struct Graph;
}
namespace loop {
struct Program;
}
namespace schedule {
struct Chosen;
struct Decision;
struct Scratch;
}  // namespace schedule
struct CpuTarget;
struct GpuTarget;
struct Module;  // compiler/pipeline.h: all results of a compilation so far

// What a pass may read, in addition to the IR that it changes.
struct PassContext {
  const Options& options;
  DType factors = DType::kF32;               // the type that --precision gives to GEMM operands
  bool any_gpu = false;                      // whether a GPU is among the targets
  bool graphs = false;                       // whether a GPU's launches are recorded as CUDA graphs
  const CpuTarget* cpu = nullptr;            // of the current variant, for RunsOn::kCpu
  const GpuTarget* gpu = nullptr;            // likewise, for RunsOn::kGpu
  const schedule::Chosen* chosen = nullptr;  // schedules of the variant that replace the default ones
  std::vector<schedule::Scratch>* scratch = nullptr;     // per-thread memory of the variant's kernels
  std::vector<schedule::Decision>* decisions = nullptr;  // records decisions; null: they are not recorded
};

// The IR that a pass runs on, once for each.
enum class RunsOn {
  kGraph,     // the graph
  kLoops,     // the loop programs common to all targets, including those for --specialize
  kCpuLoops,  // the same, if a CPU is among the targets
  kCpu,       // the program of each CPU variant
  kGpu,       // the program of each GPU variant
  kArtifact,  // no IR: kernels, the host program, the library
};

// A pass changes its IR in place, or throws Error. Names are unique.
struct Pass {
  using OnGraph = void (*)(graph::Graph&, const PassContext&);
  using OnProgram = void (*)(loop::Program&, const PassContext&);
  // Creates the IRs of runs_on, or works on all of them at once.
  using OnModule = void (*)(Module&, const PassContext&);

  std::string_view name;
  std::string_view stage;  // name of the stage in progress reports and tables
  RunsOn runs_on;
  std::string_view summary;
  std::variant<OnGraph, OnProgram, OnModule> run;
  std::string_view option = {};  // the -O option that disables it; "": it always runs
  std::string_view off = {};     // the effect of disabling it, as a sentence
  // Whether it leaves nests and buffers of a program that no step reaches; the runner removes them. It does
  // not do so after other passes: new buffers are named by the number of buffers, so that a further removal
  // would rename those of later passes.
  bool leaves_dead = false;
};

using Pipeline = std::vector<Pass>;

struct PassTime {
  std::string_view stage, name;
  int runs = 0;
  double seconds = 0, verifying = 0;
};

struct PassDump {
  size_t ordinal;  // index of the pass among those that ran, starting at 1
  std::string_view name;
  std::string variant;  // which of several programs: "znver4"
  std::string text;
};

#ifdef NDEBUG
inline constexpr bool kVerifyEachPass = false;
#else
inline constexpr bool kVerifyEachPass = true;
#endif

struct PassOptions {
  bool verify_each = kVerifyEachPass;   // false: verify the IR only at the end of each stage
  std::vector<std::string> dump_after;  // names of passes, or "all"
  std::string stop_after;               // a pass's name; "": none
  std::function<void(const PassDump&)> dump;
};

// How to verify and print an IR.
template <class Ir>
struct IrHooks {
  void (*verify)(const Ir& ir, std::string_view after);  // throws Error kInternal
  std::string (*print)(const Ir& ir);
};

class PassRunner {
 public:
  using Tell = std::function<void(std::string_view stage, size_t done, size_t total, std::string_view what)>;
  explicit PassRunner(PassOptions options, Tell tell = {});

  // `at` of `of`: position of the pass in its stage. Returns false if an option disables the pass.
  bool begin(const Pass& pass, const PassContext& context, size_t at, size_t of);
  // Records that the pass has changed the IR. `ends_stage`: no later pass of this stage changes this IR.
  template <class Ir>
  void changed(const Pass& pass, const Ir& ir, const std::string& variant, const IrHooks<Ir>& hooks,
               bool ends_stage) {
    took(pass, &PassTime::seconds);
    if (wants_dump(pass.name)) options_.dump({ordinal_, pass.name, variant, hooks.print(ir)});
    start_ = Clock::now();
    if (!ends_stage && !options_.verify_each && !stops_after(pass)) return;
    hooks.verify(ir, pass.name);
    took(pass, &PassTime::verifying);
  }
  // The same for RunsOn::kArtifact.
  void changed(const Pass& pass) { took(pass, &PassTime::seconds); }
  bool stops_after(const Pass& pass) const { return pass.name == options_.stop_after; }

  // In order of first run.
  const std::vector<PassTime>& times() const { return times_; }

 private:
  bool wants_dump(std::string_view name) const;
  void took(const Pass& pass, double PassTime::* what);

  using Clock = std::chrono::steady_clock;
  PassOptions options_;
  Tell tell_;
  Clock::time_point start_ = Clock::now();
  std::vector<PassTime> times_;
  size_t ordinal_ = 0;
};

}  // namespace stridec
