// The transforms of fusion. Each applies, or leaves the program unchanged and gives its reason.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/flow.h"
#include "compiler/schedule/analysis/nest_traits.h"

namespace stridec::schedule {

// What keeps two nests, or two loops of a nest, apart, or a buffer in memory.
enum class FusionRule : uint8_t {
#define STRIDEC_FUSION_RULE(id, ...) id,
#include "compiler/schedule/fusion/fusion_rules.def"
#undef STRIDEC_FUSION_RULE
};
enum class FusionFamily : uint8_t { kInline, kCopy, kMerge, kColumns, kChain, kJoin, kLocalise };
struct FusionRuleInfo {
  std::string_view name;
  FusionFamily family;
  std::string_view why;  // the rule refuses, as part of a sentence
};
const FusionRuleInfo& info(FusionRule rule);
std::span<const FusionRuleInfo> fusion_rules();  // in the order of the .def

// Inlines the pointwise nest at `producer` into every nest that reads its result, and removes it. `copied`:
// the one reader copies the factor once for many uses.
bool try_inline(loop::Program& program, loop::Steps& steps, Flow& flow, int producer, std::string* reason,
                bool copied = false);

// Within one nest: computes the result of the pointwise `producer` where it is loaded. Returns false, with
// the nest half rewritten, if a load's index does not determine the producer's point, or if an index would
// grow beyond a limit: one that repeats an operand multiplies its length with every producer.
bool inline_producer(const loop::Program& program, const loop::Nest& producer, loop::Nest& consumer,
                     std::string* reason = nullptr);

// Why two nests are not merged.
struct Refusal {
  std::string reason;
  bool lasts = false;  // while the two nests are unchanged, whatever happens to other steps
};

// Merges two nests over the dims they agree on. Returns the merged nest's position, or -1. `columns`: also
// merges if the intermediate is a column of each point, given enough columns for many thread blocks, or a
// statistic of a group of the consumer's indices.
int try_merge(loop::Program& program, loop::Steps& steps, Flow& flow, int producer, int consumer,
              Refusal* refusal, bool columns = false);

// Within one nest: merges consecutive loops over equal ranges if each iteration of the second depends only on
// the same iteration of the first. `refused`: gets the rule that keeps a loop apart from the one before it.
void join_loops(loop::Nest& nest, std::vector<FusionRule>* refused = nullptr);

// Within one nest: forwards stored values to later loads at the same index, and turns arena buffers that no
// other step uses into scalars or local rows. `refused`: gets the rule that keeps a buffer in memory.
void localise(loop::Program& program, loop::Nest& nest, const UserCounts& counts,
              std::vector<FusionRule>* refused = nullptr);

// Lets a local row reuse the memory of another one of its kind whose last use is to compute it element by
// element.
void share_rows(const loop::Program& program, loop::Nest& nest);

// Splits concatenations of few pieces that are cheap to recompute: their readers select between the pieces.
void split_concats(loop::Program& program);

// Whether computing a point of the pointwise nest costs about as much as loading its result.
bool is_cheap_again(const loop::Program& program, const loop::Nest& nest);

}  // namespace stridec::schedule
