// diff: reports the differences of two artifacts, from their manifests and sizes.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/artifact_file.h"
#include "cli/command.h"
#include "cli/mapped_text.h"
#include "cli/output.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/package/read_manifest.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Side {
  std::string file;
  uint64_t bytes = 0;  // of the library; 0: only a manifest
  Json manifest;
};

Side read_side(const std::string& file) {
  Side side{.file = file, .bytes = 0, .manifest = {}};
  const MappedText mapped(file);
  std::string_view text = mapped.text();
  if (!file.ends_with(".json")) {
    const package::ArtifactLayout layout = layout_of(text, file);
    side.bytes = text.size();
    text = text.substr(layout.manifest_offset, layout.manifest_bytes);
  }
  side.manifest = package::read_manifest(std::string(text), file);
  return side;
}

struct Change {
  std::string what, name;
  Json before, after;  // null: absent
};

// Adds the values of two objects that differ, with their dotted names.
void list_changes(const std::string& what, const std::string& name, const Json& a, const Json& b,
                  std::vector<Change>& out) {
  if (a == b) return;
  if (!a.is_object() || !b.is_object()) {
    out.push_back({what, name, a, b});
    return;
  }
  const auto at = [&](const std::string& key) { return name.empty() ? key : cat(name, ".", key); };
  for (const auto& [key, value] : a.items())
    list_changes(what, at(key), value, b.contains(key) ? b[key] : Json(), out);
  for (const auto& [key, value] : b.items())
    if (!a.contains(key)) out.push_back({what, at(key), Json(), value});
}

// Indexes the rows of a list by a naming field; rows with the same name are numbered.
std::map<std::string, Json> by_name(const Json& list, const char* field) {
  std::map<std::string, Json> out;
  if (!list.is_array()) return out;
  for (const Json& row : list) {
    const std::string name = row.value(field, "");
    std::string key = name;
    for (int n = 2; out.count(key); ++n) key = cat(name, " #", n);
    Json rest = row;
    rest.erase(field);
    out.emplace(std::move(key), std::move(rest));
  }
  return out;
}

void compare_lists(const std::string& what, const Json& a, const Json& b, const char* field,
                   std::vector<Change>& out) {
  const auto before = by_name(a, field), after = by_name(b, field);
  for (const auto& [name, row] : before) {
    const auto found = after.find(name);
    if (found == after.end())
      out.push_back({what, name, row, Json()});
    else
      list_changes(what, name, row, found->second, out);
  }
  for (const auto& [name, row] : after)
    if (!before.count(name)) out.push_back({what, name, Json(), row});
}

Json at(const Json& manifest, const char* key) { return manifest.contains(key) ? manifest[key] : Json(); }

// Compares what functions have of their own. `prefix`: "" or "prefill: ".
void compare_functions(const std::string& prefix, const Json& a, const Json& b, std::vector<Change>& out) {
  for (const char* key : {"model", "dims"}) list_changes(prefix + key, "", at(a, key), at(b, key), out);
  const auto lists = [&](const char* what, const char* key, const char* field) {
    compare_lists(prefix + what, at(a, key), at(b, key), field, out);
  };
  lists("input", "inputs", "name");
  lists("output", "outputs", "name");
  lists("state", "states", "name");
  lists("symbol", "symbols", "name");
  lists("guard", "guards", "condition");
  list_changes(prefix + "memory", "", at(a, "memory"), at(b, "memory"), out);
  lists("kernel", "kernels", "name");
  lists("program", "specializations", "when");
  list_changes(prefix + "tuning", "", at(a, "tuning"), at(b, "tuning"), out);
}

std::vector<Change> changes_between(const Side& a, const Side& b) {
  std::vector<Change> out;
  const Json &before = a.manifest, &after = b.manifest;
  for (const char* key : {"compiler", "schema_version", "mode", "options"})
    list_changes(key, "", at(before, key), at(after, key), out);
  compare_lists("target", at(before, "targets"), at(after, "targets"), "device", out);
  list_changes("requires", "", at(before, "requires"), at(after, "requires"), out);
  if (!before.contains("functions") && !after.contains("functions")) {
    compare_functions("", before, after, out);
  } else {
    list_changes("memory", "", at(before, "memory"), at(after, "memory"), out);
    // A function of one name in both is compared part by part.
    const auto of = [](const Json& manifest) {
      std::map<std::string, Json> all;
      for (Json& function : package::functions_of(manifest))
        all.emplace(function["name"].get<std::string>(), function);
      return all;
    };
    const auto olds = of(before), news = of(after);
    for (const auto& [name, function] : olds) {
      const auto found = news.find(name);
      if (found == news.end())
        out.push_back({"function", name, at(function, "model"), Json()});
      else
        compare_functions(cat(name, ": "), function, found->second, out);
    }
    for (const auto& [name, function] : news)
      if (!olds.contains(name)) out.push_back({"function", name, Json(), at(function, "model")});
  }
  if (a.bytes != 0 && b.bytes != 0) list_changes("size", "bytes", a.bytes, b.bytes, out);
  return out;
}

// One line: strings without quotes, an added or removed kernel by its schedule, a program by its size.
std::string show(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("schedule"))
    return cat(value.value("launches", 1), " launches, ", value.value("schedule", ""));
  if (value.is_object() && value.contains("file") && value["file"].is_string())
    return value["file"].get<std::string>();
  if (value.is_object() && value.contains("kernels"))
    return cat(value["kernels"].size(), " kernels, workspace ", value.value("workspace_bytes", ""), " B");
  if (value.is_array() && !value.empty() && value[0].is_object()) return cat(value.size(), " entries");
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

int run(const std::string& before, const std::string& after, const Globals& globals) {
  const Side a = read_side(before), b = read_side(after);
  const std::vector<Change> changes = changes_between(a, b);
  if (globals.json) {
    Json json = {{"before", before}, {"after", after}, {"changes", Json::array()}};
    for (const Change& c : changes)
      json["changes"].push_back(
          {{"what", c.what}, {"name", c.name}, {"before", c.before}, {"after", c.after}});
    std::printf("%s\n", json.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
    return 0;
  }
  if (changes.empty()) {
    std::printf(" %s and %s say the same\n", before.c_str(), after.c_str());
    return 0;
  }
  std::vector<std::vector<std::string>> rows;
  for (const Change& c : changes) {
    const std::string text = c.before.is_null()  ? cat("new: ", show(c.after))
                             : c.after.is_null() ? cat("gone: ", show(c.before))
                                                 : cat(show(c.before), " -> ", show(c.after));
    rows.push_back({c.what, c.name, text});
  }
  std::printf("%s", table(rows, " ").c_str());
  return 0;
}

}  // namespace

std::function<int()> declare_diff(CLI::App& app, const Globals& globals) {
  auto files = std::make_shared<std::pair<std::string, std::string>>();
  app.add_option("before", files->first, "an artifact or a manifest")->required();
  app.add_option("after", files->second, "another one")->required();
  return [files, &globals] { return run(files->first, files->second, globals); };
}

}  // namespace stridec::cli
