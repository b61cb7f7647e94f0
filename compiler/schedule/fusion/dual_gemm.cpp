#include "compiler/schedule/fusion/dual_gemm.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/kernels/contraction.h"
#include "compiler/kernels/dual_gemm.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/fusion/fusion_join.h"
#include "compiler/schedule/heuristics/cuda_contraction.h"

namespace stridec::schedule {
namespace {

using loop::Access;
using loop::BufferId;
using loop::Launch;
using loop::Load;
using loop::Nest;
using loop::Program;
using loop::Reduce;
using loop::Stmt;
using loop::Store;
using sym::Expr;

// Positions of a buffer's stores or loads among the statements outside of loops.
template <class T>
std::vector<size_t> positions(const Nest& nest, BufferId buffer) {
  std::vector<size_t> out;
  for (size_t i = 0; i < nest.body.size(); ++i) {
    const auto* access = std::get_if<T>(&nest.body[i].node);
    if (access && access->access.buffer == buffer) out.push_back(i);
  }
  return out;
}

void erase(Nest& nest, std::vector<size_t> at) {
  std::sort(at.rbegin(), at.rend());
  for (size_t i : at) nest.body.erase(nest.body.begin() + static_cast<std::ptrdiff_t>(i));
}

// Forwards the value stored in the buffer to its loads and removes the store. Returns nothing if the elements
// differ.
std::optional<Nest> forwarded(Nest nest, BufferId buffer) {
  const auto stores = positions<Store>(nest, buffer), loads = positions<Load>(nest, buffer);
  if (stores.size() != 1 || loads.empty()) return std::nullopt;
  const Store store = std::get<Store>(nest.body[stores[0]].node);
  if (store.update || !store.access.mask.is_const(1)) return std::nullopt;
  for (size_t i : loads) {
    const Load load = std::get<Load>(nest.body[i].node);
    if (i < stores[0] || !load.access.mask.is_const(1) || !(load.access.index == store.access.index))
      return std::nullopt;
    loop::replace_uses(nest.body, load.result, store.value);
  }
  std::vector<size_t> gone = loads;
  gone.push_back(stores[0]);
  erase(nest, std::move(gone));
  return nest;
}

// Replaces each of the two loads of the buffer in the pointwise nest `user` by the GEMM that computes the
// element.
std::optional<Nest> with_products(const Program& program, const Nest& product, const Nest& user,
                                  BufferId buffer) {
  const auto stores = positions<Store>(product, buffer), loads = positions<Load>(user, buffer);
  if (stores.size() != 1 || loads.size() != 2 || !is_pointwise(user)) return std::nullopt;
  const Store& store = std::get<Store>(product.body[stores[0]].node);
  if (!store.access.mask.is_const(1)) return std::nullopt;
  Nest out = user;
  out.body.clear();
  const sym::Facts facts = loop::facts_of(program, user);
  for (const Stmt& stmt : user.body) {
    const auto* load = std::get_if<Load>(&stmt.node);
    if (!load || !(load->access.buffer == buffer)) {
      out.body.push_back(stmt);
      continue;
    }
    const auto at = load->access.mask.is_const(1)
                        ? loop::invert(product, store.access, load->access.index, facts)
                        : std::nullopt;
    if (!at) return std::nullopt;
    loop::Cloner cloner(out);
    for (const loop::Dim& dim : product.dims) {
      const auto found = at->find(dim.var);
      if (found == at->end()) return std::nullopt;
      cloner.map(dim.var, found->second);
    }
    for (size_t i = 0; i < product.body.size(); ++i)
      if (i != stores[0]) out.body.push_back(cloner.clone(product, product.body[i]));
    const loop::ValueId value = cloner.value(store.value), result = load->result;
    // Later statements of the user read the GEMM's value in place of the loaded one.
    out.body.push_back({loop::Let{result, loop::ScalarOp::kCast, {value}}});
  }
  return out;
}

// Columns of two weights, or of one, that are to be interleaved.
struct Columns {
  BufferId first, second;
  size_t dim = 0;                    // of both weights
  Expr column = 0;                   // dim of the nest
  Expr at_first = 0, at_second = 0;  // indices of column 0
  int64_t count = 0;
};

std::optional<Columns> columns_of(const Program& program, const Nest& nest) {
  const auto at = kernels::two_sums(nest);
  if (!at) return std::nullopt;
  const auto &a = std::get<Reduce>(nest.body[at->first].node),
             &b = std::get<Reduce>(nest.body[at->second].node);
  const auto loads = kernels::differing_loads(nest, a, b);
  if (!loads) return std::nullopt;
  const Access &x = loads->first->access, &y = loads->second->access;
  const loop::Buffer &first = program[x.buffer], &second = program[y.buffer];
  if (first.storage != loop::Storage::kParameter || second.storage != loop::Storage::kParameter ||
      first.dtype != second.dtype || first.shape.size() != second.shape.size())
    return std::nullopt;
  sym::Substitution dims;
  for (size_t d = 0; d < a.dims.size(); ++d) dims[a.dims[d].var] = b.dims[d].var;
  std::optional<Columns> out;
  for (size_t i = 0; i < x.index.size(); ++i) {
    const Expr own = sym::substitute(x.index[i], dims);
    if (own == y.index[i] && first.shape[i] == second.shape[i] &&
        std::none_of(nest.dims.begin(), nest.dims.end(),
                     [&](const loop::Dim& d) { return sym::depends_on(own, d.var); }))
      continue;
    if (out) return std::nullopt;
    for (const loop::Dim& dim : nest.dims) {
      const Expr p = sym::simplify(x.index[i] - dim.var, program.facts),
                 q = sym::simplify(y.index[i] - dim.var, program.facts);
      if (p.is_const() && q.is_const() && dim.extent.is_const())
        out = Columns{x.buffer, y.buffer, i, dim.var, p, q, dim.extent.value()};
    }
    if (!out) return std::nullopt;
  }
  if (!out || out->count % kernels::kPairBlock) return std::nullopt;
  return out;
}

// Makes the nest read both weights' columns from one buffer, `both`.
void interleave(Nest& nest, const Columns& columns, BufferId both) {
  const auto at = *kernels::two_sums(nest);
  const auto loads = *kernels::differing_loads(nest, std::get<Reduce>(nest.body[at.first].node),
                                               std::get<Reduce>(nest.body[at.second].node));
  const loop::ValueId first = loads.first->result, second = loads.second->result;
  loop::for_each_stmt(nest.body, [&](Stmt& stmt) {
    auto* load = std::get_if<Load>(&stmt.node);
    if (!load || !(load->result == first || load->result == second)) return;
    load->access.buffer = both;
    load->access.index[columns.dim] =
        kernels::paired_index(columns.column) + (load->result == second ? kernels::kPairBlock : 0);
  });
}

BufferId add_both(Program& program, const Columns& columns) {
  const loop::Buffer& first = program[columns.first];
  loop::Buffer buffer{.name = first.name + ".paired", .dtype = first.dtype, .shape = first.shape};
  buffer.shape[columns.dim] = 2 * columns.count;
  buffer.storage = loop::Storage::kParameter;
  buffer.prepacked = true;
  return loop::add_buffer(program, std::move(buffer));
}

void fill(Program& program, const Columns& columns, BufferId both) {
  for (const bool second : {false, true}) {
    const BufferId from = second ? columns.second : columns.first;
    const loop::Buffer source = program[from];
    std::vector<loop::Dim> dims;
    Access read{.buffer = from, .index = {}}, write{.buffer = both, .index = {}};
    for (size_t d = 0; d < source.shape.size(); ++d) {
      const Expr var = sym::var("%i" + std::to_string(d));
      const bool along = d == columns.dim;
      dims.push_back({var, along ? Expr(columns.count) : source.shape[d]});
      read.index.push_back(along ? var + (second ? columns.at_second : columns.at_first) : var);
      write.index.push_back(along ? kernels::paired_index(var) + (second ? kernels::kPairBlock : 0) : var);
    }
    program.prepack.push_back(
        loop::add_nest(program, loop::copy_nest("pair " + source.name, std::move(dims), std::move(read),
                                                loop::int_scalar(source.dtype, 0), std::move(write))));
  }
}

// Whether the model expects the dual GEMM to take no longer than the GEMM and its reader, on average over
// sizes.
bool dual_gemm_pays(const Program& program, const Nest& pair, const Nest& product, const Nest& user,
                    bool gate, const GpuTarget& target) {
  constexpr double kLaunch = 3000;  // cycles of an additional kernel
  const auto now = expected_of_product(program, pair, target),
             first = expected_of_product(program, product, target),
             second = gate ? expected_of_product(program, user, target) : std::vector<ExpectedAt>();
  if (now.empty() || now.size() != first.size() || (gate && now.size() != second.size())) return false;
  double logs = 0;
  for (size_t i = 0; i < now.size(); ++i) {
    const double other = gate ? second[i].cycles : expected_of_memory(program, user, target, now[i].sizes);
    logs += now[i].weight * std::log((now[i].cycles + kLaunch) / (first[i].cycles + other + 2 * kLaunch));
  }
  return logs <= 0;
}

class Pairing {
 public:
  Pairing(Program& program, const GpuTarget& target) : program_(program), target_(target) {}

  void steps(loop::Steps& steps) {
    Flow flow(program_, steps);
    for (int at = 1; at < static_cast<int>(steps.size()); ++at)
      for (int before = at - 1; before >= 0; --before)
        if (const int made = pair(steps, flow, before, at); made >= 0) {
          at = made;
          break;
        }
  }

 private:
  // Fuses the two steps and returns the position of the new kernel, or -1.
  int pair(loop::Steps& steps, Flow& flow, int before, int at) {
    const Nest *product = nest_at(program_, steps, before), *user = nest_at(program_, steps, at);
    if (!product || !user || !product->schedule.kernel.empty() || !user->schedule.kernel.empty()) return -1;
    const auto passes = passing(flow, before, at);
    if (!passes || !kernels::match_contraction(*product)) return -1;
    const bool gate = kernels::match_contraction(*user).has_value();
    std::optional<Nest> both =
        gate ? merged(*product, *user, *passes) : with_products(program_, *product, *user, *passes);
    if (!both) return -1;
    loop::clean(program_, *both);
    const auto columns = columns_of(program_, *both);
    if (!columns) return -1;
    // With one row only memory counts, and gemv_fusion.h applies.
    Expr rows = 1;
    for (const loop::Dim& dim : both->dims)
      if (!(dim.var == columns->column)) rows = rows * dim.extent;
    if (program_.facts.bounds(rows).hi <= 1) return -1;
    const bool down = may_move(program_, steps, flow, before, at);
    if (!down && !may_move(program_, steps, flow, at, before)) return -1;
    const Nest product_now = *product, user_now = *user;  // copies, since adding nests invalidates pointers
    const BufferId weights = add_both(program_, *columns);
    interleave(*both, *columns, weights);
    if (!kernels::match_dual_gemm(*both)) return -1;
    if (!dual_gemm_pays(program_, *both, product_now, user_now, gate, target_)) return -1;
    fill(program_, *columns, weights);
    both->name = fused_name(product_now, user_now);
    both->nodes = product_now.nodes;
    join_nodes(*both, user_now.nodes);
    return replace_steps(program_, steps, flow, down ? at : before, {down ? before : at}, *std::move(both));
  }

  // The one buffer that passes between the two and has no other reader.
  std::optional<BufferId> passing(const Flow& flow, int before, int at) const {
    std::optional<BufferId> out;
    for (const BufferId id : flow.effects(before).writes) {
      if (out || !reads(flow.effects(at), id) || !passes_once(program_, flow, id)) return std::nullopt;
      out = id;
    }
    return out;
  }

  std::optional<Nest> merged(const Nest& product, const Nest& user, BufferId passes) const {
    const Matching matching = match_dims(program_, product, user, exchanges_between(product, user).ordered);
    if (matching.size() != product.dims.size() || matching.size() != user.dims.size()) return std::nullopt;
    return forwarded(merged_nest(product, user, matching), passes);
  }

  Program& program_;
  const GpuTarget& target_;
};

}  // namespace

void fuse_dual_gemm(Program& program, const GpuTarget& target) {
  Pairing pairing(program, target);
  loop::for_each_block(program.steps, [&](loop::Steps& steps) { pairing.steps(steps); });
}

}  // namespace stridec::schedule
