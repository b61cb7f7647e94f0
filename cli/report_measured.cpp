#include "cli/report_measured.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "cli/json_values.h"
#include "cli/output.h"
#include "compiler/base/counted.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/files.h"
#include "compiler/base/text.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostSlices = 20000, kSlowKernels = 3;
constexpr double kLeastGain = 0.01;  // of a run, that a slow kernel would save

[[noreturn]] void no_profile(const std::string& path) {
  fail(ErrorKind::kMalformed, "bad-profile", cat("'", path, "' is not a profile"),
       "'stridec profile m.so --format=json' and 'stridec bench m.so --format=json' print one");
}

// The rows of either command, of one run.
Json kernels_of(const Json& profile) {
  const bool traced = profile.contains("rows");
  const double runs = traced ? std::max(number_at(profile, "runs"), 1.0) : 1;
  Json kernels = Json::array();
  for (const Json& row : profile.at(traced ? "rows" : "kernels")) {
    Json kernel = {
        {"name", text_at(row, "name")},
        {"time", (traced ? number_at(row, "nanoseconds") * 1e-9 : number_at(row, "seconds")) / runs},
        {"calls", number_at(row, "calls") / runs},
        {"flops", number_at(row, "flops") / runs},
        {"bytes", number_at(row, "bytes") / runs},
        {"share", number_at(row, "roofline")}};
    if (number_at(row, "roofline") > 0)
      kernel["bound_by"] = text_at(row, "bound_by") == "compute" ? "compute" : text_at(row, "level");
    kernels.push_back(std::move(kernel));
  }
  std::sort(kernels.begin(), kernels.end(), [](const Json& a, const Json& b) {
    const double x = a["time"].get<double>(), y = b["time"].get<double>();
    return x != y ? x > y : a.dump() < b.dump();
  });
  return kernels;
}

Json roofs_of(const Json& profile) {
  static const std::pair<const char*, const char*> kLevels[] = {{"L1", "l1_bytes_per_second"},
                                                                {"L2", "l2_bytes_per_second"},
                                                                {"L3", "l3_bytes_per_second"},
                                                                {"memory", "memory_bytes_per_second"}};
  Json roofs = Json::array();
  const Json& peak = profile.at("peak");
  if (const double flops = number_at(peak, "flops_per_second"); flops > 0)
    roofs.push_back({{"name", "compute, f32"}, {"flops", flops}});
  for (const auto& [name, key] : kLevels)
    if (const double rate = number_at(peak, key); rate > 0)
      roofs.push_back({{"name", name}, {"bytes", rate}});
  return roofs;
}

std::string about(const Json& profile, bool traced) {
  std::string sizes;
  if (const auto given = profile.find("sizes"); given != profile.end() && given->is_object())
    for (const auto& [name, size] : given->items()) sizes += cat(", ", name, " = ", size.dump());
  const double threads = number_at(profile, "threads");
  return cat("Measured by ", traced ? "profile" : "bench", ": ", text_at(profile, "variant"),
             threads > 0 ? cat(", ", counted(threads, "thread")) : "", sizes,
             ". The roofs are what this machine reached on the same threads.");
}

// The kernels that would save the most time if they reached their roof.
std::vector<std::string> slow_kernels(const Json& kernels, double all) {
  std::vector<std::pair<double, const Json*>> gains;
  for (const Json& kernel : kernels)
    if (const double share = kernel["share"].get<double>(); share > 0 && share < 1)
      gains.emplace_back(kernel["time"].get<double>() * (1 - share), &kernel);
  std::sort(gains.begin(), gains.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  std::vector<std::string> findings;
  for (const auto& [gain, kernel] : gains) {
    if (findings.size() == kSlowKernels || gain < kLeastGain * all) break;
    findings.push_back(cat("kernel ", (*kernel)["name"].get<std::string>(), " takes ",
                           measured_text(*kernel, all), "; at its roof a run takes ", human_seconds(gain),
                           " less"));
  }
  return findings;
}

// The events of a trace. The last line of a process that was killed may be cut.
Json events_of(const std::string& path) {
  const std::string text = read_file(path);
  Json whole = Json::parse(text, nullptr, false);
  if (whole.is_object() && whole.contains("traceEvents")) return whole["traceEvents"];
  if (whole.is_array()) return whole;
  Json events = Json::array();
  for (size_t at = text.starts_with('[') ? 1 : text.size(); at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    while (!line.empty() && (line.back() == ',' || line.back() == '\r' || line.back() == ' '))
      line.pop_back();
    if (Json event = Json::parse(line, nullptr, false); event.is_object()) events.push_back(std::move(event));
    at = end + 1;
  }
  return events;
}

[[noreturn]] void other_model(const std::string& path, const std::string& what, const std::string& theirs,
                              const std::string& ours, std::string help) {
  constexpr size_t kShown = 12;
  fail(ErrorKind::kDoesNotFit, "other-model",
       cat("'", path, "' ", what, " another model (sha256 ", theirs.substr(0, kShown),
           "); the report is of sha256 ", ours.substr(0, kShown)),
       std::move(help));
}

// Traces and manifests of earlier versions do not name the model.
void check_model(const Json& event_args, const Json& functions, const std::string& path) {
  const std::string theirs = text_at(event_args, "model");
  std::vector<std::string> ours;
  for (const Json& function : functions) ours.push_back(text_at(function, "sha256"));
  if (theirs.empty() || std::ranges::count(ours, "") > 0 || std::ranges::count(ours, theirs) > 0) return;
  other_model(path, "has runs of", theirs, ours.front(),
              "trace an artifact of this model; with STRIDEC_PROFILE=%m.json each artifact of a process has "
              "a file of its own");
}

}  // namespace

std::string measured_text(const Json& kernel, double all) {
  const double time = kernel["time"].get<double>(), share = kernel["share"].get<double>();
  const auto rate = [&](const char* key, const char* unit) {
    const double amount = kernel[key].get<double>();
    return amount > 0 && time > 0 ? cat(formatted(amount / time * 1e-9, "%.1f"), unit) : std::string();
  };
  std::string text =
      cat(human_seconds(time), ", ", formatted(100 * time / std::max(all, 1e-12), "%.0f %% of the time"));
  std::string rates = rate("flops", " GFLOP/s");
  if (const std::string moved = rate("bytes", " GB/s"); !moved.empty())
    rates += (rates.empty() ? "" : ", ") + moved;
  if (!rates.empty()) text += "; " + rates;
  if (share > 0)
    text += cat("; ", formatted(100 * share, "%.0f %% of its roof"), " (",
                kernel.value("bound_by", "compute"), ")");
  return text;
}

Json read_profile(const std::string& path) {
  Json read = Json::parse(read_file(path), nullptr, false);
  const bool traced = read.is_object() && read.contains("rows");
  const char* key = traced ? "rows" : "kernels";
  if (!read.is_object() || !read.contains("peak") || !read["peak"].is_object() || !read.contains(key) ||
      !read[key].is_array())
    no_profile(path);
  for (const Json& row : read[key])
    if (!row.is_object() || !row.contains("name") || !row.contains(traced ? "nanoseconds" : "seconds"))
      no_profile(path);
  return read;
}

void add_profile(Json& functions, const Json& profile, const std::string& path) {
  const std::string of = text_at(profile, "function");
  const auto named = std::find_if(functions.begin(), functions.end(),
                                  [&](const Json& function) { return text_at(function, "name") == of; });
  const auto at = named == functions.end() && functions.size() == 1 ? functions.begin() : named;
  if (at == functions.end())
    fail(ErrorKind::kDoesNotFit, "other-profile", cat("the profile is of the function '", of, "'"),
         "the report has no function of this name");
  const std::string theirs = text_at(profile.value("model", Json::object()), "sha256"),
                    ours = text_at(*at, "sha256");
  if (!theirs.empty() && !ours.empty() && theirs != ours)
    other_model(path, "is of", theirs, ours, "measure an artifact that was compiled from this model");
  Json kernels = kernels_of(profile);
  double all = 0;
  for (const Json& kernel : kernels) all += kernel["time"].get<double>();
  for (Json& kernel : kernels) kernel["text"] = measured_text(kernel, all);
  Json first = slow_kernels(kernels, all);
  for (const Json& finding : at->value("first", Json::array()))
    if (!finding.get<std::string>().ends_with(kByModel)) first.push_back(finding);
  (*at)["first"] = std::move(first);
  (*at)["roofline"] = {{"from", profile.contains("rows") ? "profile" : "bench"},
                       {"about", about(profile, profile.contains("rows"))},
                       {"rate", "operations a second"},
                       {"roofs", roofs_of(profile)},
                       {"kernels", std::move(kernels)}};
}

Json read_trace(const std::string& path, const Json& functions) {
  struct Slice {
    size_t thread, name;
    int kind;
    double begin, length;
    int64_t run, step;
  };
  std::vector<Slice> slices;
  std::map<std::pair<int64_t, int64_t>, size_t> threads;
  std::map<std::pair<std::string, std::string>, size_t> names;
  Json told = {{"threads", Json::array()}, {"names", Json::array()}, {"slices", Json::array()}};
  std::map<std::pair<int64_t, int64_t>, std::string> thread_names;
  for (const Json& event : events_of(path)) {
    if (!event.is_object()) continue;
    const std::pair of(static_cast<int64_t>(number_at(event, "pid")),
                       static_cast<int64_t>(number_at(event, "tid")));
    const Json args = event.value("args", Json::object());
    if (text_at(event, "name") == "thread_name" && args.is_object()) thread_names[of] = text_at(args, "name");
    const std::string category = text_at(event, "cat");
    const int kind = category == "run" ? 0 : category == "step" ? 1 : category == "part" ? 2 : -1;
    if (kind < 0 || text_at(event, "ph") != "X" || !args.is_object()) continue;
    if (kind == 0) check_model(args, functions, path);
    const auto [thread, new_thread] = threads.emplace(of, threads.size());
    if (new_thread) told["threads"].push_back({{"tid", of.second}});
    const std::pair words(text_at(event, "name"), text_at(args, "nodes"));
    // Parts have the step's name; the step has its nodes, too.
    const auto [name, new_name] = names.emplace(words, names.size());
    if (new_name) {
      told["names"].push_back({{"name", words.first}});
      if (!words.second.empty()) told["names"].back()["nodes"] = words.second;
    }
    slices.push_back({thread->second, name->second, kind, number_at(event, "ts"), number_at(event, "dur"),
                      static_cast<int64_t>(number_at(args, "run")),
                      args.contains("step") ? static_cast<int64_t>(number_at(args, "step")) : -1});
  }
  if (slices.empty())
    fail(ErrorKind::kMalformed, "bad-trace", cat("'", path, "' has no events of runs"),
         "'stridec profile m.so --trace FILE' and STRIDEC_PROFILE=FILE write traces");
  for (const auto& [of, name] : thread_names)
    if (const auto found = threads.find(of); found != threads.end())
      told["threads"][found->second]["name"] = name;
  std::sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) {
    return std::tie(a.begin, a.kind, a.thread, a.name, a.length) <
           std::tie(b.begin, b.kind, b.thread, b.name, b.length);
  });
  const double start = slices.front().begin;
  const auto rounded = [](double microseconds) { return std::round(microseconds * 1000) / 1000; };
  for (size_t i = 0; i < std::min(slices.size(), kMostSlices); ++i) {
    const Slice& s = slices[i];
    told["slices"].push_back(
        {s.thread, s.kind, s.name, rounded(s.begin - start), rounded(s.length), s.run, s.step});
  }
  told["left_out"] = slices.size() - told["slices"].size();
  return told;
}

}  // namespace stridec::cli
