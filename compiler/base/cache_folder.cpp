#include "compiler/base/cache_folder.h"

#include <cstdlib>

namespace stridec {

std::string cache_folder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value ? value : "");
  };
  if (const std::string own = variable("STRIDEC_CACHE"); !own.empty()) return own;
  if (const std::string base = variable("XDG_CACHE_HOME"); base.starts_with('/')) return base + "/stridec";
  const std::string home = variable("HOME");
  return home.empty() ? "" : home + "/.cache/stridec";
}

}  // namespace stridec
