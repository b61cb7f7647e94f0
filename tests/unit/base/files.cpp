#include "compiler/base/files.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "compiler/base/diagnostic.h"

using namespace stridec;

namespace {

struct Folder {
  std::string path;
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "stridec_files_XXXXXX").string();
    REQUIRE(mkdtemp(name.data()));
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  size_t files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(path), {}));
  }
};

}  // namespace

TEST_CASE("two writers of one file do not meet") {
  Folder folder;
  const std::string path = folder.path + "/x";
  {
    UnfinishedFile first(path), second(path);
    CHECK(first.temporary() != second.temporary());
    first.write("first", 5);
    second.write("second", 6);
    first.commit();
    CHECK(read_file(path) == "first");
    second.commit();
    CHECK(read_file(path) == "second");
  }
  CHECK(folder.files() == 1);
}

TEST_CASE("folders, devices and pipes are not replaced") {
  Folder folder;
  const std::string pipe = folder.path + "/pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  for (const std::string& path : {folder.path, pipe, std::string("/dev/null")})
    CHECK_THROWS_AS(UnfinishedFile{path}, Error);
  CHECK(folder.files() == 1);
}

TEST_CASE("what is not committed goes") {
  Folder folder;
  {
    UnfinishedFile file(folder.path + "/x");
  }
  CHECK(folder.files() == 0);
  UnfinishedFile file(folder.path + "/y");
  CHECK(folder.files() == 1);
  remove_unfinished_files();
  CHECK(folder.files() == 0);
}
