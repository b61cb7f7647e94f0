// What rules did to a graph, and where they nearly fired.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "compiler/extend/rewrite.h"

namespace stridec::cli {

std::string rewrites_text(const std::vector<extend::RuleEffect>& rules);
nlohmann::ordered_json rewrites_json(const std::vector<extend::RuleEffect>& rules);

}  // namespace stridec::cli
