#include "compiler/extend/requirement.h"

namespace stridec::extend {

std::vector<sym::Expr> compared_by(sym::Expr condition) {
  std::vector<sym::Expr> out;
  for (sym::Expr side : condition.args())
    if (!side.is_const()) out.push_back(side);
  return out;
}

bool is_sentence(const std::string& sentence, size_t count) {
  for (size_t at = sentence.find_first_of("{}"); at != std::string::npos;
       at = sentence.find_first_of("{}", at + 3))
    if (at + 2 >= sentence.size() || sentence[at] != '{' || sentence[at + 2] != '}' ||
        sentence[at + 1] < '0' || sentence[at + 1] >= '0' + static_cast<int>(count))
      return false;
  return true;
}

}  // namespace stridec::extend
