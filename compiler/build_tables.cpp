// What this build can do, as tables.
#include <algorithm>

#include "compiler/base/check.h"
#include "compiler/compile.h"
#include "compiler/passes/pass_list.h"
#include "compiler/schedule/pass_list.h"

namespace stridec {

const std::vector<Mode>& modes() {
  static const std::vector<Mode> kModes = {
      {.name = "default",
       .meaning = "schedules by the analytical model, no measuring; what a compile in CI wants"},
      {.name = "reduce-overhead",
       .meaning =
           "lowest latency of small models: idle threads stay awake for 2 ms, so that handing out work takes "
           "a fraction of a microsecond, and launches a fifth as long as otherwise are shared between "
           "threads; on a GPU, the launches of a shape are recorded as one CUDA graph",
       .spin_us = 2000,
       .thread_cost = 5,
       .graphs = true},
      {.name = "max-autotune",
       .meaning = "the model's best schedules are built and measured on this machine, once for each kernel: "
                  "what the "
                  "tuning database has is taken from it, what is found goes there; on a GPU, CUDA graphs",
       .measure = true,
       .graphs = true},
      {.name = "max-autotune-no-cudagraphs", .meaning = "max-autotune without CUDA graphs", .measure = true},
  };
  return kModes;
}

const Mode& mode(std::string_view name) {
  const auto& all = modes();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Mode& m) { return m.name == name; });
  STRIDEC_CHECK(found != all.end(), std::string(name));
  return *found;
}

const std::vector<OptionInfo>& options() {
  // Options that are named like passes turn these off.
  static const std::vector<OptionInfo> kOptions = {
      {"storage", "true|false", "true",
       "on a GPU with --precision: what kernels pass on is stored in the narrow type; off: in f32"},
      {"winograd", "true|false", "true",
       "3x3 convolutions with fewer multiplications and larger rounding errors (up to 2e-5 of the largest "
       "result)"},
      {"chains", "true|false", "true",
       "attention and its kin as one kernel that keeps rows of scores in cache; off: three kernels"},
      {"groups", "true|false", "true",
       "on a GPU: attention of one query where heads share keys is one kernel, whose blocks share the keys; "
       "off: three"},
      {"words", "true|false", "true",
       "on a GPU: weights of two, four or eight bits stay as small as they are; off: floats, ahead of the "
       "run"},
      {"products", "true|false", "true",
       "on a GPU: products of one row by weights take in the norm before them and the product beside them; "
       "off: kernels of "
       "their own"},
      {"shape_padding", "true|false", "true",
       "on a GPU: rows of matrices that products read begin at multiples of 16 bytes, if need be in copies; "
       "off: as the "
       "model's sizes say"},
      {"joins", "true|false", "true",
       "small kernels one after the other are one (on a CPU those over the same dims); off: one each"},
      {"results", "true|false", "true",
       "on a GPU: products of one row by weights take in the small kernel behind them; off: a kernel of its "
       "own"},
      {"strips", "true|false", "true",
       "products between transforms, and convolutions one after the other, work in strips that stay in a "
       "thread's cache; "
       "off: what passes between them is whole buffers"},
      {"narrow_products", "true|false", "true",
       "products of one value with several weights become one where they share enough (CPU); off: each by "
       "itself"},
      {"prologue_fusion", "true|false", "true",
       "what makes a product's rows element by element runs where the product copies them (CPU); off: a "
       "kernel of its own"},
      {"slices", "true|false", "true",
       "what several concatenations hold, or one of another, is stored once; off: in each of them"},
      {"epilogue_fusion", "true|false", "true",
       "what is made of the result of a matrix product, a convolution or attention joins its kernel; off: a "
       "kernel of "
       "its own"},
      {"cudagraphs", "true|false", "as the mode says",
       "runs on a GPU are recorded as a CUDA graph for each shape (the eight used last), and enqueued by one "
       "call"},
  };
  return kOptions;
}

const std::vector<PassInfo>& pass_table() {
  static const std::vector<PassInfo> kPasses = [] {
    std::vector<PassInfo> all;
    append_info(all, passes::graph_passes());
    append_info(all, passes::precision_passes());
    append_info(all, schedule::loop_passes());
    append_info(all, schedule::cpu_loop_passes());
    append_info(all, schedule::cpu_passes());
    append_info(all, schedule::cpu_memory_passes());
    append_info(all, schedule::gpu_loop_passes());
    append_info(all, schedule::gpu_passes());
    return all;
  }();
  return kPasses;
}

}  // namespace stridec
