// Replaces a chain's launches by a TiledGroup over ranges of rows, with the intermediates in a thread's
// scratch.
#include <algorithm>

#include "compiler/base/text.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/fusion/depth_first_chain.h"
#include "compiler/schedule/fusion/tile_and_fuse.h"

namespace stridec::schedule {
namespace {

using loop::Access;
using loop::Dim;
using loop::Launch;
using loop::Nest;
using loop::Program;
using loop::TiledGroup;
using sym::Expr;

// Rewrites an access to the buffer nest i writes into an index within a tile's rows.
void move(Access& access, const RowChain& chain, size_t i, Expr first) {
  const int64_t scale = chain.passing[i].written[chain.row_dim[i]]->scale;
  const RowChain::Rows& rows = chain.rows[i];
  std::vector<Expr> index;
  for (size_t d = 0; d < access.index.size(); ++d) {
    const auto& images = chain.image_dims[i];
    if (std::find(images.begin(), images.end(), d) != images.end()) continue;
    index.push_back(d == chain.row_dim[i] ? access.index[d] - scale * (rows.scale * first + rows.before)
                                          : access.index[d]);
  }
  access.index = std::move(index);
}

// The row dim of the buffer nest i writes, after its image dims are dropped.
size_t dim_of_strip(const RowChain& chain, size_t i) {
  const std::vector<size_t>& images = chain.image_dims[i];
  return chain.row_dim[i] - static_cast<size_t>(std::count_if(images.begin(), images.end(), [&](size_t d) {
           return d < chain.row_dim[i];
         }));
}

void shrink(Program& program, const RowChain& chain, size_t i) {
  loop::Buffer& buffer = program[chain.passing[i].buffer];
  const auto& images = chain.image_dims[i];
  loop::Buffer kept = buffer;
  kept.shape.clear(), kept.strides.clear();
  for (size_t d = 0; d < buffer.shape.size(); ++d) {
    if (std::find(images.begin(), images.end(), d) != images.end()) continue;
    kept.shape.push_back(d == chain.row_dim[i] ? Expr(chain.rows_of_tile(i)) : buffer.shape[d]);
    kept.strides.push_back(buffer.strides[d]);
  }
  kept.strides = strides_like(kept, kept.shape, program.facts);
  buffer = std::move(kept);
}

TiledGroup group_of(const Program& program, const RowChain& chain, const std::vector<Nest>& nests) {
  const sym::Interval points = program.facts.bounds(chain.points);
  const int64_t shortest = chain.finest > 0 ? chain.finest : chain.most;
  const int64_t least = points.has_lo() && points.lo >= shortest ? std::max<int64_t>(1, shortest / 2) : 1;
  return {.name = name_of_tiled_group(program, nests),
          .first = sym::var("strip.first"),
          .size = sym::var(cat("strip.", least, "to", chain.most)),
          .points = chain.points,
          .least = least,
          .most = chain.most,
          .finest = chain.finest,
          .round = {},
          .sizes = {},
          .body = {},
          .own = {}};
}

class DepthFirst {
 public:
  DepthFirst(Program& program, const RowChain& chain)
      : program_(program), chain_(chain), begin_(chain.at.size()), extent_(chain.at.size()) {
    for (const int at : chain.at) nests_.push_back(*nest_at(program, program.steps, at));
    strips_ = group_of(program, chain, nests_);
  }

  void apply() {
    if (!chain_.images.back().empty()) make_rounds();
    // Last nest first: the first row that a nest has to compute determines the first row it reads.
    for (size_t i = nests_.size(); i-- > 0;) set_rows(i);
    loop::set_ranges(program_.facts, strips_);
    for (size_t i = 0; i < chain_.own(); ++i) shrink(program_, chain_, i);
    for (size_t i = 0; i < nests_.size(); ++i) add_to_group(i);
    for (size_t i = 0; i < chain_.own(); ++i) strips_.own.push_back(chain_.passing[i].buffer);
    program_.steps[static_cast<size_t>(chain_.at.back())].node = std::move(strips_);
    for (size_t i = nests_.size() - 1; i-- > 0;) program_.steps.erase(program_.steps.begin() + chain_.at[i]);
  }

 private:
  // Images become rounds of the group.
  void make_rounds() {
    strips_.round = sym::var("strip.round");
    Expr rest = strips_.round;
    for (size_t d = chain_.images.back().size(); d-- > 0;) {
      const Expr extent = extent_of(nests_.back(), chain_.images.back()[d]);
      strips_.rounds = strips_.rounds * extent;
      digits_.push_back(d == 0 ? rest : sym::mod(rest, extent));
      rest = sym::floordiv(rest, extent);
    }
    std::reverse(digits_.begin(), digits_.end());
    for (size_t d = 0; digits_.size() > 1 && d < digits_.size(); ++d) {
      const Expr symbol = sym::var(cat("strip.image", d));
      strips_.sizes.push_back({symbol, digits_[d], std::nullopt});
      digits_[d] = symbol;
    }
  }

  // Sets the rows of a tile that nest i computes. If a tile may reach beyond the nest's rows, the first row
  // and the number of rows become sizes of the group.
  void set_rows(size_t i) {
    const RowChain::Rows& rows = chain_.rows[i];
    begin_[i] = rows.scale * strips_.first + rows.before;
    extent_[i] = rows.scale * strips_.size + rows.after - rows.before;
    const bool whole = rows.before >= 0 && rows.after <= 0 &&
                       program_.facts.holds(sym::le(rows.scale * chain_.points, rows.extent));
    if (!whole) clip_rows(i);
  }

  void clip_rows(size_t i) {
    const RowChain::Rows& rows = chain_.rows[i];
    const bool last = i + 1 == nests_.size();
    const Expr first = begin_[i];
    Expr from = last ? first : first_read(i);
    if (rows.before < 0) from = sym::max(from, 0);
    const Expr end = sym::min(rows.extent, rows.scale * (strips_.first + strips_.size) + rows.after);
    const int64_t most = rows.scale * chain_.most + rows.after - rows.before;
    const Expr at = sym::var(cat("strip.at", i)), size = sym::var(cat("strip.rows", i, ".0to", most));
    strips_.sizes.push_back({at, from, std::nullopt});
    const Expr total = strips_.rounds * (rows.scale * chain_.points + (rows.after - rows.before));
    strips_.sizes.push_back({size, sym::max(0, end - at), most, sym::simplify(total, program_.facts)});
    if (!last && chain_.carries(i)) {
      const int64_t per = chain_.passing[i].written[chain_.row_dim[i]]->scale;
      strips_.carried.push_back({.buffer = chain_.passing[i].buffer,
                                 .dim = dim_of_strip(chain_, i),
                                 .at = at,
                                 .rows = size,
                                 .per = per,
                                 .base = per * first});
    }
    begin_[i] = at;
    extent_[i] = size;
  }

  // The first row of nest i that the next nest reads.
  Expr first_read(size_t i) const {
    const size_t d = chain_.row_dim[i];
    const Along &read = *chain_.passing[i].read[d], &written = *chain_.passing[i].written[d];
    return sym::simplify(sym::floordiv(read.scale * begin_[i + 1] + read.low, written.scale), program_.facts);
  }

  // Rewrites nest i to compute a tile's rows, and launches it in the group.
  void add_to_group(size_t i) {
    Nest nest = nests_[i];
    move_accesses(nest, i);
    sym::Substitution places{{chain_.rows[i].var, begin_[i] + chain_.rows[i].var}};
    for (size_t d = 0; d < digits_.size(); ++d) places[chain_.images[i][d]] = digits_[d];
    loop::substitute(nest.body, places);
    std::vector<Dim> dims;
    for (const Dim& dim : nest.dims) {
      if (dim.var == chain_.rows[i].var)
        dims.push_back({dim.var, extent_[i]});
      else if (!places.contains(dim.var))
        dims.push_back(dim);
    }
    nest.dims = std::move(dims);
    loop::clean(program_, nest);
    loop::renumber(nest);
    const loop::NestId id = std::get<Launch>(program_.steps[static_cast<size_t>(chain_.at[i])].node).nest;
    program_[id] = std::move(nest);
    strips_.body.push_back({Launch{id}});
  }

  void move_accesses(Nest& nest, size_t i) const {
    const size_t own = chain_.own();
    loop::for_each_stmt(nest.body, [&](loop::Stmt& stmt) {
      Access* access = loop::access_of(stmt);
      if (!access) return;
      if (i > 0 && i <= own && access->buffer == chain_.passing[i - 1].buffer)
        move(*access, chain_, i - 1, strips_.first);
      if (i < own && access->buffer == chain_.passing[i].buffer) move(*access, chain_, i, strips_.first);
    });
  }

  Program& program_;
  const RowChain& chain_;
  std::vector<Nest> nests_;  // of the chain, before the change
  TiledGroup strips_;
  std::vector<Expr> digits_;          // the position in each image dim
  std::vector<Expr> begin_, extent_;  // rows of a tile, by nest
};

}  // namespace

void make_depth_first(Program& program, const RowChain& chain) { DepthFirst(program, chain).apply(); }

}  // namespace stridec::schedule
