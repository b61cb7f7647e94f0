// Compiled kernels on disk, keyed by the hash of everything that determines their bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace stridec::codegen {

class ObjectCache {
 public:
  // Uses kernels/ in the cache folder (base/cache_folder.h). If it cannot be created or written, there is no
  // cache; no call fails. A limit of set_cache_limit() replaces `most_bytes`.
  explicit ObjectCache(bool enabled, int64_t most_bytes);

  // The object stored for the key; a file that is corrupt is removed.
  std::optional<std::string> find(const std::string& key) const;
  void store(const std::string& key, const std::string& object) const;
  // Removes the least recently used objects beyond most_bytes. It checks every ten minutes only, so the limit
  // may be exceeded in between.
  void trim() const;

 private:
  std::string folder_;  // "": no cache
  int64_t most_bytes_;
};

// What `stridec cache` shows and changes. All of them throw Error (kUnreadable) if there is no cache folder
// or if it cannot be written.
struct CacheUse {
  std::string folder;  // of the objects
  int64_t objects = 0, bytes = 0;
  int64_t limit = 0;  // in bytes; 0: the default of each kind of kernel
};
CacheUse cache_use();
// Removes all objects. Returns what there was.
CacheUse clear_cache();
// Keeps the limit for all later compilations of this user, and applies it. 0: back to the default.
void set_cache_limit(int64_t bytes);

}  // namespace stridec::codegen
