// Passes as data: what a pass is, what it may look at, and the runner that dumps, stops, times and verifies.
//
// A layer lists its passes as an array of Pass; compiler/pipeline.cpp joins the arrays. The types that a pass works on belong
// to higher layers and are only named here.
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
struct Module;  // compiler/pipeline.h: all that a compilation has made so far

// What a pass may look at beside the IR that it changes.
struct PassContext {
  const Options& options;
  DType factors = DType::kF32;               // the type that --precision gives to GEMM operands
  const CpuTarget* cpu = nullptr;            // of the variant at hand, for RunsOn::kCpu
  const GpuTarget* gpu = nullptr;            // likewise, for RunsOn::kGpu
  const schedule::Chosen* chosen = nullptr;  // schedules of the variant that replace the default ones
  std::vector<schedule::Scratch>* scratch = nullptr;     // per-thread memory of the variant's kernels
  std::vector<schedule::Decision>* decisions = nullptr;  // where decisions are recorded; null: nowhere
};

// Which IR a pass runs on, once for each.
enum class RunsOn {
  kGraph,     // the graph
  kLoops,     // the loop program of every target, and those for --specialize
  kCpuLoops,  // the same where a CPU is among the targets
  kCpu,       // the program of each CPU variant
  kGpu,       // the program of each GPU variant
  kArtifact,  // no IR: kernels, the host program, the library
};

// A row: changes its IR in place, or throws Error. Names are unique.
struct Pass {
  using OnGraph = void (*)(graph::Graph&, const PassContext&);
  using OnProgram = void (*)(loop::Program&, const PassContext&);
  using OnModule = void (*)(Module&,
                            const PassContext&);  // makes the IRs of runs_on, or works on all of them at once

  std::string_view name;
  std::string_view stage;  // as progress and tables call it
  RunsOn runs_on;
  std::string_view summary;
  std::variant<OnGraph, OnProgram, OnModule> run;
  std::string_view option = {};  // the -O option that turns it off; "": it always runs
  std::string_view off = {};     // what the program then is, as a sentence
};

using Pipeline = std::vector<Pass>;

struct PassTime {
  std::string_view stage, name;
  int runs = 0;
  double seconds = 0, verifying = 0;
};

struct PassDump {
  size_t ordinal;  // of the pass among those that ran, from 1
  std::string_view name;
  std::string variant;  // of several programs, which one: "znver4"
  std::string text;
};

#ifdef NDEBUG
inline constexpr bool kVerifyEachPass = false;
#else
inline constexpr bool kVerifyEachPass = true;
#endif

struct PassOptions {
  bool verify_each = kVerifyEachPass;   // false: the IR is verified where a stage ends
  std::vector<std::string> dump_after;  // names of passes, or "all"
  std::string stop_after;               // a pass's name; "": none
  std::function<void(const PassDump&)> dump;
};

// How an IR is verified and printed.
template <class Ir>
struct IrHooks {
  void (*verify)(const Ir& ir, std::string_view after);  // throws Error kInternal
  std::string (*print)(const Ir& ir);
};

class PassRunner {
 public:
  using Tell = std::function<void(std::string_view stage, size_t done, size_t total, std::string_view what)>;
  explicit PassRunner(PassOptions options, Tell tell = {});

  // `at` of `of`: the place of the row among those of its stage. False: an option turns the pass off.
  bool begin(const Pass& pass, const PassContext& context, size_t at, size_t of);
  // The pass has changed the IR. `ends_stage`: nothing else changes it in this stage.
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
