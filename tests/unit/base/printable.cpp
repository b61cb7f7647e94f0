#include "compiler/base/printable.h"

#include <doctest/doctest.h>

#include "compiler/base/diagnostic.h"

using namespace stridec;

TEST_CASE("what a terminal would obey is spelled out; letters of every script stay") {
  CHECK(printable("größe/名前 \"q\"\\ \U0001F600") == "größe/名前 \"q\"\\ \U0001F600");
  CHECK(printable("\x1b[31mred\x07") == "\\x1b[31mred\\x07");
  CHECK(printable("a\nb\tc\r") == "a\\x0ab\\x09c\\x0d");
  CHECK(printable("a\nb\tc\r", true) == "a\nb\tc\\x0d");
  CHECK(printable("\xc2\x9b") == "\\xc2\\x9b");                      // the control character CSI
  CHECK(printable("\xff\xc3(\xe2\x82") == "\\xff\\xc3(\\xe2\\x82");  // invalid UTF-8, truncated
  CHECK(printable("\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80") ==
        "\\xc0\\xaf\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80");  // overlong, a surrogate, beyond Unicode
  CHECK(printable(std::string_view("\0x", 2)) == "\\x00x");
}

TEST_CASE("a model's names do not add lines to a message") {
  const std::string text = render({.kind = ErrorKind::kUnsupported,
                                   .code = "unsupported-op",
                                   .message = "operator 'a\nerror: b' is unknown",
                                   .where = {.file = "m.onnx", .node = "node 0 '\x1b[2J'"}});
  CHECK(text ==
        "error[unsupported-op]: operator 'a\\x0aerror: b' is unknown\n  --> m.onnx, node 0 '\\x1b[2J'\n");
}
