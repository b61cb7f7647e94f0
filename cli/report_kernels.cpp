#include "cli/report_kernels.h"

#include <algorithm>
#include <map>

#include "compiler/base/text.h"
#include "compiler/loop/kernels.h"
#include "compiler/loop/origin.h"
#include "compiler/loop/text.h"
#include "compiler/schedule/analysis/typical.h"
#include "compiler/sym/text.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;

// The text of the kernel that runs the nest, in the first CPU variant; "" if there is none.
std::string source_of(const Compilation& made, size_t function, loop::NestId nest) {
  size_t variant = 0;
  for (size_t f = 0; f < function; ++f) variant += made.functions[f].variants.size();
  if (!made.functions[function].gpu_variants.empty() || variant >= made.built.launches.size()) return "";
  const auto& launches = made.built.launches[variant];
  const auto at = static_cast<size_t>(nest.value);
  if (at >= launches.size() || launches[at].kernel < 0) return "";
  return made.built.kernels[static_cast<size_t>(launches[at].kernel)].text;
}

// The nests before fusion, by the node that each computes.
using NestsOfNodes = std::map<std::string, std::vector<size_t>>;

NestsOfNodes nests_of_nodes(const loop::Program& loops) {
  NestsOfNodes nests;
  for (size_t i = 0; i < loops.nests.size(); ++i)
    for (const std::string& node : loops.nests[i].nodes) nests[node].push_back(i);
  return nests;
}

Json loops_before(const loop::Program& loops, const NestsOfNodes& of, const loop::Kernel& kernel) {
  std::vector<size_t> nests;
  for (const std::string& node : kernel.nodes)
    if (const auto found = of.find(node); found != of.end())
      nests.insert(nests.end(), found->second.begin(), found->second.end());
  std::ranges::sort(nests);
  const auto again = std::ranges::unique(nests);
  nests.erase(again.begin(), again.end());
  Json texts = Json::array();
  for (const size_t nest : nests) texts.push_back(loop::to_string(loops, loops.nests[nest]));
  return texts;
}

// The pairs of kernels that stayed separate, by the name of either.
std::map<std::string, Json> refusals_of(const Json& schedule) {
  std::map<std::string, Json> all;
  for (const Json& pair : schedule["separate"])
    for (const auto& [self, other] : {std::pair("producer", "consumer"), std::pair("consumer", "producer")}) {
      Json& list = all.try_emplace(pair[self].get<std::string>(), Json::array()).first->second;
      list.push_back({{"other", pair[other]},
                      {"other_is", other},
                      {"nodes", pair[cat(other, "_nodes")]},
                      {"reasons", pair["reasons"]},
                      {"typical_bytes", pair["typical_bytes"]},
                      {"times", pair["times"]}});
    }
  return all;
}

Json json_of(const tune::Tuned& tuned) {
  Json json = {{"from", tuned.origin == tune::Tuned::Origin::kMeasured ? "measuring" : "database"},
               {"shape", tuned.entry.key.shape},
               {"microseconds", tuned.entry.microseconds},
               {"default_microseconds", tuned.entry.default_microseconds},
               {"schedules_tried", tuned.entry.tried},
               {"trials", Json::array()}};
  for (const tune::Trial& trial : tuned.trials) {
    Json row = {{"schedule", trial.schedule}, {"expected", trial.expected}, {"ratios", trial.ratios}};
    if (!trial.problem.empty()) row["problem"] = trial.problem;
    json["trials"].push_back(std::move(row));
  }
  return json;
}

// What the best variant's kernels were tuned to, by nest.
std::map<loop::NestId, const tune::Tuned*> tuned_nests(const FunctionResult& made) {
  std::map<loop::NestId, const tune::Tuned*> all;
  if (made.tuned.empty()) return all;
  for (const tune::Tuned& kernel : made.tuned.front())
    if (kernel.origin != tune::Tuned::Origin::kDefault)
      for (const loop::NestId nest : kernel.nests) all[nest] = &kernel;
  return all;
}

Json costs_of(const loop::Program& program, const loop::KernelRow& row) {
  const sym::Expr bytes = row.cost.bytes_read + row.cost.bytes_written;
  Json kernel = {{"name", row.first().name},
                 {"steps", Json::array()},
                 {"schedule", row.first().schedule},
                 {"flops", sym::to_string(row.cost.flops)},
                 {"bytes", sym::to_string(bytes)},
                 {"typical_flops", schedule::typical(row.cost.flops, program.facts)},
                 {"typical_bytes", schedule::typical(bytes, program.facts)},
                 {"nodes", row.nodes}};
  for (const loop::Kernel* launch : row.launches) kernel["steps"].push_back(launch->step);
  return kernel;
}

}  // namespace

Json report_kernels(const Compilation& made, size_t function, const Json& schedule, bool sources) {
  const FunctionResult& result = made.functions[function];
  const loop::Program& program = *result.programs().front();
  const std::vector<loop::Kernel> all = loop::kernels_of(program);
  const NestsOfNodes before = sources ? nests_of_nodes(result.loops) : NestsOfNodes();
  const std::map<std::string, Json> refusals = refusals_of(schedule);
  const std::map<loop::NestId, const tune::Tuned*> tuned = tuned_nests(result);
  Json kernels = Json::array();
  for (const loop::KernelRow& row : loop::rows_of(program, all)) {
    Json kernel = costs_of(program, row);
    // The rows of both are loop::rows_of.
    const Json& scheduled = schedule["kernels"][kernels.size()];
    kernel["choices"] = scheduled["nests"];
    kernel["work"] = scheduled["work"];
    if (const auto pairs = refusals.find(row.first().name); pairs != refusals.end())
      kernel["refusals"] = pairs->second;
    if (const auto found = tuned.find(row.first().nests.front()); found != tuned.end())
      kernel["tuning"] = json_of(*found->second);
    if (sources) kernel["loops_before"] = loops_before(result.loops, before, row.first());
    for (const loop::NestId nest : sources ? row.first().nests : std::vector<loop::NestId>()) {
      kernel["loops"].push_back(loop::to_string_with_origins(program, program[nest]));
      if (std::string text = source_of(made, function, nest); !text.empty())
        kernel["source"].push_back(std::move(text));
    }
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

}  // namespace stridec::cli
