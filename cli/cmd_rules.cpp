// rules: checks files of rewrite rules, and lists the operators that rules can name.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/output.h"
#include "compiler/base/counted.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/extend/check_rules.h"
#include "compiler/extend/operator_attributes.h"
#include "compiler/extend/user_operator.h"
#include "compiler/extend/vocabulary.h"
#include "compiler/kernel_host.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Flags {
  std::string action;
  std::vector<std::string> files, ops;
  extend::RuleCheck check;
};

void print_json(const Json& json) {
  std::printf("%s\n", json.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
}

std::string outcome(const extend::Verdict& verdict) {
  if (!verdict.problem.empty()) return "refused";
  if (verdict.rule->check.kind == extend::Check::Kind::kTrusted)
    return cat("trusted: ", verdict.rule->check.reason);
  return cat(extend::name(verdict.rule->check.kind), ", ", verdict.instances, " instances",
             verdict.fires ? "" : "; never fires: the compiler already does this");
}

int check(const Flags& flags, const Globals& globals) {
  std::vector<std::shared_ptr<const extend::OperatorFile>> declared;
  for (const std::string& path : flags.ops)
    declared.push_back(std::make_shared<extend::OperatorFile>(extend::read_operators(path)));
  for (const auto& file : declared) extend::check_references(*file, kernel_host(), {});
  const extend::Operators operators(declared, kernel_host());
  extend::RuleCheck how = flags.check;
  how.operators = &operators;
  std::vector<extend::RuleFile> files;
  for (const std::string& path : flags.files) files.push_back(extend::read_rules(path, &operators));
  if (files.empty())
    fail(ErrorKind::kUsage, "usage", "no file of rules is given", "stridec rules check acme.rules");
  Json all = Json::array();
  std::vector<std::vector<std::string>> rows = {{"rule", "check"}};
  std::vector<Diagnostic> problems;
  for (const extend::RuleFile& file : files)
    for (const extend::Rule& rule : file.rules) {
      const extend::Verdict verdict = extend::check_rule(file, rule, how);
      rows.push_back({rule.name, outcome(verdict)});
      all.push_back({{"file", file.path},
                     {"rule", rule.name},
                     {"check", extend::name(rule.check.kind)},
                     {"accepted", verdict.problem.empty()},
                     {"instances", verdict.instances},
                     {"fires", verdict.fires},
                     {"problem", verdict.problem},
                     {"counterexample", verdict.notes}});
      if (!verdict.problem.empty()) problems.push_back(to_diagnostic(file, verdict));
    }
  const std::string loop = problems.empty() ? extend::find_loop(files, how) : "";
  if (!loop.empty())
    problems.push_back({.kind = ErrorKind::kDoesNotFit,
                        .code = "rules-loop",
                        .message = loop,
                        .where = {.file = files[0].path},
                        .help = "give one of them a condition that the replacement does not meet"});
  if (globals.json)
    print_json({{"rules", all}, {"loop", loop}});
  else if (!globals.quiet)
    std::printf("%s", table(rows).c_str());
  for (const Diagnostic& problem : problems)
    if (!globals.json) print_error(problem, globals);
  return problems.empty() ? 0 : static_cast<int>(problems[0].kind);
}

int operators(const Globals& globals) {
  std::vector<std::vector<std::string>> rows = {{"operator", "arguments", "in"}};
  Json all = Json::array();
  for (const extend::Composite& row : extend::composites()) {
    const std::string parameters =
        join(row.parameters, ", ", [](std::string_view p) { return std::string(p); });
    const bool both = row.input_of || row.name == "matmul";
    rows.push_back({std::string(row.name),
                    cat(counted(row.tensors, "tensor"), parameters.empty() ? "" : ", ", parameters),
                    both ? "match, yield" : "yield"});
    all.push_back(
        {{"operator", row.name}, {"tensors", row.tensors}, {"parameters", row.parameters}, {"match", both}});
  }
  std::vector<std::vector<std::string>> operations = {{"operation of the graph", "attributes"}};
  for (const graph::OpKind kind : extend::written_operations()) {
    const auto attributes = extend::attributes_of(kind);
    operations.push_back({std::string(graph::name(kind)),
                          join(attributes, ", ", [](std::string_view each) { return std::string(each); })});
    all.push_back({{"operator", graph::name(kind)}, {"attributes", attributes}, {"match", true}});
  }
  if (globals.json)
    print_json(all);
  else
    std::printf("%s%s", table(rows).c_str(), table(operations).c_str());
  return 0;
}

}  // namespace

std::function<int()> declare_rules(CLI::App& app, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  app.add_option("action", flags->action,
                 "check: test rules on the interpreter; operators: list what they can name")
      ->required()
      ->check(CLI::IsMember({"check", "operators"}));
  app.add_option("files", flags->files, "files of rules");
  app.add_option("--ops", flags->ops, "file that declares operators of your own, which replacements may name")
      ->type_name("FILE")
      ->take_all();
  app.add_option("--instances", flags->check.instances, "how many instances of each rule to compare")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str()
      ->type_name("NUMBER");
  app.add_option("--seed", flags->check.seed, "seed of the instances")->type_name("NUMBER");
  return [flags, &globals] { return flags->action == "check" ? check(*flags, globals) : operators(globals); };
}

}  // namespace stridec::cli
