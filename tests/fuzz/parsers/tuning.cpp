// A tuning database: entries that were taken are written as lines that are taken again.
#include "compiler/tune/database.h"
#include "tests/fuzz/parsers/target.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return stridec::fuzz::refuse_or_take([&] {
    using namespace stridec::tune;
    const Contents contents = parse_contents({reinterpret_cast<const char*>(data), size}, "input");
    const Contents again = parse_contents(file_text(contents), "output");
    if (file_text(merged(again)) != file_text(merged(contents))) std::abort();
  });
}
