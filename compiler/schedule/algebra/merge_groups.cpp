#include "compiler/schedule/algebra/merge_groups.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "compiler/kernels/cuda_matrix.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"

namespace stridec::schedule {
namespace {

using loop::Access;
using loop::Dim;
using loop::Nest;
using loop::Program;
using loop::Stmt;
using sym::Expr;

constexpr int64_t kChannels = 64;  // columns of a tile, and values in a row of its copies: 128 bytes

struct Groups {
  Dim group, column, channel;
  const loop::Load *input = nullptr, *weight = nullptr;
  int64_t together = 1;  // groups merged into one
};

std::optional<int64_t> constant_extent(const std::vector<Dim>& dims, Expr var) {
  for (const Dim& dim : dims)
    if (dim.var == var) return sym::as_const(dim.extent);
  return std::nullopt;
}

class ChannelJoiner {
 public:
  ChannelJoiner(Program& program, const GpuTarget& target) : program_(program), target_(target) {}

  std::vector<Nest> join(const Nest& nest) {
    const auto groups = match(nest);
    if (!groups) return {};
    Nest out = nest;
    const int64_t count = groups->group.extent.value(), columns = groups->column.extent.value(),
                  channels = groups->channel.extent.value(), together = groups->together;
    const Expr g = groups->group.var, n = groups->column.var;
    for (Dim& dim : out.dims) {
      if (dim.var == g) dim.extent = count / together;
      if (dim.var == n) dim.extent = columns * together;
    }
    const Expr group = together * g + sym::floordiv(n, columns), column = sym::mod(n, columns);
    const loop::ValueId input = groups->input->result, weight = groups->weight->result;
    const Access wide = widen(nest, *groups);
    loop::for_each_stmt(out.body, [&](Stmt& stmt) {
      auto* load = std::get_if<loop::Load>(&stmt.node);
      if (load && load->result == weight) {
        load->access = wide;
      } else if (load && load->result == input) {
        for (Expr& e : load->access.index) e = sym::substitute(e, g, together * g);
      } else {
        loop::for_each_expr(stmt, [&](Expr& e) { e = sym::substitute(e, {{g, group}, {n, column}}); });
      }
      auto* reduce = std::get_if<loop::Reduce>(&stmt.node);
      for (size_t d = 0; reduce && d < reduce->dims.size(); ++d)
        if (reduce->dims[d].var == groups->channel.var) reduce->dims[d].extent = channels * together;
    });
    loop::clean(program_, out);
    return {std::move(out)};
  }

 private:
  std::optional<Groups> match(const Nest& nest) const {
    if (!nest.schedule.kernel.empty()) return std::nullopt;
    const auto matrix = kernels::match_contraction(nest);
    const auto dtypes = matrix ? kernels::tensor_dtypes(nest, *matrix) : std::nullopt;
    const auto product = loop::classify_contraction(nest);
    if (!dtypes || !kernels::multiplies(target_, *dtypes) || !product || !product->loose.empty() ||
        product->batch.size() != 1 || !product->a.plain || !product->b.plain)
      return std::nullopt;
    const auto constant = [&](const loop::Load* load) {
      return program_[load->access.buffer].storage == loop::Storage::kParameter &&
             load->access.mask.is_const(1);
    };
    const bool second = constant(product->b.plain);
    Groups groups{.group = product->batch[0],
                  .input = second ? product->a.plain : product->b.plain,
                  .weight = second ? product->b.plain : product->a.plain};
    const std::vector<Dim>& columns = second ? product->n : product->m;
    if (!constant(groups.weight) || constant(groups.input) || columns.size() != 1) return std::nullopt;
    groups.column = columns[0];
    // The channel is the variable added to the group's index, x[..., C*g + c, ...], and appears in no other
    // index.
    const Expr g = groups.group.var;
    const Access& read = groups.input->access;
    std::optional<Expr> channel;
    for (Expr e : read.index) {
      if (!sym::depends_on(e, g)) continue;
      const auto linear = sym::linear_in(e, g);
      if (channel || !linear || !linear->rest.is_var() || !sym::is_index(linear->rest)) return std::nullopt;
      channel = linear->rest;
      const auto extent = constant_extent(product->k, *channel);
      if (!extent || !linear->coefficient.is_const(*extent)) return std::nullopt;
    }
    if (!channel || sym::depends_on(read.mask, g) || sym::depends_on(read.mask, *channel) ||
        std::count_if(read.index.begin(), read.index.end(),
                      [&](Expr e) { return sym::depends_on(e, *channel); }) != 1)
      return std::nullopt;
    const auto size = constant_extent(product->k, *channel);
    groups.channel = {*channel, *size};
    const auto count = sym::as_const(groups.group.extent), width = sym::as_const(groups.column.extent);
    // Depthwise convolutions (one channel per group) are not GEMMs, and they read their input once.
    if (!count || !width || *size < 2) return std::nullopt;
    while (*count % (2 * groups.together) == 0 && 2 * groups.together * std::max(*size, *width) <= kChannels)
      groups.together *= 2;
    if (groups.together == 1) return std::nullopt;
    return groups;
  }

  // The access to the merged groups' weight, which a nest of Program::prepack writes.
  Access widen(const Nest& nest, const Groups& groups) {
    const Access from = groups.weight->access;
    const loop::Buffer source = program_[from.buffer];
    const int64_t columns = groups.column.extent.value(), channels = groups.channel.extent.value();
    const Expr g = groups.group.var, n = groups.column.var, c = groups.channel.var;
    std::vector<Dim> dims = {{g, groups.group.extent.value() / groups.together},
                             {n, columns * groups.together},
                             {c, channels * groups.together}};
    loop::for_each_stmt(nest.body, [&](const Stmt& stmt) {
      for (const Dim& dim : loop::dims_of(stmt)) {
        const bool read = std::any_of(from.index.begin(), from.index.end(),
                                      [&](Expr e) { return sym::depends_on(e, dim.var); });
        if (read && !(dim.var == c)) dims.push_back(dim);
      }
    });
    loop::Buffer wide{.name = source.name + ".joined", .dtype = source.dtype};
    wide.storage = loop::Storage::kParameter;
    wide.prepacked = true;
    Access read = from, write;
    const Expr member = sym::floordiv(n, columns);
    for (Expr& e : read.index)
      e = sym::substitute(
          e, {{g, groups.together * g + member}, {n, sym::mod(n, columns)}, {c, sym::mod(c, channels)}});
    read.mask = sym::eq(member, sym::floordiv(c, channels));
    for (const Dim& dim : dims) {
      wide.shape.push_back(dim.extent);
      write.index.push_back(dim.var);
    }
    write.buffer = loop::add_buffer(program_, std::move(wide));
    program_.prepack.push_back(
        loop::add_nest(program_, loop::copy_nest("join " + source.name, std::move(dims), std::move(read),
                                                 loop::int_scalar(source.dtype, 0), write)));
    return write;
  }

  Program& program_;
  const GpuTarget& target_;
};

}  // namespace

void merge_groups(Program& program, const GpuTarget& target) {
  ChannelJoiner joiner(program, target);
  loop::replace_nests(program, [&](const Nest& nest) { return joiner.join(nest); });
}

}  // namespace stridec::schedule
