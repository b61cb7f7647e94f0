#include "compiler/schedule/fusion/tile_and_fuse.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "compiler/base/sort.h"
#include "compiler/base/text.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/typical.h"
#include "compiler/schedule/cost/tile_cost.h"
#include "compiler/schedule/fusion/fusion_join.h"
#include "compiler/schedule/memory/tiled_group_memory.h"

namespace stridec::schedule {
namespace {

using loop::Access;
using loop::BufferId;
using loop::Dim;
using loop::Launch;
using loop::Nest;
using loop::Program;
using loop::Storage;
using sym::Expr;

// A chain of launches: producer and sole consumer, or producer, contraction and its sole consumers.
struct Row {
  std::vector<int> at;            // positions in the list of steps
  std::vector<BufferId> passing;  // from the first to the second, and from the second to all others
  // Dims that all launches share, outermost first, as positions among the dims of each.
  std::vector<std::vector<size_t>> dims;

  // The index of the launch that produces what the launch `reader` reads.
  static size_t maker(size_t reader) { return reader < 2 ? 0 : 1; }
};

// The position in the buffer's index that is `var` in every access to it, or -1.
int component_of(const Nest& nest, BufferId buffer, Expr var) {
  int component = -1;
  bool plain = true;
  loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
    const Access* access = loop::access_of(stmt);
    if (!access || access->buffer != buffer) return;
    int own = -1;
    for (size_t i = 0; i < access->index.size(); ++i) {
      if (access->index[i] == var)
        own = static_cast<int>(i);
      else
        plain = plain && !sym::depends_on(access->index[i], var);
    }
    plain = plain && own >= 0 && (component < 0 || own == component);
    component = own;
  });
  return plain ? component : -1;
}

// A launch before `at` whose only output has `at` as its only reader.
struct Link {
  int at;
  BufferId buffer;
};
std::optional<Link> maker_of(const Program& program, const loop::Steps& steps, const Flow& flow, int at) {
  for (BufferId id : flow.effects(at).reads) {
    if (!made_once(program, flow, id) || flow.reader_count(id) != 1) continue;
    for (int p = at - 1; p >= 0; --p)
      if (writes(flow.effects(p), id) && nest_at(program, steps, p) && flow.effects(p).writes.size() == 1)
        return Link{p, id};
  }
  return std::nullopt;
}
// The readers of the only output of `at`, if all of them are launches after it.
struct Readers {
  std::vector<int> at;
  BufferId buffer;
};
std::optional<Readers> readers_of(const Program& program, const loop::Steps& steps, const Flow& flow,
                                  int at) {
  const std::vector<BufferId>& made = flow.effects(at).writes;
  if (made.size() != 1 || !made_once(program, flow, made[0])) return std::nullopt;
  Readers readers{{}, made[0]};
  for (int p = at + 1; p < static_cast<int>(steps.size()); ++p)
    if (reads(flow.effects(p), made[0]) && nest_at(program, steps, p)) readers.at.push_back(p);
  if (readers.at.empty() || static_cast<int>(readers.at.size()) != flow.reader_count(made[0]))
    return std::nullopt;
  return readers;
}

// Whether, apart from the intermediates, no launch writes what an earlier one touches or reads what an
// earlier one writes. This allows tiles to run in any order.
bool are_apart(const Program& program, const loop::Steps& steps, const Flow& flow, const Row& row) {
  for (size_t i = 0; i < row.at.size(); ++i) {
    const Effects& later = flow.effects(row.at[i]);
    if (later.updates) return false;
    for (size_t j = 0; j < i; ++j) {
      const Effects& earlier = flow.effects(row.at[j]);
      const auto meet = [&](BufferId id) {
        return std::find(row.passing.begin(), row.passing.end(), id) == row.passing.end() &&
               !access_disjoint(program, *nest_at(program, steps, row.at[j]),
                                *nest_at(program, steps, row.at[i]), id);
      };
      for (BufferId id : later.writes)
        if (touches(earlier, id) && meet(id)) return false;
      for (BufferId id : later.reads)
        if (writes(earlier, id) && meet(id)) return false;
    }
  }
  return true;
}

// Whether `var` is the contiguous dim of the buffer, which is vectorised.
bool is_contiguous(const Program& program, const Nest& nest, BufferId id, Expr var) {
  return program[id].strides[static_cast<size_t>(component_of(nest, id, var))].is_const(1);
}

// The dims that all nests index the intermediates by alike, except the vectorised one.
std::vector<std::vector<size_t>> shared_dims(const Program& program, const std::vector<Nest>& nests,
                                             const Row& row) {
  std::vector<std::vector<size_t>> shared;
  for (size_t d = 0; d < nests[0].dims.size(); ++d) shared.push_back({d});
  for (size_t i = 1; i < nests.size(); ++i) {
    const size_t maker = Row::maker(i);
    const Nest &from = nests[maker], &to = nests[i];
    const BufferId passing = row.passing[maker];
    const Matching matching = match_dims(program, from, to, exchanges_between(from, to).passing);
    std::erase_if(shared, [&](std::vector<size_t>& dims) {
      const Expr var = from.dims[dims[maker]].var;
      const auto pair = std::find_if(matching.begin(), matching.end(),
                                     [&](auto p) { return p.first == static_cast<int>(dims[maker]); });
      if (pair == matching.end() || component_of(from, passing, var) < 0 ||
          component_of(to, passing, to.dims[static_cast<size_t>(pair->second)].var) < 0 ||
          is_contiguous(program, from, passing, var))
        return true;
      dims.push_back(static_cast<size_t>(pair->second));
      return false;
    });
  }
  return shared;
}

// The positions of shared dims in the index of the nest's accesses to the buffer.
std::set<int> components(const Nest& nest, size_t number, const Row& row, BufferId id) {
  std::set<int> found;
  for (const auto& dims : row.dims) found.insert(component_of(nest, id, nest.dims[dims[number]].var));
  return found;
}

// Makes nests iterate over a tile's points instead of the shared dims, and shrinks the intermediates to these
// points.
class Cutter {
 public:
  Cutter(Program& program, const Row& row, const loop::TiledGroup& strips)
      : program_(program), row_(row), strips_(strips) {}

  void shrink(BufferId id, std::set<int> gone) {
    loop::Buffer& buffer = program_[id];
    // The dims in memory order. The tile's dim takes the place of the innermost shared one.
    std::vector<int> order(buffer.shape.size());
    std::iota(order.begin(), order.end(), 0);
    sort_stable(order, [&](int a, int b) {
      return typical(buffer.strides[static_cast<size_t>(a)], program_.facts) >
             typical(buffer.strides[static_cast<size_t>(b)], program_.facts);
    });
    const int kept = *std::find_if(order.rbegin(), order.rend(), [&](int d) { return gone.contains(d); });
    std::vector<Expr> shape;
    std::vector<int> place(buffer.shape.size(), -1);  // of an old dim among the new ones; -1: dropped
    for (size_t d = 0; d < buffer.shape.size(); ++d) {
      const int at = static_cast<int>(d);
      if (gone.contains(at) && at != kept) continue;
      place[d] = static_cast<int>(shape.size());
      shape.push_back(at == kept ? Expr(strips_.most) : buffer.shape[d]);
    }
    std::vector<Expr> strides(shape.size());
    Expr step = 1;
    for (size_t i = order.size(); i-- > 0;) {
      const int at = place[static_cast<size_t>(order[i])];
      if (at < 0) continue;
      strides[static_cast<size_t>(at)] = step;
      step = step * shape[static_cast<size_t>(at)];
    }
    places_[id] = {std::move(gone), kept};
    buffer.shape = std::move(shape);
    buffer.strides = std::move(strides);
  }

  // Rewrites nest `number` of the row. An index along a shared dim becomes a digit of the point's number; in
  // the intermediates it becomes the point itself.
  Nest cut(Nest nest, size_t number) {
    std::vector<size_t> at;
    for (const auto& dims : row_.dims) at.push_back(dims[number]);
    loop::Cloner names(nest);
    const Expr point = names.fresh_index(sym::var("%t"));
    loop::for_each_stmt(nest.body, [&](loop::Stmt& stmt) {
      Access* access = loop::access_of(stmt);
      if (!access || !places_.contains(access->buffer)) return;
      const auto& [gone, kept] = places_.at(access->buffer);
      std::vector<Expr> index;
      for (size_t d = 0; d < access->index.size(); ++d) {
        const int i = static_cast<int>(d);
        if (i == kept)
          index.push_back(point);
        else if (!gone.contains(i))
          index.push_back(access->index[d]);
      }
      access->index = std::move(index);
    });
    sym::Substitution digits;
    Expr rest = strips_.first + point;
    for (size_t i = at.size(); i-- > 0;) {
      const Dim& dim = nest.dims[at[i]];
      digits[dim.var] = i == 0 ? rest : sym::mod(rest, dim.extent);
      rest = sym::floordiv(rest, dim.extent);
    }
    loop::substitute(nest.body, digits);
    std::vector<Dim> dims;
    const size_t front = *std::min_element(at.begin(), at.end());
    for (size_t d = 0; d < nest.dims.size(); ++d) {
      if (d == front) dims.push_back({point, strips_.size});
      if (std::find(at.begin(), at.end(), d) == at.end()) dims.push_back(nest.dims[d]);
    }
    nest.dims = std::move(dims);
    loop::clean(program_, nest);
    loop::renumber(nest);
    return nest;
  }

 private:
  struct Place {
    std::set<int> gone;  // positions of shared dims in the index
    int kept;            // the one that becomes the tile's point
  };
  Program& program_;
  const Row& row_;
  const loop::TiledGroup& strips_;
  std::map<BufferId, Place> places_;
};

class Fuser {
 public:
  Fuser(Program& program, std::vector<Decision>* decisions, bool cuts)
      : program_(program), decisions_(decisions), cuts_(cuts) {}

  void block(loop::Steps& steps) {
    Flow flow(program_, steps);
    for (int at = 0; at < static_cast<int>(steps.size()); ++at) {
      const Nest* nest = nest_at(program_, steps, at);
      if (!nest) continue;
      Decision decision{nest->name, "strips", false, ""};
      const int made = fuse(steps, flow, at, &decision);
      if (decisions_ && !decision.reason.empty()) decisions_->push_back(std::move(decision));
      if (made < 0) continue;
      at = made;
      flow = Flow(program_, steps);
    }
  }

 private:
  // The row of which `at` is the contraction or, in a row without one, the first nest.
  std::optional<Row> row_at(const loop::Steps& steps, const Flow& flow, int at) const {
    const bool product = is_contraction(*nest_at(program_, steps, at));
    const auto in = maker_of(program_, steps, flow, at);
    const auto out = readers_of(program_, steps, flow, at);
    if (!out || (product ? !in : out->at.size() > 1)) return std::nullopt;
    Row row{{at}, {out->buffer}, {}};
    row.at.insert(row.at.end(), out->at.begin(), out->at.end());
    if (product) {
      row.at.insert(row.at.begin(), in->at);
      row.passing.insert(row.passing.begin(), in->buffer);
    }
    // Each GEMM has its own tiles, tasks and weights, so a row has only one.
    for (int p : row.at)
      if (p != at && is_contraction(*nest_at(program_, steps, p))) return std::nullopt;
    for (int p : row.at)
      if (!may_move(program_, steps, flow, p, row.at.back(), row.at)) return std::nullopt;
    return are_apart(program_, steps, flow, row) ? std::optional(row) : std::nullopt;
  }

  // Bytes of the contraction's weights, which multiply the intermediate; 0 if the row has no contraction.
  // Restricts row.dims to dims that do not index the weights. Returns nothing if the contraction has no such
  // weights.
  std::optional<double> weights_of(const std::vector<Nest>& nests, Row& row) const {
    if (!is_contraction(nests[1])) return 0;
    const auto contraction = loop::classify_contraction(nests[1]);
    if (!contraction || !contraction->a.plain || !contraction->b.plain) return std::nullopt;
    const bool swapped = program_[contraction->a.plain->access.buffer].storage == Storage::kParameter;
    const loop::Buffer& weight = program_[(swapped ? contraction->a : contraction->b).plain->access.buffer];
    const auto count = sym::as_const(loop::element_count(weight.shape));
    if (weight.storage != Storage::kParameter || !count) return std::nullopt;
    const std::vector<Dim>& rows = swapped ? contraction->n : contraction->m;
    std::erase_if(row.dims, [&](const std::vector<size_t>& dims) {
      return !loop::is_var_of(nests[1].dims[dims[1]].var, rows);
    });
    return static_cast<double>(*count * byte_size(weight.dtype));
  }

  // Fuses the row at `at` into a tiled group and returns its position, or -1.
  int fuse(loop::Steps& steps, const Flow& flow, int at, Decision* decision) {
    auto found = row_at(steps, flow, at);
    if (!found) return -1;
    Row& row = *found;
    std::vector<Nest> nests;
    for (int p : row.at) nests.push_back(*nest_at(program_, steps, p));
    for (const Nest& nest : nests)
      for (const Dim& dim : nest.dims)
        if (sym::has_index(dim.extent)) return -1;
    row.dims = shared_dims(program_, nests, row);
    const auto weights = weights_of(nests, row);
    if (!weights || row.dims.empty()) return -1;

    int64_t passing = 0;  // bytes per point
    for (size_t i = 0; i < row.passing.size(); ++i) {
      const loop::Buffer& buffer = program_[row.passing[i]];
      const std::set<int> gone = components(nests[i], i, row, row.passing[i]);
      int64_t bytes = byte_size(buffer.dtype);
      for (size_t d = 0; d < buffer.shape.size(); ++d) {
        if (gone.contains(static_cast<int>(d))) continue;
        const auto extent = sym::as_const(buffer.shape[d]);
        if (!extent) return -1;
        bytes *= *extent;
      }
      passing += bytes;
    }
    Expr points = 1;
    double typical_points = 1;
    for (const auto& dims : row.dims) {
      const Dim& dim = nests[0].dims[dims[0]];
      points = points * dim.extent;
      typical_points *= is_of_images(nests[0], flow.effects(row.at[0]), dim)
                            ? static_cast<double>(std::max<int64_t>(1, program_.facts.bounds(dim.extent).lo))
                            : std::max(1.0, typical(dim.extent, program_.facts));
    }
    points = sym::simplify(points, program_.facts);
    if (typical_points * static_cast<double>(passing) <= static_cast<double>(kTileCache))
      return -1;  // the intermediates stay in cache anyway
    const int64_t most = points_of_tile(typical_points, passing, *weights);
    if (most == 0) {
      const int64_t shortest_length = least_points(*weights);
      decision->reason =
          shortest_length * passing > 2 * kTileCache
              ? cat("not tiled: the intermediates of ", shortest_length, " points are too large for a cache")
              : cat("not tiled: ", typical_points, " points are too few");
      return -1;
    }
    if (*weights > kWeightTraffic * 2.0 * static_cast<double>(most * passing)) {
      decision->reason = cat("not tiled: all weights would be read for ", most, " points at a time");
      return -1;
    }
    decision->fused = true;
    decision->reason = cat("with its neighbours, ", most, " points at a time");
    decision->bytes = sym::simplify(2 * points * passing, program_.facts);

    const sym::Interval range = program_.facts.bounds(points);
    const int64_t least = range.has_lo() && range.lo >= most ? std::max<int64_t>(1, most / 2) : 1;
    loop::TiledGroup strips{.name = name_of_tiled_group(program_, nests),
                            .first = sym::var("strip.first"),
                            .size = sym::var(cat("strip.", least, "to", most)),
                            .points = points,
                            .least = least,
                            .most = most,
                            .round = {},
                            .sizes = {},
                            .body = {},
                            .own = row.passing};
    loop::set_ranges(program_.facts, strips);
    Cutter cutter(program_, row, strips);
    for (size_t i = 0; i < row.passing.size(); ++i)
      cutter.shrink(row.passing[i], components(nests[i], i, row, row.passing[i]));
    for (size_t i = 0; i < nests.size(); ++i) {
      const loop::NestId id = std::get<Launch>(steps[row.at[i]].node).nest;
      if (cuts_) program_[id] = cutter.cut(nests[i], i);
      strips.body.push_back({Launch{id}});
    }
    steps[row.at.back()].node = std::move(strips);
    for (size_t i = row.at.size() - 1; i-- > 0;) steps.erase(steps.begin() + row.at[i]);
    return row.at.back() - static_cast<int>(row.at.size()) + 1;
  }

  // Whether every read of the nest is indexed by the dim. The dim then counts images, and the case of one
  // image decides.
  static bool is_of_images(const Nest& nest, const Effects& effects, const Dim& dim) {
    return std::all_of(effects.reads.begin(), effects.reads.end(),
                       [&](BufferId id) { return component_of(nest, id, dim.var) >= 0; });
  }

  Program& program_;
  std::vector<Decision>* decisions_;
  const bool cuts_;
};

void fuse_blocks(Program& program, std::vector<Decision>* decisions, bool cuts) {
  Fuser fuser(program, decisions, cuts);
  loop::for_each_block(program.steps, [&](loop::Steps& steps) { fuser.block(steps); });
}

}  // namespace

std::string name_of_tiled_group(const Program& program, const std::vector<Nest>& nests) {
  const auto work = [&](const Nest& nest) {
    const loop::Cost cost = loop::cost_of(program, nest);
    return std::pair(typical(cost.flops, program.facts),
                     typical(cost.bytes_read + cost.bytes_written, program.facts));
  };
  return std::ranges::max_element(nests, {}, work)->name;
}

void tile_and_fuse(Program& program, std::vector<Decision>* decisions) {
  fuse_blocks(program, decisions, true);
}

void place_tiled_groups(Program& program) { fuse_blocks(program, nullptr, false); }

std::vector<StepGroup> future_tiled_groups(const Program& program) {
  Program preview = program;
  place_tiled_groups(preview);
  std::map<loop::NestId, int> position;
  for (size_t at = 0; at < program.steps.size(); ++at)
    if (const auto* launch = std::get_if<loop::Launch>(&program.steps[at].node))
      position[launch->nest] = static_cast<int>(at);
  std::vector<StepGroup> groups;
  for (const loop::Step& step : preview.steps) {
    const auto* strips = std::get_if<loop::TiledGroup>(&step.node);
    if (!strips) continue;
    StepGroup group{.at = {}, .own = strips->own, .bytes = own_memory(preview, *strips).bytes};
    for (const loop::Step& inner : strips->body) {
      const auto at = position.find(std::get<loop::Launch>(inner.node).nest);
      if (at != position.end()) group.at.push_back(at->second);
    }
    if (!group.at.empty()) groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace stridec::schedule
