// Compiled kernels on disk, keyed by the hash of everything that determines their bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace stridec::codegen {

class ObjectCache {
 public:
  // Uses $STRIDEC_CACHE/kernels. If the folder cannot be created or written, there is no cache; no call
  // fails.
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

}  // namespace stridec::codegen
