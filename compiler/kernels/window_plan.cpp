#include "compiler/kernels/window_plan.h"

#include <algorithm>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/kernels/gemm_plan.h"
#include "compiler/sym/text.h"

namespace stridec::kernels {
namespace {

constexpr WindowKernel kKernels[] = {
#define STRIDEC_WINDOW_KERNEL(name, a, b, dtype, instruction) \
  {name, DType::a, DType::b, DType::dtype, instruction},
#define STRIDEC_GEMM_KERNEL(name, dtype, bytes, rows, vectors)
#define STRIDEC_DOT_KERNEL(name, a, b, dtype, instruction, bytes, rows, vectors)
#define STRIDEC_PAIR_KERNEL(name, a, b, dtype, bytes, rows, vectors)
#define STRIDEC_DEEP_KERNEL(name, a, b, dtype, instruction, bytes, rows, columns)
#define STRIDEC_TILE_KERNEL(name, a, b, dtype, instruction, rows, vectors)
#include "compiler/kernels/kernels.def"
#undef STRIDEC_WINDOW_KERNEL
#undef STRIDEC_GEMM_KERNEL
#undef STRIDEC_DOT_KERNEL
#undef STRIDEC_PAIR_KERNEL
#undef STRIDEC_DEEP_KERNEL
#undef STRIDEC_TILE_KERNEL
};

// The kernel name without the number of outputs.
std::string_view row_of(const loop::Schedule& schedule) {
  return std::string_view(schedule.kernel).substr(0, schedule.kernel.rfind('.'));
}

std::vector<std::string> names(const std::vector<sym::Expr>& vars) {
  std::vector<std::string> out;
  for (sym::Expr var : vars) out.push_back(sym::to_string(var));
  return out;
}

}  // namespace

std::span<const WindowKernel> window_kernels() { return kKernels; }

bool is_window(const loop::Schedule& schedule) {
  return std::any_of(std::begin(kKernels), std::end(kKernels),
                     [&](const WindowKernel& kernel) { return kernel.name == row_of(schedule); });
}

loop::Schedule to_schedule(const WindowPlan& plan) {
  loop::Schedule schedule{.kernel = cat(plan.kernel->name, ".", plan.outputs)};
  if (!plan.rows.empty()) schedule.directives.push_back({"rows", names(plan.rows)});
  schedule.directives.push_back({"along", names({plan.along})});
  schedule.directives.push_back({"columns", names(plan.columns)});
  if (plan.channel) schedule.directives.push_back({"channel", names({*plan.channel})});
  if (!plan.taps.empty()) schedule.directives.push_back({"taps", names(plan.taps)});
  if (!plan.beside.empty()) schedule.directives.push_back({"beside", names(plan.beside)});
  schedule.directives.push_back({"b", {"weights", std::to_string(plan.panel)}});
  if (plan.lanes != plan.panel) schedule.directives.push_back({"lanes", {std::to_string(plan.lanes)}});
  schedule.directives.push_back({"vectors", {std::to_string(plan.vectors)}});
  return schedule;
}

WindowPlan to_window_plan(const loop::Schedule& schedule) {
  WindowPlan plan;
  for (const WindowKernel& kernel : kKernels)
    if (kernel.name == row_of(schedule)) plan.kernel = &kernel;
  STRIDEC_CHECK(plan.kernel, schedule.kernel);
  plan.outputs = std::stoi(schedule.kernel.substr(plan.kernel->name.size() + 1));
  for (const loop::Directive& directive : schedule.directives) {
    std::vector<sym::Expr> vars;
    if (directive.name == "rows" || directive.name == "along" || directive.name == "columns" ||
        directive.name == "channel" || directive.name == "taps" || directive.name == "beside") {
      for (const std::string& arg : directive.args) vars.push_back(sym::parse(arg));
    }
    if (directive.name == "rows") {
      plan.rows = vars;
    } else if (directive.name == "along") {
      plan.along = vars.at(0);
    } else if (directive.name == "columns") {
      plan.columns = vars;
    } else if (directive.name == "channel") {
      plan.channel = vars.at(0);
    } else if (directive.name == "taps") {
      plan.taps = vars;
    } else if (directive.name == "beside") {
      plan.beside = vars;
    } else if (directive.name == "b") {
      plan.panel = std::stoll(directive.args.at(1));
      plan.lanes = static_cast<int>(plan.panel);
    } else if (directive.name == "lanes") {
      plan.lanes = std::stoi(directive.args.at(0));
    } else if (directive.name == "vectors") {
      plan.vectors = std::stoll(directive.args.at(0));
    } else {
      STRIDEC_CHECK(false, directive.name);
    }
  }
  return plan;
}

std::optional<PanelLayout> panels_of(const loop::Schedule& schedule) {
  if (is_gemm(schedule)) {
    const GemmPlan plan = to_plan(schedule);
    if (plan.b != GemmPlan::B::kWeights) return std::nullopt;
    PanelLayout layout{.batch = plan.batch,
                       .rows = plan.rows,
                       .columns = plan.columns,
                       .outer = {},
                       .k = plan.segments,
                       .along = {},
                       .panel = plan.panel,
                       .width = plan.panel,
                       .element = plan.kernel->b,
                       .group = plan.kernel->group(),
                       .step = plan.kernel->step()};
    layout.k.insert(layout.k.end(), plan.run.begin(), plan.run.end());
    return layout;
  }
  if (!is_window(schedule)) return std::nullopt;
  const WindowPlan plan = to_window_plan(schedule);
  PanelLayout layout{.batch = plan.rows,
                     .rows = {},
                     .columns = plan.columns,
                     .outer = plan.taps,
                     .k = plan.beside,
                     .along = plan.along,
                     .panel = plan.panel,
                     .width = plan.lanes,
                     .element = plan.kernel->b,
                     .group = plan.kernel->group(),
                     .step = plan.kernel->group()};
  if (plan.channel && !plan.channels_beside()) layout.outer.insert(layout.outer.begin(), *plan.channel);
  return layout;
}

}  // namespace stridec::kernels
