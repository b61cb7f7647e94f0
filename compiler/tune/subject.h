// What is measured, how, and what came of it. measure.h says how it is done.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <tuple>
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
    bool written = false;         // on a GPU: compared with what the first subject writes
    loop::WeightData data = {};   // of a weight on a GPU, in the layout that the schedule wants
    int64_t least = 0, most = 0;  // the range of integers that it is filled with
  };
  // Arguments of equal content may be one array.
  using Content = std::tuple<DType, int64_t, int64_t, int64_t>;
  static Content content_of(const Argument& a) { return {a.dtype, a.bytes, a.least, a.most}; }

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

}  // namespace stridec::tune
