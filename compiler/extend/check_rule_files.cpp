// Checks all files of rules once for each compiler, and turns a verdict into an error.
#include <filesystem>

#include "compiler/base/cache_folder.h"
#include "compiler/base/files.h"
#include "compiler/base/sha256.h"
#include "compiler/base/text.h"
#include "compiler/extend/check_rules.h"
#include "compiler/extend/user_operator.h"

namespace stridec::extend {
namespace {

// A file for each set of rules that passed.
std::string passed_mark(const std::vector<RuleFile>& files, const Operators& operators,
                        const std::string& build) {
  const std::string folder = build.empty() ? "" : cache_folder();
  if (folder.empty()) return "";
  std::string all = cat(build, operators.hash());
  for (const RuleFile& file : files) all += file.sha256;
  return cat(folder, "/rules/", sha256(all.data(), all.size()));
}

}  // namespace

Diagnostic to_diagnostic(const RuleFile& file, const Verdict& verdict) {
  try {
    rule_error(file.text, file.path, verdict.at, cat("rule '", verdict.rule->name, "': ", verdict.problem));
  } catch (Error& error) {
    Diagnostic out = error.diagnostic;
    out.code = "wrong-rule";
    out.kind = ErrorKind::kDoesNotFit;
    out.notes.insert(out.notes.end(), verdict.notes.begin(), verdict.notes.end());
    out.help = "mend the rule, or say for which inputs it holds: where, check close, assume in [a, b]";
    return out;
  }
}

void check_all(const std::vector<RuleFile>& files, const Operators& operators, const std::string& build) {
  if (files.empty()) return;
  const RuleCheck how{.operators = &operators};
  const std::string mark = passed_mark(files, operators, build);
  std::error_code error;
  if (!mark.empty() && std::filesystem::exists(mark, error)) return;
  for (const RuleFile& file : files)
    for (const Rule& rule : file.rules) {
      const Verdict verdict = check_rule(file, rule, how);
      if (!verdict.problem.empty()) throw Error(to_diagnostic(file, verdict));
    }
  if (const std::string loop = find_loop(files, how); !loop.empty())
    throw Error({.kind = ErrorKind::kDoesNotFit,
                 .code = "rules-loop",
                 .message = loop,
                 .where = {.file = files[0].path},
                 .help = "give one of them a condition that the replacement does not meet"});
  if (mark.empty()) return;
  std::filesystem::create_directories(std::filesystem::path(mark).parent_path(), error);
  try {
    if (!error) write_file(mark, "");
  } catch (const Error&) {  // a cache that cannot be written only costs time
  }
}

}  // namespace stridec::extend
