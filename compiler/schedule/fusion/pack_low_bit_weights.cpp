#include "compiler/schedule/fusion/pack_low_bit_weights.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/kernels/cuda_matrix.h"
#include "compiler/kernels/packed_weights.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/fusion/fusion_rules.h"

namespace stridec::schedule {
namespace {

using kernels::Contraction;
using kernels::Factor;
using kernels::PackedLayout;
using kernels::QuantizedFactor;
using loop::Block;
using loop::BufferId;
using loop::Dim;
using loop::Nest;
using loop::Program;
using loop::ScalarOp;
using loop::Stmt;
using loop::ValueId;
using loop::Writer;
using sym::Expr;
using Dims = std::vector<Dim>;

constexpr int64_t kLoadedRows = 8;  // warp groups are no faster up to this many
constexpr int64_t kFewRows = 64;    // with more, dequantising to scratch is faster
constexpr int64_t kLeastColumns = 64, kLeastDepth = 64;

// The packed weights of one GEMM in memory.
struct Packed {
  PackedLayout layout;
  BufferId words;
  std::optional<BufferId> scales, zeros;
  int64_t constant = 0;
};

// The parts of a GEMM that a packing nest of Program::prepack needs.
struct Source {
  const Nest& nest;
  const Factor& factor;
  const Dims &columns, &k;
};

// Builds a weight that a nest of Program::prepack fills: its dims, the nest so far, and statements for the
// value the GEMM computes at a place, or `otherwise` outside of the matrix.
class Packer {
 public:
  Packer(Program& program, const Source& source, const PackedLayout& layout, std::string name,
         const std::vector<Expr>& shape)
      : program_(program), source_(source), layout_(layout), facts_(program.facts) {
    pack_.name = "pack " + name;
    pack_.nodes = source.nest.nodes;
    for (Expr extent : shape) {
      pack_.dims.push_back({sym::var(cat("%i", pack_.dims.size())), extent});
      facts_.set_index(pack_.dims.back().var, extent);
    }
    buffer_ = {.name = std::move(name), .shape = shape};
    buffer_.storage = loop::Storage::kParameter;
    buffer_.prepacked = true;
  }

  std::vector<Expr> at() const { return loop::vars_of(pack_.dims); }
  Writer writer() { return {pack_, pack_.body}; }

  ValueId element(ValueId value, const kernels::Place& place, const loop::Scalar& otherwise) {
    loop::Cloner cloner(pack_);
    sym::Substitution to;
    kernels::unflatten(place.column, source_.columns, to);
    kernels::unflatten(place.k, source_.k, to);
    for (const auto& [variable, replacement] : to) cloner.map(variable, replacement);
    const Expr inside = sym::simplify(
        sym::logical_and(sym::lt(place.column, layout_.columns), sym::lt(place.k, layout_.depth)), facts_);
    for (const Stmt* stmt : kernels::slice_of(source_.factor.slice, value)) {
      pack_.body.push_back(cloner.clone(source_.nest, *stmt));
      if (loop::Access* access = loop::access_of(pack_.body.back()))
        access->mask = sym::logical_and(access->mask, inside);
    }
    const ValueId found = cloner.value(value);
    if (inside.is_const(1)) return found;
    const ValueId in = writer().index(inside, DType::kBool);
    return writer().let(ScalarOp::kSelect, otherwise.dtype, {in, found, writer().constant(otherwise)});
  }

  BufferId finish(ValueId value) {
    buffer_.dtype = pack_.values[value.value].dtype;
    const BufferId id = loop::add_buffer(program_, std::move(buffer_));
    writer().store({.buffer = id, .index = at()}, value);
    loop::clean(program_, pack_);
    program_.prepack.push_back(loop::add_nest(program_, std::move(pack_)));
    return id;
  }

 private:
  Program& program_;
  const Source& source_;
  const PackedLayout& layout_;
  sym::Facts facts_;
  loop::Buffer buffer_;
  Nest pack_;
};

std::string weight_name(const Program& program, const Source& source, ValueId value) {
  std::string name = "weight";
  for (const Stmt* stmt : kernels::slice_of(source.factor.slice, value))
    if (const auto* load = std::get_if<loop::Load>(&stmt->node)) name = program[load->access.buffer].name;
  return name;
}

// The integer minus `low`.
ValueId above(Writer w, ValueId value, int64_t low) {
  const ValueId wide = w.cast(value, DType::kI32);
  return low == 0 ? wide : w.let(ScalarOp::kSub, DType::kI32, {wide, w.number(low)});
}

Packed pack(Program& program, const Source& source, const QuantizedFactor& few) {
  const auto dtype = [&](ValueId id) { return source.nest.values[id.value].dtype; };
  const int64_t low = few.numbers.low;
  Packed out{.layout = few.layout, .words = {}, .scales = {}, .zeros = {}, .constant = few.constant};
  {
    const ValueId value = few.numbers.value;
    Packer packer(program, source, few.layout, weight_name(program, source, value) + ".words",
                  kernels::packed_shape(few.layout));
    ValueId word;
    for (const int bit : kernels::bits_in_word(few.layout)) {
      const kernels::Place place = kernels::number_at(few.layout, packer.at(), bit);
      ValueId number =
          above(packer.writer(), packer.element(value, place, loop::int_scalar(dtype(value), low)), low);
      Writer w = packer.writer();
      if (bit > 0) number = w.let(ScalarOp::kShl, DType::kI32, {number, w.number(bit)});
      word = bit > 0 ? w.let(ScalarOp::kBitOr, DType::kI32, {word, number}) : number;
    }
    out.words = packer.finish(word);
  }
  const std::vector<Expr> shape = kernels::scales_shape(few.layout);
  if (few.zero) {
    Packer packer(program, source, few.layout, weight_name(program, source, *few.zero) + ".zeros", shape);
    const ValueId zero = packer.element(*few.zero, kernels::scale_at(few.layout, packer.at()),
                                        loop::int_scalar(dtype(*few.zero), low));
    Writer w = packer.writer();
    out.zeros = packer.finish(w.cast(above(w, zero, low), DType::kU8));
  }
  if (few.scale) {
    Packer packer(program, source, few.layout, weight_name(program, source, *few.scale) + ".scales", shape);
    out.scales = packer.finish(packer.element(*few.scale, kernels::scale_at(few.layout, packer.at()),
                                              loop::float_scalar(dtype(*few.scale), 0)));
  }
  return out;
}

// The dequantised factor at a column's k, in f32.
ValueId read(Writer w, const Program& program, const Packed& packed, Expr column, Expr k) {
  const PackedLayout& layout = packed.layout;
  const ValueId word =
      w.load(DType::kI32, {.buffer = packed.words, .index = kernels::word_of(layout, column, k)});
  const ValueId shifted =
      w.let(ScalarOp::kShr, DType::kI32, {word, w.index(kernels::bit_of(layout, column, k), DType::kI32)});
  const ValueId number =
      w.let(ScalarOp::kBitAnd, DType::kI32, {shifted, w.number((int64_t{1} << layout.bits) - 1)});
  ValueId value = w.cast(number, DType::kF32);
  if (packed.zeros || packed.constant) {
    const ValueId zero =
        packed.zeros ? w.cast(w.load(DType::kU8, {.buffer = *packed.zeros,
                                                  .index = kernels::scale_of(layout, column, k)}),
                              DType::kF32)
                     : w.constant(loop::float_scalar(DType::kF32, static_cast<double>(packed.constant)));
    value = w.let(ScalarOp::kSub, DType::kF32, {value, zero});
  }
  if (!packed.scales) return value;
  const ValueId scale = w.load(program[*packed.scales].dtype,
                               {.buffer = *packed.scales, .index = kernels::scale_of(layout, column, k)});
  return w.let(ScalarOp::kMul, DType::kF32, {value, w.cast(scale, DType::kF32)});
}

// Returns the nest with the factor computed by other statements, which `print` emits before its first use,
// and with the dims of k merged into one.
Nest with_factor(const Program& program, const Nest& original, const Contraction& c, size_t side,
                 const std::function<ValueId(Writer, Expr k)>& print) {
  Nest nest = original;
  auto& reduce = std::get<loop::Reduce>(nest.body[c.at].node);
  const Dim k{loop::Cloner(nest).fresh_index(reduce.dims.back().var), loop::extent_of(reduce.dims)};
  sym::Substitution to;
  kernels::unflatten(k.var, reduce.dims, to);
  Block body;
  Writer w{nest, body};
  const ValueId fresh = print(w, k.var);
  Block rest = std::move(reduce.body);
  loop::substitute(rest, to);
  std::move(rest.begin(), rest.end(), std::back_inserter(body));
  for (Stmt& stmt : body)
    if (auto* let = std::get_if<loop::Let>(&stmt.node); let && let->result == reduce.yields[0])
      let->args[side] = fresh;
  reduce.body = std::move(body);
  reduce.dims = {k};
  loop::eliminate_dead(nest);
  loop::simplify(program, nest);
  return nest;
}

// The pointwise nest of Program::prepack that is the buffer's only writer and writes nothing else.
const Nest* producer_of(const Program& program, BufferId buffer) {
  const Nest* found = nullptr;
  for (loop::NestId id : program.prepack) {
    const loop::Effects effects = loop::effects_of(program[id]);
    if (!std::count(effects.writes.begin(), effects.writes.end(), buffer)) continue;
    if (found || effects.writes.size() != 1 || !is_pointwise(program[id])) return nullptr;
    found = &program[id];
  }
  return found;
}

// Inlines the computation of floats that were dequantised ahead where the nest's sum loads them. Returns
// false if there are none.
bool unfold(const Program& program, Nest& nest, const std::vector<const Stmt*>& slice) {
  for (const Stmt* stmt : slice) {
    const auto* load = std::get_if<loop::Load>(&stmt->node);
    if (!load || !is_float(program[load->access.buffer].dtype) || !program[load->access.buffer].prepacked)
      continue;
    const Nest* producer = producer_of(program, load->access.buffer);
    if (!producer) continue;
    Nest copy = nest;
    if (!inline_producer(program, *producer, copy)) continue;
    nest = std::move(copy);
    loop::clean(program, nest);
    return true;
  }
  return false;
}

// A GEMM by low-bit weights, decomposed.
struct LowBitGemm {
  Nest nest;
  Contraction contraction;
  size_t side = 0;  // index of the weights' factor
  Dims rows, columns, k;
  QuantizedFactor few;
  DType element = DType::kF32;  // type of the other factor
};

// Whether the other factor is loaded directly, apart from casts, and is contiguous along k.
bool is_plain(const Program& program, const LowBitGemm& p) {
  const Factor& other = p.contraction.factors[1 - p.side];
  const loop::Load* load = nullptr;
  for (const Stmt* stmt : other.slice) {
    const auto* let = std::get_if<loop::Let>(&stmt->node);
    if (const auto* l = std::get_if<loop::Load>(&stmt->node); l && !load)
      load = l;
    else if (!let || let->op != ScalarOp::kCast)
      return false;
  }
  if (!load || !load->access.mask.is_const(1) || program[load->access.buffer].dtype != p.element)
    return false;
  const sym::Facts facts = kernels::facts_in(program, p.nest, p.contraction);
  const auto step = kernels::merged_step(kernels::offset_of(program, load->access, facts), p.k, facts);
  return step && step->is_const(1);
}

// Matches the nest as it is, with the weights as factor `p.side`, and fills in the rest of `p`.
bool match(const Program& program, LowBitGemm& p) {
  const Factor &weight = p.contraction.factors[p.side], &other = p.contraction.factors[1 - p.side];
  p.rows.clear(), p.columns.clear();
  for (const Dim& dim : p.nest.dims) {
    const bool in_weight = weight.vars.contains(dim.var);
    if (in_weight == other.vars.contains(dim.var)) return false;
    (in_weight ? p.columns : p.rows).push_back(dim);
  }
  p.k = p.contraction.reduce->dims;
  if (p.columns.empty()) return false;
  const auto few = kernels::match_quantized_factor(program, p.nest, weight, p.columns, p.k);
  if (!few) return false;
  p.few = *few;
  p.element = kernels::element_of(p.nest, p.contraction, other);
  return p.few.layout.columns >= kLeastColumns && p.few.layout.depth >= kLeastDepth && is_plain(program, p);
}

// Matches the nest after inlining floats that were dequantised ahead. Returns a pointer, since a contraction
// points into its nest.
std::unique_ptr<LowBitGemm> product_of(const Program& program, const Nest& original) {
  if (original.schedule != loop::Schedule{}) return nullptr;
  for (const size_t side : {0, 1}) {
    std::unique_ptr<LowBitGemm> found;
    for (Nest nest = original;;) {
      auto p = std::make_unique<LowBitGemm>();
      p->nest = nest;
      p->side = side;
      const auto contraction = kernels::match_contraction(p->nest);
      if (!contraction || contraction->dtype != DType::kF32) break;
      p->contraction = *contraction;
      const Factor& weight = contraction->factors[side];
      std::vector<const Stmt*> slice = weight.slice;
      if (match(program, *p)) {
        // Scales may have been widened ahead, so unfolding continues with them.
        slice = p->few.scale ? kernels::slice_of(slice, *p->few.scale) : std::vector<const Stmt*>();
        found = std::move(p);
      }
      if (!unfold(program, nest, slice)) break;
    }
    if (found) return found;
  }
  return nullptr;
}

loop::Steps packed_steps(Program& program, const LowBitGemm& p, const GpuTarget& target) {
  const Expr rows = loop::extent_of(p.rows);
  const sym::Interval range = program.facts.bounds(rows);
  // One row, or a few, are loaded by threads; more rows by the copy engine, into shared memory. All GPUs
  // share one order of weights.
  QuantizedFactor numbers = p.few;
  numbers.layout.fragments =
      (!range.has_hi() || range.hi > kLoadedRows) && kernels::fits_groups(p.few.layout, p.element);
  const bool any_rows = !kernels::packed_tiles(numbers.layout, p.element, target).empty();
  const Source source{p.nest, p.contraction.factors[p.side], p.columns, p.k};
  const Packed packed = pack(program, source, numbers);
  const PackedLayout& layout = packed.layout;
  const Expr column = kernels::flattened(p.columns);
  const auto launched = [&](Nest nest) {
    return loop::Step{loop::Launch{loop::add_nest(program, std::move(nest))}};
  };
  loop::Steps few, many;
  if (any_rows || !range.has_lo() || range.lo <= kFewRows) {
    Nest nest = with_factor(program, p.nest, p.contraction, p.side,
                            [&](Writer w, Expr k) { return read(w, program, packed, column, k); });
    nest.schedule = kernels::to_schedule(kernels::kPackedProduct, layout, packed.constant);
    few.push_back(launched(std::move(nest)));
  }
  if (!any_rows && (!range.has_hi() || range.hi > kFewRows)) {
    // Includes the padding of the packed weights, so that every run of k is whole and starts at a multiple of
    // 16 bytes.
    const std::vector<Expr> shape = {layout.tiles() * 16, layout.chunks() * layout.chunk()};
    const BufferId numbers = loop::add_buffer(
        program,
        {.name = program[packed.words].name + ".numbers", .dtype = p.element, .shape = shape, .strides = {}});
    Nest unpack{.name = "unpack", .nodes = p.nest.nodes};
    unpack.dims = {{sym::var("%i0"), shape[0]}, {sym::var("%i1"), shape[1]}};
    Writer w{unpack, unpack.body};
    const ValueId value = read(w, program, packed, unpack.dims[0].var, unpack.dims[1].var);
    w.store({.buffer = numbers, .index = loop::vars_of(unpack.dims)}, w.cast(value, p.element));
    unpack.schedule = kernels::to_schedule(kernels::kPackedUnpack, layout, packed.constant);
    many.push_back(launched(std::move(unpack)));
    Nest nest = with_factor(program, p.nest, p.contraction, p.side, [&](Writer v, Expr k) {
      return v.cast(v.load(p.element, {.buffer = numbers, .index = {column, k}}), DType::kF32);
    });
    many.push_back(launched(std::move(nest)));
  }
  if (few.empty() || many.empty()) return few.empty() ? many : few;
  return {loop::Step{loop::If{
      .condition = sym::le(rows, kFewRows), .then_steps = std::move(few), .else_steps = std::move(many)}}};
}

}  // namespace

void pack_low_bit_weights(Program& program, const GpuTarget& target) {
  loop::for_each_block(program.steps, [&](loop::Steps& steps) {
    loop::Steps out;
    for (loop::Step& step : steps) {
      const auto* launch = std::get_if<loop::Launch>(&step.node);
      const auto product = launch ? product_of(program, program[launch->nest]) : nullptr;
      if (!product) {
        out.push_back(std::move(step));
        continue;
      }
      loop::Steps made = packed_steps(program, *product, target);
      std::move(made.begin(), made.end(), std::back_inserter(out));
    }
    steps = std::move(out);
  });
}

}  // namespace stridec::schedule
