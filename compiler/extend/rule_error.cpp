// Errors in texts of the user, with the line that they are in.
#include <algorithm>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/extend/rule.h"

namespace stridec::extend {
namespace {

constexpr size_t kMostColumns = 100, kBefore = 60;  // of a line that is shown, and before the place

}  // namespace

void rule_error(std::string_view text, const std::string& path, Position at, const std::string& what,
                const std::string& help) {
  size_t begin = 0;
  for (int line = 1; line < at.line && begin < text.size(); ++line) begin = text.find('\n', begin) + 1;
  std::string line(text.substr(begin, text.find('\n', begin) - begin));
  auto column = static_cast<size_t>(std::max(at.column - 1, 0));
  if (line.size() > kMostColumns) {
    const size_t first = column > kBefore ? column - kBefore : 0;
    const bool ends = line.size() - std::min(first, line.size()) <= kMostColumns;
    line = cat(first > 0 ? "..." : "", line.substr(std::min(first, line.size()), kMostColumns),
               ends ? "" : "...");
    column = column - first + (first > 0 ? 3 : 0);
  }
  throw Error({.kind = ErrorKind::kMalformed,
               .code = "bad-rule",
               .message = cat(path, ":", at.line, ":", at.column, ": ", what),
               .where = {.file = path},
               .notes = {line, cat(std::string(column, ' '), "^")},
               .help = help});
}

}  // namespace stridec::extend
