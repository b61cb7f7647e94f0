// Built kernels timed against each other in a child process: a crash or a hang is a result like any other.
//
// Every round runs each kernel that is still in the race once (short ones several times), in an order that moves by one
// each round, so that drifts of the machine and what the kernel before leaves in caches meet all of them; a call takes what its longest part took of its thread, without what other processes took;
// and the figure of a kernel is the median over rounds of its time relative to the first
// kernel's in the same round. Memory is as in a run of the model: weights lie somewhere else at every call, as many
// as the model has up to twice the last-level cache; what other kernels would just have made stays where it is.
//
// On a GPU a round runs each kernel many times, one launch behind the other as a graph's are, between two events of
// the device; and before the first round it runs once on fresh memory, whose contents have to be the first kernel's.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "compiler/base/dtype.h"
#include "compiler/loop/program.h"
#include "runtime/include/stridec/abi.h"

namespace stridec::tune {

struct Subject {
  struct Argument {
    int64_t bytes = 0;
    DType dtype = DType::kF32;
    bool weight = false;
    bool written = false;        // on a GPU: compared with what the first subject writes
    loop::WeightData data = {};  // of a weight on a GPU, in the layout that the schedule wants
  };
  std::vector<const std::string*> objects;  // the kernel's and those of what it calls
  std::string symbol;
  std::vector<Argument> arguments;  // buffers, in the kernel's order
  std::vector<int64_t> sizes;
  int64_t tasks = 0, grain = 1, scratch_bytes = 0;

  // Of a GPU instead of objects, symbol, sizes, tasks and what follows them: launches, one after the other.
  struct Map {
    int32_t argument = 0;
    stridec_abi_tensor_map map = {};  // `address`: bytes from the argument's start
  };
  struct Launch {
    std::string symbol, image;
    int32_t threads = 0, cluster = 1;
    bool dynamic_shared = false, dependent = false, fails = false;
    std::array<int64_t, 3> grid = {};
    int64_t shared_bytes = 0, workspace_bytes = 0, counter_bytes = 0;
    std::vector<int32_t> arguments;  // the first words of its parameters are where these lie
    std::vector<int64_t> words;      // the others
    std::vector<Map> maps;
  };
  std::vector<Launch> launches;

  // Or a run on the CPU, timed as one: kernels, and the order in which they are called.
  std::vector<Subject> kernels;
  std::vector<size_t> order;  // into `kernels`
};

struct Outcome {
  enum class Kind {
    kTimed,
    kCrashed,  // a signal ended the process; on a GPU, a fault after which the driver does nothing more
    kHung,     // no answer within MeasureOptions::hang_seconds
    kFailed,   // no code (it did not link), or a check on data failed: the data are made up
    kWrong,    // other results than the first subject's, beyond rounding (on a GPU)
  };
  Kind kind = Kind::kFailed;
  std::string reason;  // of other kinds than kTimed
  double seconds = 0;  // of one call: the first subject's median times `ratio`
  double ratio = 1;    // to the first subject, median over rounds
  double noise = 0;    // standard error of ratio
  int rounds = 0;      // a subject that was clearly slower has fewer
};

struct MeasureOptions {
  int threads = 1;
  int64_t rotate_bytes = 0;  // of weights, before the same are used again
  double seconds = 0.5;      // for all subjects together, but three rounds at least
  double hang_seconds = 5;   // for one call
  int most_rounds = 25;
};

class Gpu;

// One outcome for each subject, which are all code for the CPU, or all for this GPU. Arrays of numbers are filled with random values in [-1, 1], of integers with
// zeros, which are valid indices wherever there are any.
std::vector<Outcome> measure(const std::vector<Subject>& subjects, const MeasureOptions& options,
                             Gpu* gpu = nullptr);

// Median, and its standard error from the median deviation.
struct Estimate {
  double median = 0, error = 0;
};
Estimate estimate(std::vector<double> samples);

}  // namespace stridec::tune
