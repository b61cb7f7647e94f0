#include "compiler/kernels/gemm_plan.h"

#include <charconv>

#include "compiler/base/check.h"
#include "compiler/sym/text.h"

namespace stridec::kernels {
namespace {

// The directives that list dims, in the order of the text form.
constexpr std::pair<std::string_view, std::vector<sym::Expr> GemmPlan::*> kDims[] = {
    {"batch", &GemmPlan::batch},       {"rows", &GemmPlan::rows}, {"columns", &GemmPlan::columns},
    {"segments", &GemmPlan::segments}, {"run", &GemmPlan::run},
};

int64_t number(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  STRIDEC_CHECK(error == std::errc() && end == text.data() + text.size() && value > 0, text);
  return value;
}

// The preferred number of bands, 1 or 2.
sym::Expr wanted_bands(const GemmPlan& plan, sym::Expr rows, sym::Expr columns, sym::Expr k,
                       const CpuTarget& target) {
  constexpr int64_t kManyMore = 8;   // columns per row
  constexpr int64_t kManyRows = 64;  // of both bands
  constexpr int64_t kManyPanels = 32;
  if (plan.b != GemmPlan::B::kWeights || !plan.batch.empty()) return 1;
  const auto panels = sym::as_const(sym::ceildiv(columns, plan.kernel->columns()));
  if (panels && *panels % 2 == 1 && *panels < kManyPanels) return 2;
  if (!plan.kernel->tiles) return 1 + sym::min(1, sym::floordiv(rows, kManyRows));
  if (!plan.rows_outer) return 1;
  const auto numbers = sym::as_const(columns * k);
  const bool panels_stay = numbers && *numbers * byte_size(plan.kernel->b) <= target.l2_bytes / 2;
  return 1 + sym::min(1, sym::floordiv(rows * (panels_stay ? kManyMore : 1), sym::max(columns, 1)));
}

// The number of blocks into which a band of `tiles` register tiles is divided.
sym::Expr blocks_of(const GemmPlan& plan, sym::Expr tiles, sym::Expr bands, sym::Expr columns) {
  const sym::Expr fewest = sym::ceildiv(tiles, plan.tiles);
  if (plan.least_tiles == 0) return fewest;
  const sym::Expr others = sym::max(1, bands * sym::ceildiv(columns, plan.kernel->columns()));
  return sym::max(fewest, sym::min(sym::ceildiv(kManyTasks, others), sym::floordiv(tiles, plan.least_tiles)));
}

}  // namespace

bool is_gemm(const loop::Schedule& schedule) { return schedule.kernel.starts_with("gemm."); }

RowSplit split_rows(const GemmPlan& plan, sym::Expr images, sym::Expr image_rows, sym::Expr columns,
                    sym::Expr k, const CpuTarget& target) {
  const sym::Expr tiles = images * sym::ceildiv(image_rows, plan.kernel->rows);
  const sym::Expr bands =
      sym::max(1, sym::min(tiles, wanted_bands(plan, images * image_rows, columns, k, target)));
  if (bands.is_const(1)) return {bands, tiles, blocks_of(plan, tiles, bands, columns)};
  if (!images.is_const(1)) return {bands, tiles, blocks_of(plan, sym::ceildiv(tiles, bands), bands, columns)};
  const sym::Expr own = sym::ceildiv(sym::ceildiv(image_rows, bands), plan.kernel->rows);
  return {bands, bands * own, blocks_of(plan, own, bands, columns)};
}

int64_t short_chunk(const GemmPlan& plan, int64_t k, int64_t columns, const CpuTarget& target) {
  const GemmKernel& kernel = *plan.kernel;
  if (kernel.tiles || plan.tiles == 1 || kernel.rows >= 2 * kFewRows) return 0;
  const int64_t unit = int64_t{kGemmStep} * kernel.group(), bytes = byte_size(kernel.b);
  const int64_t chunk = target.l1_bytes / 3 / (kernel.columns() * bytes) / unit * unit;
  const bool far = static_cast<double>(k) * static_cast<double>(columns * bytes) > target.l2_bytes / 2.0;
  return far && k > chunk ? chunk : 0;
}

loop::Schedule to_schedule(const GemmPlan& plan) {
  loop::Schedule schedule{.kernel = std::string(plan.kernel->name)};
  for (const auto& [name, member] : kDims) {
    loop::Directive directive{.name = std::string(name)};
    for (sym::Expr var : plan.*member) directive.args.push_back(sym::to_string(var));
    if (!directive.args.empty()) schedule.directives.push_back(std::move(directive));
  }
  schedule.directives.push_back({"a", {std::string(name(plan.a))}});
  switch (plan.b) {
    case GemmPlan::B::kWeights:
      schedule.directives.push_back({"b", {"weights", std::to_string(plan.panel)}});
      break;
    case GemmPlan::B::kCompact:
      schedule.directives.push_back({"b", {"compact", std::to_string(plan.panel)}});
      break;
    case GemmPlan::B::kDirect: schedule.directives.push_back({"b", {"direct"}}); break;
    case GemmPlan::B::kStage: schedule.directives.push_back({"b", {"stage"}}); break;
  }
  if (plan.bytes > 0) schedule.directives.push_back({"bytes", {std::to_string(plan.bytes)}});
  schedule.directives.push_back({"tiles", {std::to_string(plan.tiles)}});
  if (plan.least_tiles > 0) schedule.directives.back().args.push_back(std::to_string(plan.least_tiles));
  if (plan.chunk > 0) schedule.directives.push_back({"chunk", {std::to_string(plan.chunk)}});
  schedule.directives.push_back({"order", {plan.rows_outer ? "rows" : "columns"}});
  return schedule;
}

GemmPlan to_plan(const loop::Schedule& schedule) {
  GemmPlan plan;
  plan.kernel = find_gemm_kernel(schedule.kernel);
  STRIDEC_CHECK(plan.kernel, schedule.kernel);
  for (const loop::Directive& directive : schedule.directives) {
    bool known = false;
    for (const auto& [name, member] : kDims) {
      if (directive.name != name) continue;
      for (const std::string& arg : directive.args) (plan.*member).push_back(sym::parse(arg));
      known = true;
    }
    if (known) continue;
    STRIDEC_CHECK(!directive.args.empty(), directive.name);
    const std::string& value = directive.args[0];
    if (directive.name == "a") {
      using A = GemmPlan::A;
      plan.a = value == name(A::kPack) ? A::kPack : value == name(A::kLines) ? A::kLines : A::kDirect;
    } else if (directive.name == "b") {
      plan.b = value == "weights"   ? GemmPlan::B::kWeights
               : value == "compact" ? GemmPlan::B::kCompact
               : value == "direct"  ? GemmPlan::B::kDirect
                                    : GemmPlan::B::kStage;
      if (plan.b == GemmPlan::B::kWeights || plan.b == GemmPlan::B::kCompact)
        plan.panel = number(directive.args.at(1));
    } else if (directive.name == "bytes") {
      plan.bytes = number(value);
    } else if (directive.name == "tiles") {
      plan.tiles = number(value);
      if (directive.args.size() > 1) plan.least_tiles = number(directive.args[1]);
    } else if (directive.name == "chunk") {
      plan.chunk = number(value);
    } else if (directive.name == "order") {
      plan.rows_outer = value == "rows";
    } else {
      STRIDEC_CHECK(false, directive.name);
    }
  }
  return plan;
}

std::vector<loop::Dim> dims_by_name(const loop::Nest& nest, const Contraction& contraction,
                                    const std::vector<sym::Expr>& vars) {
  std::vector<loop::Dim> dims;
  for (sym::Expr var : vars) {
    for (const auto* list : {&nest.dims, &contraction.reduce->dims}) {
      for (const loop::Dim& dim : *list) {
        if (dim.var == var) dims.push_back(dim);
      }
    }
  }
  STRIDEC_CHECK(dims.size() == vars.size(), "a schedule names dims that the nest does not have");
  return dims;
}

}  // namespace stridec::kernels
