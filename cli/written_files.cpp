#include "cli/written_files.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/package/artifact.h"

namespace stridec::cli {
namespace {

// Those of files that stridec or programs around it read.
constexpr std::string_view kKnown[] = {".onnx", ".pt2",         ".pt",   ".pth", ".ckpt", ".graph", ".so",
                                       ".json", ".safetensors", ".npy",  ".npz", ".html", ".htm",   ".svg",
                                       ".png",  ".jpg",         ".jpeg", ".gif", ".webp", ".pdf",   ".csv",
                                       ".toml", ".yaml",        ".zip",  ".dot", ".md",   ".txt"};

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

}  // namespace

void check_extension(const std::string& path, const std::string& what,
                     const std::vector<std::string_view>& fitting, const std::string& example, bool only) {
  const std::string extension = lower(std::filesystem::path(path).extension().string());
  if (path.empty() || std::ranges::count(fitting, extension) > 0) return;
  if (!only && std::ranges::count(kKnown, extension) == 0) return;
  fail(ErrorKind::kUsage, "wrong-extension",
       cat("'", path, "' ", extension.empty() ? "has no extension" : cat("ends in ", extension), ", and ",
           what, " is written as ", fitting.front().substr(1)),
       cat("write ", example));
}

std::vector<std::string> files_of_artifact(const std::string& artifact, const std::string& manifest) {
  using Json = nlohmann::ordered_json;
  std::vector<std::string> files = {artifact, package::manifest_path(artifact)};
  const std::filesystem::path folder = std::filesystem::path(artifact).parent_path();
  const auto beside = [&](const Json& of, const char* key, const char* name) {
    if (!of.is_object() || !of.contains(key) || !of[key].is_object()) return;
    if (const Json file = of[key].value(name, Json()); file.is_string())
      files.push_back((folder / file.get<std::string>()).string());
  };
  const Json json = Json::parse(manifest, nullptr, /*allow_exceptions=*/false);
  beside(json, "memory", "weights_file");
  beside(json, "model", "file");
  if (json.is_object())
    for (const Json& function : json.value("functions", Json::array())) beside(function, "model", "file");
  return files;
}

std::string folder_beside(const std::string& output, const std::string& extension, const std::string& what) {
  namespace fs = std::filesystem;
  const std::string folder = fs::path(output).replace_extension(extension).string();
  if (folder == output)
    fail(ErrorKind::kUsage, "usage",
         cat("the folder of ", what, " would be '", folder, "', which the output is"),
         "give the output another name");
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_directory(folder, error))
    fail(ErrorKind::kUnreadable, "no-folder",
         cat("the folder of ", what, " would be '", folder, "', and a file has this name"),
         "move it, or give the output another name");
  return folder;
}

void make_folder(const std::string& folder,
                 const std::function<bool(const std::filesystem::path& file)>& is_earlier) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::create_directories(folder, error);
  std::vector<fs::path> earlier;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (fs::is_regular_file(at->symlink_status()) && is_earlier(at->path())) earlier.push_back(at->path());
  for (const fs::path& file : earlier)
    if (!error) fs::remove(file, error);
  if (error)
    fail(ErrorKind::kUnreadable, "cannot-write",
         cat("the folder '", folder, "' cannot be written: ", error.message()));
}

}  // namespace stridec::cli
