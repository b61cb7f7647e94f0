// SHA-256 (FIPS 180-4), for the hashes in a manifest: models, weights, kernels.
#pragma once

#include <cstddef>
#include <stop_token>
#include <string>

namespace stridec {

// 64 lower-case hexadecimal digits.
std::string sha256(const void* bytes, size_t size);
// Throws Error (kUnreadable). Returns an empty string if `stop` was requested.
std::string sha256_of_file(const std::string& path, std::stop_token stop = {});

}  // namespace stridec
