// schema: prints the schemas of the files and documents that stridec writes.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/output.h"
#include "cli/suggest.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"

// Defined by stridec_embed() in CMake.
#define STRIDEC_SCHEMA(name) extern "C" const char stridec_embedded_##name[], stridec_embedded_##name##_end[];
STRIDEC_SCHEMA(schema_manifest)
STRIDEC_SCHEMA(schema_refused)
STRIDEC_SCHEMA(schema_graph)
STRIDEC_SCHEMA(schema_train)
STRIDEC_SCHEMA(schema_ops)
STRIDEC_SCHEMA(schema_report)
#undef STRIDEC_SCHEMA

namespace stridec::cli {
namespace {

struct Schema {
  std::string_view name, meaning, text;
};

const std::vector<Schema>& schemas() {
#define STRIDEC_SCHEMA(name)                \
  std::string_view(stridec_embedded_##name, \
                   static_cast<size_t>(stridec_embedded_##name##_end - stridec_embedded_##name))
  static const std::vector<Schema> kSchemas = {
      {"manifest", "the manifest beside an artifact (JSON schema)", STRIDEC_SCHEMA(schema_manifest)},
      {"refused", "kernels whose tuned schedule was refused, in compile's JSON (JSON schema)",
       STRIDEC_SCHEMA(schema_refused)},
      {"train", "the file of compile's --train-config (JSON schema)", STRIDEC_SCHEMA(schema_train)},
      {"ops", "the file of --ops: operators of the user (JSON schema)", STRIDEC_SCHEMA(schema_ops)},
      {"report", "what 'report --format=json' prints (JSON schema)", STRIDEC_SCHEMA(schema_report)},
      {"graph", "graphs of 'inspect --write-graph' (protobuf)", STRIDEC_SCHEMA(schema_graph)},
  };
#undef STRIDEC_SCHEMA
  return kSchemas;
}

int run(const std::string& name, const Globals& globals) {
  if (name.empty()) {
    std::vector<std::vector<std::string>> rows = {{"schema", "of"}};
    nlohmann::ordered_json json = nlohmann::json::array();
    for (const Schema& schema : schemas()) {
      rows.push_back({std::string(schema.name), std::string(schema.meaning)});
      json.push_back({{"schema", schema.name}, {"of", schema.meaning}});
    }
    std::printf("%s", globals.json ? (json.dump(2) + "\n").c_str() : table(rows).c_str());
    return 0;
  }
  std::vector<std::string> names;
  for (const Schema& schema : schemas()) {
    if (schema.name == name) {
      std::fwrite(schema.text.data(), 1, schema.text.size(), stdout);
      return 0;
    }
    names.emplace_back(schema.name);
  }
  fail(ErrorKind::kUsage, "unknown-schema", cat("there is no schema '", name, "'"),
       cat(did_you_mean(name, names), "'stridec schema' lists them"));
}

}  // namespace

std::function<int()> declare_schema(CLI::App& app, const Globals& globals) {
  auto name = std::make_shared<std::string>();
  app.add_option("name", *name, "manifest, refused, train, ops, report or graph; without it, a list");
  return [name, &globals] { return run(*name, globals); };
}

}  // namespace stridec::cli
