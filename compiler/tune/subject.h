// The subject of a measurement, its options, and its outcome. measure.h describes the method.
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
    loop::WeightData data = {};   // weights on a GPU, in the layout of the schedule
    int64_t least = 0, most = 0;  // range of the integers that it is filled with
  };
  // Arguments with equal content may share one array.
  using Content = std::tuple<DType, int64_t, int64_t, int64_t>;
  static Content content_of(const Argument& a) { return {a.dtype, a.bytes, a.least, a.most}; }

  std::vector<const std::string*> objects;  // of the kernel and of the functions it calls
  std::string symbol;
  std::vector<Argument> arguments;  // buffers, in the kernel's order
  std::vector<int64_t> sizes;
  int64_t tasks = 0, grain = 1, scratch_bytes = 0;

  // On a GPU: launches, in order, instead of objects, symbol, sizes and tasks.
  struct Map {
    int32_t argument = 0;
    stridec_abi_tensor_map map = {};  // `address`: byte offset from the argument's start
  };
  struct Launch {
    std::string symbol, image;
    int32_t threads = 0, cluster = 1;
    bool dynamic_shared = false, dependent = false, fails = false;
    std::array<int64_t, 3> grid = {};
    int64_t shared_bytes = 0, workspace_bytes = 0, counter_bytes = 0;
    std::vector<int32_t> arguments;  // arguments whose addresses are the first words of the parameters
    std::vector<int64_t> words;      // the other words
    std::vector<Map> maps;
  };
  std::vector<Launch> launches;

  // Alternatively a run on the CPU, timed as a whole: kernels, and the order of their calls.
  std::vector<Subject> kernels;
  std::vector<size_t> order;  // into `kernels`
};

struct Outcome {
  enum class Kind {
    kTimed,
    // A signal ended the process; on a GPU, a fault after which the driver accepts no more work.
    kCrashed,
    kHung,  // no answer within MeasureOptions::hang_seconds
    // There is no code (it did not link), or a check on data failed, which is possible because the data are
    // synthetic.
    kFailed,
    kWrong,  // results differ from the first subject's by more than rounding (on a GPU)
  };
  Kind kind = Kind::kFailed;
  std::string reason;  // unless kTimed
  double seconds = 0;  // of one call: the first subject's median times `ratio`
  double ratio = 1;    // relative to the first subject, median over rounds
  double noise = 0;    // standard error of ratio
  int rounds = 0;      // a subject that is clearly slower leaves the race early
};

struct MeasureOptions {
  int threads = 1;
  int64_t rotate_bytes = 0;  // bytes of weights that are cycled through
  double seconds = 0.5;      // for all subjects together; at least three rounds
  double hang_seconds = 5;   // per call
  int most_rounds = 25;
};

}  // namespace stridec::tune
