// Two nests as one over the dims they share: what try_merge and try_chain are made of.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "compiler/schedule/fusion/fusion_rules.h"

namespace stridec::schedule {

// Pairs of dims (producer's, consumer's) over which every element that passes between the nests agrees.
using Matching = std::vector<std::pair<int, int>>;

// One buffer over which the order of the two nests matters: what the first does to it against what the second
// does. A point of the merged nest does the first's work before the second's, so accesses to one element must
// be of the same point.
struct Exchange {
  std::vector<const loop::Access*> first, second;
};

struct Exchanges {
  std::vector<Exchange> passing;  // stored by the first, loaded by the second
  std::vector<Exchange> ordered;  // these, and what the second writes of what the first touches
};
Exchanges exchanges_between(const loop::Nest& first, const loop::Nest& second);

// The producer with a dim taken apart where the consumer sees what passes as `outer * inner.extent + inner`: a matrix
// product over all tokens, say, before what works on each sentence. Nothing where there is none.
std::optional<loop::Nest> split_like(const loop::Program& program, const loop::Nest& producer,
                                     const loop::Nest& consumer, const std::vector<Exchange>& exchanges);

// The second with a dim taken apart where it sees what passes as that of a group of its indices, `i // size`, and there are
// as many groups as the first has points along its dim: what normalises groups of channels, behind what they come to.
// Nothing where there is none.
std::optional<loop::Nest> split_groups(const loop::Program& program, const loop::Nest& first,
                                       const loop::Nest& second, const std::vector<Exchange>& exchanges);

Matching match_dims(const loop::Program& program, const loop::Nest& producer, const loop::Nest& consumer,
                    const std::vector<Exchange>& exchanges);
std::vector<loop::Dim> unmatched(const std::vector<loop::Dim>& dims, const Matching& matching,
                                 bool of_producer);

// What passes between the nests lies in memory with the common dims in front: a point's share is a row, not a
// column.
bool passes_rows(const loop::Nest& producer, const Matching& matching,
                 const std::vector<Exchange>& exchanges);

// The producer's work, then the consumer's, at every point of the dims they share; what one of them has beyond
// these becomes a loop.
loop::Nest merged_nest(const loop::Nest& producer, const loop::Nest& consumer, const Matching& matching);

// Puts `merged` in place of the launch at `kept` and removes those at `gone`, localises what passes inside it, and
// keeps the books. Gives its position.
int replace_steps(loop::Program& program, loop::Steps& steps, Flow& flow, int kept, std::vector<int> gone,
                  loop::Nest merged);

}  // namespace stridec::schedule
