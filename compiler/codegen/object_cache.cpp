#include "compiler/codegen/object_cache.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "compiler/base/cache_folder.h"
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

std::string object_folder() {
  const std::string folder = cache_folder();
  return folder.empty() ? "" : folder + "/kernels";
}

constexpr const char* kLimit = "/limit";  // in bytes, as text

// 0: none is stored.
int64_t stored_limit(const std::string& folder) {
  std::error_code error;
  if (folder.empty() || !fs::exists(folder + kLimit, error)) return 0;
  try {
    return std::max<int64_t>(0, std::strtoll(read_file(folder + kLimit).c_str(), nullptr, 10));
  } catch (const Error&) {
    return 0;
  }
}

struct Object {
  fs::file_time_type used;
  fs::path path;
  int64_t bytes;
};

std::vector<Object> objects_in(const std::string& folder) {
  std::vector<Object> objects;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code e;
    Object object{it->last_write_time(e), it->path(), static_cast<int64_t>(it->file_size(e))};
    if (!e && object.path.extension() == ".o") objects.push_back(std::move(object));
  }
  return objects;
}

// Removes the least recently used objects beyond the limit.
void trim_to(const std::string& folder, int64_t most_bytes) {
  std::vector<Object> objects = objects_in(folder);
  int64_t total = 0;
  for (const Object& object : objects) total += object.bytes;
  if (total <= most_bytes) return;
  std::sort(objects.begin(), objects.end(), [](const Object& a, const Object& b) { return a.used < b.used; });
  std::error_code error;
  for (const Object& object : objects) {
    if (total <= most_bytes) break;
    if (fs::remove(object.path, error)) total -= object.bytes;
  }
}

}  // namespace

ObjectCache::ObjectCache(bool enabled, int64_t most_bytes) : most_bytes_(most_bytes) {
  if (!enabled) return;
  folder_ = object_folder();
  std::error_code error;
  if (!folder_.empty() && !fs::create_directories(folder_, error) && error) folder_.clear();
  if (const int64_t limit = stored_limit(folder_); limit > 0) most_bytes_ = limit;
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
  if (!folder_.empty() && due(folder_)) trim_to(folder_, most_bytes_);
}

namespace {

std::string existing_folder() {
  const std::string folder = object_folder();
  if (folder.empty())
    fail(ErrorKind::kUnreadable, "no-cache",
         "there is no cache folder: neither a variable nor a home names one", "set STRIDEC_CACHE");
  std::error_code error;
  if (!fs::create_directories(folder, error) && error)
    fail(ErrorKind::kUnreadable, "no-cache", "'" + folder + "' cannot be created: " + error.message(),
         "set STRIDEC_CACHE to a folder that can be written");
  return folder;
}

}  // namespace

CacheUse cache_use() {
  CacheUse use{.folder = existing_folder()};
  for (const Object& object : objects_in(use.folder)) ++use.objects, use.bytes += object.bytes;
  use.limit = stored_limit(use.folder);
  return use;
}

CacheUse clear_cache() {
  const CacheUse before = cache_use();
  for (const Object& object : objects_in(before.folder)) {
    std::error_code error;
    if (!fs::remove(object.path, error) && error)
      fail(ErrorKind::kUnreadable, "no-cache",
           "'" + object.path.string() + "' cannot be removed: " + error.message());
  }
  return before;
}

void set_cache_limit(int64_t bytes) {
  const std::string folder = existing_folder();
  write_file(folder + kLimit, std::to_string(bytes) + "\n");
  if (bytes > 0) trim_to(folder, bytes);
}

}  // namespace stridec::codegen
