// The fusion rules. Each applies, or leaves the program alone and gives its reason.
#pragma once

#include <string>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/flow.h"
#include "compiler/schedule/analysis/nest_traits.h"

namespace stridec::schedule {

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

// Computing a point of the pointwise nest costs about what loading its result does.
bool is_cheap_again(const loop::Program& program, const loop::Nest& nest);

}  // namespace stridec::schedule
