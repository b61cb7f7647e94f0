// The tuner: finds the fastest schedule of each kernel of a program, in the database or by measuring.
//
// Kernels are equal if their canonical texts and shape buckets are equal. Each kernel that the database lacks
// gets a search (search.h), the longest-running kernel first. Kernels get time in proportion to their share
// of a run. At the end the tuned program is timed as a whole against the defaults, which are kept if it is
// not faster.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/base/target.h"
#include "compiler/codegen/cpu/build.h"
#include "compiler/loop/program.h"
#include "compiler/schedule/heuristics/choose.h"
#include "compiler/tune/database.h"
#include "compiler/tune/shapes.h"
#include "compiler/tune/trial.h"

namespace stridec::tune {

// What is not a kernel of its own, such as a nest of a tiled-and-fused group, has no database entry and keeps
// its default.
struct Options {
  Database* database = nullptr;
  bool measure = false;  // measure kernels that the database lacks; otherwise they keep their defaults
  // A kernel that the database lacks is an error (kMismatch, "not-tuned"), and so is a schedule in the
  // database that is refused ("schedule-refused"). Both name the kernel.
  bool frozen = false;
  std::vector<Sizes> shapes;  // to judge schedules at; shapes_of() adds others
  // For measuring a program. Kernels that get no time keep their defaults.
  double seconds = 45;
  int threads = 0;  // 0: as many as the process may use
  codegen::cpu::BuildOptions build;
  std::string nvrtc;  // codegen::cuda::BuildOptions
  std::function<void(size_t done, size_t total, const std::string& kernel)> progress;
  std::function<void()> before_measuring;  // may be empty; ends other work that keeps the processors busy
};

// A kernel, with all nests that are equal to it.
struct Tuned {
  enum class Origin { kDefault, kDatabase, kMeasured };
  Origin origin = Origin::kDefault;
  Entry entry;  // times 0 for kDefault
  std::vector<loop::NestId> nests;
  std::vector<Trial> trials;  // if kMeasured
  std::string refused;        // a database schedule that is not in the schedule space, and why; empty: none
  std::string nodes;          // of the first nest, for people (loop::nodes_of)
};

struct Result {
  schedule::Chosen chosen;
  std::vector<Tuned> kernels;  // in order of first launch
  std::string problem;         // why nothing was measured although it should have been, as part of a sentence
};

class Backend;

// Requires final layouts and renumbered nests (loop::renumber) without schedules. Throws Error kUsage for a
// shape that is out of range or a name that is unknown.
Result tune(const loop::Program& program, const CpuTarget& target, const Options& options);
// Measures on the first GPU that the driver lists. Without a GPU, and with Options::frozen, uses the database
// entries of any device of the target.
Result tune(const loop::Program& program, const GpuTarget& target, const Options& options);
Result tune(const loop::Program& program, Backend& backend, const Options& options);

}  // namespace stridec::tune
