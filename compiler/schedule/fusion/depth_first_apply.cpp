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

}  // namespace

void make_depth_first(Program& program, const RowChain& chain) {
  const size_t count = chain.at.size();
  const size_t own = chain.own();
  std::vector<Nest> nests;
  for (const int at : chain.at) nests.push_back(*nest_at(program, program.steps, at));
  const Nest& last = nests.back();
  const sym::Interval points = program.facts.bounds(chain.points);
  const int64_t least = points.has_lo() && points.lo >= chain.most ? std::max<int64_t>(1, chain.most / 2) : 1;
  TiledGroup strips{.name = name_of_tiled_group(program, nests),
                    .first = sym::var("strip.first"),
                    .size = sym::var(cat("strip.", least, "to", chain.most)),
                    .points = chain.points,
                    .least = least,
                    .most = chain.most,
                    .round = {},
                    .sizes = {},
                    .body = {},
                    .own = {}};
  // Images become rounds of the group.
  std::vector<Expr> digits;
  if (!chain.images.back().empty()) {
    strips.round = sym::var("strip.round");
    Expr rest = strips.round;
    for (size_t d = chain.images.back().size(); d-- > 0;) {
      const Expr extent = extent_of(last, chain.images.back()[d]);
      strips.rounds = strips.rounds * extent;
      digits.push_back(d == 0 ? rest : sym::mod(rest, extent));
      rest = sym::floordiv(rest, extent);
    }
    std::reverse(digits.begin(), digits.end());
    for (size_t d = 0; digits.size() > 1 && d < digits.size(); ++d) {
      const Expr symbol = sym::var(cat("strip.image", d));
      strips.sizes.push_back({symbol, digits[d], std::nullopt});
      digits[d] = symbol;
    }
  }
  // The rows of each nest, last nest first: the first row that a nest has to compute determines the first row
  // it reads.
  std::vector<Expr> begin(count), extent(count);
  for (size_t i = count; i-- > 0;) {
    const RowChain::Rows& rows = chain.rows[i];
    const Expr first = rows.scale * strips.first + rows.before;
    begin[i] = first;
    extent[i] = rows.scale * strips.size + rows.after - rows.before;
    const bool whole = rows.before >= 0 && rows.after <= 0 &&
                       program.facts.holds(sym::le(rows.scale * chain.points, rows.extent));
    if (whole) continue;
    Expr from = first;
    const size_t d = i + 1 < count ? chain.row_dim[i] : 0;
    if (i + 1 < count) {
      const Along &read = *chain.passing[i].read[d], &written = *chain.passing[i].written[d];
      from = sym::simplify(sym::floordiv(read.scale * begin[i + 1] + read.low, written.scale), program.facts);
    }
    if (rows.before < 0) from = sym::max(from, 0);
    const Expr end = sym::min(rows.extent, rows.scale * (strips.first + strips.size) + rows.after);
    const int64_t most = rows.scale * chain.most + rows.after - rows.before;
    const Expr at = sym::var(cat("strip.at", i)), size = sym::var(cat("strip.rows", i, ".0to", most));
    strips.sizes.push_back({at, from, std::nullopt});
    const Expr total = strips.rounds * (rows.scale * chain.points + (rows.after - rows.before));
    strips.sizes.push_back({size, sym::max(0, end - at), most, sym::simplify(total, program.facts)});
    if (i + 1 < count && chain.carries(i)) {
      const int64_t per = chain.passing[i].written[d]->scale;
      strips.carried.push_back({.buffer = chain.passing[i].buffer,
                                .dim = dim_of_strip(chain, i),
                                .at = at,
                                .rows = size,
                                .per = per,
                                .base = per * first});
    }
    begin[i] = at;
    extent[i] = size;
  }
  loop::set_ranges(program.facts, strips);

  for (size_t i = 0; i < own; ++i) shrink(program, chain, i);
  for (size_t i = 0; i < count; ++i) {
    Nest nest = nests[i];
    loop::for_each_stmt(nest.body, [&](loop::Stmt& stmt) {
      Access* access = loop::access_of(stmt);
      if (!access) return;
      if (i > 0 && i <= own && access->buffer == chain.passing[i - 1].buffer)
        move(*access, chain, i - 1, strips.first);
      if (i < own && access->buffer == chain.passing[i].buffer) move(*access, chain, i, strips.first);
    });
    sym::Substitution places{{chain.rows[i].var, begin[i] + chain.rows[i].var}};
    for (size_t d = 0; d < digits.size(); ++d) places[chain.images[i][d]] = digits[d];
    loop::substitute(nest.body, places);
    std::vector<Dim> dims;
    for (const Dim& dim : nest.dims) {
      if (dim.var == chain.rows[i].var)
        dims.push_back({dim.var, extent[i]});
      else if (!places.contains(dim.var))
        dims.push_back(dim);
    }
    nest.dims = std::move(dims);
    loop::clean(program, nest);
    loop::renumber(nest);
    const loop::NestId id = std::get<Launch>(program.steps[static_cast<size_t>(chain.at[i])].node).nest;
    program[id] = std::move(nest);
    strips.body.push_back({Launch{id}});
  }
  for (size_t i = 0; i < own; ++i) strips.own.push_back(chain.passing[i].buffer);
  program.steps[static_cast<size_t>(chain.at.back())].node = std::move(strips);
  for (size_t i = count - 1; i-- > 0;) program.steps.erase(program.steps.begin() + chain.at[i]);
}

}  // namespace stridec::schedule
