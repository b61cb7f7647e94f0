#include "compiler/base/files.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compiler/base/diagnostic.h"
#include "tests/support/folder.h"

using namespace stridec;
using stridec::testing::Folder;

TEST_CASE("two writers of one file do not meet") {
  Folder folder;
  const std::string path = folder.file("x");
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
  CHECK(folder.count() == 1);
}

TEST_CASE("folders, devices and pipes are not replaced") {
  Folder folder;
  const std::string pipe = folder.file("pipe");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  for (const std::string& path : {folder.path.string(), pipe, std::string("/dev/null")})
    CHECK_THROWS_AS(UnfinishedFile{path}, Error);
  CHECK(folder.count() == 1);
}

TEST_CASE("a file that is not committed is removed") {
  Folder folder;
  {
    UnfinishedFile file(folder.file("x"));
  }
  CHECK(folder.count() == 0);
  UnfinishedFile file(folder.file("y"));
  CHECK(folder.count() == 1);
  remove_unfinished_files();
  CHECK(folder.count() == 0);
}

TEST_CASE("outputs replace neither inputs nor each other, by whatever path") {
  Folder folder;
  const std::string input = folder.file("in"), link = folder.file("link"), made = folder.file("new");
  write_file(input, "kept");
  REQUIRE(symlink("in", link.c_str()) == 0);
  const auto refused = [](const std::vector<OutputFile>& outputs, const std::vector<std::string>& inputs) {
    try {
      check_outputs(outputs, inputs);
    } catch (const Error& error) {
      return error.diagnostic.code + ": " + error.diagnostic.message;
    }
    return std::string();
  };
  const std::string dotted = folder.path.string() + "/./new";
  CHECK(refused({{input, "the page", ""}}, {"", made, link}) == "overwrites-input: writing the page to '" +
                                                                    input + "' would overwrite '" + link +
                                                                    "', which is an input");
  CHECK(refused({{link, "the page", ""}}, {input}) != "");
  CHECK(refused({{made, "a", ""}, {"", "b", ""}, {dotted, "c", ""}}, {input}) ==
        "same-output: a and c would be written to one file, '" + dotted + "'");
  CHECK(refused({{folder.file("none/x"), "a", ""}}, {}).starts_with("cannot-write: "));
  CHECK(refused({{made, "a", ""}, {"", "b", ""}, {"", "c", ""}}, {input, "", dotted + "er"}) == "");
  CHECK(read_file(input) == "kept");
}
