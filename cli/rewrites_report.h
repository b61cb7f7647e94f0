// What rules did to a graph and where they nearly fired, and which kernels of --kernels were chosen.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "compiler/extend/extensions.h"
#include "compiler/extend/rewrite.h"

namespace stridec::cli {

std::string rewrites_text(const std::vector<extend::RuleEffect>& rules);
nlohmann::ordered_json rewrites_json(const std::vector<extend::RuleEffect>& rules);

std::string own_kernels_text(const std::vector<extend::KernelChoice>& kernels);
nlohmann::ordered_json own_kernels_json(const std::vector<extend::KernelChoice>& kernels);

}  // namespace stridec::cli
