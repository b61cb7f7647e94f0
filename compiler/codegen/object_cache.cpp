#include "compiler/codegen/object_cache.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/base/files.h"
#include "compiler/base/sha256.h"

namespace stridec::codegen {
namespace fs = std::filesystem;

namespace {

// Appended to every object: a hash of its key and contents. The cache rejects a file that was truncated or
// altered.
constexpr size_t kSealBytes = 64;
std::string seal_of(const std::string& key, const std::string& object) {
  const std::string sealed = key + '\0' + object;
  return sha256(sealed.data(), sealed.size());
}

// Scanning thousands of objects costs more than a small build, so it is done at intervals, shared by all
// processes: the time of the last scan is that of a file in the folder.
bool due(const std::string& folder) {
  constexpr auto kInterval = std::chrono::minutes(10);
  const std::string stamp = folder + "/trimmed";
  std::error_code error;
  const auto last = fs::last_write_time(stamp, error);
  if (!error && fs::file_time_type::clock::now() - last < kInterval) return false;
  try {
    write_file(stamp, "");
  } catch (const Error&) {
    return false;
  }
  return true;
}

}  // namespace

ObjectCache::ObjectCache(bool enabled, int64_t most_bytes) : most_bytes_(most_bytes) {
  if (!enabled) return;
  const char* cache = std::getenv("STRIDEC_CACHE");
  const char* home = std::getenv("HOME");
  if (cache && *cache)
    folder_ = std::string(cache) + "/kernels";
  else if (home && *home)
    folder_ = std::string(home) + "/.cache/stridec/kernels";
  std::error_code error;
  if (!folder_.empty() && !fs::create_directories(folder_, error) && error) folder_.clear();
}

std::optional<std::string> ObjectCache::find(const std::string& key) const {
  if (folder_.empty()) return std::nullopt;
  const std::string path = folder_ + "/" + key + ".o";
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  try {
    std::string object = read_file(path);
    const std::string seal = object.size() < kSealBytes ? "" : object.substr(object.size() - kSealBytes);
    object.resize(object.size() - seal.size());
    if (seal != seal_of(key, object)) {
      fs::remove(path, error);
      return std::nullopt;
    }
    fs::last_write_time(path, fs::file_time_type::clock::now(), error);
    return object;
  } catch (const Error&) {
    return std::nullopt;
  }
}

void ObjectCache::store(const std::string& key, const std::string& object) const {
  if (folder_.empty()) return;
  try {
    write_file(folder_ + "/" + key + ".o", object + seal_of(key, object));
  } catch (const Error&) {  // a full or read-only disk costs time, not the build
  }
}

void ObjectCache::trim() const {
  if (folder_.empty() || !due(folder_)) return;
  struct Entry {
    fs::file_time_type used;
    fs::path path;
    int64_t bytes;
  };
  std::vector<Entry> entries;
  int64_t total = 0;
  std::error_code error;
  for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
    std::error_code e;
    Entry entry{it->last_write_time(e), it->path(), static_cast<int64_t>(it->file_size(e))};
    if (e || entry.path.extension() != ".o") continue;
    total += entry.bytes;
    entries.push_back(std::move(entry));
  }
  if (total <= most_bytes_) return;
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const Entry& entry : entries) {
    if (total <= most_bytes_) break;
    if (fs::remove(entry.path, error)) total -= entry.bytes;
  }
}

}  // namespace stridec::codegen
