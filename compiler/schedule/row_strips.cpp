#include "compiler/schedule/row_strips.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>

#include "compiler/base/sort.h"
#include "compiler/base/text.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/build.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/alive.h"
#include "compiler/schedule/choose_contraction.h"
#include "compiler/schedule/fusion_join.h"
#include "compiler/schedule/strips.h"

namespace stridec::schedule {
namespace {

using loop::Access;
using loop::BufferId;
using loop::Dim;
using loop::Launch;
using loop::Nest;
using loop::Program;
using loop::Strips;
using sym::Expr;

constexpr size_t kLongest = 6;       // nests of a chain
constexpr int64_t kMostUnits = 64;   // of rows, in a strip
constexpr int64_t kMostUnit = 16;    // rows that the last nest's strips are multiples of
constexpr double kMostWork = 0.01;   // more than without strips, of a run's
constexpr double kLeastGain = 0.03;  // of what is alive at once
constexpr int64_t kMuch = 1 << 20;
// Of a peak: what is alive above it counts, and has to be less by so much.
constexpr double kLevel = 0.9, kLeastExcess = 0.01;

// Where the accesses of a nest to a buffer go along one dim of it: from scale * var + low to scale * var + high.
struct Along {
  Expr var;
  int64_t scale = 1, low = 0, high = 0;
  bool plain() const { return scale == 1 && low == 0 && high == 0; }
};

class AlongFinder {
 public:
  AlongFinder(const Program& program, const Nest& nest, BufferId buffer, bool stores)
      : nest_(nest), buffer_(buffer), stores_(stores) {
    found_.resize(program[buffer].shape.size());
    sound_.assign(found_.size(), true);
    visit(nest.body, loop::facts_of(program, nest));
  }

  // Nothing where the dim of the buffer does not go along with one of the nest's.
  std::optional<Along> at(size_t d) const { return sound_[d] ? found_[d] : std::nullopt; }

 private:
  void visit(const loop::Block& block, sym::Facts facts) {
    for (const loop::Stmt& stmt : block) {
      const Access* access = loop::access_of(stmt);
      if (access && access->buffer == buffer_ && std::holds_alternative<loop::Store>(stmt.node) == stores_)
        look(*access, facts);
      if (const auto* bind = std::get_if<loop::Bind>(&stmt.node)) loop::add_facts(facts, *bind);
      if (const loop::Block* body = loop::body_of(stmt)) {
        sym::Facts inner = facts;
        loop::add_facts(inner, stmt);
        visit(*body, inner);
      }
    }
  }

  void look(const Access& access, const sym::Facts& facts) {
    for (size_t d = 0; d < found_.size(); ++d) {
      if (!sound_[d]) continue;
      const auto along = of(sym::simplify(access.index[d], facts), facts);
      sound_[d] = along && (!found_[d] || (found_[d]->var == along->var && found_[d]->scale == along->scale));
      for (size_t other = 0; sound_[d] && other < access.index.size(); ++other)
        sound_[d] = other == d || !sym::depends_on(access.index[other], along->var);
      if (!sound_[d]) continue;
      if (!found_[d]) found_[d] = along;
      found_[d]->low = std::min(found_[d]->low, along->low);
      found_[d]->high = std::max(found_[d]->high, along->high);
    }
  }

  std::optional<Along> of(Expr index, const sym::Facts& facts) const {
    std::optional<Along> along;
    for (const Dim& dim : nest_.dims) {
      if (!sym::depends_on(index, dim.var)) continue;
      const auto linear = along ? std::nullopt : sym::linear_in(index, dim.var);
      const auto scale = linear ? sym::as_const(linear->coefficient) : std::nullopt;
      if (!scale || *scale < 1) return std::nullopt;
      const sym::Interval rest = facts.bounds(linear->rest);
      if (!rest.has_lo() || !rest.has_hi()) return std::nullopt;
      along = Along{dim.var, *scale, rest.lo, rest.hi};
    }
    return along;
  }

  const Nest& nest_;
  BufferId buffer_;
  bool stores_;
  std::vector<std::optional<Along>> found_;
  std::vector<bool> sound_;
};

// Dims of a buffer that passes, as one nest writes and the next one reads it.
struct Passing {
  BufferId buffer;
  std::vector<std::optional<Along>> written, read;
};

// Rows of a nest that a strip [first, first + size) needs: from scale * first + before to scale * (first + size) + after.
struct Rows {
  Expr var, extent;
  int64_t scale = 1, before = 0, after = 0;
};

struct Chain {
  std::vector<int> at;
  std::vector<Passing> passing;  // from each to the next
  std::vector<Rows> rows;        // of each
  std::vector<size_t> row_dim;   // of what passes
  std::vector<std::vector<Expr>>
      images;  // of each nest: the dims that strips do not reach across, outer first
  std::vector<std::vector<size_t>> image_dims;  // of what passes, likewise
  Expr points;
  int64_t most = 1;
  double work = 0;  // more than without strips
  StepGroup group() const {
    StepGroup group{.at = at, .own = {}, .bytes = 0};
    for (const Passing& each : passing) group.own.push_back(each.buffer);
    return group;
  }
};

int64_t floor_of(int64_t a, int64_t b) { return (a >= 0 ? a : a - b + 1) / b; }
int64_t ceil_of(int64_t a, int64_t b) { return -floor_of(-a, b); }

class Fuser {
 public:
  Fuser(Program& program, std::vector<Decision>* decisions) : program_(program), decisions_(decisions) {}

  void run() {
    if (std::none_of(program_.nests.begin(), program_.nests.end(), is_contraction)) return;
    for (const loop::Step& step : program_.steps)
      if (const auto* launch = std::get_if<Launch>(&step.node)) work_ += work_of(program_[launch->nest]);
    // Several places are as high: only when the last of them is lower something is gained.
    Program best = program_;
    std::vector<Decision> kept, made;
    Curves now = curves();
    std::vector<int64_t> least = peaks(now);
    while (improve(now, &made)) {
      now = curves();
      if (gain_of(least, peaks(now)) < kLeastGain) continue;
      best = program_;
      kept = made;
      least = peaks(now);
    }
    program_ = std::move(best);
    if (!decisions_) return;
    decisions_->insert(decisions_->end(), kept.begin(), kept.end());
    curves();
    for (int at = 0; at < static_cast<int>(program_.steps.size()); ++at)
      if (reader_of(at) >= 0 && makers_of(at).empty()) explain(at);
  }

 private:
  const Nest* nest_at(int at) const { return schedule::nest_at(program_, program_.steps, at); }
  double work_of(const Nest& nest) const {
    return typical(loop::cost_of(program_, nest).flops, program_.facts);
  }

  using Curves = std::vector<std::vector<int64_t>>;
  Curves curves() {
    flow_ = make_flow(program_, program_.steps);
    later_ = later_strips();
    return Alive(program_, flow_).curves(later_);
  }
  static std::vector<int64_t> peaks(const Curves& curves) {
    std::vector<int64_t> peaks;
    for (const auto& curve : curves) peaks.push_back(*std::max_element(curve.begin(), curve.end()));
    return peaks;
  }
  // By what share the peaks are lower, over the sizes at which they are high.
  static double gain_of(const std::vector<int64_t>& before, const std::vector<int64_t>& after) {
    double gain = 0, counted = 0;
    for (size_t s = 0; s < before.size(); ++s) {
      if (before[s] < kMuch) continue;
      gain += 1 - static_cast<double>(after[s]) / static_cast<double>(before[s]);
      counted += 1;
    }
    return counted == 0 ? 0 : gain / counted;
  }
  // What is alive above a level near the peaks, step by step.
  static double excess(const Curves& curves, const std::vector<int64_t>& peaks) {
    double sum = 0;
    for (size_t s = 0; s < peaks.size(); ++s) {
      const double peak = static_cast<double>(peaks[s]);
      if (peaks[s] < kMuch) continue;
      for (int64_t bytes : curves[s]) sum += std::max(0.0, static_cast<double>(bytes) / peak - kLevel);
    }
    return sum;
  }

  // One chain through a peak becomes strips: the one that takes most off what is high.
  bool improve(const Curves& before, std::vector<Decision>* made) {
    const Alive alive(program_, flow_);
    const std::vector<int64_t> high = peaks(before);
    std::vector<Chain> chains;
    for (const auto& curve : before)
      chains_through(static_cast<int>(std::max_element(curve.begin(), curve.end()) - curve.begin()) / 2,
                     chains);
    const std::vector<Part> parts = parts_read();
    const Chain* best = nullptr;
    std::vector<Part> best_parts;
    double least = excess(before, high) - kLeastExcess;
    const auto consider = [&](const Chain& chain, const std::vector<Part>& copied) {
      std::vector<StepGroup> groups = {chain.group()};
      groups[0].bytes = own_bytes(chain);
      for (const StepGroup& group : later_)
        if (std::none_of(group.at.begin(), group.at.end(), [&](int at) {
              return std::find(chain.at.begin(), chain.at.end(), at) != chain.at.end();
            }))
          groups.push_back(group);
      std::vector<PartCopy> copies;
      for (const Part& part : copied) copies.push_back({part.from, chain.at.back(), part.bytes});
      const Curves after = alive.curves(groups, copies);
      const std::vector<int64_t> now = peaks(after);
      bool higher = false;
      for (size_t s = 0; s < now.size(); ++s) higher = higher || now[s] > std::max(high[s], kMuch);
      const double left = excess(after, high);
      if (higher || left >= least) return;
      best = &chain;
      best_parts = copied;
      least = left;
    };
    for (const Chain& chain : chains) {
      consider(chain, {});
      std::vector<Part> copied;
      for (const Part& part : parts)
        if (std::find(chain.at.begin(), chain.at.end(), part.after) != chain.at.end()) copied.push_back(part);
      if (!copied.empty()) consider(chain, copied);
    }
    if (!best) return false;
    for (const Part& part : best_parts) copy_part(part, best->at.back());
    const size_t others = best->at.size() - 1;
    made->push_back({nest_at(best->at.back())->name, "strips", true,
                     cat("with the ", others > 1 ? cat(others, " nests") : "nest", " before it, ",
                         best->most * best->rows.back().scale, " rows at a time, and less is alive at once"),
                     0});
    more_work_ += best->work;
    apply(*best);
    return true;
  }

  // What strips.h will do with what is left.
  std::vector<StepGroup> later_strips() const {
    Program preview = program_;
    fuse_strips(preview);
    std::map<loop::NestId, int> position;
    for (size_t at = 0; at < program_.steps.size(); ++at)
      if (const auto* launch = std::get_if<Launch>(&program_.steps[at].node))
        position[launch->nest] = static_cast<int>(at);
    std::vector<StepGroup> groups;
    for (const loop::Step& step : preview.steps) {
      const auto* strips = std::get_if<Strips>(&step.node);
      if (!strips) continue;
      StepGroup group{.at = {}, .own = strips->own, .bytes = own_memory(preview, *strips).bytes};
      for (const loop::Step& inner : strips->body) {
        const auto at = position.find(std::get<Launch>(inner.node).nest);
        if (at != position.end()) group.at.push_back(at->second);
      }
      if (!group.at.empty()) groups.push_back(std::move(group));
    }
    return groups;
  }

  // Why the nests from this one on, each of which alone reads what the one before makes, do not work in strips of rows, if
  // there are convolutions among them.
  void explain(int first) {
    std::vector<int> all = {first};
    bool products = is_contraction(*nest_at(first)), windows = false;
    for (int next = reader_of(first); next >= 0; next = reader_of(next)) {
      const AlongFinder read(program_, *nest_at(next), *passes_on(all.back()), false);
      for (size_t d = 0; d < program_[*passes_on(all.back())].shape.size(); ++d)
        if (const auto rows = read.at(d))
          windows = windows || (rows->high > rows->low && rows->high - rows->low < kMostUnits);
      products = products || is_contraction(*nest_at(next));
      all.push_back(next);
    }
    const bool later = std::any_of(later_.begin(), later_.end(), [&](const StepGroup& group) {
      return std::includes(group.at.begin(), group.at.end(), all.begin(), all.end());
    });
    if (!products || !windows || later) return;
    decisions_->push_back({nest_at(all.front())->name, nest_at(all.back())->name, false,
                           cat("no strips of rows: ", reason_of(all)), 0});
  }
  std::string reason_of(const std::vector<int>& all) const {
    std::string why;  // of the longest
    for (size_t count = std::min(all.size(), kLongest); count > 1; --count)
      for (auto from = all.begin(); from + static_cast<std::ptrdiff_t>(count) <= all.end(); ++from) {
        if (chain_of({from, from + static_cast<std::ptrdiff_t>(count)}))
          return cat("what is alive at once would not be less by ", static_cast<int>(100 * kLeastGain), " %");
        if (why.empty()) why = why_;
      }
    return why;
  }

  // ---- chains

  std::optional<BufferId> passes_on(int at) const {
    const Effects& effects = flow_.effects[static_cast<size_t>(at)];
    if (!nest_at(at) || effects.writes.size() != 1 || effects.updates) return std::nullopt;
    const BufferId id = effects.writes[0];
    return program_[id].storage == loop::Storage::kArena && flow_.total_writers[id.value] == 1 &&
                   flow_.total_readers[id.value] == 1
               ? std::optional(id)
               : std::nullopt;
  }
  int reader_of(int at) const {
    const auto id = passes_on(at);
    if (!id) return -1;
    for (int p = at + 1; p < static_cast<int>(program_.steps.size()); ++p)
      if (reads(flow_.effects[static_cast<size_t>(p)], *id) && nest_at(p)) return p;
    return -1;
  }
  std::vector<int> makers_of(int at) const {
    std::vector<int> makers;
    for (int p = 0; p < at; ++p)
      if (nest_at(p) && reader_of(p) == at) makers.push_back(p);
    return makers;
  }

  void chains_through(int at, std::vector<Chain>& chains) const {
    if (!nest_at(at)) return;
    std::vector<int> ends = {at};
    while (ends.size() < kLongest && reader_of(ends.back()) >= 0) ends.push_back(reader_of(ends.back()));
    for (size_t e = 0; e < ends.size(); ++e) {
      std::vector<int> backwards(ends.begin(), ends.begin() + static_cast<std::ptrdiff_t>(e) + 1);
      std::reverse(backwards.begin(), backwards.end());
      add_chains(backwards, chains);
    }
  }
  void add_chains(std::vector<int>& backwards, std::vector<Chain>& chains) const {
    if (backwards.size() > 1)
      if (auto chain = chain_of({backwards.rbegin(), backwards.rend()})) chains.push_back(*std::move(chain));
    if (backwards.size() == kLongest) return;
    for (int maker : makers_of(backwards.back())) {
      backwards.push_back(maker);
      add_chains(backwards, chains);
      backwards.pop_back();
    }
  }

  std::optional<Chain> chain_of(std::vector<int> at) const {
    Chain chain{.at = std::move(at),
                .passing = {},
                .rows = {},
                .row_dim = {},
                .images = {},
                .image_dims = {},
                .points = 0};
    const size_t count = chain.at.size();
    why_ = "the last of them makes several buffers";
    if (flow_.effects[static_cast<size_t>(chain.at.back())].writes.size() != 1) return std::nullopt;
    why_ = "a nest cannot move to the last one's place";
    for (size_t i = 0; i < count; ++i) {
      const Effects& effects = flow_.effects[static_cast<size_t>(chain.at[i])];
      for (const Dim& dim : nest_at(chain.at[i])->dims)
        if (sym::has_index(dim.extent)) return std::nullopt;
      if (effects.updates ||
          !may_move(program_, program_.steps, flow_, chain.at[i], chain.at.back(), chain.at))
        return std::nullopt;
      // Strips run in any order.
      for (size_t j = 0; j < i; ++j)
        for (BufferId id : effects.writes)
          if (reads(flow_.effects[static_cast<size_t>(chain.at[j])], id)) return std::nullopt;
    }
    for (size_t i = 0; i + 1 < count; ++i) {
      Passing passing{.buffer = *passes_on(chain.at[i]), .written = {}, .read = {}};
      const AlongFinder written(program_, *nest_at(chain.at[i]), passing.buffer, true);
      const AlongFinder read(program_, *nest_at(chain.at[i + 1]), passing.buffer, false);
      for (size_t d = 0; d < program_[passing.buffer].shape.size(); ++d) {
        passing.written.push_back(written.at(d));
        passing.read.push_back(read.at(d));
      }
      chain.passing.push_back(std::move(passing));
    }
    // The dims of the last nest as its result has them in memory, outer first: images, as far as they are many, then rows.
    const Nest& last = *nest_at(chain.at.back());
    const BufferId out = flow_.effects[static_cast<size_t>(chain.at.back())].writes[0];
    const AlongFinder stored(program_, last, out, true);
    std::vector<std::pair<double, Expr>> order;
    for (size_t d = 0; d < program_[out].shape.size(); ++d)
      if (const auto along = stored.at(d))
        order.emplace_back(typical(program_[out].strides[d], program_.facts), along->var);
    sort_stable(order, [](const auto& a, const auto& b) { return a.first > b.first; });
    chain.images.resize(count);
    chain.image_dims.resize(count - 1);
    why_ = "rows do not lead to rows";
    for (const auto& [stride, var] : order) {
      if (stride <= 1) break;
      if (auto done = with_rows(chain, var)) return done;
      if (!add_image(chain, var)) break;
    }
    return std::nullopt;
  }

  Expr extent_of(int at, Expr var) const {
    for (const Dim& dim : nest_at(at)->dims)
      if (dim.var == var) return dim.extent;
    return 0;
  }

  // The dim of what passes into nest `i` along which it reads with `var`.
  std::optional<size_t> read_along(const Chain& chain, size_t i, Expr var) const {
    std::optional<size_t> found;
    const Passing& passing = chain.passing[i - 1];
    for (size_t d = 0; d < passing.read.size(); ++d)
      if (passing.read[d] && passing.read[d]->var == var) found = d;
    return found;
  }

  bool add_image(Chain& chain, Expr var) const {
    const Expr extent = extent_of(chain.at.back(), var);
    std::vector<Expr> vars(chain.at.size());
    std::vector<size_t> dims(chain.passing.size());
    vars.back() = var;
    for (size_t i = chain.at.size(); i-- > 1;) {
      const auto d = read_along(chain, i, vars[i]);
      if (!d || !chain.passing[i - 1].written[*d]) return false;
      const Along &read = *chain.passing[i - 1].read[*d], &written = *chain.passing[i - 1].written[*d];
      if (!read.plain() || !written.plain() || extent_of(chain.at[i - 1], written.var) != extent)
        return false;
      dims[i - 1] = *d;
      vars[i - 1] = written.var;
    }
    for (size_t i = 0; i < vars.size(); ++i) chain.images[i].push_back(vars[i]);
    for (size_t i = 0; i < dims.size(); ++i) chain.image_dims[i].push_back(dims[i]);
    return true;
  }

  std::optional<Chain> with_rows(Chain chain, Expr var) const {
    const size_t count = chain.at.size();
    for (int64_t unit = 1; unit <= kMostUnit; ++unit) {
      chain.rows.assign(count, {});
      chain.row_dim.assign(count - 1, 0);
      chain.rows.back() = {var, extent_of(chain.at.back(), var), unit, 0, 0};
      bool divides = true;
      for (size_t i = count; i-- > 1 && divides;) {
        const Rows& rows = chain.rows[i];
        const auto d = read_along(chain, i, rows.var);
        if (!d || !chain.passing[i - 1].written[*d]) return std::nullopt;
        const Along &read = *chain.passing[i - 1].read[*d], &written = *chain.passing[i - 1].written[*d];
        if (written.low < 0 || written.high >= written.scale) return std::nullopt;
        divides = rows.scale * read.scale % written.scale == 0;
        chain.row_dim[i - 1] = *d;
        chain.rows[i - 1] = {
            .var = written.var,
            .extent = extent_of(chain.at[i - 1], written.var),
            .scale = rows.scale * read.scale / written.scale,
            .before = floor_of(read.scale * rows.before + read.low, written.scale),
            .after = ceil_of(read.scale * rows.after - read.scale + read.high + 1, written.scale)};
      }
      if (!divides) continue;
      chain.points = sym::simplify(sym::ceildiv(chain.rows.back().extent, unit), program_.facts);
      return fit(chain) ? std::optional(chain) : std::nullopt;
    }
    return std::nullopt;
  }

  // ---- parts

  // What the steps behind `after` read of a buffer: of each dim every scale-th place from `low` on.
  struct Part {
    BufferId from;
    int after;  // the last step that reads the rest as well
    std::vector<Along> dims;
    std::vector<Expr> shape;
    Expr bytes;
  };
  std::vector<Part> parts_read() const {
    std::vector<Part> parts;
    std::map<BufferId, Part> last;
    for (size_t at = 0; at < program_.steps.size(); ++at)
      for (BufferId id : flow_.effects[at].reads) {
        const loop::Buffer& buffer = program_[id];
        if (buffer.storage != loop::Storage::kArena || flow_.total_writers[id.value] != 1) continue;
        Part part{.from = id, .after = static_cast<int>(at), .dims = {}, .shape = {}, .bytes = 0};
        if (const Nest* nest = nest_at(static_cast<int>(at)); nest && last.contains(id)) {
          const AlongFinder read(program_, *nest, id, false);
          for (size_t d = 0; d < buffer.shape.size(); ++d) {
            const auto along = read.at(d);
            const bool strided = along && along->scale > 1 && along->low == along->high && along->low >= 0;
            part.dims.push_back(strided ? *along : Along{});
            part.shape.push_back(strided ? sym::ceildiv(buffer.shape[d] - along->low, along->scale)
                                         : buffer.shape[d]);
          }
          part.bytes =
              sym::simplify(loop::element_count(part.shape) * byte_size(buffer.dtype), program_.facts);
          part.after = last.at(id).after;
        }
        // Of several readers of parts the last: the one before it counts as a reader of the rest.
        if (!part.dims.empty()) parts.push_back(part);
        part.after = static_cast<int>(at);
        last.insert_or_assign(id, std::move(part));
      }
    std::erase_if(parts, [&](const Part& part) {
      const bool strided =
          std::any_of(part.dims.begin(), part.dims.end(), [](const Along& dim) { return dim.scale > 1; });
      return !strided || last.at(part.from).shape != part.shape || after_in(part.after, part.from) != 1;
    });
    return parts;
  }
  int after_in(int after, BufferId id) const {
    int readers = 0;
    for (size_t at = static_cast<size_t>(after) + 1; at < program_.steps.size(); ++at)
      readers += reads(flow_.effects[at], id);
    return readers;
  }

  // Behind the step at `after`; what reads it comes later.
  void copy_part(const Part& part, int after) {
    const loop::Buffer& from = program_[part.from];
    loop::Buffer buffer{
        .name = from.name + "_part", .dtype = from.dtype, .shape = part.shape, .storage = from.storage};
    buffer.strides = strides_like(from, part.shape);
    const BufferId to = loop::add_buffer(program_, std::move(buffer));
    loop::Steps copy;
    loop::NestBuilder nest(program_, "part");
    const std::vector<Expr> at = nest.dims(part.shape);
    std::vector<Expr> source;
    for (size_t d = 0; d < at.size(); ++d) source.push_back(at[d] * part.dims[d].scale + part.dims[d].low);
    nest.store(loop::whole(program_, to), at, nest.load(loop::whole(program_, part.from), source));
    for (size_t p = static_cast<size_t>(after) + 1; p < program_.steps.size(); ++p) {
      if (!reads(flow_.effects[p], part.from)) continue;
      Nest& reader = program_[std::get<Launch>(program_.steps[p].node).nest];
      nest.nest().nodes = reader.nodes;
      loop::for_each_stmt(reader.body, [&](loop::Stmt& stmt) {
        Access* access = loop::access_of(stmt);
        if (!access || access->buffer != part.from) return;
        access->buffer = to;
        for (size_t d = 0; d < part.dims.size(); ++d)
          if (part.dims[d].scale > 1) access->index[d] = part.dims[d].var;
      });
    }
    nest.finish(&copy);
    program_.steps.insert(program_.steps.begin() + after + 1, copy[0]);
  }

  // Dense, its dims in the order that they have in memory there.
  std::vector<Expr> strides_like(const loop::Buffer& like, const std::vector<Expr>& shape) const {
    std::vector<size_t> order(shape.size());
    std::iota(order.begin(), order.end(), size_t{0});
    sort_stable(order, [&](size_t a, size_t b) {
      return typical(like.strides[a], program_.facts) > typical(like.strides[b], program_.facts);
    });
    std::vector<Expr> strides(shape.size());
    Expr step = 1;
    for (size_t k = order.size(); k-- > 0;) {
      strides[order[k]] = step;
      step = step * shape[order[k]];
    }
    return strides;
  }

  // ---- what a strip takes

  int64_t most_rows(const Chain& chain, size_t i) const {  // of what passes behind nest i
    const Rows& rows = chain.rows[i];
    return chain.passing[i].written[chain.row_dim[i]]->scale *
           (rows.scale * chain.most + rows.after - rows.before);
  }
  Expr passing_bytes(const Chain& chain, size_t i) const {
    const loop::Buffer& buffer = program_[chain.passing[i].buffer];
    Expr bytes = most_rows(chain, i) * byte_size(buffer.dtype);
    for (size_t d = 0; d < buffer.shape.size(); ++d) {
      const auto& images = chain.image_dims[i];
      if (d != chain.row_dim[i] && std::find(images.begin(), images.end(), d) == images.end())
        bytes = bytes * buffer.shape[d];
    }
    return bytes;
  }
  // What a nest reads and what it writes are in use together, and memory is shared otherwise.
  Expr own_bytes(const Chain& chain) const {
    Expr most = 0;
    for (size_t i = 0; i < chain.passing.size(); ++i)
      most = sym::max(most, passing_bytes(chain, i) + (i > 0 ? passing_bytes(chain, i - 1) : Expr(0)));
    return most;
  }

  // The longest strips that stay in a cache and are enough of them, at little more work.
  bool fit(Chain& chain) const {
    double images = 1, weights = 0, passing = 0;
    for (Expr var : chain.images.back())
      images *= static_cast<double>(
          std::max<int64_t>(1, program_.facts.bounds(extent_of(chain.at.back(), var)).lo));
    const double points = typical(chain.points, program_.facts);
    for (chain.most = kMostUnits; chain.most > 0; --chain.most) {
      const double strips =
          std::min(points, 2 * std::ceil(std::ceil(points / static_cast<double>(chain.most)) / 2));
      if (images * strips >= kLeastStrips && typical(own_bytes(chain), program_.facts) <= kStripCache) break;
    }
    why_ = "there are too few rows, or one is too large for a cache";
    if (chain.most == 0) return false;
    for (int at : chain.at)
      for (BufferId id : flow_.effects[static_cast<size_t>(at)].reads)
        if (program_[id].storage == loop::Storage::kWeight)
          weights += typical(loop::element_count(program_[id].shape), program_.facts) *
                     byte_size(program_[id].dtype);
    for (size_t i = 0; i < chain.passing.size(); ++i)
      passing += typical(passing_bytes(chain, i), program_.facts);
    why_ = "weights would be read for each strip";
    if (weights > kWeightTraffic * 2 * passing) return false;
    const double strips = 2 * std::ceil(std::ceil(points / static_cast<double>(chain.most)) / 2),
                 size = points / strips;
    for (size_t i = 0; i < chain.at.size(); ++i) {
      const Rows& rows = chain.rows[i];
      chain.work += work_of(*nest_at(chain.at[i])) * static_cast<double>(rows.after - rows.before) /
                    (static_cast<double>(rows.scale) * size);
    }
    why_ = "rows at the borders of strips would be computed twice, and a run would have much more to do";
    return chain.work + more_work_ <= kMostWork * work_;
  }

  // ---- making them

  void apply(const Chain& chain) {
    const size_t count = chain.at.size();
    const sym::Interval points = program_.facts.bounds(chain.points);
    const int64_t least =
        points.has_lo() && points.lo >= chain.most ? std::max<int64_t>(1, chain.most / 2) : 1;
    Strips strips{.name = nest_at(chain.at.back())->name,
                  .first = sym::var("strip.first"),
                  .size = sym::var(cat("strip.", least, "to", chain.most)),
                  .points = chain.points,
                  .least = least,
                  .most = chain.most,
                  .round = {},
                  .sizes = {},
                  .body = {},
                  .own = {}};
    // Images, one after the other.
    std::vector<Expr> digits;
    if (!chain.images.back().empty()) {
      strips.round = sym::var("strip.round");
      Expr rest = strips.round;
      for (size_t d = chain.images.back().size(); d-- > 0;) {
        const Expr extent = extent_of(chain.at.back(), chain.images.back()[d]);
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
    // Rows of each nest.
    std::vector<Expr> begin(count), extent(count);
    for (size_t i = 0; i < count; ++i) {
      const Rows& rows = chain.rows[i];
      begin[i] = rows.scale * strips.first + rows.before;
      extent[i] = rows.scale * strips.size + rows.after - rows.before;
      const bool whole = rows.before >= 0 && rows.after <= 0 &&
                         program_.facts.holds(sym::le(rows.scale * chain.points, rows.extent));
      if (whole) continue;
      const Expr end = sym::min(rows.extent, rows.scale * (strips.first + strips.size) + rows.after);
      const Expr from = rows.before >= 0 ? begin[i] : sym::max(begin[i], 0);
      const int64_t most = rows.scale * chain.most + rows.after - rows.before;
      const Expr at = sym::var(cat("strip.at", i)), size = sym::var(cat("strip.rows", i, ".0to", most));
      strips.sizes.push_back({at, from, std::nullopt});
      const Expr total =
          strips.rounds * (rows.scale * chain.points + (rows.after - rows.before) * strips.count_of_round());
      strips.sizes.push_back({size, sym::max(0, end - from), most, sym::simplify(total, program_.facts)});
      begin[i] = at;
      extent[i] = size;
    }
    loop::set_ranges(program_.facts, strips);

    for (size_t i = 0; i + 1 < count; ++i) shrink(chain, i);
    for (size_t i = 0; i < count; ++i) {
      Nest nest = *nest_at(chain.at[i]);
      loop::for_each_stmt(nest.body, [&](loop::Stmt& stmt) {
        Access* access = loop::access_of(stmt);
        if (!access) return;
        if (i > 0 && access->buffer == chain.passing[i - 1].buffer) move(*access, chain, i - 1, strips.first);
        if (i + 1 < count && access->buffer == chain.passing[i].buffer) move(*access, chain, i, strips.first);
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
      loop::clean(program_, nest);
      loop::renumber(nest);
      const loop::NestId id = std::get<Launch>(program_.steps[static_cast<size_t>(chain.at[i])].node).nest;
      program_[id] = std::move(nest);
      strips.body.push_back({Launch{id}});
    }
    for (const Passing& each : chain.passing) strips.own.push_back(each.buffer);
    program_.steps[static_cast<size_t>(chain.at.back())].node = std::move(strips);
    for (size_t i = count - 1; i-- > 0;) program_.steps.erase(program_.steps.begin() + chain.at[i]);
  }

  // The index within a strip's rows of what passes behind nest i.
  void move(Access& access, const Chain& chain, size_t i, Expr first) const {
    const int64_t scale = chain.passing[i].written[chain.row_dim[i]]->scale;
    const Rows& rows = chain.rows[i];
    std::vector<Expr> index;
    for (size_t d = 0; d < access.index.size(); ++d) {
      const auto& images = chain.image_dims[i];
      if (std::find(images.begin(), images.end(), d) != images.end()) continue;
      index.push_back(d == chain.row_dim[i] ? access.index[d] - scale * (rows.scale * first + rows.before)
                                            : access.index[d]);
    }
    access.index = std::move(index);
  }

  void shrink(const Chain& chain, size_t i) {
    loop::Buffer& buffer = program_[chain.passing[i].buffer];
    const auto& images = chain.image_dims[i];
    loop::Buffer kept = buffer;
    kept.shape.clear(), kept.strides.clear();
    for (size_t d = 0; d < buffer.shape.size(); ++d) {
      if (std::find(images.begin(), images.end(), d) != images.end()) continue;
      kept.shape.push_back(d == chain.row_dim[i] ? Expr(most_rows(chain, i)) : buffer.shape[d]);
      kept.strides.push_back(buffer.strides[d]);
    }
    kept.strides = strides_like(kept, kept.shape);
    buffer = std::move(kept);
  }

  Program& program_;
  std::vector<Decision>* decisions_;
  Flow flow_;
  std::vector<StepGroup> later_;
  double work_ = 0, more_work_ = 0;
  mutable std::string why_;  // the last chain that was looked at can be none
};

}  // namespace

void fuse_row_strips(Program& program, std::vector<Decision>* decisions) { Fuser(program, decisions).run(); }

}  // namespace stridec::schedule
