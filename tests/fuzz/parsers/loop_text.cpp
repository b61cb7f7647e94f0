// The text of loop programs: what parses prints, and prints the same once it has been parsed again.
#include <string_view>

#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "tests/fuzz/parsers/target.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return stridec::fuzz::refuse_or_take([&] {
    using namespace stridec::loop;
    const Program program = parse_program({reinterpret_cast<const char*>(data), size});
    const std::string text = to_string(program);
    if (to_string(parse_program(text)) != text) std::abort();
  });
}
