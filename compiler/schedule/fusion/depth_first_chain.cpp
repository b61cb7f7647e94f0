#include "compiler/schedule/fusion/depth_first_chain.h"

#include <algorithm>

#include "compiler/base/sort.h"
#include "compiler/schedule/analysis/typical.h"
#include "compiler/schedule/fusion/fusion_join.h"

namespace stridec::schedule {
namespace {

using loop::BufferId;
using loop::Dim;
using loop::Nest;
using sym::Expr;

constexpr int64_t kMostUnit = 16;  // largest unit of rows that the last nest's tiles are multiples of

int64_t floor_of(int64_t a, int64_t b) { return (a >= 0 ? a : a - b + 1) / b; }
int64_t ceil_of(int64_t a, int64_t b) { return -floor_of(-a, b); }

// The dim of nest i's input buffer that the nest indexes by `var`.
std::optional<size_t> read_along(const RowChain& chain, size_t i, Expr var) {
  std::optional<size_t> found;
  const RowChain::Passing& passing = chain.passing[i - 1];
  for (size_t d = 0; d < passing.read.size(); ++d)
    if (passing.read[d] && passing.read[d]->var == var) found = d;
  return found;
}

}  // namespace

int64_t RowChain::rows_of_tile(size_t i) const {
  return passing[i].written[row_dim[i]]->scale * (rows[i].scale * most + rows[i].after - rows[i].before);
}

bool RowChain::carries(size_t i) const {
  const Along& along = *passing[i].read[row_dim[i]];
  return along.high - along.low + 1 > along.scale;
}

Expr passing_bytes(const loop::Program& program, const RowChain& chain, size_t i) {
  const loop::Buffer& buffer = program[chain.passing[i].buffer];
  const std::vector<size_t>& images = chain.image_dims[i];
  Expr bytes = chain.rows_of_tile(i) * byte_size(buffer.dtype);
  for (size_t d = 0; d < buffer.shape.size(); ++d)
    if (d != chain.row_dim[i] && std::find(images.begin(), images.end(), d) == images.end())
      bytes = bytes * buffer.shape[d];
  return bytes;
}

Expr own_bytes(const loop::Program& program, const RowChain& chain) {
  Expr carried = 0, most = 0;
  const auto others = [&](size_t i) { return chain.carries(i) ? Expr(0) : passing_bytes(program, chain, i); };
  for (size_t i = 0; i < chain.own(); ++i) {
    if (chain.carries(i)) carried = carried + passing_bytes(program, chain, i);
    most = sym::max(most, others(i) + (i > 0 ? others(i - 1) : Expr(0)));
  }
  return carried + most;
}

// The arena buffer that only this launch writes.
std::optional<BufferId> RowChains::makes(int at) const {
  const Effects& effects = flow_.effects(at);
  if (!nest_at(program_, program_.steps, at) || effects.writes.size() != 1 || effects.updates)
    return std::nullopt;
  const BufferId id = effects.writes[0];
  return made_once(program_, flow_, id) ? std::optional(id) : std::nullopt;
}

std::optional<BufferId> RowChains::passes_on(int at) const {
  const auto id = makes(at);
  return id && passes_once(program_, flow_, *id) ? id : std::nullopt;
}

int RowChains::first_reader_of(int at) const {
  const auto id = makes(at);
  if (!id) return -1;
  for (int p = at + 1; p < static_cast<int>(program_.steps.size()); ++p)
    if (reads(flow_.effects(p), *id)) return nest_at(program_, program_.steps, p) ? p : -1;
  return -1;
}

int RowChains::reader_of(int at) const { return passes_on(at) ? first_reader_of(at) : -1; }

std::vector<int> RowChains::makers_of(int at) const {
  std::vector<int> makers;
  for (int p = 0; p < at; ++p)
    if (nest_at(program_, program_.steps, p) && reader_of(p) == at) makers.push_back(p);
  return makers;
}

std::vector<RowChain> RowChains::through(int at, const Fits& fits) const {
  std::vector<RowChain> chains;
  if (!nest_at(program_, program_.steps, at)) return chains;
  std::vector<int> ends = {at};
  while (ends.size() < kLongestChain && reader_of(ends.back()) >= 0) ends.push_back(reader_of(ends.back()));
  for (size_t e = 0; e < ends.size(); ++e) {
    std::vector<int> backwards(ends.begin(), ends.begin() + static_cast<std::ptrdiff_t>(e) + 1);
    std::reverse(backwards.begin(), backwards.end());
    add_chains(backwards, fits, chains);
  }
  return chains;
}

void RowChains::add_chains(std::vector<int>& backwards, const Fits& fits,
                           std::vector<RowChain>& chains) const {
  std::string why;
  if (backwards.size() > 1)
    if (auto chain = chain_of({backwards.rbegin(), backwards.rend()}, fits, why))
      chains.push_back(*std::move(chain));
  if (backwards.size() == kLongestChain) return;
  for (int maker : makers_of(backwards.back())) {
    backwards.push_back(maker);
    add_chains(backwards, fits, chains);
    backwards.pop_back();
  }
}

std::optional<RowChain> RowChains::chain_of(std::vector<int> at, const Fits& fits, std::string& why) const {
  RowChain chain;
  chain.at = std::move(at);
  const size_t count = chain.at.size();
  why = "a nest cannot move to the last one's place";
  for (size_t i = 0; i < count; ++i) {
    const Effects& effects = flow_.effects(chain.at[i]);
    for (const Dim& dim : nest_of(chain, i).dims)
      if (sym::has_index(dim.extent)) return std::nullopt;
    if (effects.updates || !may_move(program_, program_.steps, flow_, chain.at[i], chain.at.back(), chain.at))
      return std::nullopt;
    // Tiles run in any order, so no earlier nest may read what a later one writes.
    for (size_t j = 0; j < i; ++j)
      for (BufferId id : effects.writes)
        if (reads(flow_.effects(chain.at[j]), id)) return std::nullopt;
  }
  for (size_t i = 0; i + 1 < count; ++i) {
    const BufferId buffer = *makes(chain.at[i]);
    why = "the intermediate has another reader";
    if (chain.kept) return std::nullopt;  // only the last intermediate may have other readers
    chain.kept = !passes_once(program_, flow_, buffer);
    chain.passing.push_back({buffer, accesses_along(program_, nest_of(chain, i), buffer, true),
                             accesses_along(program_, nest_of(chain, i + 1), buffer, false)});
  }
  // The dims of the last nest in the memory order of its result, outermost first: images as long as there are
  // any, then rows.
  const BufferId out = flow_.effects(chain.at.back()).writes[0];
  const auto stored = accesses_along(program_, nest_of(chain, count - 1), out, true);
  std::vector<std::pair<double, Expr>> order;
  for (size_t d = 0; d < program_[out].shape.size(); ++d)
    if (stored[d]) order.emplace_back(typical(program_[out].strides[d], program_.facts), stored[d]->var);
  sort_stable(order, [](const auto& a, const auto& b) { return a.first > b.first; });
  chain.images.resize(count);
  chain.image_dims.resize(count - 1);
  why = "an output row does not depend on a range of input rows";
  for (const auto& [stride, var] : order) {
    if (stride <= 1) break;
    bool leads = false;
    if (auto done = with_rows(chain, var, fits, why, leads)) return done;
    // Channels of a channels-first result are part of every tile.
    if (!add_image(chain, var) && leads) break;
  }
  return std::nullopt;
}

const Nest& RowChains::nest_of(const RowChain& chain, size_t i) const {
  return *nest_at(program_, program_.steps, chain.at[i]);
}

// Whether each row of the last nest's input is computed by exactly one tile.
bool RowChains::is_made_once(const RowChain& chain) const {
  const size_t i = chain.passing.size() - 1;
  const RowChain::Rows& rows = chain.rows[i];
  return rows.before == 0 && rows.after == 0 && !chain.carries(i) &&
         program_.facts.holds(sym::le(rows.extent, rows.scale * chain.points));
}

bool RowChains::add_image(RowChain& chain, Expr var) const {
  const Expr extent = extent_of(nest_of(chain, chain.at.size() - 1), var);
  std::vector<Expr> vars(chain.at.size());
  std::vector<size_t> dims(chain.passing.size());
  vars.back() = var;
  for (size_t i = chain.at.size(); i-- > 1;) {
    const auto d = read_along(chain, i, vars[i]);
    if (!d || !chain.passing[i - 1].written[*d]) return false;
    const Along &read = *chain.passing[i - 1].read[*d], &written = *chain.passing[i - 1].written[*d];
    if (!read.plain() || !written.plain() || extent_of(nest_of(chain, i - 1), written.var) != extent)
      return false;
    dims[i - 1] = *d;
    vars[i - 1] = written.var;
  }
  for (size_t i = 0; i < vars.size(); ++i) chain.images[i].push_back(vars[i]);
  for (size_t i = 0; i < dims.size(); ++i) chain.image_dims[i].push_back(dims[i]);
  return true;
}

std::optional<RowChain> RowChains::with_rows(RowChain chain, Expr var, const Fits& fits, std::string& why,
                                             bool& leads) const {
  const size_t count = chain.at.size();
  for (int64_t unit = 1; unit <= kMostUnit; ++unit) {
    chain.rows.assign(count, {});
    chain.row_dim.assign(count - 1, 0);
    chain.rows.back() = {var, extent_of(nest_of(chain, count - 1), var), unit, 0, 0};
    bool divides = true;
    for (size_t i = count; i-- > 1 && divides;) {
      const RowChain::Rows& rows = chain.rows[i];
      const auto d = read_along(chain, i, rows.var);
      if (!d || !chain.passing[i - 1].written[*d]) return std::nullopt;
      const Along &read = *chain.passing[i - 1].read[*d], &written = *chain.passing[i - 1].written[*d];
      if (written.low < 0 || written.high >= written.scale) return std::nullopt;
      divides = rows.scale * read.scale % written.scale == 0;
      chain.row_dim[i - 1] = *d;
      chain.rows[i - 1] = {
          .var = written.var,
          .extent = extent_of(nest_of(chain, i - 1), written.var),
          .scale = rows.scale * read.scale / written.scale,
          .before = floor_of(read.scale * rows.before + read.low, written.scale),
          .after = ceil_of(read.scale * rows.after - read.scale + read.high + 1, written.scale)};
    }
    if (!divides) continue;
    chain.points = sym::simplify(sym::ceildiv(chain.rows.back().extent, unit), program_.facts);
    leads = true;
    why = "rows with other readers would be computed twice, or not at all";
    if (chain.kept && !is_made_once(chain)) return std::nullopt;
    return fits(chain, why) ? std::optional(chain) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace stridec::schedule
