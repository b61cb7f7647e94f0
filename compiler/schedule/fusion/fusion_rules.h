// The fusion rules and what they look at. Each applies, or leaves the program alone and gives its reason.
#pragma once

#include <string>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/effects.h"

namespace stridec::schedule {

// Who touches what in one list of steps; kept up to date by the rules.
struct Flow {
  std::vector<Effects> effects;  // by position; control flow counts as all that is inside
  std::vector<int> total_writers,
      total_readers;  // by buffer: steps of the whole program, nested ones included
};
Flow make_flow(const loop::Program& program, const loop::Steps& steps);
// A buffer that one step writes, and nobody outside of the program reads.
bool made_once(const loop::Program& program, const Flow& flow, loop::BufferId id);
// And that one step reads.
bool passes_once(const loop::Program& program, const Flow& flow, loop::BufferId id);

// Inlines the pointwise nest at `producer` into every nest that reads its result, and removes it. `copied`: the one
// reader copies the factor once for many uses.
bool try_inline(loop::Program& program, loop::Steps& steps, Flow& flow, int producer, std::string* reason,
                bool copied = false);

// Within one nest: what the pointwise `producer` stores is computed where it is loaded. False, with the nest half rewritten,
// where a load's index does not give the producer's point.
bool inline_producer(const loop::Program& program, const loop::Nest& producer, loop::Nest& consumer);

// Makes one nest of the two over the dims they agree on; gives its position, or -1. `columns`: also where what passes
// between them is a column of each point, if there are columns for many blocks, or what a group of the consumer's indices
// comes to.
int try_merge(loop::Program& program, loop::Steps& steps, Flow& flow, int producer, int consumer,
              std::string* reason, bool columns = false);

// Within one nest: loops one after the other over the same ranges become one, where each round of the second sees nothing
// but what its own round of the first has done.
void join_loops(loop::Nest& nest);

// Within one nest: stored values that are loaded again at the same index are forwarded, and arena buffers
// that no other step uses become scalars or local rows.
void localise(loop::Program& program, loop::Nest& nest, const Flow& flow);

// A local row whose last use is to compute, element by element, another of its kind gives it its memory.
void share_rows(const loop::Program& program, loop::Nest& nest);

// Concatenations of few pieces that cost nothing to compute again become a choice between the pieces for who reads them.
void split_concats(loop::Program& program);

// -- what the rules ask of a nest

// No loops inside, one plain store.
bool is_pointwise(const loop::Nest& nest);
// A sum of products that a template will compute: one factor has a dim that the other lacks.
bool is_contraction(const loop::Nest& nest);
// Its index moves with every dim.
bool runs_through(const loop::Access& access, const std::vector<loop::Dim>& dims);
// Pointwise, and its result takes more memory than what it is computed from: casts and dequantised numbers. Readers
// had better load what is narrow and compute it again.
bool widens(const loop::Program& program, const loop::Nest& nest);
int scalar_cost(const loop::Block& block);
// Computing a point of the pointwise nest costs about what loading its result does.
bool is_cheap_again(const loop::Program& program, const loop::Nest& nest);
// "matmul+add+relu". Where that gets long what has more loops around it, which is most of the work, keeps its name: "iota+
// cast+...+matmul+add", "matmul+add+...".
std::string fused_name(const loop::Nest& producer, const loop::Nest& consumer);
// Adds the model's nodes that a nest computes as well, each once.
void join_nodes(loop::Nest& nest, const std::vector<std::string>& more);
size_t statement_count(const loop::Block& block);

// A nest longer than this compiles slowly and keeps nothing in registers.
inline constexpr size_t kMostStatements = 400;

}  // namespace stridec::schedule
