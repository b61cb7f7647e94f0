#include "compiler/schedule/algebra/materialize_upsample.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "compiler/base/text.h"
#include "compiler/kernels/cuda_matrix.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/origin.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/effects.h"

namespace stridec::schedule {
namespace {

using loop::Access;
using loop::Nest;
using loop::Program;
using sym::Expr;

// Least number of results that read an element of the copy, not counting a window's taps.
constexpr int64_t kLeastReads = 16;

std::vector<Expr> index_vars(Expr e) {
  std::vector<Expr> vars = sym::free_vars(e);
  std::erase_if(vars, [](Expr v) { return !sym::is_index(v); });
  return vars;
}

Expr without_indices(Expr e) {
  for (Expr v : index_vars(e)) e = sym::substitute(e, v, 0);
  return e;
}

// An index that depends on its loop variables only through a sum of several, and not linearly: on x + r in (x
// + r)//2.
struct Spread {
  size_t dim = 0;  // of the buffer
  Expr var;        // variable to substitute, so that `place` stands for `sum`
  Expr sum, place;
  Expr begin = 0, end = 0;  // range of the places that are read
};

std::optional<Expr> sum_inside(Expr index) {
  std::optional<Expr> sum;
  bool one = true;
  sym::for_each_node(index, [&](Expr e) {
    if (e.op() != sym::Op::kFloorDiv && e.op() != sym::Op::kMod) return;
    const Expr linear = e.arg(0) - without_indices(e.arg(0));
    for (Expr v : index_vars(linear)) one = one && sym::linear_in(linear, v).has_value();
    one = one && (!sum || *sum == linear);
    sum = linear;
  });
  return one && sum && index_vars(*sum).size() > 1 ? sum : std::nullopt;
}

class Spreader {
 public:
  Spreader(Program& program, const GpuTarget& target) : program_(program), target_(target) {}

  std::vector<Nest> spread(const Nest& nest) {
    if (!nest.schedule.kernel.empty()) return {};
    const auto matrix = kernels::match_contraction(nest);
    const auto dtypes = matrix ? kernels::tensor_dtypes(nest, *matrix) : std::nullopt;
    const auto product = loop::classify_contraction(nest);
    if (!dtypes || !kernels::multiplies(target_, *dtypes) || !product) return {};
    for (const bool second : {false, true}) {
      const loop::Load* load = second ? product->b.plain : product->a.plain;
      Expr reads = 1;
      for (const loop::Dim& dim : second ? product->m : product->n) reads *= dim.extent;
      if (!load || program_.facts.bounds(reads).lo < kLeastReads) continue;
      const std::vector<Spread> spreads = spreads_of(nest, load->access);
      if (!spreads.empty()) return behind_copy(nest, *load, spreads);
    }
    return {};
  }

 private:
  // The spread of every non-linear index. Nothing if one of them has another form, or its range is not known.
  std::vector<Spread> spreads_of(const Nest& nest, const Access& access) const {
    const loop::Storage storage = program_[access.buffer].storage;
    if (storage != loop::Storage::kArena && storage != loop::Storage::kInput) return {};
    if (!innermost_first(program_[access.buffer])) return {};
    const sym::Facts facts = loop::facts_of(program_, nest);
    std::vector<Spread> out;
    for (size_t d = 0; d < access.index.size(); ++d) {
      const auto sum = sum_inside(access.index[d]);
      if (!sum) continue;
      Spread spread{.dim = d, .sum = *sum, .place = sym::var(cat("%place", d))};
      for (Expr v : index_vars(*sum))
        if (sym::linear_in(*sum, v)->coefficient.is_const(1)) spread.var = v;
      if (!spread.var.is_var()) return {};
      const Expr alone = put_in(access.index[d], spread, facts);
      if (index_vars(alone) != std::vector<Expr>{spread.place}) return {};
      if (!find_range(put_in(access.mask, spread, facts), spread)) return {};
      out.push_back(spread);
    }
    return out;
  }

  static Expr put_in(Expr e, const Spread& spread, const sym::Facts& facts) {
    return sym::simplify(sym::substitute(e, spread.var, spread.place - (spread.sum - spread.var)), facts);
  }

  // Takes the range of places from the mask's bounds.
  static bool find_range(Expr mask, Spread& spread) {
    std::optional<Expr> first, last;
    const auto terms = mask.op() == sym::Op::kAnd ? std::vector<Expr>(mask.args().begin(), mask.args().end())
                                                  : std::vector<Expr>{mask};
    for (Expr term : terms) {
      if (!sym::depends_on(term, spread.place)) continue;
      if (term.op() != sym::Op::kLe) return false;
      // The condition is place + rest <= 0 or rest - place <= 0.
      const auto linear = sym::linear_in(term.arg(0) - term.arg(1), spread.place);
      if (!linear || sym::has_index(linear->rest)) return false;
      if (linear->coefficient.is_const(1) && !last)
        last = -1 * linear->rest;
      else if (linear->coefficient.is_const(-1) && !first)
        first = linear->rest;
      else
        return false;
    }
    if (!first || !last) return false;
    spread.begin = *first;
    spread.end = *last + 1;
    return true;
  }

  std::vector<Nest> behind_copy(const Nest& nest, const loop::Load& load,
                                const std::vector<Spread>& spreads) {
    const loop::Buffer from = program_[load.access.buffer];
    const std::vector<size_t> order = *innermost_first(from);
    loop::Buffer wide{.name = from.name + ".spread", .dtype = from.dtype, .shape = from.shape};
    std::vector<loop::Dim> dims;
    Access read{.buffer = load.access.buffer}, write, index = load.access;
    const sym::Facts facts = loop::facts_of(program_, nest);
    for (size_t d = 0; d < from.shape.size(); ++d) {
      const auto spread =
          std::find_if(spreads.begin(), spreads.end(), [&](const Spread& s) { return s.dim == d; });
      const Expr var = sym::var(cat("%i", d));
      if (spread == spreads.end()) {
        read.index.push_back(var);
      } else {
        wide.shape[d] = sym::simplify(spread->end - spread->begin, program_.facts);
        read.index.push_back(sym::substitute(put_in(load.access.index[d], *spread, facts), spread->place,
                                             var + spread->begin));
        index.index[d] = sym::simplify(spread->sum - spread->begin, facts);
      }
      dims.push_back({var, wide.shape[d]});
      write.index.push_back(var);
    }
    wide.strides.resize(wide.shape.size());
    Expr stride = 1;
    for (size_t d : order) {
      wide.strides[d] = stride;
      stride *= wide.shape[d];
    }
    write.buffer = index.buffer = loop::add_buffer(program_, std::move(wide));
    Nest copy =
        loop::copy_nest("spread " + from.name, std::move(dims), std::move(read), load.fill, std::move(write));
    loop::attribute(copy, loop::node_of(nest, load.result));
    loop::simplify(program_, copy);
    Nest product = nest;
    loop::redirect(product, load.result, index);
    return {std::move(copy), std::move(product)};
  }

  Program& program_;
  const GpuTarget& target_;
};

}  // namespace

void materialize_upsamples(Program& program, const GpuTarget& target) {
  Spreader spreader(program, target);
  loop::replace_nests(program, [&](const Nest& nest) { return spreader.spread(nest); });
}

}  // namespace stridec::schedule
