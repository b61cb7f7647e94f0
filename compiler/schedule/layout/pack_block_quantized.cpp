#include "compiler/schedule/layout/pack_block_quantized.h"

#include <algorithm>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/kernels/block_quantized.h"
#include "compiler/kernels/gemm_plan.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/sym/text.h"

namespace stridec::schedule {
namespace {

using kernels::Contraction;
using kernels::GemmPlan;
using kernels::QuantizedPart;
using loop::BufferId;
using loop::Dim;
using loop::Nest;
using loop::Program;
using loop::ScalarOp;
using loop::Stmt;
using loop::ValueId;
using sym::Expr;

// The panels of one part: their dims, and the contraction's columns and batch dims in terms of these.
struct Panels {
  std::vector<Dim> dims;  // batch dims, panel, k / step, column
  sym::Substitution columns;
  Expr first_k, column, all_columns, depth;  // first_k: k of an entry's first element
  std::vector<Dim> k;
};

struct Frame {
  std::vector<Dim> batch, columns, k;  // batch: dims that index the factor
  int64_t panel = 0;
};

Frame frame_of(const Nest& nest, const Contraction& c, const GemmPlan& plan, const kernels::Factor& b) {
  Frame frame{.columns = kernels::dims_by_name(nest, c, plan.columns), .panel = plan.panel};
  for (const Dim& dim : kernels::dims_by_name(nest, c, plan.batch))
    if (b.vars.contains(dim.var)) frame.batch.push_back(dim);
  frame.k = kernels::dims_by_name(nest, c, plan.segments);
  const std::vector<Dim> run = kernels::dims_by_name(nest, c, plan.run);
  frame.k.insert(frame.k.end(), run.begin(), run.end());
  return frame;
}

// The number of elements of k between two entries of the panels.
Expr stride_of(const QuantizedPart& part, Expr depth) {
  return part.bits ? Expr(part.per_word()) : part.step ? Expr(part.step) : depth;
}

Panels panels_of(const Frame& frame, const QuantizedPart& part) {
  Panels panels;
  auto add = [&](Expr extent) {
    panels.dims.push_back({sym::var(cat("%i", panels.dims.size())), extent});
    return panels.dims.back().var;
  };
  for (const Dim& dim : frame.batch) panels.columns[dim.var] = add(dim.extent);
  panels.all_columns = extent_of(frame.columns), panels.depth = extent_of(frame.k), panels.k = frame.k;
  const Expr stride = stride_of(part, panels.depth);
  const Expr panel = add(sym::ceildiv(panels.all_columns, frame.panel));
  panels.first_k = add(sym::ceildiv(panels.depth, stride)) * stride;
  panels.column = panel * frame.panel + add(frame.panel);
  kernels::unflatten(panels.column, frame.columns, panels.columns);
  return panels;
}

// Emits the nest that fills panels.
class Packer {
 public:
  Packer(const Program& program, const Nest& from, const std::vector<const Stmt*>& slice, ValueId value,
         const Panels& panels, Nest& into)
      : from_(from), slice_(slice), value_(value), panels_(panels), into_(into), facts_(program.facts) {
    for (const Dim& dim : panels.dims) facts_.set_index(dim.var, dim.extent);
  }

  // The part's element at k, or `otherwise` beyond the last column or the last k.
  ValueId element(Expr k, const loop::Scalar& otherwise) {
    loop::Cloner cloner(into_);
    sym::Substitution to = panels_.columns;
    kernels::unflatten(k, panels_.k, to);
    for (const auto& [variable, replacement] : to) cloner.map(variable, replacement);
    const Expr inside =
        sym::logical_and(sym::lt(panels_.column, panels_.all_columns), sym::lt(k, panels_.depth));
    for (const Stmt* stmt : slice_) {
      into_.body.push_back(cloner.clone(from_, *stmt));
      if (loop::Access* access = loop::access_of(into_.body.back()))
        access->mask = sym::logical_and(access->mask, inside);
    }
    const ValueId value = cloner.value(value_);
    if (facts_.holds(inside)) return value;
    loop::Writer w{into_, into_.body};
    const ValueId in = w.index(inside, DType::kBool);
    return w.let(ScalarOp::kSelect, otherwise.dtype, {in, value, w.constant(otherwise)});
  }

  // A word of as many values as fit, the first k in the lowest bits.
  ValueId word(const QuantizedPart& part, DType dtype) {
    loop::Writer w{into_, into_.body};
    ValueId word;
    for (int64_t i = 0; i < part.per_word(); ++i) {
      ValueId bits = w.let(ScalarOp::kCast, DType::kI32,
                           {element(panels_.first_k + i, loop::int_scalar(dtype, part.low))});
      if (part.low != 0) bits = w.let(ScalarOp::kSub, DType::kI32, {bits, w.number(part.low)});
      if (i > 0) bits = w.let(ScalarOp::kShl, DType::kI32, {bits, w.number(i * part.bits)});
      word = i > 0 ? w.let(ScalarOp::kBitOr, DType::kI32, {word, bits}) : bits;
    }
    return word;
  }

 private:
  const Nest& from_;
  const std::vector<const Stmt*>& slice_;
  ValueId value_;
  const Panels& panels_;
  Nest& into_;
  sym::Facts facts_;
};

BufferId add_panels(Program& program, const Nest& nest, const std::vector<const Stmt*>& slice,
                    const QuantizedPart& part, const Panels& panels) {
  std::string source = "weight";
  for (const Stmt* stmt : slice)
    if (const auto* load = std::get_if<loop::Load>(&stmt->node)) source = program[load->access.buffer].name;
  const DType dtype = nest.values[part.value.value].dtype;
  loop::Buffer buffer{.name = source + ".panels", .dtype = part.bits ? DType::kI32 : dtype};
  for (const Dim& dim : panels.dims) buffer.shape.push_back(dim.extent);
  buffer.storage = loop::Storage::kParameter;
  buffer.prepacked = true;
  Nest pack{.name = "pack " + source, .nodes = nest.nodes, .dims = panels.dims};
  Packer packer(program, nest, slice, part.value, panels, pack);
  const loop::Scalar zero = loop::int_scalar(dtype, 0);
  const ValueId value = part.bits ? packer.word(part, dtype) : packer.element(panels.first_k, zero);
  const BufferId id = loop::add_buffer(program, std::move(buffer));
  loop::Store store{.access = {.buffer = id}, .value = value};
  for (const Dim& dim : panels.dims) store.access.index.push_back(dim.var);
  pack.body.push_back({std::move(store)});
  loop::clean(program, pack);
  program.prepack.push_back(loop::add_nest(program, std::move(pack)));
  return id;
}

// Statements that compute the part's value at the contraction's point from its panels.
loop::Block read(Nest& nest, const Frame& frame, const QuantizedPart& part, BufferId panels) {
  const Expr column = kernels::flattened(frame.columns), k = kernels::flattened(frame.k);
  const Expr stride = stride_of(part, extent_of(frame.k));
  loop::Access access{.buffer = panels};
  for (const Dim& dim : frame.batch) access.index.push_back(dim.var);
  access.index.push_back(sym::floordiv(column, frame.panel));
  access.index.push_back(part.bits || part.step ? sym::floordiv(k, stride) : Expr(0));
  access.index.push_back(sym::mod(column, frame.panel));
  const DType dtype = nest.values[part.value.value].dtype;
  loop::Block block;
  if (!part.bits) {
    const loop::Scalar zero = loop::int_scalar(dtype, 0);
    block.push_back({loop::Load{part.value, std::move(access), zero}});
    return block;
  }
  loop::Writer w{nest, block};
  const auto let = [&](ScalarOp op, ValueId x, ValueId y) { return w.let(op, DType::kI32, {x, y}); };
  const ValueId word = w.load(DType::kI32, std::move(access));
  const ValueId shift = w.index(sym::mod(k, part.per_word()) * part.bits, DType::kI32);
  const ValueId mask = w.number((int64_t{1} << part.bits) - 1);
  ValueId value = let(ScalarOp::kBitAnd, let(ScalarOp::kShr, word, shift), mask);
  if (part.low != 0) value = let(ScalarOp::kAdd, value, w.number(part.low));
  block.push_back({loop::Let{part.value, ScalarOp::kCast, {value}}});
  return block;
}

// The block that defines the value, and the position in it.
std::pair<loop::Block*, std::ptrdiff_t> place_of(ValueId value, loop::Block& first, loop::Block& second) {
  for (loop::Block* block : {&first, &second}) {
    for (size_t i = 0; i < block->size(); ++i) {
      bool found = false;
      loop::for_each_result((*block)[i], [&](ValueId result) { found = found || result == value; });
      if (found) return {block, static_cast<std::ptrdiff_t>(i)};
    }
  }
  STRIDEC_CHECK(false, "a part of a factor is not defined");
}

// Replaces conversions of `converted` by conversions of the value it was converted from, which is equal.
void skip_conversions(loop::Block& block, ValueId converted) {
  ValueId wide;
  for (const Stmt& stmt : block)
    if (const auto* let = std::get_if<loop::Let>(&stmt.node); let && let->result == converted)
      wide = let->args[0];
  for (Stmt& stmt : block) {
    auto* let = std::get_if<loop::Let>(&stmt.node);
    if (let && (let->op == ScalarOp::kCast || let->op == ScalarOp::kCastSat) && let->args[0] == converted)
      let->args[0] = wide;
  }
}

}  // namespace

std::string contents(const std::vector<Dim>& dims, const std::vector<const Stmt*>& slice,
                     const sym::Substitution& replaced, const Nest& nest) {
  std::string key;
  for (const Dim& dim : dims) key += cat(dim.extent, " ");
  std::map<int32_t, size_t> number;
  auto spelled = [&](loop::ValueId id) {
    return cat("%", number.emplace(id.value, number.size()).first->second);
  };
  for (const Stmt* stmt : slice) {
    std::visit(loop::Overloaded{
                   [&](const loop::Let& s) {
                     key += cat("op", static_cast<int>(s.op));
                     for (loop::ValueId arg : s.args) key += spelled(arg);
                   },
                   [&](const loop::Constant& s) { key += cat("const", s.value.f, ",", s.value.i); },
                   [&](const loop::IndexValue& s) { key += cat("index", sym::substitute(s.expr, replaced)); },
                   [&](const loop::Load& s) {
                     key += cat("load", s.access.buffer.value, "[");
                     for (Expr e : s.access.index) key += cat(sym::substitute(e, replaced), ",");
                     key += cat("]", sym::substitute(s.access.mask, replaced), ",", s.fill.f);
                   },
                   [&](const auto&) { STRIDEC_CHECK(false, "statement in a factor"); },
               },
               stmt->node);
    loop::for_each_result(*stmt, [&](loop::ValueId id) {
      key += cat("=", spelled(id), name(nest.values[id.value].dtype), ";");
    });
  }
  return key;
}

void pack_block_quantized(Program& program, loop::NestId id, std::map<std::string, BufferId>& made) {
  if (!kernels::is_gemm(program[id].schedule)) return;
  const GemmPlan plan = kernels::to_plan(program[id].schedule);
  if (plan.b != GemmPlan::B::kCompact) return;
  const Nest nest = program[id];  // adding nests moves the program's
  const auto contraction = kernels::match_contraction(nest);
  STRIDEC_CHECK(contraction && !plan.columns.empty(), nest.name);
  const size_t side = kernels::side_of_columns(*contraction, plan.rows, plan.columns);
  const kernels::Factor& b = contraction->factors[side];
  const bool packed = std::any_of(b.slice.begin(), b.slice.end(), [&](const Stmt* stmt) {
    const loop::Access* access = loop::access_of(*stmt);
    return access && program[access->buffer].name.ends_with(".panels");
  });
  if (packed) return;
  const Frame frame = frame_of(nest, *contraction, plan, b);
  const auto parts = kernels::quantized_parts(program, nest, b, frame.columns, frame.k);
  STRIDEC_CHECK(parts.has_value(), nest.name);
  for (const QuantizedPart& part : *parts) {
    const auto slice = kernels::slice_of(b.slice, part.value);
    const Panels panels = panels_of(frame, part);
    sym::Substitution at = panels.columns;
    kernels::unflatten(panels.first_k, frame.k, at);
    const auto [found, fresh] = made.emplace(cat("compact ", part.bits, " ", part.step, " ", part.low, " ",
                                                 contents(panels.dims, slice, at, nest)),
                                             BufferId());
    if (fresh) found->second = add_panels(program, nest, slice, part, panels);
    Nest& target = program[id];
    loop::Block& summed = std::get<loop::Reduce>(target.body[contraction->at].node).body;
    // A part that is the same for all k is defined before the sum.
    const auto [body, at_part] = place_of(part.value, target.body, summed);
    const loop::Block reading = read(target, frame, part, found->second);
    const auto place = body->erase(body->begin() + at_part);
    body->insert(place, reading.begin(), reading.end());
    if (part.bits) skip_conversions(*body, part.value);
  }
  loop::eliminate_dead(program[id]);
}

}  // namespace stridec::schedule
