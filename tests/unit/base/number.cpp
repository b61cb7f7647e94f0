#include "compiler/base/number.h"

#include <doctest/doctest.h>

using namespace stridec;

TEST_CASE("sizes in bytes: units in either case, whole and decimal numbers, nothing else") {
  CHECK(parse_bytes("0") == 0u);
  CHECK(parse_bytes("4096") == 4096u);
  CHECK(parse_bytes("500MB") == 500'000'000u);
  CHECK(parse_bytes("2gb") == 2'000'000'000u);
  CHECK(parse_bytes("1.5GiB") == 1'610'612'736u);
  CHECK(parse_bytes("4k") == 4000u);
  CHECK(parse_bytes("4Ki") == 4096u);
  CHECK(parse_bytes("7B") == 7u);
  CHECK(parse_bytes("4EiB") == uint64_t{1} << 62);
  for (const char* text :
       {"", "abc", "MB", "-5", "-5MB", "+5", "5XB", "5MBs", "5 MB", "1e3MB", "inf", "nan", "5EiB", "0x10"})
    CHECK_MESSAGE(!parse_bytes(text), text);
}
