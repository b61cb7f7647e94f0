// The operators and names of rules.
#pragma once

#include "compiler/extend/rule.h"

namespace stridec::extend {

// Throws like parse_rules() for unknown operators, unknown names and wrong numbers of arguments.
void check_names(const RuleFile& file, const Rule& rule);

}  // namespace stridec::extend
