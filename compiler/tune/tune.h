// The tuner: for each kernel of a program the schedule that measures best, from the database or by measuring.
//
// Kernels are equal where their canonical texts and shape buckets are. For each one that the database lacks there is a
// search (search.h), the longest first; time goes to kernels by their part of a run. In the end all that was found runs as
// a whole against the defaults, which hold where it is not faster.
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

// What is no kernel of its own, like a nest that strips run, has no entry in the database and its default always.
struct Options {
  Database* database = nullptr;
  bool measure = false;       // what the database lacks; else it keeps its default
  bool frozen = false;        // what the database lacks is an error (kMismatch, "not-tuned"), and so is a
                              // schedule in it that is refused ("schedule-refused"); both name the kernel
  std::vector<Sizes> shapes;  // to judge schedules at; shapes_of() says at which others
  double seconds = 45;        // for measuring a program; kernels whose turn does not come keep their defaults
  int threads = 0;            // 0: as many as the process may use
  codegen::cpu::BuildOptions build;
  std::string nvrtc;  // codegen::cuda::BuildOptions
  std::function<void(size_t done, size_t total, const std::string& kernel)> progress;
  std::function<void()> before_measuring;  // may be empty; ends what else keeps the processors busy
};

// A kernel, however often it is launched.
struct Tuned {
  enum class Origin { kDefault, kDatabase, kMeasured };
  Origin origin = Origin::kDefault;
  Entry entry;  // times 0 for kDefault
  std::vector<loop::NestId> nests;
  std::vector<Trial> trials;  // of kMeasured
  std::string refused;        // the database's schedule that is not in the space, and why; empty: none
  std::string nodes;          // of the first nest, for people (loop::nodes_of)
};

struct Result {
  schedule::Chosen chosen;
  std::vector<Tuned> kernels;  // by first launch
  std::string problem;         // why what should have been measured was not, as part of a sentence
};

class Backend;

// Layouts are final, nests renumbered (loop::renumber) and not yet scheduled. Throws Error kUsage for a shape
// outside of its range or of an unknown name.
Result tune(const loop::Program& program, const CpuTarget& target, const Options& options);
// On the first GPU that the driver lists. Without one, and with Options::frozen, what any device of the target was
// measured to run best with holds.
Result tune(const loop::Program& program, const GpuTarget& target, const Options& options);
Result tune(const loop::Program& program, Backend& backend, const Options& options);

}  // namespace stridec::tune
