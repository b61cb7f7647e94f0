#include "cli/stage_drawing.h"

#include <algorithm>

#include "cli/diagram.h"
#include "cli/memory_stage.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/printable.h"
#include "compiler/base/text.h"

namespace stridec::cli {
namespace {

constexpr const char* kDrawn[] = {"graph", "fused", "schedule", "memory"};

Diagram diagram(const FunctionResult& made, const std::string& stage) {
  return stage == "graph" ? diagram_of(made.graph) : diagram_of(*made.programs().front());
}

std::string svg(const FunctionResult& made, const StageView& view, const std::string& stage) {
  if (stage == "memory") return memory_svg(planned_memory(*made.programs().front(), view.threads), "");
  return to_svg(diagram(made, stage));
}

// One file without a script, which requests nothing.
std::string page(const std::string& title, const std::string& drawing, const std::string& text) {
  return cat(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta "
      "http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\">\n<style>body{font:14px sans-serif;margin:1.5em}div{overflow:auto;background:#fff;"
      "border:1px solid #888}pre{overflow:auto}</style>\n<title>",
      title, "</title></head><body>\n<h1>", title, "</h1>\n<div>", drawing, "</div>\n<pre>",
      escape_markup(text), "</pre>\n</body></html>\n");
}

}  // namespace

void check_drawing(const std::string& stage, const std::string& format) {
  if (std::ranges::count(kDrawn, stage) == 0)
    fail(ErrorKind::kUsage, "no-diagram", cat("the stage '", stage, "' cannot be drawn"),
         "--format=svg and html are for --stage=graph, fused, schedule and memory, dot for the first three");
  if (stage == "memory" && format == "dot")
    fail(ErrorKind::kUsage, "no-diagram", "the stage 'memory' is not a graph, which Graphviz could lay out",
         "write --format=svg or html");
}

std::string stage_drawing(const FunctionResult& made, const StageView& view, const std::string& format) {
  const std::string stage = view.stage.empty() ? "graph" : view.stage;
  if (format == "dot") return to_dot(diagram(made, stage));
  const std::string drawing = svg(made, view, stage);
  if (format == "svg") return drawing;
  return page(escape_markup(printable(cat(made.name(), ": ", stage))), drawing, stage_text(made, view));
}

}  // namespace stridec::cli
