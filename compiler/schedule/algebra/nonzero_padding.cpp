#include "compiler/schedule/algebra/nonzero_padding.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "compiler/base/text.h"
#include "compiler/kernels/cuda_matrix.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/build.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"

namespace stridec::schedule {
namespace {

using loop::Access;
using loop::Dim;
using loop::Nest;
using loop::Program;
using sym::Expr;

// Limits on a table's elements and on the additions that compute it. Windows that exceed them are rare.
constexpr int64_t kMostElements = 1 << 20, kMostWork = 1 << 24;

// A window's taps along one dim of the image, and how many of them are before its first and after its last
// element.
struct Axis {
  Dim tap;
  Expr before, after;
  int64_t most_before = 0, most_after = 0;
};

class Borders {
 public:
  Borders(Program& program, const GpuTarget& target) : program_(program), target_(target) {}

  std::vector<Nest> take_out(const Nest& nest) {
    if (!match(nest)) return {};
    const Access table = make_table(nest);
    Nest out = nest;
    const loop::ValueId sum = contraction_->reduce->results[0], data = data_->result,
                        border = loop::add_value(out, DType::kI32, sum),
                        whole = loop::add_value(out, out.values[sum.value]);
    const auto behind = out.body.begin() + static_cast<std::ptrdiff_t>(contraction_->at) + 1;
    loop::Block rest(std::make_move_iterator(behind), std::make_move_iterator(out.body.end()));
    out.body.erase(behind, out.body.end());
    loop::replace_uses(rest, sum, whole);
    loop::for_each_stmt(out.body, [&](loop::Stmt& stmt) {
      auto* load = std::get_if<loop::Load>(&stmt.node);
      if (load && load->result == data) load->fill = loop::int_scalar(load->fill.dtype, 0);
    });
    out.body.push_back({loop::Load{border, table, loop::int_scalar(DType::kI32, 0)}});
    out.body.push_back({loop::Let{whole, loop::ScalarOp::kAdd, {sum, border}}});
    std::move(rest.begin(), rest.end(), std::back_inserter(out.body));
    loop::simplify(program_, out);
    return {std::move(out)};
  }

 private:
  bool match(const Nest& nest) {
    if (!nest.schedule.kernel.empty()) return false;
    const auto matrix = kernels::match_contraction(nest);
    const auto dtypes = matrix ? kernels::tensor_dtypes(nest, *matrix) : std::nullopt;
    contraction_ = loop::classify_contraction(nest);
    if (!dtypes || !kernels::multiplies(target_, *dtypes) || !contraction_ || !contraction_->a.plain ||
        !contraction_->b.plain || contraction_->accumulate != DType::kI32 || contraction_->m.empty() ||
        contraction_->n.empty())
      return false;
    const auto constant = [&](const loop::Load* load) {
      return program_[load->access.buffer].storage == loop::Storage::kParameter &&
             load->access.mask.is_const(1);
    };
    const bool second = constant(contraction_->b.plain);
    data_ = second ? contraction_->a.plain : contraction_->b.plain;
    weight_ = second ? contraction_->b.plain : contraction_->a.plain;
    if (!constant(weight_) || constant(data_) || data_->access.mask.is_const() || data_->fill.i == 0)
      return false;
    // Conversions have to preserve every value, and so the padding's.
    const size_t side = second ? 0 : 1;
    if (program_[data_->access.buffer].dtype != (*dtypes)[side] ||
        program_[weight_->access.buffer].dtype != (*dtypes)[1 - side])
      return false;
    columns_ = contraction_->batch;
    const std::vector<Dim>& own = second ? contraction_->n : contraction_->m;
    columns_.insert(columns_.end(), own.begin(), own.end());
    std::erase_if(columns_, [&](const Dim& dim) { return !reads(weight_->access, dim.var); });
    const sym::Facts facts = kernels::facts_in(program_, nest, *matrix);
    return find_axes(facts) && is_small();
  }

  static bool reads(const Access& access, Expr var) {
    return std::any_of(access.index.begin(), access.index.end(),
                       [&](Expr e) { return sym::depends_on(e, var); });
  }

  bool find_axes(const sym::Facts& facts) {
    axes_.clear();
    Expr inside = 1;
    for (const Dim& tap : contraction_->k) {
      const Access& access = data_->access;
      const auto count = sym::as_const(tap.extent);
      if (!count || !reads(weight_->access, tap.var)) return false;
      if (!sym::depends_on(access.mask, tap.var)) continue;
      std::optional<size_t> at;
      for (size_t d = 0; d < access.index.size(); ++d) {
        if (!sym::depends_on(access.index[d], tap.var)) continue;
        if (at) return false;
        at = d;
      }
      const auto linear = at ? sym::linear_in(access.index[*at], tap.var) : std::nullopt;
      const auto step = linear ? sym::as_const(linear->coefficient) : std::nullopt;
      if (!step || *step < 1 || depends_on_any(linear->rest, contraction_->k)) return false;
      const Expr index = access.index[*at], extent = program_[access.buffer].shape[*at];
      const auto counted = [&](Expr taps) { return sym::max(0, sym::min(*count, taps)); };
      Axis axis{.tap = tap,
                .before = sym::simplify(counted(sym::ceildiv(-linear->rest, *step)), facts),
                .after = sym::simplify(*count - counted(sym::ceildiv(extent - linear->rest, *step)), facts)};
      axis.most_before = most(axis.before, *count, facts);
      axis.most_after = most(axis.after, *count, facts);
      axes_.push_back(axis);
      inside = sym::logical_and(inside, sym::logical_and(sym::le(0, index), sym::lt(index, extent)));
    }
    // The mask has to let every element of the buffer through.
    return !axes_.empty() && facts.with(inside).holds(data_->access.mask);
  }

  static int64_t most(Expr count, int64_t taps, const sym::Facts& facts) {
    int64_t least = 0;
    while (least < taps && !facts.holds(sym::le(count, least))) ++least;
    return least;
  }

  bool is_small() const {
    int64_t elements = 1, taps = 1;
    for (const Axis& axis : axes_) {
      elements *= (axis.most_before + 1) * (axis.most_after + 1);
      taps *= axis.tap.extent.value();
      if (elements > kMostElements || taps > kMostWork) return false;
    }
    for (const Dim& dim : columns_) {
      const auto extent = sym::as_const(dim.extent);
      if (!extent || *extent > kMostElements) return false;
      elements *= *extent;
      if (elements > kMostElements) return false;
    }
    return elements * taps <= kMostWork;
  }

  loop::BufferId constant(const std::string& name, std::vector<Expr> shape) {
    return loop::add_buffer(program_, {.name = name,
                                       .dtype = DType::kI32,
                                       .shape = std::move(shape),
                                       .storage = loop::Storage::kParameter,
                                       .prepacked = true});
  }

  // Adds sums[columns, taps]: the weights summed over the reduced dims that are not taps.
  loop::BufferId sum_channels() {
    std::vector<Expr> shape, extents;
    std::vector<Dim> channels;
    for (const Dim& dim : columns_) shape.push_back(dim.extent);
    for (const Axis& axis : axes_) shape.push_back(axis.tap.extent);
    for (const Dim& dim : contraction_->k) {
      const bool tap =
          std::any_of(axes_.begin(), axes_.end(), [&](const Axis& axis) { return axis.tap.var == dim.var; });
      if (!tap) channels.push_back(dim), extents.push_back(dim.extent);
    }
    const std::string from = program_[weight_->access.buffer].name;
    const loop::BufferId sums = constant(from + ".sums", shape);
    loop::NestBuilder nest(program_, "sum " + from);
    const std::vector<Expr> at = nest.dims(shape);
    sym::Substitution places;
    for (size_t d = 0; d < columns_.size(); ++d) places[columns_[d].var] = at[d];
    for (size_t d = 0; d < axes_.size(); ++d) places[axes_[d].tap.var] = at[columns_.size() + d];
    const loop::Value sum = nest.reduce(loop::Combine::kSum, extents, [&](const std::vector<Expr>& k) {
      for (size_t d = 0; d < channels.size(); ++d) places[channels[d].var] = k[d];
      Access access = weight_->access;
      loop::substitute(access, places);
      return nest.cast(nest.load(access, weight_->fill), DType::kI32);
    });
    nest.store(loop::whole(program_, sums), at, sum);
    program_.prepack.push_back(loop::add_nest(program_, nest.nest()));
    return sums;
  }

  // Adds the table of the padding's contributions and returns the access of a point of `nest` to it.
  Access make_table(const Nest& nest) {
    const loop::BufferId sums = sum_channels();
    std::vector<Expr> shape, taps;
    Access out;
    Expr inside = 1;
    for (const Axis& axis : axes_) {
      shape.push_back(axis.most_before + 1);
      shape.push_back(axis.most_after + 1);
      taps.push_back(axis.tap.extent);
      out.index.push_back(axis.before);
      out.index.push_back(axis.after);
      inside = sym::logical_and(inside, sym::logical_and(sym::le(axis.before, 0), sym::le(axis.after, 0)));
    }
    out.mask = sym::logical_not(inside);
    for (const Dim& dim : columns_) {
      shape.push_back(dim.extent);
      out.index.push_back(dim.var);
    }
    const std::string from = program_[weight_->access.buffer].name;
    out.buffer = constant(from + ".border", shape);
    loop::NestBuilder table(program_, "border of " + nest.name);
    const std::vector<Expr> at = table.dims(shape);
    const loop::Value sum = table.reduce(loop::Combine::kSum, taps, [&](const std::vector<Expr>& k) {
      Access access{.buffer = sums,
                    .index = {at.begin() + 2 * static_cast<std::ptrdiff_t>(axes_.size()), at.end()}};
      Expr within = 1;
      for (size_t d = 0; d < axes_.size(); ++d) {
        access.index.push_back(k[d]);
        within = sym::logical_and(
            within, sym::logical_and(sym::le(at[2 * d], k[d]), sym::lt(k[d], taps[d] - at[2 * d + 1])));
      }
      access.mask = sym::logical_not(within);
      return table.load(access, loop::int_scalar(DType::kI32, 0));
    });
    table.store(loop::whole(program_, out.buffer), at,
                sum * table.constant(loop::int_scalar(DType::kI32, data_->fill.i)));
    program_.prepack.push_back(loop::add_nest(program_, table.nest()));
    return out;
  }

  Program& program_;
  const GpuTarget& target_;
  std::optional<loop::Contraction> contraction_;
  const loop::Load *data_ = nullptr, *weight_ = nullptr;
  std::vector<Dim> columns_;  // dims of the nest that index the weight
  std::vector<Axis> axes_;
};

}  // namespace

void remove_nonzero_padding(Program& program, const GpuTarget& target) {
  Borders borders(program, target);
  loop::replace_nests(program, [&](const Nest& nest) { return borders.take_out(nest); });
}

}  // namespace stridec::schedule
