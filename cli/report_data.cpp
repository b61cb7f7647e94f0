#include "cli/report_data.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "cli/diagram.h"
#include "cli/inspect_schedule.h"
#include "cli/memory_stage.h"
#include "cli/node_fates.h"
#include "cli/report_kernels.h"
#include "cli/report_measured.h"
#include "compiler/base/number.h"
#include "compiler/base/sort.h"
#include "compiler/base/target.h"
#include "compiler/base/text.h"
#include "compiler/loop/kernels.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/typical.h"
#include "compiler/sym/text.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kFindings = 5;

// The sizes that a reader of the page may change; the number of threads is one, if the arena depends on it.
Json symbols_of(const loop::Program& program) {
  Json symbols = Json::array();
  for (const loop::Symbol& symbol : program.symbols) {
    const sym::Interval range = program.facts.bounds(symbol.var);
    Json row = {{"name", symbol.var.name()},
                {"typical", static_cast<int64_t>(schedule::typical(symbol.var, program.facts))}};
    if (range.has_lo()) row["least"] = range.lo;
    if (range.has_hi()) row["most"] = range.hi;
    symbols.push_back(std::move(row));
  }
  symbols.push_back({{"name", loop::threads_of(program).name()}, {"typical", 1}, {"least", 1}});
  return symbols;
}

// Each kernel of the first CPU variant against what one core could do, by the cost model's figures.
Json model_roofline(const FunctionResult& made, const Json& kernels) {
  if (made.choices.empty() || made.variants.empty()) return {};
  std::map<int, double> cycles;  // by nest
  for (const schedule::Choice& choice : made.choices)
    for (const loop::NestId nest : choice.nests) cycles[nest.value] = choice.cycles;
  const CpuTarget& target = made.variants.front().target;
  const double compute = 2.0 * target.fma_per_cycle * target.lanes(4), loads = target.load_bytes_per_cycle;
  const loop::Program& program = *made.programs().front();
  const std::vector<loop::Kernel> all = loop::kernels_of(program);
  const std::vector<loop::KernelRow> rows = loop::rows_of(program, all);
  Json told = Json::array();
  for (size_t k = 0; k < rows.size() && k < kernels.size(); ++k) {
    double time = 0;
    for (const loop::NestId nest : rows[k].first().nests)
      if (const auto found = cycles.find(nest.value); found != cycles.end()) time += found->second;
    if (time <= 0) continue;
    const double flops = kernels[k]["typical_flops"].get<double>(),
                 bytes = kernels[k]["typical_bytes"].get<double>();
    const double computing = flops / compute, moving = bytes / loads,
                 share = std::max(computing, moving) / time;
    const char* bound = computing > moving ? "compute" : "loads";
    told.push_back({{"name", kernels[k]["name"]},
                    {"time", time},
                    {"calls", rows[k].launches.size()},
                    {"flops", flops},
                    {"bytes", bytes},
                    {"share", share},
                    {"bound_by", bound},
                    {"text", cat(static_cast<int64_t>(time), " cycles of a core expected; ",
                                 static_cast<int64_t>(100 * share), " % of its roof (", bound, ")")}});
  }
  return {
      {"from", "model"},
      {"about", cat("Not measured: by the cost model, for one core of ", target.name,
                    " and typical sizes. The roofs are its multiply-adds in f32, and its loads from L1.")},
      {"rate", "operations a cycle"},
      {"roofs",
       {{{"name", "compute, f32"}, {"flops", compute}}, {{"name", "loads from L1"}, {"bytes", loads}}}},
      {"kernels", std::move(told)}};
}

// What to look at first: the pairs of kernels whose fusion would save most, and the kernel that moves most.
Json findings_of(const Json& schedule, const Json& kernels) {
  Json findings = Json::array();
  double all = 0;
  const Json* most = nullptr;
  const auto moved = [](const Json& kernel) {
    return kernel["typical_bytes"].get<double>() * static_cast<double>(kernel["steps"].size());
  };
  for (const Json& kernel : kernels) {
    all += moved(kernel);
    if (!most || moved(kernel) > moved(*most)) most = &kernel;
  }
  if (most && all > 0)
    findings.push_back(cat("kernel ", (*most)["name"].get<std::string>(), " moves ",
                           static_cast<int>(100 * moved(*most) / all), " % of all bytes that kernels move"));
  std::vector<std::pair<uint64_t, const Json*>> pairs;  // by the bytes of a run; equal ones in their order
  for (const Json& pair : schedule["separate"])
    if (const auto bytes = pair["typical_bytes"].get<uint64_t>(); bytes > 0)
      pairs.emplace_back(bytes * pair["times"].get<uint64_t>(), &pair);
  sort_stable(pairs, [](const auto& a, const auto& b) { return a.first > b.first; });
  for (size_t i = 0; i < std::min(kFindings, pairs.size()); ++i) {
    const Json& pair = *pairs[i].second;
    findings.push_back(cat(
        pair["producer"].get<std::string>(), " -> ", pair["consumer"].get<std::string>(),
        " are separate: ", join(pair["reasons"], "; ", [](const Json& r) { return r.get<std::string>(); }),
        "; one kernel would save ", human_bytes(pair["typical_bytes"].get<uint64_t>()), ", ",
        pair["times"].get<uint64_t>(), " times in a run"));
  }
  return findings;
}

// The kernels that are expected to be furthest from their roof, by cycles of a run.
void add_slow(Json& findings, const Json& roofline) {
  if (!roofline.contains("kernels")) return;
  constexpr size_t kSlow = 3;
  constexpr double kLeast = 0.05;  // of all cycles
  double all = 0;
  std::vector<std::pair<double, const Json*>> gains;
  for (const Json& kernel : roofline["kernels"]) {
    const double cycles = kernel["time"].get<double>() * kernel["calls"].get<double>();
    all += cycles;
    gains.emplace_back(cycles * (1 - std::min(1.0, kernel["share"].get<double>())), &kernel);
  }
  std::sort(gains.begin(), gains.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  for (size_t i = 0; i < std::min(kSlow, gains.size()) && gains[i].first >= kLeast * all; ++i) {
    const Json& kernel = *gains[i].second;
    findings.push_back(
        cat("kernel ", kernel["name"].get<std::string>(), " has ",
            static_cast<int64_t>(100 * kernel["share"].get<double>()), " % of its roof (",
            kernel["bound_by"].get<std::string>(), ") and ",
            static_cast<int>(100 * kernel["time"].get<double>() * kernel["calls"].get<double>() / all),
            " % of the cycles, ", kByModel));
  }
}

}  // namespace

Json report_head(const std::string& title) {
  return {{"schema_version", "1.4"}, {"title", title.empty() ? "report" : title}};
}

std::string report_text(const Json& report) {
  return cat(report.dump(2, ' ', false, Json::error_handler_t::replace), "\n");
}

Json report_of(const Compilation& made, size_t function, bool sources) {
  const FunctionResult& result = made.functions[function];
  const loop::Program& program = *result.programs().front();
  Json sizes = Json::object();
  for (const loop::Symbol& symbol : program.symbols)
    sizes[symbol.var.name()] = static_cast<int64_t>(schedule::typical(symbol.var, program.facts));
  const Json schedule = schedule_json(result);
  Json kernels = report_kernels(made, function, schedule, sources);
  Json findings = findings_of(schedule, kernels), roofline = model_roofline(result, kernels);
  add_slow(findings, roofline);
  Json report = {{"name", result.name()},
                 {"model", result.summary},
                 {"sizes", std::move(sizes)},
                 {"symbols", symbols_of(program)},
                 {"first", std::move(findings)},
                 {"nodes", nodes_json(nodes_of(result))["nodes"]},
                 {"kernels", std::move(kernels)},
                 {"repeated", schedule["repeated"]},
                 {"memory", planned_memory(program)},
                 {"drawing", to_svg(diagram_of(program))}};
  if (!roofline.is_null()) report["roofline"] = std::move(roofline);
  return report;
}

namespace {

int64_t typical_of(const Json& symbol) {
  return schedule::typical_size(
      {symbol.value("minimum", sym::Interval::kNone), symbol.value("maximum", sym::Interval::kUnlimited)});
}

}  // namespace

Json report_of(const Json& function) {
  Json kernels = Json::array();
  for (const Json& kernel : function["kernels"]) {
    Json row = {{"name", kernel["name"]},   {"steps", kernel["steps"]}, {"schedule", kernel["schedule"]},
                {"flops", kernel["flops"]}, {"bytes", kernel["bytes"]}, {"nodes", kernel["nodes"]}};
    if (kernel.contains("measured")) {
      row["tuning"] = kernel["measured"];
      row["tuning"]["from"] = "manifest";
    }
    kernels.push_back(std::move(row));
  }
  Json symbols = Json::array();
  for (const Json& symbol : function.value("symbols", Json::array())) {
    Json row = {{"name", symbol["name"]}, {"typical", typical_of(symbol)}};
    if (symbol.contains("minimum")) row["least"] = symbol["minimum"];
    if (symbol.contains("maximum")) row["most"] = symbol["maximum"];
    symbols.push_back(std::move(row));
  }
  symbols.push_back({{"name", "threads"}, {"typical", 1}, {"least", 1}});
  Json report = {{"name", function["name"]},
                 {"model", function["model"].value("file", "")},
                 {"sha256", function["model"].value("sha256", "")},
                 {"symbols", std::move(symbols)},
                 {"nodes", nodes_json(nodes_of(function))["nodes"]},
                 {"kernels", std::move(kernels)}};
  if (function.contains("memory"))
    report["memory"] = {{"weight_bytes", function["memory"].value("weights_bytes", int64_t{0})},
                        {"buffers", Json::array()},
                        {"arena", function["memory"].value("workspace_bytes", "0")}};
  return report;
}

}  // namespace stridec::cli
