// Ranges of a thread group: which loads stay in registers, and how a thread iterates over its chunks.
#include "compiler/codegen/cuda/reduction/cooperative_emitter.h"

#include <algorithm>
#include <bit>
#include <set>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cuda/common/frame.h"
#include "compiler/codegen/cuda/common/prelude.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/effects.h"
#include "compiler/sym/text.h"

namespace stridec::codegen::cuda {
namespace {

constexpr int kHeldWords = 64;   // registers for loads in flight
constexpr int kEagerWords = 96;  // registers for the initial loads of a launch with one point

}  // namespace

std::string CooperativeEmitter::held_place(const Range& range, const loop::Access& access) const {
  return cat(range.edges ? "edges " : "", place_of(range, access));
}

CooperativeEmitter::Range CooperativeEmitter::range_of(const loop::Stmt& stmt) {
  Range range;
  range.dims = loop::dims_of(stmt);
  range.block = loop::body_of(stmt);
  for (const loop::Dim& dim : range.dims) range.count *= dim.extent;
  range.chunks = range.count;
  if (width == 1) return range;
  range.strip = strip_of(stmt, width);
  if (!range.strip) return range;
  if (variant.parts)
    range.chunks = sym::ceildiv(range.count + (width - 1), width);  // upper bound
  else if (!variant.columns)
    range.chunks = sym::floordiv(range.count, width);
  conditions.insert(conditions.end(), range.strip->conditions.begin(), range.strip->conditions.end());
  for (loop::BufferId id : range.strip->aligned)
    if (!std::count(aligned.begin(), aligned.end(), id)) aligned.push_back(id);
  return range;
}

std::string CooperativeEmitter::place_of(const Range& range, const loop::Access& access) const {
  sym::Expr offset = loop::offset_of(program, access);
  // Accesses that are contiguous in the range's row-major order have the same place in every range with as
  // many points, however many dims it has.
  sym::Expr start = offset, below = 1;
  for (size_t d = range.dims.size(); d-- > 0; below *= range.dims[d].extent)
    start -= range.dims[d].var * below;
  start = sym::simplify(start, facts_);
  if (!loop::depends_on_any(start, range.dims))
    return cat(access.buffer.value, " ", sym::to_string(start), " in order ",
               sym::to_string(sym::simplify(below, facts_)));
  std::string extents;
  for (size_t d = 0; d < range.dims.size(); ++d) {
    offset = sym::substitute(offset, range.dims[d].var, sym::var(cat("%range", d)));
    extents += " " + sym::to_string(range.dims[d].extent);
  }
  return cat(access.buffer.value, " ", sym::to_string(sym::simplify(offset, facts_)), extents);
}

bool CooperativeEmitter::can_keep(const Range& range, const loop::Stmt& stmt) const {
  const auto* load = std::get_if<loop::Load>(&stmt.node);
  if (!load || program[load->access.buffer].storage == loop::Storage::kLocal ||
      !load->access.mask.is_const(1))
    return false;
  if (range.strip) return std::count(range.strip->vectors.begin(), range.strip->vectors.end(), &stmt) > 0;
  if (width > 1) return false;
  const loop::Effects effects = loop::effects_of(nest);
  if (std::count(effects.writes.begin(), effects.writes.end(), load->access.buffer)) return false;
  for (const sym::Expr& index : load->access.index)
    for (const sym::Expr& var : sym::free_vars(index))
      if (sym::is_index(var) && !loop::is_var_of(var, nest.dims) && !loop::is_var_of(var, range.dims))
        return false;
  return true;
}

void CooperativeEmitter::count_wanted() {
  std::map<loop::BufferId, std::set<std::string>> local;
  std::map<loop::BufferId, int> all, direct;
  loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
    if (const loop::Access* access = loop::access_of(stmt)) ++all[access->buffer];
  });
  int words = 0;
  std::map<std::string, int> words_at;
  for (const loop::Stmt& stmt : nest.body) {
    if (!is_range(stmt)) continue;
    const Range range = range_of(stmt);
    std::set<std::string> here;
    for (const loop::Stmt& inner : *range.block) {
      const loop::Access* access = loop::access_of(inner);
      if (!access) continue;
      if (can_keep(range, inner)) {
        const std::string place = place_of(range, *access);
        if (here.insert(place).second && !wanted_.contains(place))
          words += words_at[place] =
              kept_chunks() * std::max(1, width * byte_size(program[access->buffer].dtype) / 4);
      }
      if (program[access->buffer].storage != loop::Storage::kLocal || !access->mask.is_const(1)) continue;
      ++direct[access->buffer];
      local[access->buffer].insert(place_of(range, *access));
    }
    for (const std::string& place : here) ++wanted_[place];
  }
  // In a launch with one point nothing else computes while it waits, so it waits only once.
  kept_from_ = variant.keep && nest.dims.empty() && words <= kEagerWords ? 1 : 2;
  kept_words_ = 0;
  for (const auto& [place, loops] : wanted_) kept_words_ += loops >= kept_from_ ? words_at[place] : 0;
  plan_shared();
  for (const auto& [buffer, places] : local)
    if (variant.keep && places.size() == 1 && direct[buffer] == all[buffer])
      passed_[buffer] = cat("row", passed_.size());
}

bool CooperativeEmitter::has_locals() const {
  const std::vector<loop::BufferId> buffers = loop::buffers_of(nest);
  return std::any_of(buffers.begin(), buffers.end(),
                     [&](loop::BufferId id) { return program[id].storage == loop::Storage::kLocal; });
}

bool CooperativeEmitter::passes_locals() const {
  const std::vector<loop::BufferId> buffers = loop::buffers_of(nest);
  return std::all_of(buffers.begin(), buffers.end(), [&](loop::BufferId id) {
    return program[id].storage != loop::Storage::kLocal || passed_.contains(id);
  });
}

bool CooperativeEmitter::keeps_something() const {
  return !passed_.empty() || std::any_of(wanted_.begin(), wanted_.end(),
                                         [&](const auto& entry) { return entry.second >= kept_from_; });
}

bool CooperativeEmitter::loads_again(const loop::Block& block) const {
  std::set<loop::BufferId> loaded, stored;
  loop::for_each_stmt(block, [&](const loop::Stmt& stmt) {
    const loop::Access* access = loop::access_of(stmt);
    if (!access || passed_.contains(access->buffer) || of_round_.contains(access->buffer)) return;
    (std::holds_alternative<loop::Store>(stmt.node) ? stored : loaded).insert(access->buffer);
  });
  return std::any_of(stored.begin(), stored.end(), [&](loop::BufferId id) { return loaded.contains(id); });
}

const char* CooperativeEmitter::chunk_type(const Range& range) const {
  return variant.keep || variant.narrow || facts_.bounds(range.chunks).hi < kManyChunks ? "int" : "int64_t";
}

void CooperativeEmitter::print_chunks(
    const Range& range, const std::string& from, int together, Batch batch,
    const std::function<void(const std::string& first, const std::string& j)>& inside) {
  chunk_ = text_.fresh("c");
  const std::string j = text_.fresh("j");
  // With kept chunks, chunks that no thread of the group has are skipped in groups of chunks; those that only
  // some threads have are executed by all: many branches would keep loads and the following statements from
  // overlapping. For vectors of rows of unknown length, chunks are skipped one by one.
  const int group = start_ && !range.count.is_const() ? 1 : kGroup;
  const bool groups = batch != Batch::kWhole && variant.keep && together > group;
  const auto [begin, end] = groups ? open_group(group, together) : std::pair(std::string("0"), cat(together));
  text_.line("#pragma unroll");
  text_.open(cat("for (int ", j, " = ", begin, "; ", j, " < ", end, "; ++", j, ")"));
  number_ = cat(from, " + ", j, " * ", rows);
  const bool branch = open_chunk(range, from, j, batch);
  if (!there_.empty()) guard_assignments();
  if (ways_ > 1) text_.line(cat("const int way = ", j, " % ", ways_, ";"));
  const std::string first = print_chunk_indices(range);
  inside(first, j);
  there_ = part_ = "";
  body_.assign = {};
  if (branch) text_.close();
  text_.close();
  if (!groups) return;
  text_.close();
  text_.close();
}

std::pair<std::string, std::string> CooperativeEmitter::open_group(int group, int together) {
  const std::string g = text_.fresh("g");
  text_.line("#pragma unroll");
  text_.open(cat("for (int ", g, " = 0; ", g, " < ", together, "; ", g, " += ", group, ")"));
  text_.open(cat("if (", g, " * ", rows, " < ", chunks_, ")"));
  std::string end = cat(g, " + ", group);
  if (together % group) end = cat("(", end, " < ", together, " ? ", end, " : ", together, ")");
  return {g, end};
}

bool CooperativeEmitter::open_chunk(const Range& range, const std::string& from, const std::string& j,
                                    Batch batch) {
  if (batch == Batch::kSome && variant.parts) {
    text_.line(cat("const int ", chunk_, " = ", number_, ";"));
    part_ = cat(parts_.at(chunks_), "[", j, "]");
    there_ = cat("(", part_, " >> u & 1)");
    return false;
  }
  // If an iteration loads again what it stores, a thread with a substitute chunk would load while another one
  // stores: that needs a branch. Vectors in part affect only elements of their own row.
  const bool branch = batch == Batch::kSome && (!variant.keep || loads_again(*range.block));
  if (batch == Batch::kWhole || branch) {
    text_.line(cat("const ", chunk_type(range), " ", chunk_, " = ", number_, ";"));
    if (branch) text_.open(cat("if (", variant.columns ? "live && " : "", chunk_, " < ", chunks_, ")"));
    return branch;
  }
  // Instead of a chunk that does not exist, executes the last one. For covered columns or rows in shared
  // memory it executes the thread's first one, which has the same distance from an aligned vector and is in
  // the thread's own part of a shared row.
  const std::string last = cat(chunks_, " - 1");
  const bool own = phase_ || variant.shared;
  text_.line(cat("const ", chunk_type(range), " ", chunk_, " = ", number_, " < ", own ? chunks_ : last, " ? ",
                 number_, " : ", own ? from : last, ";"));
  if (batch == Batch::kSome) {
    there_ = text_.fresh("there");
    text_.line(
        cat("const bool ", there_, " = ", variant.columns ? "live && " : "", number_, " < ", chunks_, ";"));
  }
  return false;
}

void CooperativeEmitter::guard_assignments() {
  body_.assign = [this](const loop::Access& access, const std::string& element, const std::string& value) {
    // Iterations beyond the range read what they write, as those in the range do.
    if (passed_.contains(access.buffer) || of_round_.contains(access.buffer))
      return cat(element, " = ", value, ";");
    if (program[access.buffer].storage == loop::Storage::kLocal)
      return cat("if (", there_, ") ", element, " = ", value, ";");
    return cat("sd_put(&", element, ", (", text_.storage_type(program[access.buffer].dtype), ")(", value,
               "), ", there_, ");");
  };
}

std::string CooperativeEmitter::first_element(const Range& range) const {
  if (range.edges)
    return cat("(", chunk_, " < head ? ", chunk_, " : ", chunk_, " + ", width, " * ",
               variant.keep ? "" : "(int64_t)", vectors_, ")");
  const std::string first = cat(start_ && variant.keep ? "(" : "((int64_t)", chunk_,
                                range.strip && !variant.columns ? cat(" * ", width, ")") : ")");
  if (variant.parts) return cat("(", first, " - phase)");
  return start_ ? cat("(", first, " + head)") : first;
}

std::string CooperativeEmitter::print_chunk_indices(const Range& range) {
  std::string first = first_element(range);
  if (range.dims.size() <= 1) {
    if (!range.dims.empty()) body_.set_index(range.dims[0].var, first);
    return first;
  }
  // Decomposes a 32-bit index, in whose range the extents do not add anything.
  const bool small =
      std::string_view(chunk_type(range)) == "int" && (width == 1 || variant.keep || variant.columns);
  const std::string left = text_.fresh("t"), type = small ? "unsigned" : "int64_t";
  text_.line(cat(type, " ", left, " = ", small ? "(unsigned)" : "", first, ";"));
  for (size_t d = range.dims.size(); d-- > 1;) {
    const std::string extent = body_.index(range.dims[d].extent), name = text_.fresh("t"),
                      by = text_.fresh("t");
    text_.line(cat("const ", type, " ", by, " = (", type, ")(", extent, ");"));
    text_.line(cat("const int64_t ", name, " = ", left, " % ", by, ";"));
    text_.line(cat(left, " /= ", by, ";"));
    if (d + 1 == range.dims.size()) first = name;
    body_.set_index(range.dims[d].var, name);
  }
  body_.set_index(range.dims[0].var, cat("((int64_t)", left, ")"));
  return first;
}

void CooperativeEmitter::print_starts(const Range& range) {
  starts_.clear();
  if (range.strip || range.dims.size() != 1 || std::string_view(chunk_type(range)) != "int") return;
  const Expr var = range.dims[0].var;
  body_.set_index(var, "0");
  for (const loop::Stmt& stmt : *range.block) {
    const loop::Access* access = loop::access_of(stmt);
    if (!access || !access->mask.is_const(1) || program[access->buffer].storage == loop::Storage::kLocal)
      continue;
    const auto linear = sym::linear_in(loop::offset_of(program, *access), var);
    if (!linear || !linear->coefficient.is_const(1)) continue;
    const bool known = std::all_of(access->index.begin(), access->index.end(), [&](const Expr& index) {
      for (const Expr& free : sym::free_vars(index))
        if (sym::is_index(free) && free != var && !loop::is_var_of(free, nest.dims)) return false;
      return true;
    });
    if (!known) continue;
    auto [start, fresh] = starts_.try_emplace(place_of(range, *access));
    if (!fresh) continue;
    start->second = text_.fresh("start");
    text_.line(cat("auto* const ", start->second, " = sd_opaque(", text_.pointer(access->buffer), " + ",
                   body_.offset(*access), ");"));
  }
}

std::string CooperativeEmitter::started(const Range& range, const loop::Access& access, bool stored) const {
  if (!access.mask.is_const(1)) return "";
  const auto start = starts_.find(place_of(range, access));
  return start == starts_.end() ? "" : cat(start->second, "[", stored ? number_ : chunk_, "]");
}

std::vector<const loop::Stmt*> CooperativeEmitter::held_loads(const Range& range) {
  std::vector<const loop::Stmt*> out;
  std::set<std::string> seen;
  for (const loop::Stmt& stmt : *range.block) {
    if (!can_keep(range, stmt)) continue;
    const std::string place = place_of(range, *loop::access_of(stmt));
    if (variant.keep && !variant.parts && wanted_[place] < (keeps_something() ? kept_from_ : 1)) continue;
    if (!kept_.count(held_place(range, *loop::access_of(stmt))) && seen.insert(place).second)
      out.push_back(&stmt);
  }
  return out;
}

void CooperativeEmitter::print_held(const Range& range, const std::vector<const loop::Stmt*>& loads,
                                    const std::string& from, int together, Batch batch) {
  if (loads.empty()) return;
  for (const loop::Stmt* stmt : loads) {
    const loop::Access& access = *loop::access_of(*stmt);
    const std::string storage = text_.storage_type(program[access.buffer].dtype), name = text_.fresh("held");
    kept_[held_place(range, access)] = name;
    const bool vector = range.strip && !range.edges;
    const char* kind = covers(range, access) ? "Cover<" : variant.parts ? "sd_words<" : "Vec<";
    const std::string declaration =
        cat(vector ? cat(kind, storage, ", ", width, ">") : storage, " ", name, "[", together, "];");
    if (variant.parts) {
      body_.set_index(range.dims[0].var, "0");
      const std::string offset = body_.offset(access);
      text_.line(cat("const ", storage, "* const ", name, "_from = ", text_.pointer(access.buffer), " + ",
                     offset, ";"));
      text_.line(cat("const int ", name, "_last = sd_last(", offset, ", ",
                     body_.index(schedule::extent_in_elements(program[access.buffer])), ", ", width, ");"));
    }
    if (variant.keep)
      declared_ += cat("    ", declaration, "\n");
    else
      text_.line(declaration);
  }
  // Without chunks there is nothing to load; in a loop over chunks there is at least one.
  if (variant.keep) text_.open(cat("if (", chunks_, " > 0)"));
  print_chunks(range, from, together, batch, [&](const std::string& first, const std::string& j) {
    const bool vectors = range.strip && !range.edges;
    if (vectors) body_.set_index(range.strip->var, variant.columns ? "column" : first);
    for (const loop::Stmt* stmt : loads) {
      const loop::Access& access = *loop::access_of(*stmt);
      const std::string name = kept_[held_place(range, access)], into = cat(name, "[", j, "] = ");
      if (vectors && covers(range, access)) {
        text_.line(cat(into, "sd_load_cover<", width, ">", cover_arguments(access), ";"));
        continue;
      }
      if (is_filled(range, access)) {
        const std::string place = shared_place(range, access);
        text_.line(
            cat(into, vectors ? cat("sd_load<", width, ">(", place, ")") : cat("*(", place, ")"), ";"));
        continue;
      }
      if (const std::string element = started(range, access, false); !element.empty()) {
        text_.line(cat(into, element, ";"));
        continue;
      }
      if (vectors && phase_ && batch != Batch::kWhole) {
        text_.line(cat(into, "sd_load_within<", width, ">", cover_arguments(access), ";"));
        continue;
      }
      if (vectors && variant.parts) {
        text_.line(cat(into, "sd_load_near<", width, ">(", name, "_from, ", first, ", ", name, "_last);"));
        continue;
      }
      const std::string element = cat(text_.pointer(access.buffer), " + ", body_.offset(access));
      text_.line(
          cat(into, vectors ? cat("sd_load<", width, ">(", element, ")") : cat("*(", element, ")"), ";"));
    }
  });
  if (variant.keep) text_.close();
}

void CooperativeEmitter::print_batch(const Range& range, const std::vector<const loop::Stmt*>& loads,
                                     const std::string& from, int together, bool whole,
                                     const std::function<void()>& inside) {
  print_held(range, loads, from, together, whole ? Batch::kWhole : Batch::kLoads);
  const Batch batch = whole ? Batch::kWhole : Batch::kSome;
  const bool vectors = range.strip && !range.edges;
  if (variant.keep) text_.open(cat("if (", chunks_, " > 0)"));
  print_chunks(range, from, together, batch, [&](const std::string& first, const std::string& j) {
    print_shared_stores(range, loads, j);
    const Neighbours neighbours = vectors && variant.parts ? print_neighbours(range, first) : Neighbours();
    body_.place = [&](const loop::Access& access) { return chunk_element(range, access, neighbours, j); };
    if (!vectors) {
      body_.print(*range.block);
      inside();
    } else {
      const auto held = [&](const loop::Stmt& stmt) {
        const bool loaded = std::count(loads.begin(), loads.end(), &stmt) > 0;
        return chunk_vector(range, *loop::access_of(stmt), loaded, first, j);
      };
      print_strip(text_, body_, *range.block, *range.strip, variant.columns ? "column" : first,
                  {.held = held, .each = inside, .when = variant.parts ? part_ : there_});
    }
    body_.place = top_place();
  });
  if (variant.keep) text_.close();
}

void CooperativeEmitter::print_shared_stores(const Range& range, const std::vector<const loop::Stmt*>& loads,
                                             const std::string& j) {
  const bool vectors = range.strip && !range.edges;
  for (const loop::Stmt* stmt : loads) {
    const loop::Access& access = *loop::access_of(*stmt);
    const std::string place = is_filled(range, access) ? "" : shared_place(range, access),
                      held = cat(kept_[held_place(range, access)], "[", j, "]");
    if (place.empty()) continue;
    text_.line(vectors ? cat("sd_store_shared<", width, ">(", place, ", ", held, ");")
                       : cat("*(", place, ") = ", held, ";"));
  }
}

CooperativeEmitter::Neighbours CooperativeEmitter::print_neighbours(const Range& range,
                                                                    const std::string& first) {
  Neighbours out;
  for (const loop::Stmt& stmt : *range.block) {
    const auto* load = std::get_if<loop::Load>(&stmt.node);
    if (!load || can_keep(range, stmt)) continue;
    const auto stride = loop::stride_of(program, load->access, range.dims[0].var, facts_);
    if (!stride || !stride->is_const(1) || passed_.contains(load->access.buffer)) continue;
    const std::string& from = out[&load->access] = text_.fresh("from");
    body_.set_index(range.dims[0].var, first);
    text_.line(cat("const auto* const ", from, " = sd_opaque(", text_.pointer(load->access.buffer), " + ",
                   body_.offset(load->access), ");"));
  }
  return out;
}

std::string CooperativeEmitter::chunk_element(const Range& range, const loop::Access& access,
                                              const Neighbours& neighbours, const std::string& j) {
  const bool vectors = range.strip && !range.edges;
  const auto found = passed_.find(access.buffer);
  if (found != passed_.end())
    return cat(found->second, range.edges ? "_edges[" : "[", j, "][", vectors ? "u" : "0", "]");
  // Not for a store, whose place may be that of a load.
  const bool stored = std::any_of(range.block->begin(), range.block->end(), [&](const loop::Stmt& stmt) {
    const auto* store = std::get_if<loop::Store>(&stmt.node);
    return store && &store->access == &access;
  });
  if (variant.parts && !stored && is_along(access, range)) {
    const auto from = neighbours.find(&access);
    return cat("(", there_, " ? ",
               from == neighbours.end() ? cat(text_.pointer(access.buffer), "[", body_.offset(access), "]")
                                        : cat(from->second, "[u]"),
               " : (", text_.storage_type(program[access.buffer].dtype), ")0)");
  }
  if (vectors || !access.mask.is_const(1)) return local_element(access);
  const auto held = kept_.find(held_place(range, access));
  if (held != kept_.end() && !stored) return cat(held->second, "[", j, "]");
  const std::string element = started(range, access, stored);
  return element.empty() ? local_element(access) : element;
}

std::string CooperativeEmitter::chunk_vector(const Range& range, const loop::Access& access, bool loaded,
                                             const std::string& first, const std::string& j) {
  const auto found = kept_.find(place_of(range, access));
  const std::string held = found == kept_.end() ? "" : cat(found->second, "[", j, "]");
  if (!covers(range, access) && !variant.parts) return held;
  const std::string vector = text_.fresh("vec");
  if (variant.parts) {
    STRIDEC_CHECK(!held.empty(), nest.name);
    if (loaded)
      text_.line(cat(held, " = sd_mended<", width, ">(", held, ", ", found->second, "_from, ", first, ", ",
                     found->second, "_last, (int)", body_.index(range.count), ");"));
    text_.line(cat("const auto ", vector, " = __builtin_bit_cast(Vec<",
                   text_.storage_type(program[access.buffer].dtype), ", ", width, ">, ", held, ");"));
    return vector;
  }
  const std::string arguments = cover_arguments(access);
  const std::string cover = held.empty() ? cat("sd_load_cover<", width, ">", arguments) : held;
  text_.line(cat("const auto ", vector, " = sd_uncover(", cover, ", ", arguments.substr(1), ";"));
  return vector;
}

int CooperativeEmitter::batch_of(const Range& range, const std::vector<const loop::Stmt*>& loads) const {
  int words = 0;
  for (const loop::Stmt* stmt : loads)
    words += std::max(1, width * byte_size(program[loop::access_of(*stmt)->buffer].dtype) / 4);
  int together = width == 1 ? 16 : (variant.columns && !variant.covered) || common_ ? 8 : 4;
  while (together > 1 &&
         (together * words > kHeldWords || together * width * statements_of(range) > kUnrolled))
    together /= 2;
  if (loads.empty()) together = 4;
  // At most as many as a thread has.
  while (together > 1 && facts_.holds(sym::le(range.chunks, together / 2 * rows))) together /= 2;
  return together;
}

std::string CooperativeEmitter::cover_arguments(const loop::Access& access) {
  return cat("(", text_.pointer(access.buffer), ", ", body_.offset(access), ", ",
             body_.index(schedule::extent_in_elements(program[access.buffer])), ")");
}

void CooperativeEmitter::print_count(const Range& range) {
  const std::string count = body_.index(range.count);
  if (variant.parts) {
    const auto [known, fresh] = counts_.try_emplace(count);
    if (fresh) {
      known->second = text_.fresh("n");
      const std::string elements = text_.fresh("count"), parts = parts_[known->second] = text_.fresh("parts");
      text_.line(cat("const int ", elements, " = (int)", count, ", ", known->second, " = ", elements,
                     " > 0 ? (", elements, " + phase + ", width - 1, ") / ", width, " : 0;"));
      text_.line(cat("unsigned ", parts, "[", kept_chunks(), "];"));
      text_.line("#pragma unroll");
      text_.line(cat("for (int j = 0; j < ", kept_chunks(), "; ++j) ", parts, "[j] = live && row + j * ",
                     rows, " < ", known->second, " ? sd_part<", width, ">((row + j * ", rows, ") * ", width,
                     " - phase, ", elements, ") : 0;"));
    }
    chunks_ = known->second;
    return;
  }
  chunks_ = text_.fresh("n");
  text_.line(
      cat("const ", chunk_type(range), " ", chunks_, " = ",
          start_ ? cat(count, " > head ? (", count, " - head) / ", width, " : 0") : body_.index(range.chunks),
          ";"));
}

void CooperativeEmitter::print_edges(Range range, const std::function<void(const Range&)>& print) {
  if (!start_ || variant.parts) return;
  range.edges = true;
  vectors_ = chunks_;
  chunks_ = text_.fresh("n");
  text_.line(cat("const int ", chunks_, " = (int)(", body_.index(range.count), " - ", width, " * (int64_t)",
                 vectors_, ");"));
  // Most warps have none.
  text_.open(cat("if ((row & ~31) < ", chunks_, ")"));
  in_edges_ = true;
  print(range);
  in_edges_ = false;
  text_.close();
  chunks_ = vectors_;
}

void CooperativeEmitter::print_held_edges(const Range& range) {
  print_edges(range, [&](const Range& edges) {
    print_held(edges, held_loads(edges), "row", edge_chunks(), Batch::kLoads);
  });
}

void CooperativeEmitter::print_eager() {
  if (kept_from_ > 1) return;
  for (const loop::Stmt& stmt : nest.body) {
    if (!is_range(stmt)) continue;
    const Range range = range_of(stmt);
    print_count(range);
    const sym::Facts outer = facts_;
    for (const loop::Dim& dim : range.dims) facts_.set_index(dim.var, dim.extent);
    print_held(range, held_loads(range), "row", kept_chunks(), Batch::kLoads);
    print_held_edges(range);
    facts_ = outer;
  }
}

std::string CooperativeEmitter::first_chunk(const Range& range) {
  return variant.split ? cat("split * ", batch_of(range, held_loads(range)) * rows, " + row") : "row";
}

void CooperativeEmitter::print_range(const Range& range, const std::function<void()>& inside) {
  print_count(range);
  print_starts(range);
  const std::vector<const loop::Stmt*> loads = held_loads(range);
  const sym::Facts outer = facts_;
  for (const loop::Dim& dim : range.dims) facts_.set_index(dim.var, dim.extent);
  if (const Run* run = run_of(*range.block)) {
    print_run(range, *run, inside);
  } else if (const int each = in_common_ ? common_chunks(range) : 0) {
    print_batch(range, loads, "row", each, range.chunks.is_const(each * rows), inside);
  } else if (variant.keep) {
    print_held_edges(range);
    print_batch(range, loads, "row", kept_chunks(), false, inside);
  } else {
    const int together = batch_of(range, loads);
    const std::string from = text_.fresh("c");
    text_.line(cat(chunk_type(range), " ", from, " = ", first_chunk(range), ";"));
    // Blocks that split a range take its batches in turn, so that they read contiguous memory at a time.
    const std::string turns = variant.split ? " * " + text_.size(splits()) : "";
    text_.open(cat("for (; ", variant.columns ? "live && " : "", from, " + ", (together - 1) * rows, " < ",
                   chunks_, phase_ ? " - 1; " : "; ", from, " += ", together * rows, turns, ")"));
    print_batch(range, loads, from, together, true, inside);
    text_.close();
    kept_.clear();
    text_.open(cat("if (", from, " < ", chunks_, ")"));
    print_batch(range, loads, from, together, false, inside);
    text_.close();
    kept_.clear();
  }
  print_edges(range, [&](const Range& edges) {
    print_batch(edges, held_loads(edges), "row", edge_chunks(), false, inside);
    if (!variant.keep) kept_.clear();
  });
  fill_shared(range);
  facts_ = outer;
}

}  // namespace stridec::codegen::cuda
