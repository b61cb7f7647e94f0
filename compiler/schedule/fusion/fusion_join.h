// Merges two nests over the dims they share: the parts of try_merge() and chain().
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "compiler/schedule/fusion/fusion_rules.h"

namespace stridec::schedule {

// Pairs of dims (producer's, consumer's) that agree for every element exchanged between the nests.
using Matching = std::vector<std::pair<int, int>>;

// The accesses of both nests to one buffer over which their order matters. A point of the merged nest does
// the first nest's work before the second's, so accesses to one element must belong to the same point.
struct Exchange {
  std::vector<const loop::Access*> first, second;
};

struct Exchanges {
  std::vector<Exchange> passing;  // stored by the first, loaded by the second
  std::vector<Exchange> ordered;  // `passing`, and what the second writes that the first touches
};
Exchanges exchanges_between(const loop::Nest& first, const loop::Nest& second);
// The same, with the nests' effects.
Exchanges exchanges_between(const loop::Nest& first, const loop::Nest& second, const Effects& before,
                            const Effects& after);

// Returns the producer with a dim split where the consumer indexes the intermediate by
// `outer * inner.extent + inner`: for example a GEMM over all tokens followed by a nest over each sentence.
// Returns nothing if there is no such dim.
std::optional<loop::Nest> split_like(const loop::Program& program, const loop::Nest& producer,
                                     const loop::Nest& consumer, const std::vector<Exchange>& exchanges);

// Returns the second nest with a dim split where it indexes the intermediate by group, `i // size`, and the
// number of groups equals the extent of the first nest's dim: a group normalisation after its statistics.
// Returns nothing if there is no such dim.
std::optional<loop::Nest> split_groups(const loop::Program& program, const loop::Nest& first,
                                       const loop::Nest& second, const std::vector<Exchange>& exchanges);

Matching match_dims(const loop::Program& program, const loop::Nest& producer, const loop::Nest& consumer,
                    const std::vector<Exchange>& exchanges);
std::vector<loop::Dim> unmatched(const std::vector<loop::Dim>& dims, const Matching& matching,
                                 bool of_producer);

// Whether the exchanged buffers have the common dims outermost in memory, so that a point's part is a row and
// not a column.
bool passes_rows(const loop::Nest& producer, const Matching& matching,
                 const std::vector<Exchange>& exchanges);

// Does the producer's work, then the consumer's, at every point of the shared dims. The remaining dims of
// each become a loop.
loop::Nest merged_nest(const loop::Nest& producer, const loop::Nest& consumer, const Matching& matching);

// Replaces the launch at `kept` by `merged`, removes those at `gone`, localises intermediates inside it and
// updates `flow`. Returns the position of `merged`.
int replace_steps(loop::Program& program, loop::Steps& steps, Flow& flow, int kept, std::vector<int> gone,
                  loop::Nest merged);

}  // namespace stridec::schedule
