#include "cli/gpu_profile.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "compiler/base/diagnostic.h"
#include "compiler/base/files.h"
#include "compiler/base/text.h"
#include "compiler/loop/provenance.h"

namespace stridec::cli {
namespace {

// The steps of each symbol's kernels, in their order within a run.
using Steps = std::map<std::string, std::vector<const GpuRecorder::Kernel*>>;

[[noreturn]] void differ(const std::string& how) {
  fail(ErrorKind::kUnsupported, "cupti",
       cat("the kernels that CUPTI recorded are not those of the runs: ", how),
       "without --cupti kernels are launched one by one, and timed by the driver's events");
}

}  // namespace

void GpuRecorder::sink(void* user, const stridec_event* event) {
  auto& self = *static_cast<GpuRecorder*>(user);
  if (event->kind != STRIDEC_EVENT_KERNEL) return;
  if (event->ends)
    self.runs_[event->run].push_back({event->step, event->part, self.begin_, event->time - self.begin_});
  else
    self.begin_ = event->time;
}

Samples kernel_samples(const std::map<int64_t, GpuRecorder::Run>& runs, const std::vector<double>& seconds) {
  Samples samples;
  for (size_t i = 0; i < seconds.size(); ++i) {
    int64_t in_kernels = 0;
    if (const auto run = runs.find(static_cast<int64_t>(i)); run != runs.end())
      for (const GpuRecorder::Kernel& kernel : run->second) {
        std::vector<int64_t>& calls = samples.of_steps[kernel.step];
        if (kernel.launch == 0 || calls.empty()) calls.push_back(0);
        calls.back() += kernel.nanoseconds;
        in_kernels += kernel.nanoseconds;
      }
    // The driver gives times as floats: those of the kernels may be more than their sum.
    samples.runs.push_back(std::max(in_kernels, static_cast<int64_t>(seconds[i] * 1e9)));
    samples.between.push_back(samples.runs.back() - in_kernels);
  }
  return samples;
}

std::map<int64_t, GpuRecorder::Run> steps_of_kernels(const std::vector<Cupti::Kernel>& recorded,
                                                     const std::vector<Cupti::Kernel>& reference,
                                                     const GpuRecorder::Run& known, size_t runs) {
  if (reference.size() != known.size())
    differ(cat("it has ", reference.size(), " of a run with ", known.size()));
  if (recorded.size() != runs * known.size())
    differ(cat("it has ", recorded.size(), " of ", runs, " runs with ", known.size(), " each"));
  Steps steps;
  for (size_t i = 0; i < known.size(); ++i) steps[reference[i].symbol].push_back(&known[i]);
  std::map<int64_t, GpuRecorder::Run> out;
  for (size_t run = 0; run < runs && !known.empty(); ++run) {
    std::map<std::string, size_t> used;
    int64_t end = 0;
    GpuRecorder::Run& kernels = out[static_cast<int64_t>(run)];
    for (size_t i = 0; i < known.size(); ++i) {
      const Cupti::Kernel& kernel = recorded[run * known.size() + i];
      const auto of = steps.find(kernel.symbol);
      const size_t number = used[kernel.symbol]++;
      if (of == steps.end() || number >= of->second.size())
        differ(cat("run ", run, " has another ", kernel.symbol));
      const int64_t begin = std::max(kernel.begin, end);
      end = std::max(end, kernel.end);
      kernels.push_back({of->second[number]->step, of->second[number]->launch, begin, end - begin});
    }
  }
  return out;
}

void add_to_trace(const std::string& path, const std::map<int64_t, GpuRecorder::Run>& runs, int64_t to_host,
                  const std::vector<std::string>& names, const std::map<int, StepFacts>& facts) {
  using Json = nlohmann::ordered_json;
  constexpr int64_t kThread = 2'000'000'000;  // neither of a thread nor of the runtime's streams
  Json events = Json::parse(read_file(path));
  const Json process = events.at(0).at("pid");
  const auto add = [&](Json event) {
    event["pid"] = process;
    event["tid"] = kThread;
    events.push_back(std::move(event));
  };
  add({{"name", "thread_name"}, {"ph", "M"}, {"args", {{"name", "kernels, by CUPTI"}}}});
  for (const auto& [number, run] : runs)
    for (const GpuRecorder::Kernel& kernel : run) {
      const auto known = facts.find(kernel.step);
      const std::string nodes = known == facts.end() ? "" : loop::nodes_of(known->second.nodes);
      const auto name = static_cast<size_t>(kernel.step);
      add({{"cat", "kernel"},
           {"ph", "X"},
           {"ts", static_cast<double>(kernel.begin + to_host) * 1e-3},
           {"dur", static_cast<double>(kernel.nanoseconds) * 1e-3},
           {"name", name < names.size() ? names[name] : ""},
           {"args", {{"step", kernel.step}, {"nodes", nodes}, {"run", number}}}});
    }
  std::string text;
  for (const Json& event : events)
    text += cat(text.empty() ? "[" : ",\n", event.dump(-1, ' ', false, Json::error_handler_t::replace));
  write_file(path, text + "]");
}

}  // namespace stridec::cli
