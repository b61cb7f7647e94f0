#include "cli/rewrites_report.h"

#include <nlohmann/json.hpp>

#include "cli/output.h"
#include "compiler/base/printable.h"
#include "compiler/base/text.h"
#include "compiler/own_kernels.h"

namespace stridec::cli {

std::string rewrites_text(const std::vector<extend::RuleEffect>& rules) {
  std::string out;
  for (const extend::RuleEffect& effect : rules) {
    out += cat(" rule ", effect.rule, " of ", printable(effect.file), ": ",
               effect.fired == 0   ? "did not fire"
               : effect.fired == 1 ? "fired once"
                                   : cat("fired ", effect.fired, " times"),
               "\n");
    for (const std::string& node : effect.nodes) out += cat("   replaced   ", printable(node), "\n");
    for (const auto& miss : effect.near_misses)
      out += cat("   near miss  ", printable(miss.node), ": ", printable(miss.reason), "\n");
    const size_t more = static_cast<size_t>(effect.missed) - effect.near_misses.size();
    if (effect.missed > 0 && more > 0) out += cat("   and ", more, " more near misses\n");
    if (effect.fired == 0 && effect.missed == 0)
      out += "   no operation of the graph matches the root of its pattern\n";
  }
  return out;
}

nlohmann::ordered_json rewrites_json(const std::vector<extend::RuleEffect>& rules) {
  using Json = nlohmann::ordered_json;
  Json all = Json::array();
  for (const extend::RuleEffect& effect : rules) {
    Json misses = Json::array();
    for (const auto& miss : effect.near_misses)
      misses.push_back({{"node", miss.node}, {"reason", miss.reason}});
    all.push_back({{"file", effect.file},
                   {"rule", effect.rule},
                   {"fired", effect.fired},
                   {"nodes", effect.nodes},
                   {"near_misses", std::move(misses)},
                   {"missed", effect.missed}});
  }
  return {{"stage", "rewrites"}, {"rules", std::move(all)}};
}

namespace {

// Of the time of the compiler's own kernels, with the digits that tell on which side of the bound it is.
std::string share_text(double share) {
  std::string text = formatted(100 * share, "%.1f");
  for (const char* format : {"%.2f", "%.3f", "%.6f"})
    if (std::stod(text) == 100 * kOwnKernelShare) text = formatted(100 * share, format);
  return cat(text, " %, and it is chosen below ", formatted(100 * kOwnKernelShare, "%.0f"), " %");
}

}  // namespace

std::string own_kernels_text(const std::vector<extend::KernelChoice>& kernels) {
  std::string out;
  for (const extend::KernelChoice& each : kernels) {
    out += cat(" ", printable(each.kernel), each.node.empty() ? "" : cat(" at ", printable(each.node)), ": ",
               extend::name(each.kind));
    if (each.user_seconds > 0)
      out += cat(", ", human_seconds(each.user_seconds), " against ", human_seconds(each.own_seconds), " (",
                 share_text(each.user_seconds / each.own_seconds), ")");
    out += each.reason.empty() ? "\n" : cat(": ", printable(each.reason), "\n");
  }
  return out;
}

nlohmann::ordered_json own_kernels_json(const std::vector<extend::KernelChoice>& kernels) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const extend::KernelChoice& each : kernels)
    all.push_back({{"kernel", each.kernel},
                   {"node", each.node},
                   {"choice", extend::name(each.kind)},
                   {"reason", each.reason},
                   {"seconds", each.user_seconds},
                   {"own_seconds", each.own_seconds}});
  return {{"stage", "kernels"}, {"kernels", std::move(all)}};
}

}  // namespace stridec::cli
