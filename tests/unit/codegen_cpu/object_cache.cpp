#include "compiler/codegen/object_cache.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "compiler/base/files.h"
#include "tests/support/folder.h"

using namespace stridec;
namespace fs = std::filesystem;

TEST_CASE("truncated, altered or moved entries of the object cache are not found and are removed") {
  const testing::Folder folder;
  const char* given = std::getenv("STRIDEC_CACHE");
  const std::string before = given ? given : "";
  setenv("STRIDEC_CACHE", folder.path.c_str(), 1);
  const codegen::ObjectCache cache(true, 1 << 20);
  given ? setenv("STRIDEC_CACHE", before.c_str(), 1) : unsetenv("STRIDEC_CACHE");

  const std::string object(1000, 'x');
  const fs::path file = folder.file("kernels/key.o"), other = folder.file("kernels/other.o");
  CHECK_FALSE(cache.find("key"));
  cache.store("key", object);
  CHECK(cache.find("key") == object);

  fs::copy_file(file, other);
  CHECK_FALSE(cache.find("other"));
  CHECK_FALSE(fs::exists(other));

  std::string bytes = read_file(file.string());
  bytes[500] ^= 1;
  write_file(file.string(), bytes);
  CHECK_FALSE(cache.find("key"));
  CHECK_FALSE(fs::exists(file));

  for (const size_t size : {0, 10, 999, 1063}) {
    cache.store("key", object);
    fs::resize_file(file, size);
    CHECK_FALSE(cache.find("key"));
  }
}
