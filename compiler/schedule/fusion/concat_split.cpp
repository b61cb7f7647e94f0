// Splits concatenations whose pieces are cheap to recompute, so that their readers select between the pieces:
//
//   for k < 3: c[r, k]     = -x[r, k + 2]        for k < 3: c0[r, k] = -x[r, k + 2]
//   for k < 2: c[r, k + 3] = x[r, k]        ->   for k < 2: c1[r, k] = x[r, k]
//   for k < 5: y[r, k] = f(c[r, k])              for k < 5: y[r, k] = f(k < 3 ? c0[r, k] : c1[r, k - 3])
//
// Both pieces are inlined afterwards. Rotary embeddings and rolled images have this form.
#include <algorithm>
#include <map>
#include <optional>

#include "compiler/base/text.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/fusion/fusion_rules.h"

namespace stridec::schedule {
namespace {

using loop::Block;
using loop::BufferId;
using loop::Load;
using loop::Nest;
using loop::NestId;
using loop::Program;
using loop::Stmt;
using loop::Store;
using sym::Expr;

// With more pieces, selecting costs more than loading.
constexpr size_t kMostPieces = 2;

struct Uses {
  std::vector<NestId> writers, readers;
  bool other = false;  // used by steps other than launches
};

// The part of a buffer that a nest writes: [from, from + extent) along one dim.
struct Piece {
  NestId writer;
  Expr from, extent;
};

const Store& only_store(const Nest& nest) {
  return std::get<Store>(std::find_if(nest.body.begin(), nest.body.end(), [](const Stmt& stmt) {
                           return std::holds_alternative<Store>(stmt.node);
                         })->node);
}

class Parter {
 public:
  explicit Parter(Program& program) : program_(program), uses_(program.buffers.size()) {
    loop::for_each_step(program.steps, [&](const loop::Step& step) {
      const auto* launch = std::get_if<loop::Launch>(&step.node);
      const Effects effects = effects_of(program, step);
      for (BufferId id : effects.reads) note(launch, id, &Uses::readers);
      for (BufferId id : effects.writes) note(launch, id, &Uses::writers);
    });
  }

  void run() {
    const size_t count = program_.buffers.size();
    for (size_t b = 0; b < count; ++b) {
      const BufferId id{static_cast<int32_t>(b)};
      if (!may_part(id)) continue;
      for (size_t c = 0; c < program_[id].shape.size(); ++c)
        if (const auto pieces = pieces_along(id, c)) {
          part(id, c, *pieces);
          break;
        }
    }
  }

 private:
  void note(const loop::Launch* launch, BufferId id, std::vector<NestId> Uses::* list) {
    if (launch)
      (uses_[id.value].*list).push_back(launch->nest);
    else
      uses_[id.value].other = true;
  }

  bool may_part(BufferId id) const {
    const Uses& uses = uses_[id.value];
    if (program_[id].storage != loop::Storage::kArena || uses.other || uses.readers.empty() ||
        uses.writers.size() < 2 || uses.writers.size() > kMostPieces)
      return false;
    const auto moves = [&](NestId writer) {
      const Nest& nest = program_[writer];
      return is_pointwise(nest) && is_cheap_again(program_, nest) && !could_write_in_place(nest);
    };
    const auto chooses = [&](NestId reader) {
      return std::find(uses.writers.begin(), uses.writers.end(), reader) == uses.writers.end() &&
             program_[reader].schedule.kernel.empty() && !is_contraction(program_[reader]);
    };
    return std::all_of(uses.writers.begin(), uses.writers.end(), moves) &&
           std::all_of(uses.readers.begin(), uses.readers.end(), chooses);
  }

  // Whether the piece is the only use of some buffer, whose producer could write it in place instead.
  bool could_write_in_place(const Nest& piece) const {
    const Effects effects = effects_of(piece);
    return std::any_of(effects.reads.begin(), effects.reads.end(), [&](BufferId id) {
      return program_[id].storage == loop::Storage::kArena && uses_[id.value].readers.size() == 1 &&
             uses_[id.value].writers.size() == 1;
    });
  }

  // Returns the writers' pieces in order if they are adjacent along dim c and fill it.
  std::optional<std::vector<Piece>> pieces_along(BufferId id, size_t c) const {
    std::vector<Piece> left, found;
    for (NestId writer : uses_[id.value].writers) {
      const Nest& nest = program_[writer];
      const Expr at = only_store(nest).access.index[c];
      const auto dim = std::find_if(nest.dims.begin(), nest.dims.end(),
                                    [&](const loop::Dim& d) { return sym::depends_on(at, d.var); });
      if (dim == nest.dims.end()) {
        if (sym::has_index(at)) return std::nullopt;
        left.push_back({writer, at, 1});
        continue;
      }
      const Expr from = at - dim->var;
      if (sym::has_index(from)) return std::nullopt;
      left.push_back({writer, from, dim->extent});
    }
    Expr end = 0;
    while (!left.empty()) {
      const auto next = std::find_if(left.begin(), left.end(), [&](const Piece& piece) {
        return program_.facts.holds(sym::eq(piece.from, end));
      });
      if (next == left.end()) return std::nullopt;
      end = sym::simplify(next->from + next->extent, program_.facts);
      found.push_back(*next);
      left.erase(next);
    }
    if (!program_.facts.holds(sym::eq(end, program_[id].shape[c]))) return std::nullopt;
    return found;
  }

  void part(BufferId id, size_t c, const std::vector<Piece>& pieces) {
    std::vector<BufferId> parts;
    for (const Piece& piece : pieces) {
      loop::Buffer part = program_[id];
      part.name = cat(part.name, "_", parts.size());
      part.shape[c] = piece.extent;
      part.strides = loop::row_major(part.shape);
      parts.push_back(loop::add_buffer(program_, std::move(part)));
      uses_.push_back({.writers = {piece.writer}, .readers = uses_[id.value].readers});
      for (Stmt& stmt : program_[piece.writer].body)
        if (auto* store = std::get_if<Store>(&stmt.node)) {
          store->access.buffer = parts.back();
          store->access.index[c] = sym::simplify(store->access.index[c] - piece.from, program_.facts);
        }
    }
    for (NestId reader : uses_[id.value].readers) {
      Nest& nest = program_[reader];
      choose(nest, nest.body, loop::facts_of(program_, nest), id, c, pieces, parts);
      loop::clean(program_, nest);
    }
  }

  // Replaces each load of the buffer by masked loads of all pieces and selects between them.
  void choose(Nest& nest, Block& block, const sym::Facts& facts, BufferId id, size_t c,
              const std::vector<Piece>& pieces, const std::vector<BufferId>& parts) {
    Block out;
    for (Stmt& stmt : block) {
      if (Block* body = loop::body_of(stmt)) {
        sym::Facts inside = facts;
        loop::add_facts(inside, stmt);
        choose(nest, *body, inside, id, c, pieces, parts);
      }
      const auto* load = std::get_if<Load>(&stmt.node);
      if (!load || load->access.buffer != id) {
        out.push_back(std::move(stmt));
        continue;
      }
      const Load all = *load;
      const Expr at = all.access.index[c];
      std::optional<loop::ValueId> chosen;  // selected from the pieces after this one
      for (size_t p = pieces.size(); p-- > 0;) {
        const Expr end = pieces[p].from + pieces[p].extent;
        const Expr here = sym::simplify(sym::logical_and(p == 0 ? Expr(1) : sym::ge(at, pieces[p].from),
                                                         p + 1 == pieces.size() ? Expr(1) : sym::lt(at, end)),
                                        facts);
        if (here.is_const(0)) continue;
        Load part = all;
        part.access.buffer = parts[p];
        part.access.index[c] = sym::simplify(at - pieces[p].from, facts);
        part.access.mask = sym::simplify(sym::logical_and(all.access.mask, here), facts);
        part.result = loop::add_value(nest, all.fill.dtype);
        const loop::ValueId value = part.result;
        out.push_back({std::move(part)});
        if (!chosen) {
          chosen = value;
          continue;
        }
        const loop::ValueId condition = loop::add_value(nest, DType::kBool);
        const loop::ValueId either = loop::add_value(nest, all.fill.dtype);
        out.push_back({loop::IndexValue{condition, here}});
        out.push_back({loop::Let{either, loop::ScalarOp::kSelect, {condition, value, *chosen}}});
        chosen = either;
      }
      // The final value takes the load's name.
      rename(out, *chosen, all.result);
    }
    block = std::move(out);
  }

  static void rename(Block& block, loop::ValueId from, loop::ValueId to) {
    for (Stmt& stmt : block) {
      if (auto* load = std::get_if<Load>(&stmt.node); load && load->result == from) load->result = to;
      if (auto* let = std::get_if<loop::Let>(&stmt.node); let && let->result == from) let->result = to;
    }
  }

  Program& program_;
  std::vector<Uses> uses_;
};

}  // namespace

void split_concats(Program& program) { Parter(program).run(); }

}  // namespace stridec::schedule
