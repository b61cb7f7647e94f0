// licenses: what is in the program, or in one artifact, and under which licenses.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "cli/command.h"
#include "cli/licenses.h"
#include "cli/manifest_file.h"
#include "cli/output.h"
#include "compiler/base/text.h"
#include "compiler/package/read_manifest.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kLicense = "Apache-2.0 WITH LLVM-exception",
                           kCopyright = "2026 the stridec authors";

void print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void print_json(const std::vector<Notice>& notices, const Json& file, const Json& contains) {
  Json json = {{"file", file}, {"contains", contains}, {"licenses", Json::array()}};
  json["licenses"].push_back({{"name", "stridec"},
                              {"license", kLicense},
                              {"copyright", kCopyright},
                              {"source", nullptr},
                              {"part_of", {"program", "runtime"}},
                              {"text", license_text()}});
  for (const Notice& notice : notices)
    json["licenses"].push_back({{"name", notice.name},
                                {"license", notice.license},
                                {"copyright", notice.copyright},
                                {"source", notice.source},
                                {"part_of", notice.part_of},
                                {"text", notice.text}});
  std::printf("%s\n", json.dump(2).c_str());
}

int print_program(const Globals& globals) {
  if (globals.json) {
    print_json(parse_notices(notice_text()), nullptr, {"program"});
    return 0;
  }
  print(license_text());
  print("\n\n");
  print(notice_text());
  return 0;
}

// All parts that an artifact may have.
std::set<std::string> possible_parts(const std::vector<Notice>& notices) {
  std::set<std::string> parts;
  for (const Notice& notice : notices)
    for (std::string_view part : notice.part_of)
      if (part != "program" && part != "tests") parts.insert(std::string(part));
  return parts;
}

int print_artifact(const std::string& path, const Globals& globals) {
  const Json manifest = package::read_manifest(read_manifest_text(path), path);
  const std::vector<Notice> all = parse_notices(notice_text());
  // Manifests before 1.1 do not list the parts of their artifact.
  const bool known = manifest.contains("contains");
  const auto parts = known ? manifest["contains"].get<std::set<std::string>>() : possible_parts(all);
  std::vector<Notice> held;
  for (const Notice& notice : all)
    if (std::any_of(notice.part_of.begin(), notice.part_of.end(),
                    [&](std::string_view part) { return parts.contains(std::string(part)); }))
      held.push_back(notice);
  if (globals.json) {
    print_json(held, path, known ? Json(parts) : Json(nullptr));
    return 0;
  }
  std::printf("%s  contains %s%s\n\n", path.c_str(),
              join(parts, ", ", [](const auto& p) { return p; }).c_str(),
              known ? "" : " at most: the stridec that compiled it did not record its parts");
  print(cat("stridec: ", kLicense, ", Copyright (c) ", kCopyright, "\n"));
  print(
      "The runtime and the kernels. The LLVM exception permits to distribute them in the artifact without\n"
      "the conditions of sections 4(a), 4(b) and 4(d) of the license. `stridec licenses` prints its text.\n"
      "The weights have the license of their model.\n");
  for (const Notice& notice : held) {
    print(kSectionLine);
    print(notice.section);
    print("\n");
  }
  return 0;
}

}  // namespace

std::function<int()> declare_licenses(CLI::App& app, const Globals& globals) {
  auto path = std::make_shared<std::string>();
  app.add_option("artifact", *path,
                 "an artifact (.so) or its manifest (.json); without it, the program itself");
  return [path, &globals] { return path->empty() ? print_program(globals) : print_artifact(*path, globals); };
}

}  // namespace stridec::cli
