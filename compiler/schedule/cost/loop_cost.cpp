#include "compiler/schedule/cost/loop_cost.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/vectorize_analysis.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/typical.h"

namespace stridec::schedule {
namespace {

using sym::Expr;

constexpr double kGather = 1.5;    // per lane of an access without unit stride
constexpr double kFarGather = 2;   // ... where every lane is in its own cache line
constexpr double kPageGather = 4;  // ... and in its own page: all map to one set of L1
constexpr double kSpread = 3;      // per access whose lanes share the elements of one vector
constexpr double kNear = 8;        // ... that starts at any element

// How a computed value differs between lanes: not at all; only through lookups that step from a common start,
// so that lanes stay near each other; from the start.
enum class Differs { kNever, kNear, kFar };
constexpr int64_t kManyStrips = int64_t{1} << 40;
constexpr double kScalarPenalty = 1.0;  // of one scalar access
// The most bytes of an element that all lanes share for which it limits their number: a wider one stays a
// scalar, or takes several registers where it meets the lanes.
constexpr int kWidestScalar = 4;

}  // namespace

std::optional<double> strided_load_cycles(int64_t stride, int bytes, bool masked, const CpuTarget& target) {
  constexpr double kPiece = 1.5;  // per vector that is loaded and shuffled
  constexpr int64_t kMost = 3;
  if (stride < 2 || stride > kMost || bytes < 4 || (masked && !target.avx2)) return std::nullopt;
  return kPiece * static_cast<double>(stride);
}

// How the values of a block and the variables it binds differ between lanes.
struct LoopCost::Difference {
  std::map<loop::ValueId, Differs> values;
  std::map<Expr, Differs, sym::ExprLess> vars;

  Differs of(loop::ValueId id) const {
    const auto found = values.find(id);
    return found == values.end() ? Differs::kNever : found->second;
  }
  Differs of(Expr e) const {
    Differs most = Differs::kNever;
    for (const Expr& var : sym::free_vars(e))
      if (const auto found = vars.find(var); found != vars.end()) most = std::max(most, found->second);
    return most;
  }
};

LoopCost::LoopCost(const loop::Program& program, loop::Nest nest, const CpuTarget& target)
    : program_(program), nest_(std::move(nest)), target_(target), facts_(loop::facts_of(program, nest_)) {
  loop::for_each_stmt(nest_.body, [&](const loop::Stmt& stmt) { loop::add_facts(facts_, stmt); });
}

int LoopCost::lanes(Expr var) const {
  const auto found = lanes_.find(var);
  if (found != lanes_.end()) return found->second;
  Difference known;
  add_differences(nest_.body, var, known);
  int bytes = 1;
  loop::for_each_stmt(nest_.body, [&](const loop::Stmt& stmt) {
    const loop::Access* access = loop::access_of(stmt);
    if (!access) return;
    const DType dtype = program_[access->buffer].dtype;
    const int size = is_storage_float(dtype) ? 4 : byte_size(dtype);
    bytes = std::max(bytes, differs(*access, var, known) ? size : std::min(size, kWidestScalar));
  });
  return lanes_[var] = std::clamp(target_.vector_bytes / bytes, 4, 64);
}

// Whether the lanes access several elements.
bool LoopCost::differs(const loop::Access& access, Expr var, const Difference& known) const {
  return program_[access.buffer].storage == loop::Storage::kLocal ||
         std::any_of(access.index.begin(), access.index.end(),
                     [&](Expr at) { return sym::depends_on(at, var) || known.of(at) != Differs::kNever; });
}

double LoopCost::trips(Expr extent, At at) const {
  if (at == At::kTypical) return std::max(1.0, typical(extent, facts_));
  const auto least = sym::evaluate(extent, [&](Expr var) -> std::optional<int64_t> {
    const sym::Interval range = facts_.bounds(var);
    return std::max<int64_t>(1, range.has_lo() ? range.lo : 1);
  });
  return least ? std::max(1.0, static_cast<double>(*least)) : 1;
}

double LoopCost::points(At at) const {
  double count = 1;
  for (const loop::Dim& dim : nest_.dims) count *= trips(dim.extent, at);
  return count;
}

double LoopCost::steps() const {
  if (!steps_) steps_ = trips(loop::cost_of(program_, nest_).steps);
  return *steps_;
}

const std::optional<Expr>& LoopCost::stride(const loop::Access& access, Expr var) const {
  auto& known = strides_[&access];
  const auto found = known.find(var);
  if (found != known.end()) return found->second;
  return known.emplace(var, loop::stride_of(program_, access, var, facts_)).first->second;
}

bool LoopCost::is_shared(const loop::Stmt& stmt, const loop::Access& access, const Together& together) {
  if (!std::holds_alternative<loop::Load>(stmt.node)) return false;
  const auto depends = [&](Expr e) { return sym::depends_on(e, together.dim); };
  return !depends(access.mask) && std::none_of(access.index.begin(), access.index.end(), depends);
}

void LoopCost::add_differences(const loop::Block& block, Expr var, Difference& known) const {
  for (const loop::Stmt& stmt : block) {
    const auto* scan = std::get_if<loop::Scan>(&stmt.node);
    if (scan)
      for (size_t i = 0; i < scan->carried.size(); ++i)
        known.values[scan->carried[i]] = known.of(scan->init[i]);
    if (const loop::Block* body = loop::body_of(stmt)) add_differences(*body, var, known);
    for (size_t i = 0; scan && i < scan->carried.size(); ++i)
      if (known.of(scan->yields[i]) != Differs::kNever && known.of(scan->carried[i]) == Differs::kNever)
        known.values[scan->carried[i]] = Differs::kNear;
    if (scan) add_differences(scan->body, var, known);
    Differs most = Differs::kNever;
    loop::for_each_use(stmt, [&](loop::ValueId id) { most = std::max(most, known.of(id)); });
    loop::for_each_expr(
        stmt, [&](Expr e) { most = std::max(most, sym::depends_on(e, var) ? Differs::kFar : known.of(e)); });
    if (const auto* load = std::get_if<loop::Load>(&stmt.node);
        load && program_[load->access.buffer].storage == loop::Storage::kLocal)
      most = Differs::kFar;  // each point has its own
    loop::for_each_result(stmt, [&](loop::ValueId id) { known.values[id] = most; });
    if (const auto* bind = std::get_if<loop::Bind>(&stmt.node)) known.vars[bind->var] = most;
  }
}

double LoopCost::access_cost(const loop::Access& access, bool loads, Expr var,
                             const Difference& known) const {
  const int lanes = this->lanes(var);
  Differs looked_up = Differs::kNever;
  bool moves = false;
  for (const Expr& at : access.index) {
    looked_up = std::max(looked_up, known.of(at));
    moves = moves || sym::depends_on(at, var);
  }
  if (looked_up != Differs::kNever)
    return (looked_up == Differs::kFar || moves ? kFarGather : kGather) * lanes;
  if (const std::optional<Expr>& step = stride(access, var)) {
    if (step->is_const(0) || step->is_const(1)) return 1;
    const DType dtype = program_[access.buffer].dtype;
    if (const auto apart = sym::as_const(*step); apart && loads)
      if (const auto cycles =
              strided_load_cycles(*apart, byte_size(dtype), sym::depends_on(access.mask, var), target_))
        return *cycles;
    constexpr double kLine = 64, kPage = 4096;
    const double bytes = std::fabs(typical(*step, facts_)) * byte_size(dtype);
    return (bytes < kLine ? kGather : bytes < kPage ? kFarGather : kPageGather) * lanes;
  }
  sym::Facts facts = facts_;
  facts.set_index(loop::strip(), kManyStrips);
  const Expr offset = loop::offset_of(program_, access);
  const auto spread = loop::spread_of(offset, var, lanes, facts);
  if (spread && spread->elements() <= lanes) return kSpread;
  const bool near = target_.avx512 && byte_size(program_[access.buffer].dtype) == 4 &&
                    loop::grows_by_at_most_one(offset, var, facts_) && loop::never_falls(offset, var, facts_);
  return near ? kNear : kGather * lanes;
}

double LoopCost::of(const loop::Block& block, Expr var, At at, const Together* together) const {
  const auto compute = [&] {
    Difference known;
    add_differences(block, var, known);
    return cost(block, &var, at, together, known);
  };
  if (together) return compute();
  auto& costs = costs_[{&block, at}];
  const auto found = costs.find(var);
  return found != costs.end() ? found->second : costs.emplace(var, compute()).first->second;
}

double LoopCost::along(const loop::Block& block, const loop::Dim& dim, At at, bool halves,
                       const Together* together) const {
  const int lanes = this->lanes(dim.var);
  const double vector = of(block, dim.var, at, together) + kLoopOverhead;
  const auto count = sym::as_const(dim.extent);
  if (target_.avx512 || !count || *count < 1) return vector * std::ceil(trips(dim.extent, at) / lanes);
  int64_t vectors = *count / lanes, left = *count % lanes;
  if (halves && left >= lanes / 2) ++vectors, left -= lanes / 2;
  const double single = left == 0 ? 0 : cost(block, nullptr, at, nullptr, {}) + kLoopOverhead;
  return static_cast<double>(vectors) * vector + static_cast<double>(left) * single;
}

double LoopCost::cost(const loop::Block& block, const Expr* var, At at, const Together* together,
                      const Difference& known) const {
  double sum = 0;
  for (const loop::Stmt& stmt : block) sum += cost(stmt, var, at, together, known);
  return sum;
}

// Without `var` everything is scalar.
double LoopCost::cost(const loop::Stmt& stmt, const Expr* var, At at, const Together* together,
                      const Difference& known) const {
  if (const loop::Access* access = loop::access_of(stmt)) {
    if (!var) return kScalarPenalty;
    const double once = access_cost(*access, std::holds_alternative<loop::Load>(stmt.node), *var, known);
    return (together && is_shared(stmt, *access, *together) ? once / together->count : once) +
           (sym::depends_on(access->mask, *var) ? 2 : 0);
  }
  if (const auto* let = std::get_if<loop::Let>(&stmt.node)) return 0.5 * loop::info(let->op).cost;
  const loop::Block* body = loop::body_of(stmt);
  if (!body) return 0.5;
  double inner = cost(*body, var, at, together, known) + kLoopOverhead / (together ? together->count : 1);
  for (const loop::Dim& dim : loop::dims_of(stmt)) inner *= trips(dim.extent, at);
  return inner;
}

double LoopCost::best(const loop::Stmt& stmt, At at, std::vector<Expr>& chosen) const {
  const loop::Block* body = loop::body_of(stmt);
  if (!body) return cost(stmt, nullptr, at, nullptr, {});
  const std::vector<loop::Dim> dims = loop::dims_of(stmt);
  double all = 1;
  for (const loop::Dim& dim : dims) all *= trips(dim.extent, at);
  std::vector<Expr> below;
  double least = (best(*body, at, below) + kLoopOverhead) * all;
  if (std::holds_alternative<loop::Scan>(stmt.node)) {
    chosen.insert(chosen.end(), below.begin(), below.end());
    return least;
  }
  const Expr* along = nullptr;
  for (const loop::Dim& dim : dims) {
    if (sym::has_index(dim.extent) && dims.size() > 1) continue;
    if (!loop::stores_apart(*body, dim.var) || loop::moves_extents(*body, dim.var)) continue;
    const double n = trips(dim.extent, at);
    double with = this->along(*body, dim, at, false) * all / n;
    if (std::holds_alternative<loop::Reduce>(stmt.node)) with += 12;  // reduces the lanes to one value
    if (with < least) {
      least = with;
      along = &dim.var;
    }
  }
  if (along)
    chosen.push_back(*along);
  else
    chosen.insert(chosen.end(), below.begin(), below.end());
  return least;
}

double LoopCost::best(const loop::Block& block, At at, std::vector<Expr>& chosen) const {
  double sum = 0;
  for (const loop::Stmt& stmt : block) sum += best(stmt, at, chosen);
  return sum;
}

}  // namespace stridec::schedule
