#include "compiler/schedule/fusion/fusion_rules.h"

namespace stridec::schedule {
namespace {

constexpr FusionRuleInfo kRules[] = {
#define STRIDEC_FUSION_RULE(id, name, family, why) {name, FusionFamily::family, why},
#include "compiler/schedule/fusion/fusion_rules.def"
#undef STRIDEC_FUSION_RULE
};

}  // namespace

const FusionRuleInfo& info(FusionRule rule) { return kRules[static_cast<size_t>(rule)]; }

std::span<const FusionRuleInfo> fusion_rules() { return kRules; }

}  // namespace stridec::schedule
