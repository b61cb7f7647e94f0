// The tuner: for each kernel of a program the schedule that measures best, from the database or by measuring.
//
// Kernels are equal where their canonical texts and shape buckets are. For each one that the database lacks, the
// candidates of schedule/candidates.h are tried a few at a time, families first, then variations of the best: those
// that might beat it by more than noise, as far as the model and its errors so far (forecast.h) can tell. The search
// of a kernel ends where there is no such candidate, or its share of the time is used up: time goes to kernels by
// their part of a run.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "compiler/base/target.h"
#include "compiler/codegen/cpu/build.h"
#include "compiler/loop/program.h"
#include "compiler/schedule/choose.h"
#include "compiler/tune/database.h"

namespace stridec::tune {

struct Options {
  Database* database = nullptr;
  bool measure = false;  // what the database lacks; else it keeps its default
  bool frozen = false;   // what the database lacks is an error (kMismatch, "not-tuned"), naming the kernel
  // Values of symbols by name. Others: the leading dim of an input without an upper bound is at its least (one
  // request at a time), the rest as in cost models (schedule::typical).
  std::map<std::string, int64_t> shape;
  double seconds = 45;  // for measuring a program; a search in progress is not cut short
  int threads = 0;      // 0: as many as the process may use
  codegen::cpu::BuildOptions build;
  std::function<void(size_t done, size_t total, const std::string& kernel)> progress;
};

// A kernel, however often it is launched.
struct Tuned {
  enum class Origin { kDefault, kDatabase, kMeasured };
  Origin origin = Origin::kDefault;
  Entry entry;  // times 0 for kDefault
  std::vector<loop::NestId> nests;
  // "crashed: signal 11 (Segmentation fault): <schedule>": candidates that did not get a time.
  std::vector<std::string> remarks;
};

struct Result {
  schedule::Chosen chosen;
  std::vector<Tuned> kernels;  // by first launch
};

// Layouts are final, nests renumbered (loop::renumber) and not yet scheduled. Throws Error kUsage for a shape
// outside of its range or of an unknown name.
Result tune(const loop::Program& program, const CpuTarget& target, const Options& options);

// Whether this machine can run code for the target.
bool can_run(const CpuTarget& target);

}  // namespace stridec::tune
