#include "cli/report_page.h"

#include <algorithm>
#include <functional>
#include <map>

#include "cli/diagram.h"
#include "cli/memory_stage.h"
#include "cli/output.h"
#include "compiler/base/number.h"
#include "compiler/base/sha256.h"
#include "compiler/base/text.h"

extern "C" const char stridec_embedded_report_script[], stridec_embedded_report_script_end[];

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kStart = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n";
constexpr const char* kHead =
    "<meta name=\"viewport\" content=\"width=device-width\">\n"
    "<style>:root{color-scheme:light dark}body{font:14px sans-serif;margin:1.5em;max-width:110em}"
    "table{border-collapse:collapse}td,th{text-align:left;vertical-align:top;padding:.15em .8em .15em 0;"
    "border-bottom:1px solid "
    "#8884}td.n{text-align:right}pre{overflow:auto;background:#8881;padding:.6em;max-height:40em}"
    ".draw{overflow:auto;max-height:45em;background:#fff;border:1px solid #8884}code{font-size:13px}"
    "summary,.p rect,.p text{cursor:pointer}nav button[aria-pressed=true]{font-weight:bold}"
    ".sizes label{display:inline-block;margin-right:2em}.sizes input[type=number]{width:7em}"
    "svg text{font:12px sans-serif;fill:#222}.roofs .grid{stroke:#ddd}.roofs "
    ".roof{stroke:#c33;stroke-width:1.5}"
    ".roofs .dot{fill:#47a9;stroke:#247}.alive{fill:none;stroke:#c33}.trace rect{stroke:#fff;stroke-width:.3}"
    "</style>\n";

std::string_view script() {
  return {stridec_embedded_report_script,
          static_cast<size_t>(stridec_embedded_report_script_end - stridec_embedded_report_script)};
}

std::string base64_of_hex(const std::string& hex) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (size_t i = 0; i < hex.size(); ++i) {
    bits = bits << 4 | static_cast<uint32_t>(hex[i] <= '9' ? hex[i] - '0' : hex[i] - 'a' + 10), count += 4;
    if (count >= 6) out += kDigits[bits >> (count -= 6) & 63];
  }
  if (count > 0) out += kDigits[bits << (6 - count) & 63];
  while (out.size() % 4 != 0) out += '=';
  return out;
}

// No requests, and no script but the page's own, by its hash: a name in a model cannot run anything, whatever
// it contains.
std::string policy() {
  return cat(
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; script-src 'sha256-",
      base64_of_hex(sha256(script().data(), script().size())), "'\">\n");
}

std::string section(const char* tab, const std::string& body) {
  return cat("<section data-tab=\"", tab, "\">\n", body, "</section>\n");
}

std::string text_of(const Json& value) {
  if (value.is_string()) return escape_markup(value.get<std::string>());
  return escape_markup(value.dump());
}

std::string text_of_steps(const Json& steps) {
  return join(steps, " ", [](const Json& step) { return step.dump(); });
}

std::string text_of_cycles(double cycles) { return cycles > 0 ? formatted(cycles, "%.3g") : ""; }

std::string bytes_text(const Json& bytes) {
  return human_bytes(static_cast<uint64_t>(std::max(0.0, bytes.get<double>())));
}

std::string summary_html(const Json& function, const std::string& id) {
  std::string out = cat("<p>", text_of(function["model"]), "</p>\n");
  if (function.contains("sizes") && !function["sizes"].empty()) {
    out += "<p>What to look at first is at typical sizes:";
    for (const auto& [name, size] : function["sizes"].items())
      out += cat(" ", escape_markup(name), " = ", size.dump(), ";");
    out.back() = '.';
    out += "</p>\n";
  }
  std::map<std::string, int> fates;
  for (const Json& node : function["nodes"]) ++fates[node["fate"].get<std::string>()];
  out += cat("<p>", function["nodes"].size(), " nodes, ", function["kernels"].size(), " different kernels.",
             join(fates, ",",
                  [](const auto& fate) { return cat(" ", fate.second, " ", escape_markup(fate.first)); }),
             ".</p>\n");
  out += cat("<div class=\"sizes\" id=\"", id, "sizes\"></div>\n");
  if (!function.contains("first") || function["first"].empty()) return out;
  out += "<h3>What to look at first</h3>\n<ol>\n";
  for (const Json& finding : function["first"]) out += cat("<li>", text_of(finding), "</li>\n");
  return out + "</ol>\n";
}

std::string folded(const std::string& summary, const std::string& body) {
  return cat("<details><summary>", summary, "</summary>", body, "</details>");
}

// The schedules that the cost model compared, by the cycles that it expects.
std::string choices_html(const Json& kernel) {
  std::string rows;
  size_t space = 0;
  for (const Json& nest : kernel.value("choices", Json::array())) {
    const double cycles = nest["expected_cycles"].get<double>();
    space += nest["candidates"].get<size_t>();
    rows += cat("<tr><td>", text_of(nest["schedule"]), "</td><td class=\"n\">", text_of_cycles(cycles),
                "</td><td>chosen by ", nest["chosen_by"] == "model" ? "the cost model" : "measuring",
                "</td></tr>\n");
    for (const Json& other : nest["others"]) {
      const double expected = other["expected_cycles"].get<double>();
      rows += cat("<tr><td>", text_of(other["family"]), "</td><td class=\"n\">", text_of_cycles(expected),
                  "</td><td>", cycles > 0 ? formatted(expected / cycles, "%.2f times as long") : "",
                  "</td></tr>\n");
    }
  }
  if (space == 0) return "";
  return folded(
      cat("one of ", space, " schedules"),
      cat("<table><tr><th>schedule</th><th>cycles expected</th><th></th></tr>\n", rows, "</table>"));
}

std::string tuning_html(const Json& kernel) {
  if (!kernel.contains("tuning")) return "";
  const Json& tuning = kernel["tuning"];
  std::string rows;
  for (const Json& trial : tuning.value("trials", Json::array()))
    rows += cat("<tr><td>", text_of(trial["schedule"]), "</td><td>",
                trial.contains("problem") ? text_of(trial["problem"])
                : trial["ratios"].empty()
                    ? "not timed"
                    : cat(join(trial["ratios"], ", ",
                               [](const Json& ratio) { return formatted(ratio.get<double>(), "%.2f"); }),
                          " times as long as the default"),
                "</td></tr>\n");
  return folded(
      cat("tuned: ", tuning["schedules_tried"].dump(), " schedules tried"),
      cat("<p>", formatted(tuning["microseconds"].get<double>(), "%.4g"), " us at ", text_of(tuning["shape"]),
          ", by the default schedule ", formatted(tuning["default_microseconds"].get<double>(), "%.4g"),
          " us</p>", rows.empty() ? "" : cat("<table>", rows, "</table>")));
}

// Why the kernel was not fused with its neighbours.
std::string refusals_html(const Json& kernel) {
  if (!kernel.contains("refusals")) return "";
  std::string rows;
  for (const Json& pair : kernel["refusals"]) {
    const auto bytes = pair["typical_bytes"].get<uint64_t>();
    const std::string reasons = join(pair["reasons"], "; ", text_of);
    rows += cat("<li>", pair["other_is"] == "producer" ? "reads " : "is read by ", "<code>",
                text_of(pair["other"]), "</code> of ", text_of(pair["nodes"]), ": ",
                reasons.empty() ? "no fusion rule covers such kernels" : reasons,
                bytes > 0 ? cat("; one kernel would save ", human_bytes(bytes), ", ", pair["times"].dump(),
                                " times in a run")
                          : "",
                "</li>\n");
  }
  return folded(cat("not fused with ", kernel["refusals"].size(), " neighbours"), cat("<ul>", rows, "</ul>"));
}

// By the text of the node.
using Repeated = std::map<std::string, double>;

Repeated repeated_nodes(const Json& function) {
  Repeated times;
  for (const Json& node : function.value("repeated", Json::array()))
    times[node["node"].get<std::string>()] = node["times"].get<double>();
  return times;
}

std::string times_of_node(const Repeated& repeated, const Json& node) {
  const auto found = repeated.find(node.get<std::string>());
  return found == repeated.end() ? "" : formatted(found->second, "%.3g times as often as in the model");
}

// Which of the kernel's statements come from which node.
std::string work_html(const Json& kernel, const Repeated& repeated) {
  if (!kernel.contains("work") || kernel["work"].empty()) return "";
  std::string rows;
  for (const Json& work : kernel["work"]) {
    const auto statements = work["statements"].get<std::map<std::string, int>>();
    rows += cat("<tr><td>", text_of(work["node"]), "</td><td>",
                statements.empty() ? "none of its own"
                                   : join(statements, ", ",
                                          [](const auto& each) {
                                            return each.second == 1 ? each.first
                                                                    : cat(each.second, " ", each.first);
                                          }),
                "</td><td class=\"n\">", formatted(work["typical_operations"].get<double>(), "%.4g"),
                "</td><td>", times_of_node(repeated, work["node"]), "</td></tr>\n");
  }
  return folded("statements by node",
                cat("<table><tr><th>node</th><th>statements</th><th>operations</th><th>computed</th></tr>\n",
                    rows, "</table>"));
}

std::string kernels_html(const Json& function, const std::string& id) {
  const Repeated repeated = repeated_nodes(function);
  std::string out =
      "<h3>Kernels</h3>\n<table><tr><th>kernel</th><th>steps</th><th>flops</th><th>bytes</th>"
      "<th>schedule and nodes</th></tr>\n";
  size_t number = 0;
  for (const Json& kernel : function["kernels"]) {
    const std::string row = cat(id, "k", number++);
    out += cat("<tr id=\"", row, "\"><td><code>", text_of(kernel["name"]), "</code></td><td>",
               text_of_steps(kernel["steps"]), "</td>");
    // The page's script fills in the values at the sizes of the sliders.
    out += cat("<td class=\"n\" id=\"", row, "f\" title=\"", text_of(kernel["flops"]),
               "\"></td><td class=\"n\" id=\"", row, "b\" title=\"", text_of(kernel["bytes"]), "\"></td>");
    out += cat("<td><code>", text_of(kernel["schedule"]), "</code><details><summary>", kernel["nodes"].size(),
               " nodes</summary><ul>\n");
    for (const Json& node : kernel["nodes"]) out += cat("<li>", text_of(node), "</li>\n");
    out += "</ul></details>";
    out += work_html(kernel, repeated) + choices_html(kernel) + tuning_html(kernel) + refusals_html(kernel);
    static constexpr std::pair<const char*, const char*> kTexts[] = {
        {"loops_before", "loops before fusion"}, {"loops", "loops"}, {"source", "source"}};
    for (const auto& [key, what] : kTexts) {
      if (!kernel.contains(key)) continue;
      out += cat("<details><summary>", what, "</summary>");
      for (const Json& text : kernel[key]) out += cat("<pre>", text_of(text), "</pre>");
      out += "</details>";
    }
    out += "</td></tr>\n";
  }
  return out + "</table>\n";
}

std::string nodes_html(const Json& function, const std::string& id) {
  std::map<int, size_t> kernel_of;  // by step
  for (size_t k = 0; k < function["kernels"].size(); ++k)
    for (const Json& step : function["kernels"][k]["steps"]) kernel_of[step.get<int>()] = k;
  std::string out =
      cat("<h3>Nodes</h3>\n<input id=\"", id, "search\" placeholder=\"search\" hidden><ul id=\"", id,
          "found\"></ul>\n<details><summary>all nodes of the model, and what became of them</summary>\n"
          "<table><tr><th>node</th><th>fate</th><th>by</th></tr>\n");
  const Repeated repeated = repeated_nodes(function);
  size_t number = 0;
  for (const Json& node : function["nodes"]) {
    out += cat("<tr id=\"", id, "n", number++, "\"><td>", text_of(node["node"]), "</td><td>",
               text_of(node["fate"]), "</td><td>");
    if (node.contains("with"))
      out += cat("same as ", text_of(node["with"]));
    else if (node.contains("by"))
      out += text_of(node["by"]);
    if (node.contains("kernels"))
      for (const Json& kernel : node["kernels"]) {
        const auto found = kernel_of.find(kernel["steps"].empty() ? -1 : kernel["steps"][0].get<int>());
        out += found == kernel_of.end()
                   ? text_of(kernel["name"])
                   : cat("<a href=\"#", id, "k", found->second, "\">", text_of(kernel["name"]), "</a>");
        out += cat(" (", text_of_steps(kernel["steps"]), ") ");
      }
    if (const std::string times = times_of_node(repeated, node["node"]); !times.empty())
      out += cat("computed ", times);
    out += "</td></tr>\n";
  }
  return out + "</table></details>\n";
}

// A rectangle for each buffer of the arena: steps across, addresses up.
std::string memory_html(const Json& memory, const std::string& id) {
  const int64_t arena = memory.value("arena_bytes", int64_t{0});
  std::string out = cat("<h3>Memory</h3>\n<p>Weights ", bytes_text(memory["weight_bytes"]),
                        "; arena <span id=\"", id, "peak\">", bytes_text(arena), "</span>, ",
                        memory["buffers"].size(), " buffers. <span id=\"", id, "alive\"></span></p>\n");
  if (memory["buffers"].empty()) return out;
  return cat(
      out, "<div class=\"draw\">", memory_svg(memory, cat(id, "m")),
      "</div>\n<p>Steps of the run from left to right, addresses from bottom to top. Orange buffers are "
      "written in place of another one, whose last step is their first.</p>\n");
}

// The chart is the script's; the table has the same figures.
std::string roofline_html(const Json& roofline, const std::string& id) {
  std::string out =
      cat("<h3>Roofline</h3>\n<p>", text_of(roofline["about"]), "</p>\n<div class=\"draw\" id=\"", id,
          "roof\"></div>\n<table><tr><th>kernel</th><th>",
          roofline["from"] == "model" ? "what is expected" : "what was measured", "</th></tr>\n");
  for (const Json& kernel : roofline["kernels"])
    out += cat("<tr><td><code>", text_of(kernel["name"]), "</code></td><td>", text_of(kernel["text"]),
               "</td></tr>\n");
  return out + "</table>\n";
}

std::string trace_html(const Json& trace) {
  const auto left_out = trace["left_out"].get<uint64_t>();
  return cat("<h2>Time line</h2>\n<p>", trace["slices"].size(), " events of ", trace["threads"].size(),
             " threads", left_out > 0 ? cat("; ", left_out, " later ones are left out") : std::string(),
             ".</p>\n<div id=\"trace\"></div>\n");
}

// The slowest first.
std::string passes_html(const Json& passes) {
  std::vector<Json> rows = passes;
  std::ranges::sort(rows, std::ranges::greater(), [](const Json& row) {
    return std::pair(row["seconds"].get<double>(), row["pass"].get<std::string>());
  });
  std::string out =
      "<h2>Compile time</h2>\n<table><tr><th>stage</th><th>pass</th><th>runs</th><th>time</th></tr>\n";
  for (const Json& row : rows)
    out += cat("<tr><td>", text_of(row["stage"]), "</td><td>", text_of(row["pass"]), "</td><td class=\"n\">",
               row["runs"].dump(), "</td><td class=\"n\">", human_seconds(row["seconds"].get<double>()),
               "</td></tr>\n");
  return out + "</table>\n";
}

std::string compare_html(const Json& compare) {
  std::string out = cat("<h2 id=\"compare\">Compared with ", text_of(compare["with"]), "</h2>\n");
  if (compare["functions"].empty()) return out + "<p>The two have no function in common.</p>\n";
  for (const Json& function : compare["functions"]) {
    out += cat("<h3>", text_of(function["name"]), "</h3>\n<p>", function["kernels_here"].dump(),
               " different kernels here, ", function["kernels_there"].dump(), " there.</p>\n");
    if (function["nodes"].empty()) {
      out += "<p>The same nodes are in the same kernels, which have the same schedules.</p>\n";
      continue;
    }
    out += "<table><tr><th>node</th><th>what differs</th><th>here</th><th>there</th></tr>\n";
    for (const Json& node : function["nodes"])
      out +=
          cat("<tr><td>", text_of(node["node"]), "</td><td>", text_of(node["change"]), "</td><td><code>",
              text_of(node["here"]), "</code></td><td><code>", text_of(node["there"]), "</code></td></tr>\n");
    out += "</table>\n";
  }
  return out;
}

// The data without what the page shows as text, so that another program can read the page. No `<` ends it
// early.
std::string embedded(Json report) {
  for (Json& function : report["functions"]) {
    function.erase("drawing");
    for (Json& kernel : function["kernels"])
      kernel.erase("loops"), kernel.erase("loops_before"), kernel.erase("source");
  }
  std::string out;
  for (const char c : report.dump(-1, ' ', true, Json::error_handler_t::replace))
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  return cat("<script type=\"application/json\" id=\"report\">", out, "</script>\n");
}

}  // namespace

std::string report_page(const Json& report) {
  std::string out =
      cat(kStart, policy(), kHead, "<title>", text_of(report["title"]), "</title></head><body>\n<h1>",
          text_of(report["title"]), "</h1>\n<nav id=\"tabs\"></nav>\n");
  if (report.contains("compare")) out += section("compare", compare_html(report["compare"]));
  size_t number = 0;
  for (const Json& function : report["functions"]) {
    const std::string id = cat("f", number++);
    out += cat("<h2>", text_of(function["name"]), "</h2>\n", section("summary", summary_html(function, id)));
    if (function.contains("drawing"))
      out += section("graph", cat("<h3>Kernels and the tensors between them</h3>\n<div class=\"draw\" id=\"",
                                  id, "graph\">", function["drawing"].get<std::string>(), "</div>\n"));
    if (function.contains("roofline")) out += section("roofline", roofline_html(function["roofline"], id));
    out += section("kernels", kernels_html(function, id)) + section("nodes", nodes_html(function, id));
    if (function.contains("memory")) out += section("memory", memory_html(function["memory"], id));
  }
  if (report.contains("passes")) out += section("compile time", passes_html(report["passes"]));
  if (report.contains("trace")) out += section("time line", trace_html(report["trace"]));
  return cat(out, embedded(report), "<script>", script(), "</script>\n</body></html>\n");
}

}  // namespace stridec::cli
