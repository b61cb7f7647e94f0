// The text of symbolic integers: parse(to_string(e)) is e, and simplifying keeps the value.
#include <string_view>

#include "compiler/sym/text.h"
#include "tests/fuzz/parsers/target.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return stridec::fuzz::refuse_or_take([&] {
    using namespace stridec::sym;
    const Expr e = parse({reinterpret_cast<const char*>(data), size});
    if (parse(to_string(e)) != e) std::abort();
    const Expr simple = simplify(e);
    for (const int64_t value : {-3, 0, 1, 7}) {
      const auto lookup = [&](Expr) -> std::optional<int64_t> { return value; };
      const auto before = evaluate(e, lookup), after = evaluate(simple, lookup);
      if (before && after && *before != *after) std::abort();
    }
  });
}
