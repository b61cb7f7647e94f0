// A tuning database: entries that were taken are written as lines that are taken again.
#include "compiler/tune/database.h"
#include "tests/fuzz/parsers/target.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return stridec::fuzz::refuse_or_take([&] {
    using namespace stridec::tune;
    const auto entries = parse_entries({reinterpret_cast<const char*>(data), size}, "input");
    const auto again = parse_entries(file_text(entries), "output");
    if (merged(again).size() != merged(entries).size()) std::abort();
  });
}
