#include "compiler/base/sha256.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "compiler/base/diagnostic.h"
#include "compiler/base/file_hash.h"
#include "compiler/base/files.h"

using namespace stridec;

TEST_CASE("the digests of FIPS 180-4's examples") {
  CHECK(sha256("", 0) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc", 3) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const std::string two = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
  CHECK(sha256(two.data(), two.size()) == "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  const std::string million(1000000, 'a');
  CHECK(sha256(million.data(), million.size()) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("a file has the digest of its bytes") {
  const std::string path = (std::filesystem::temp_directory_path() / "stridec_sha256_test").string();
  for (size_t size : {0u, 1u, 63u, 64u, 65u, 1u << 20, (1u << 20) + 7, (3u << 20) + 100}) {
    std::string contents(size, '\0');
    for (size_t i = 0; i < size; ++i) contents[i] = static_cast<char>(i * 31 + i / 251);
    write_file(path, contents);
    CHECK(sha256_of_file(path) == sha256(contents.data(), contents.size()));
    CHECK(FileHash(path).get() == sha256(contents.data(), contents.size()));
    const FileHash unwanted(path);
  }
  std::filesystem::remove(path);
}

TEST_CASE("a file's digest made in the background fails where it is asked for") {
  const FileHash hash("/nowhere/model.onnx");
  hash.wait();
  CHECK_THROWS_AS((void)hash.get(), Error);
}
