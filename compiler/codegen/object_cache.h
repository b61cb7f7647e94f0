// Compiled kernels on disk, by the hash of everything that determines their bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace stridec::codegen {

class ObjectCache {
 public:
  // $STRIDEC_CACHE/kernels. A folder that cannot be made or written is no cache: nothing is ever an error.
  explicit ObjectCache(bool enabled, int64_t most_bytes);

  // What was stored for the key; a file that is not that any more is removed.
  std::optional<std::string> find(const std::string& key) const;
  void store(const std::string& key, const std::string& object) const;
  // Removes the objects used longest ago beyond most_bytes; looks every ten minutes, so there may be more
  // meanwhile.
  void trim() const;

 private:
  std::string folder_;  // "": none
  int64_t most_bytes_;
};

}  // namespace stridec::codegen
