#include "compiler/tune/database.h"

#include <doctest/doctest.h>

#include "compiler/base/diagnostic.h"
#include "compiler/base/files.h"
#include "tests/support/folder.h"

using namespace stridec;
using namespace stridec::tune;
using stridec::testing::Folder;

namespace {

Entry entry(const std::string& structure, int tried, double microseconds = 12.5) {
  return {.key = {.structure = structure,
                  .shape = "1x128",
                  .target = "znver4",
                  .threads = 2,
                  .compiler = "0.1.0"},
          .microseconds = microseconds,
          .default_microseconds = 20,
          .noise_percent = 0.5,
          .tried = tried,
          .schedule = "gemm.f32.8x48: rows %i0; columns %i1",
          .kernel = "matmul+bias"};
}

std::string refused(const std::string& text) {
  try {
    parse_contents(text, "t.txt");
  } catch (const Error& error) {
    CHECK(error.diagnostic.kind == ErrorKind::kMalformed);
    CHECK(error.diagnostic.where.file == "t.txt");
    return error.text;
  }
  return "";
}

}  // namespace

TEST_CASE("an entry is a line that reads back as it was") {
  const Entry one = entry("9f86d081884c7d65", 9);
  const std::string line = to_string(one);
  CHECK(line ==
        "9f86d081884c7d65 1x128 znver4 2 0.1.0 | 12.5000us 20.0000us 0.50% 9 | gemm.f32.8x48: rows %i0; "
        "columns "
        "%i1 | "
        "matmul+bias");
  const auto read = parse_contents("# a remark\n\n" + line + "\n", "t.txt").entries;
  REQUIRE(read.size() == 1);
  CHECK(read[0].key == one.key);
  CHECK(to_string(read[0]) == line);
  Entry odd = one;  // a name from a hostile model must not break the line format
  odd.kernel = "a | b\nc";
  CHECK(parse_contents(to_string(odd), "t.txt").entries[0].kernel == "a _ b_c");
}

TEST_CASE("what is not an entry is refused with its line") {
  const std::string line = to_string(entry("9f86d081884c7d65", 9));
  CHECK(refused(line + "\nnonsense\n").find("line 2") != std::string::npos);
  CHECK(refused("a b c 2 d | 1us 1us 1% x | s | k").find("line 1") != std::string::npos);
  CHECK(refused("a b c 2 d | 1us 1us 1% 3 | two words: s | k").find("line 1") != std::string::npos);
  CHECK(refused("a b c 2 d | 1ms 1us 1% 3 | s | k").find("line 1") != std::string::npos);
  CHECK(refused("# stridec tuning 2: something else\n").find("another format") != std::string::npos);
  CHECK(refused(line + "\n") == "");
}

TEST_CASE("entries are appended, and the last one with a key holds") {
  const Folder folder;
  const std::string file = folder.file("new/t.txt");
  {
    Database first(file), second(file);
    first.append(entry("aaaa", 3, 10));
    second.append(entry("bbbb", 3, 11));
    first.append(entry("aaaa", 3, 9));
    CHECK(first.find(entry("aaaa", 0).key)->microseconds == 9);
    CHECK(first.find(entry("bbbb", 0).key) == nullptr);
  }
  const Database all(file, true);
  CHECK(all.entries().size() == 3);
  REQUIRE(all.held().size() == 2);
  CHECK(all.held()[0].key.structure == "bbbb");
  CHECK(all.held()[1].microseconds == 9);
  CHECK(all.find(entry("aaaa", 0).key)->microseconds == 9);
  CHECK(all.find(entry("bbbb", 0).key)->microseconds == 11);
  CHECK(read_file(file).starts_with("# stridec tuning 1"));
  CHECK_THROWS_AS(Database(folder.file("missing.txt"), true), Error);
}

TEST_CASE("a database that was edited elsewhere: ends of lines of Windows, and a last line without one") {
  const Folder folder;
  const std::string file = folder.file("t.txt"), line = to_string(entry("aaaa", 3));
  write_file(file, line + "\r\n" + line + "\r\n" + line);
  Database(file).append(entry("bbbb", 3));
  const Database all(file, true);
  REQUIRE(all.entries().size() == 4);
  for (const Entry& each : all.entries()) CHECK(each.kernel == "matmul+bias");
}

TEST_CASE("merging keeps one entry for a key: the one that tried more, of equals the last") {
  const auto all =
      merged({{entry("bbbb", 5, 1), entry("aaaa", 9, 2), entry("bbbb", 5, 3), entry("aaaa", 2, 4)}, {}})
          .entries;
  REQUIRE(all.size() == 2);
  CHECK(all[0].key.structure == "aaaa");
  CHECK(all[0].microseconds == 2);
  CHECK(all[1].microseconds == 3);
  CHECK(parse_contents(file_text({all, {}}), "t.txt").entries.size() == 2);
}

TEST_CASE("lessons are kept for what they were measured with, and add up") {
  const Folder folder;
  const std::string file = folder.file("t.txt");
  const Key here = entry("", 0).key, elsewhere{.target = "znver5", .threads = 2, .compiler = "0.1.0"};
  {
    Database database(file);
    database.append(here, {{"gemm.f32.8x48 direct weights", {4, -0.5, 0.25}}, {"loops", {1, 2, 4}}});
    database.append(here, {{"loops", {1, 1, 1}}});
    database.append(elsewhere, {{"loops", {9, 9, 9}}});
  }
  const Database read(file, true);
  CHECK(read.entries().empty());
  const ModelErrors lessons = read.lessons(here);
  REQUIRE(lessons.size() == 2);
  CHECK(lessons.at("gemm.f32.8x48 direct weights").sum == -0.5);
  CHECK(lessons.at("loops").count == 2);
  CHECK(lessons.at("loops").squares == 5);
  CHECK(read.lessons(elsewhere).at("loops").count == 9);
  CHECK(merged(read.contents()).learned.size() == 3);
  CHECK(file_text(merged(parse_contents(file_text(merged(read.contents())), "t.txt"))) ==
        file_text(merged(read.contents())));
  CHECK(refused("learned znver5 2 0.1.0 | 3 x 1 | loops").find("line 1") != std::string::npos);
  CHECK(refused("learned znver5 2 0.1.0 | 3 nan 1 | loops").find("line 1") != std::string::npos);
  CHECK(refused("learned znver5 2 0.1.0 | 3 1 1").find("line 1") != std::string::npos);
  CHECK(refused("learned znver5 2 0.1.0 | 6" + std::string(120, '0') + " 1 2 | loops").find("line 1") !=
        std::string::npos);
  const std::string twice = "learned znver5 2 0.1.0 | 0.4 0.00004 0.00004 | loops\n";
  const Contents small = parse_contents(twice + twice, "t.txt");
  CHECK(file_text(merged(parse_contents(file_text(small), "t.txt"))) == file_text(merged(small)));
}
