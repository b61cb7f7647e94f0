// Tests rules before their first use: both sides of each rule run on the interpreter, over drawn types,
// sizes, attributes and values. Also finds rules that never fire and rules that fire without end.
#pragma once

#include <string>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/extend/rule.h"

namespace stridec::extend {

struct RuleCheck {
  int instances = 64;
  uint64_t seed = 0;
  const Operators* operators = nullptr;  // of the user, that replacements name
};

struct Verdict {
  const Rule* rule = nullptr;
  int instances = 0;  // number compared
  bool fires = false;
  std::string problem;             // "" if the rule is accepted
  std::vector<std::string> notes;  // the counterexample
  Position at;                     // of the problem
};

Verdict check_rule(const RuleFile& file, const Rule& rule, const RuleCheck& how = {});

// Looks for rules of all files that fire in turn without end. Returns a sentence that names them, or "".
std::string find_loop(const std::vector<RuleFile>& files, const RuleCheck& how = {});

// As an error of the file, with the counterexample as notes.
Diagnostic to_diagnostic(const RuleFile& file, const Verdict& verdict);

// Throws the first problem of any rule. Records files that passed in the cache folder, by their hash and
// `build`, which names this compiler. An empty `build` turns this off.
void check_all(const std::vector<RuleFile>& files, const Operators& operators, const std::string& build);

}  // namespace stridec::extend
