#include "compiler/frontend/torchscript/debug.h"

#include <algorithm>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"

namespace stridec::torchscript {
namespace {

using Kind = Item::Kind;

bool is_tuple(const Item& item, size_t size) {
  return item.kind == Kind::kTuple && item.items.size() == size;
}

// The offset of a line of the text, and of the next one.
std::pair<size_t, size_t> extent_of(const std::string& text, int line) {
  size_t from = 0;
  for (int i = 1; i < line && from != std::string::npos; ++i) {
    from = text.find('\n', from);
    if (from != std::string::npos) ++from;
  }
  if (from == std::string::npos) return {text.size(), text.size()};
  return {from, std::min(text.find('\n', from), text.size())};
}

// A range is ((pieces of the text, file, first line), start, end): pieces and file are numbers of strings.
std::optional<std::string> place_of(const Item& range, const std::vector<ItemRef>& strings) {
  if (!is_tuple(range, 3) || !is_tuple(*range.items[0], 3)) return std::nullopt;
  const Item& source = *range.items[0];
  const auto text = [&](const Item& number) -> const std::string* {
    const auto at = static_cast<size_t>(number.integer);
    return number.kind == Kind::kInt && at < strings.size() ? &strings[at]->text : nullptr;
  };
  const std::string* file = text(*source.items[1]);
  if (!file || file->empty()) return std::nullopt;
  int64_t line = source.items[2]->integer, left = range.items[1]->integer;
  for (const ItemRef& piece : source.items[0]->items) {
    const std::string* t = text(*piece);
    if (!t || left <= 0) break;
    line += std::ranges::count(t->begin(), t->begin() + std::min<int64_t>(left, std::ssize(*t)), '\n');
    left -= std::ssize(*t);
  }
  return cat(*file, ", line ", line);
}

}  // namespace

std::optional<std::string> user_source(const Archive& archive, const Function& function, int line) {
  try {
    const auto bytes = read_debug(archive, function.module), text = read_source(archive, function.module);
    if (!bytes || !text) return std::nullopt;
    const auto [from, to] = extent_of(*text, line);
    const ItemRef all = read_pickle(*bytes, "the debug information");
    if (!is_tuple(*all, 3)) return std::nullopt;
    for (const ItemRef& entry : all->items[2]->items) {
      if (entry->items.size() < 2 || entry->items[0]->kind != Kind::kInt) return std::nullopt;
      const auto at = static_cast<size_t>(entry->items[0]->integer);
      if (at < from || at > to) continue;
      if (auto place = place_of(*entry->items[1], all->items[1]->items)) return place;
    }
  } catch (const Error&) {  // the program itself may be sound
  }
  return std::nullopt;
}

}  // namespace stridec::torchscript
