#include "compiler/schedule/layout/order_weights.h"

#include <algorithm>
#include <map>

#include "compiler/base/text.h"
#include "compiler/kernels/cuda_matrix.h"
#include "compiler/kernels/dual_gemm.h"
#include "compiler/kernels/gemm_plan.h"
#include "compiler/kernels/norm_prologue.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/directives/schedule.h"

namespace stridec::schedule {
namespace {

using loop::BufferId;
using sym::Expr;

// A dim of the copy: a dim of the weight, or `extent` elements of one, at offset + step*i.
struct Piece {
  size_t dim;
  int64_t step = 1, offset = 0, extent = -1;  // -1: all
  bool all() const { return extent < 0; }
  auto operator<=>(const Piece&) const = default;
};
using Order = std::vector<Piece>;

// The elements of each window that one phase of a strided transposed convolution reads: e == offset +
// step*var.
std::optional<Piece> piece_of(const loop::Nest& nest, size_t dim, Expr e, Expr var) {
  const auto linear = sym::linear_in(e, var);
  if (!linear || !linear->coefficient.is_const() || !linear->rest.is_const() ||
      linear->coefficient.is_const(0))
    return std::nullopt;
  std::optional<int64_t> extent;
  loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
    for (const loop::Dim& each : loop::dims_of(stmt))
      if (each.var == var) extent = sym::as_const(each.extent);
  });
  if (!extent) return std::nullopt;
  return Piece{dim, linear->coefficient.value(), linear->rest.value(), *extent};
}

// The weight's dims that the depth does not index, then those that it does, in the depth's order. Nothing if
// a dim of the depth indexes no dim of the weight, or if the weight has this order already.
std::optional<Order> wanted(const loop::Program& program, const loop::Nest& nest, const loop::Access& access,
                            const std::vector<Expr>& depth) {
  Order order, deep;
  for (Expr var : depth)
    for (size_t d = 0; d < access.index.size(); ++d) {
      if (!sym::depends_on(access.index[d], var)) continue;
      const auto piece = access.index[d] == var ? Piece{d} : piece_of(nest, d, access.index[d], var);
      if (!piece) return std::nullopt;
      deep.push_back(*piece);
    }
  if (deep.size() != depth.size()) return std::nullopt;
  for (size_t d = 0; d < access.index.size(); ++d)
    if (std::none_of(deep.begin(), deep.end(), [&](const Piece& piece) { return piece.dim == d; }))
      order.push_back({d});
  order.insert(order.end(), deep.begin(), deep.end());
  const loop::Buffer& buffer = program[access.buffer];
  for (Expr extent : buffer.shape)
    if (!extent.is_const()) return std::nullopt;
  const bool whole = std::all_of(order.begin(), order.end(), [](const Piece& piece) { return piece.all(); });
  if (whole && std::is_sorted(order.begin(), order.end()) && buffer.strides == loop::row_major(buffer.shape))
    return std::nullopt;
  return order;
}

// The load of the only weight of the factor, or null.
const loop::Load* weight_of(const loop::Program& program, const kernels::Factor& factor) {
  const loop::Load* load = nullptr;
  for (const loop::Stmt* stmt : factor.slice)
    if (const auto* l = std::get_if<loop::Load>(&stmt->node)) load = load ? nullptr : l;
  return load && program[load->access.buffer].storage == loop::Storage::kParameter ? load : nullptr;
}

BufferId add_copy(loop::Program& program, BufferId from, const Order& order) {
  const loop::Buffer source = program[from];
  loop::Buffer buffer{.name = source.name + ".ordered", .dtype = source.dtype};
  for (const Piece& piece : order)
    buffer.shape.push_back(piece.all() ? source.shape[piece.dim] : Expr(piece.extent));
  buffer.storage = loop::Storage::kParameter;
  buffer.prepacked = true;
  std::vector<loop::Dim> dims;
  loop::Access read{.buffer = from, .index = std::vector<Expr>(order.size(), 0)}, write;
  for (size_t i = 0; i < order.size(); ++i) {
    const Expr var = sym::var(cat("%i", i));
    dims.push_back({var, buffer.shape[i]});
    read.index[order[i].dim] = order[i].step * var + order[i].offset;
    write.index.push_back(var);
  }
  const BufferId id = loop::add_buffer(program, std::move(buffer));
  write.buffer = id;
  program.prepack.push_back(
      loop::add_nest(program, loop::copy_nest("order " + source.name, std::move(dims), std::move(read),
                                              loop::int_scalar(source.dtype, 0), std::move(write))));
  return id;
}

using Copies = std::map<std::pair<BufferId, Order>, BufferId>;

// Redirects a load of the nest to an ordered copy of its weight.
void turn(loop::Program& program, loop::NestId id, loop::ValueId result, BufferId from, const Order& order,
          Copies& made) {
  const auto [found, fresh] = made.emplace(std::pair(from, order), BufferId());
  if (fresh) found->second = add_copy(program, from, order);
  // The nest is looked up again, since adding a nest moves the others.
  loop::for_each_stmt(program[id].body, [&](loop::Stmt& stmt) {
    auto* target = std::get_if<loop::Load>(&stmt.node);
    if (!target || target->result != result) return;
    std::vector<Expr> index;
    for (const Piece& piece : order) {
      const Expr e = target->access.index[piece.dim];
      index.push_back(piece.all() ? e : sym::free_vars(e).front());
    }
    target->access.buffer = found->second;
    target->access.index = std::move(index);
  });
}

std::vector<loop::NestId> launched_nests(const loop::Program& program) {
  std::vector<loop::NestId> launched;
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    if (const auto* launch = std::get_if<loop::Launch>(&step.node)) launched.push_back(launch->nest);
  });
  return launched;
}

struct Turn {
  loop::ValueId result;
  BufferId from;
  Order order;
};

// Orders weights of windows that are computed for several neighbouring points (schedule.h): the points'
// vectors run along their last dim.
void order_window(loop::Program& program, loop::NestId id, Copies& made) {
  const loop::Nest& nest = program[id];
  if (!nest.schedule.kernel.empty()) return;
  const LoopPlan plan = parse_plan(nest.schedule);
  if (plan.points.empty()) return;
  const sym::Facts facts = loop::facts_of(program, nest);
  std::vector<Turn> turns;
  for (const loop::Stmt& stmt : nest.body)
    if (const loop::Block* block = loop::body_of(stmt))
      for (const loop::Stmt& inner : *block) {
        const auto* load = std::get_if<loop::Load>(&inner.node);
        if (!load || program[load->access.buffer].storage != loop::Storage::kParameter) continue;
        const auto stride = loop::stride_of(program, load->access, plan.points[0].dim, facts);
        if (stride && (stride->is_const(0) || stride->is_const(1))) continue;
        if (const auto order = wanted(program, nest, load->access, {plan.points[0].dim}))
          turns.push_back({load->result, load->access.buffer, *order});
      }
  for (const Turn& t : turns) turn(program, id, t.result, t.from, t.order, made);
}

}  // namespace

void order_staged_weights(loop::Program& program) {
  Copies made;
  for (loop::NestId id : launched_nests(program)) {
    if (!kernels::is_gemm(program[id].schedule)) continue;
    const kernels::GemmPlan plan = kernels::to_plan(program[id].schedule);
    const auto contraction = kernels::match_contraction(program[id]);
    if (plan.b != kernels::GemmPlan::B::kStage || !contraction || plan.columns.empty()) continue;
    const sym::Facts facts = kernels::facts_in(program, program[id], *contraction);
    const kernels::Factor& b =
        contraction->factors[kernels::side_of_columns(*contraction, plan.rows, plan.columns)];
    std::vector<Turn> turns;
    for (const loop::Stmt* stmt : b.slice) {
      const auto* load = std::get_if<loop::Load>(&stmt->node);
      if (!load || program[load->access.buffer].storage != loop::Storage::kParameter) continue;
      const auto linear =
          sym::linear_in(kernels::offset_of(program, load->access, facts), plan.columns.back());
      if (linear && (linear->coefficient.is_const(0) || linear->coefficient.is_const(1))) continue;
      if (const auto order = wanted(program, program[id], load->access, plan.columns))
        turns.push_back({load->result, load->access.buffer, *order});
    }
    for (const Turn& t : turns) turn(program, id, t.result, t.from, t.order, made);
  }
}

void order_along(loop::Program& program, const std::vector<DeepLoad>& loads) {
  Copies made;
  for (const DeepLoad& deep : loads) {
    const loop::Access* access = nullptr;
    loop::for_each_stmt(program[deep.nest].body, [&](const loop::Stmt& stmt) {
      const auto* load = std::get_if<loop::Load>(&stmt.node);
      if (load && load->result == deep.load) access = &load->access;
    });
    Order order, last;
    for (size_t d = 0; d < access->index.size(); ++d) {
      const bool in_depth = std::any_of(deep.depth.begin(), deep.depth.end(),
                                        [&](Expr var) { return sym::depends_on(access->index[d], var); });
      (in_depth ? last : order).push_back({d});
    }
    order.insert(order.end(), last.begin(), last.end());
    if (last.empty() || std::is_sorted(order.begin(), order.end())) continue;
    const BufferId from = access->buffer;
    turn(program, deep.nest, deep.load, from, order, made);
  }
}

bool orders_along(const loop::Program& program, const loop::Nest& nest, const kernels::Factor& factor,
                  const std::vector<Expr>& depth) {
  const loop::Load* load = weight_of(program, factor);
  return load && wanted(program, nest, load->access, depth).has_value();
}

void order_weights(loop::Program& program) {
  Copies made;
  for (loop::NestId id : launched_nests(program)) {
    if (!kernels::is_matrix(program[id].schedule)) {
      order_window(program, id, made);
      continue;
    }
    const kernels::MatrixPlan plan = kernels::to_matrix_plan(program[id].schedule);
    const loop::Nest behind = kernels::without_prologue(program[id]);
    const auto pair = kernels::match_dual_gemm(behind);
    const loop::Nest nest = pair ? pair->nest : behind;
    const auto contraction = kernels::match_contraction(nest);
    if (!contraction) continue;
    const sym::Facts facts = kernels::facts_in(program, nest, *contraction);
    for (const kernels::Factor& factor : contraction->factors) {
      const loop::Load* load = weight_of(program, factor);
      if (!load) continue;
      const Expr offset = kernels::offset_of(program, load->access, facts);
      auto contiguous = [&](const std::vector<Expr>& dims) {
        const auto linear = dims.empty() ? std::nullopt : sym::linear_in(offset, dims.back());
        return linear && linear->coefficient.is_const(1);
      };
      const std::vector<Expr>& side =
          !plan.rows.empty() && factor.vars.contains(plan.rows.back()) ? plan.rows : plan.columns;
      // For scalar threads, reading the rows of one step of the depth takes the fewest registers. Some tensor
      // core kernels require weights contiguous along the depth.
      const bool threads = !plan.kernel->is_tensor(), either = !kernels::wants_depth(*plan.kernel);
      if ((either && contiguous(side)) || (!threads && contiguous(plan.depth))) continue;
      auto order = threads ? wanted(program, nest, load->access, side) : std::nullopt;
      if (!order && !contiguous(plan.depth)) order = wanted(program, nest, load->access, plan.depth);
      if (!order) continue;
      turn(program, id, load->result, load->access.buffer, *order, made);
      if (pair) turn(program, id, pair->second_load, load->access.buffer, *order, made);
      break;  // a nest has one such weight
    }
  }
}

}  // namespace stridec::schedule
