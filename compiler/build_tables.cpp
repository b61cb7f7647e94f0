// Tables of what this build supports.
#include <algorithm>
#include <deque>
#include <span>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/compilation.h"
#include "compiler/pipeline.h"

namespace stridec {

const std::vector<Mode>& modes() {
  static const std::vector<Mode> kModes = {
      {.name = "default", .meaning = "schedules by the cost model, without measuring; suits compiling in CI"},
      {.name = "reduce-overhead",
       .meaning =
           "lowest latency of small models: idle threads stay awake for 2 ms, so that handing out work takes "
           "a fraction of a microsecond, and a kernel is split among more threads, in shares as small as "
           "a fifth of those of the other modes; on a GPU, the launches of a shape are recorded as one CUDA "
           "graph",
       .spin_us = 2000,
       .thread_cost = 5,
       .graphs = true},
      {.name = "max-autotune",
       .meaning = "several schedules of each kernel are built and measured on this machine, and the fastest "
                  "is used; the tuning database keeps the results, so that a kernel is measured once; on a "
                  "GPU, CUDA graphs",
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

bool max_autotune(const CompileOptions& options) {
  return Options(options.settings).flag("max_autotune", mode(options.mode).measure);
}

std::optional<ops::TorchGenerator> torch_random(const CompileOptions& options) {
  if (!Options(options.settings).flag("fallback_random", false)) return std::nullopt;
  if (options.training)
    fail(ErrorKind::kUsage, "bad-option", "-O fallback_random: a training step draws from its own generator");
  const Targets targets = select_targets(options.targets, options.cpus, options.gpus);
  ops::TorchGenerator out;
  if (targets.cpus.empty())
    for (const GpuTarget& gpu : targets.gpus)
      out.threads =
          std::max<int64_t>(out.threads, int64_t{gpu.multiprocessors} * (gpu.threads_sm / 256 * 256));
  return out;
}

namespace {

// Options that do not belong to a pass.
constexpr OptionInfo kOptions[] = {
    {"epilogue_fusion", "true|false", "true",
     "Fuse elementwise consumers into GEMM, convolution and attention kernels. Off: run them as kernels of "
     "their own."},
    {"max_autotune", "true|false", "as the mode says",
     "Measure the best schedules of each kernel on this machine, as --mode max-autotune does."},
    {"cudagraphs", "true|false", "as the mode says",
     "GPU: record a run as one CUDA graph for each shape (the eight used last) and launch it by one call."},
    {"fallback_random", "true|false", "false",
     "Models of PyTorch: draw the numbers of PyTorch's generator, which the state 'generator' keeps: with "
     "--target cuda alone, of that on GPUs, otherwise of that on CPUs. Off: draw those of a counter-based "
     "generator, which threads share."},
    {"symbols", "names|lines|none", "names",
     "What perf, gdb and VTune see of a CPU's code. names: functions have the names of their kernels and the "
     "numbers of 'inspect --stage=source'. lines: also lines of the sources, which go to the folder "
     "NAME.kernels next to the output. none: nothing."},
    {"trace.enabled", "true|false", "false",
     "Write a folder NAME.trace next to the output, or to the model if there is no output: each stage as "
     "'inspect --stage=STAGE' prints it, report.html with report.json, and command.sh, which repeats the "
     "command."},
    {"trace.graph_diagram", "true|false", "false",
     "Write the graph as imported to graph.svg in the same folder."},
};

// Appends a sentence that the text does not have yet.
void add_sentence(std::string& text, std::string_view sentence) {
  if (text.find(sentence) == std::string::npos) text += cat(text.empty() ? "" : " ", sentence);
}

OptionInfo info_of(std::span<const Pass> rows, std::string_view option) {
  // Kept for the life of the process.
  static std::deque<std::string> texts;
  std::string& text = texts.emplace_back();
  std::string off;
  bool cpu = false, gpu = false;
  for (const Pass& pass : rows) {
    if (pass.option != option) continue;
    cpu = cpu || pass.runs_on != RunsOn::kGpu;
    gpu = gpu || pass.runs_on == RunsOn::kGpu || pass.runs_on == RunsOn::kLoops;
    add_sentence(text, pass.summary);
    add_sentence(off, pass.off);
  }
  text = cat(cpu == gpu ? "" : cpu ? "CPU: " : "GPU: ", text, " Off: ", off);
  return {option, "true|false", "true", text};
}

}  // namespace

const std::vector<OptionInfo>& options() {
  static const std::vector<OptionInfo> kAll = [] {
    std::vector<OptionInfo> all;
    const Pipeline rows = default_pipeline();
    for (const Pass& pass : rows) {
      const auto same = [&](const OptionInfo& info) { return info.name == pass.option; };
      if (!pass.option.empty() && std::none_of(all.begin(), all.end(), same))
        all.push_back(info_of(rows, pass.option));
    }
    all.insert(all.end(), std::begin(kOptions), std::end(kOptions));
    return all;
  }();
  return kAll;
}

}  // namespace stridec
