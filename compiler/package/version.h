// The version of the manifest's schema: major.minor. A new minor only adds keys.
#pragma once

namespace stridec::package {

inline constexpr const char* kManifestVersion = "1.6";

}  // namespace stridec::package
