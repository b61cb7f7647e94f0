#include "compiler/extensions.h"

#include <algorithm>
#include <mutex>
#include <set>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/extend/check_rules.h"
#include "compiler/extend/command_pass.h"
#include "compiler/extend/kernel_file.h"
#include "compiler/extend/user_operator.h"
#include "compiler/graph/model_node.h"
#include "compiler/kernel_host.h"
#include "compiler/own_kernels.h"
#include "compiler/tune/database.h"

namespace stridec {
namespace {

constexpr std::string_view kRewrites = "rewrites", kUserPass = "pass ", kOwnKernels = "own kernels";

// Rows hold views of their names, which outlive the pipeline.
std::string_view interned(const std::string& name) {
  static std::mutex mutex;
  static std::set<std::string> names;
  const std::lock_guard lock(mutex);
  return *names.insert(name).first;
}

std::string row_of_rules(const std::string& pass) {
  return pass == "import" ? std::string(kRewrites) : cat(kRewrites, " after ", pass);
}

void add_effects(std::vector<extend::RuleEffect>& all, std::vector<extend::RuleEffect> more) {
  std::ranges::move(more, std::back_inserter(all));
}

void run_rules(Module& m, const PassContext&) {
  const extend::Extensions& extensions = m.options.extensions;
  const auto prefix = cat(kRewrites, " after ");
  const std::string pass(m.pass == kRewrites ? "import" : m.pass.substr(prefix.size()));
  const auto rules = extend::rules_at(extensions.rules, pass);
  const extend::Operators operators(extensions.operators, kernel_host());
  for (size_t f = 0; f < m.functions.size(); ++f) {
    extend::Rewritten made = extend::rewrite(m.functions[f].graph, rules,
                                             {.explains = extensions.explains, .operators = &operators});
    for (auto& [node, rule] : made.by) m.functions[f].replaced_by[node] = cat("rule ", rule);
    add_effects(m.made.functions[f].rules, std::move(made.effects));
  }
}

void run_user_pass(Module& m, const PassContext&) {
  const size_t number = std::stoul(std::string(m.pass.substr(kUserPass.size())));
  for (size_t f = 0; f < m.functions.size(); ++f) {
    graph::Graph& graph = m.functions[f].graph;
    FunctionResult& made = m.made.functions[f];
    graph::Graph after =
        extend::run_pass(graph, m.options.extensions.passes[number - 1], m.options.extensions);
    const std::map<std::string, std::string> names = graph::renamed_origins(graph, after);
    made.nodes.rename(names);
    for (extend::RuleEffect& effect : made.rules)
      for (std::string& node : effect.nodes)
        if (const auto name = names.find(node); name != names.end()) node = name->second;
    graph = std::move(after);
  }
}

constexpr std::string_view kStage = "graph";

void check_place(const Pipeline& pipeline, const std::string& pass, const std::string& what) {
  const auto row = std::ranges::find(pipeline, pass, &Pass::name);
  if (row != pipeline.end() && row->runs_on == RunsOn::kGraph) return;
  std::vector<std::string> names;
  for (const Pass& each : pipeline)
    if (each.runs_on == RunsOn::kGraph) names.emplace_back(each.name);
  fail(ErrorKind::kUsage, "unknown-pass",
       cat(what, " is to run after '", pass, "', which is not a pass on the graph"),
       cat("passes on the graph: ", join(names, ", ")));
}

// With --frozen: the database has the hash.
void check_recorded(const tune::Database& database, const std::string& sha256, const std::string& what) {
  if (std::ranges::count(database.contents().extensions, sha256, &tune::Extension::sha256) > 0) return;
  throw Error(
      {.kind = ErrorKind::kMismatch,
       .code = "frozen-extension",
       .message = cat(what, " (sha256 ", sha256.substr(0, 12), ") is not recorded in the tuning database"),
       .where = {.file = database.file()},
       .help = "leave out --frozen, or record it: compile with --mode max-autotune and this --tune-db"});
}

}  // namespace

std::string this_build() { return tune::this_compiler(); }

bool is_extension_row(std::string_view name) {
  return name.starts_with(kRewrites) || name.starts_with(kUserPass) || name == kOwnKernels;
}

void check_extensions(const CompileOptions& options) {
  const extend::Extensions& extensions = options.extensions;
  if (extensions.empty()) return;
  const Pipeline pipeline = default_pipeline();
  for (const extend::RuleFile& file : extensions.rules)
    for (const extend::Rule& rule : file.rules)
      check_place(pipeline, rule.at_pass, cat("rule '", rule.name, "'"));
  for (const extend::UserPass& pass : extensions.passes)
    check_place(pipeline, pass.after, cat("'", pass.command, "'"));
  if (options.tuning.frozen || max_autotune(options)) {
    const std::string& file = options.tuning.database;
    tune::Database database(file.empty() ? tune::default_database() : file, options.tuning.frozen);
    const auto visit = [&](const std::string& sha256, const std::string& name, const std::string& what) {
      if (options.tuning.frozen)
        check_recorded(database, sha256, what);
      else
        database.append(tune::Extension{.sha256 = sha256, .name = name});
    };
    for (const extend::RuleFile& each : extensions.rules)
      visit(each.sha256, each.name, cat("the file of rules '", each.path, "'"));
    for (const auto& each : extensions.operators)
      visit(each->sha256, each->name, cat("the file of operators '", each->path, "'"));
    for (const auto& each : extensions.kernels)
      visit(each->sha256, each->name, cat("the file of kernels '", each->path, "'"));
    for (const extend::UserPass& each : extensions.passes)
      visit(each.sha256, each.command, cat("the pass '", each.command, "'"));
  }
  for (const auto& each : extensions.operators)
    extend::check_references(*each, kernel_host(), {.all = extensions.checks_ops});
  extend::check_all(extensions.rules, extend::Operators(extensions.operators, kernel_host()),
                    options.use_cache ? this_build() : "");
}

void add_extensions(Pipeline& pipeline, const extend::Extensions& extensions) {
  const auto has = [&](const std::string& name) {
    return std::ranges::find(pipeline, name, &Pass::name) != pipeline.end();
  };
  if (!extensions.kernels.empty() && has("import"))
    insert_after(pipeline, "import",
                 {kOwnKernels, kStage, RunsOn::kGraph, "Kernels of the user, where they are faster.",
                  run_own_kernels});
  // Inserted from the last one on, so that those after one pass keep their order; rules come first.
  for (size_t i = extensions.passes.size(); i-- > 0;) {
    const extend::UserPass& pass = extensions.passes[i];
    if (!has(pass.after)) continue;
    insert_after(
        pipeline, pass.after,
        {interned(cat(kUserPass, i + 1)), kStage, RunsOn::kGraph, "A pass of the user.", run_user_pass});
  }
  std::vector<std::string> places;
  for (const extend::RuleFile& file : extensions.rules)
    for (const extend::Rule& rule : file.rules)
      if (has(rule.at_pass) && std::ranges::count(places, rule.at_pass) == 0) places.push_back(rule.at_pass);
  for (const std::string& place : places)
    insert_after(pipeline, place,
                 {interned(row_of_rules(place)), kStage, RunsOn::kGraph, "Rules of the user.", run_rules});
}

std::vector<extend::RuleEffect> apply_rules(graph::Graph& graph, const extend::Extensions& extensions) {
  const extend::Operators operators(extensions.operators, kernel_host());
  return extend::rewrite(graph, extend::rules_at(extensions.rules, "import"),
                         {.explains = extensions.explains, .operators = &operators})
      .effects;
}

}  // namespace stridec
