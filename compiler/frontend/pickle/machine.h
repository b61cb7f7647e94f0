// The part of a pickle that is plain data, as a stack machine (PEP 307, protocol 2). Objects are built bottom
// up, and the memo shares them. Names of Python globals are never looked up: a frontend derives from the
// machine and says what its own opcodes mean.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/base/text.h"

namespace stridec::frontend {

// Item has: kind, with kNone, kBool, kInt, kFloat, kString, kList, kTuple and kDict; integer, number, text;
// items, of a dict the keys and values by turns; depth of nesting (1); placed: whether another item has it.
template <class Item>
class PickleMachine {
 public:
  using Kind = typename Item::Kind;
  using Ref = std::shared_ptr<Item>;

  PickleMachine(std::string_view bytes, int deepest) : bytes_(bytes), deepest_(deepest) {}
  virtual ~PickleMachine() = default;

  Ref run() {
    while (true) {
      op_at_ = at_;
      const auto op = static_cast<unsigned char>(take(1)[0]);
      if (op == '.') {
        if (stack_.size() != 1 || !marks_.empty()) bad("ends with other than one value");
        return stack_[0];
      }
      if (!step(op) && !own_step(op)) unsupported(cat("opcode ", static_cast<int>(op), " at byte ", op_at_));
      count_step();
    }
  }

 protected:
  // Runs an opcode that plain data does not need. False: unknown.
  virtual bool own_step(unsigned char op) = 0;
  // Called after each opcode, to limit their number.
  virtual void count_step() {}
  // Whether items that are added to this one are dropped.
  virtual bool keeps_nothing(const Item&) const { return false; }
  // Throw Error: damaged bytes; a pickle of something else.
  [[noreturn]] virtual void bad(const std::string& what) const = 0;
  [[noreturn]] virtual void unsupported(const std::string& what) const = 0;

  size_t op_at() const { return op_at_; }  // the byte at which the current opcode is

  // ---- bytes
  std::string_view take(size_t n) {
    if (n > bytes_.size() - at_) bad("is truncated");
    at_ += n;
    return bytes_.substr(at_ - n, n);
  }
  uint64_t number(size_t width) {
    const std::string_view raw = take(width);
    uint64_t out = 0;
    for (size_t i = 0; i < width; ++i) out |= uint64_t{static_cast<unsigned char>(raw[i])} << (8 * i);
    return out;
  }
  std::string_view line() {
    const size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) bad("is truncated");
    const std::string_view out = take(end - at_);
    take(1);
    return out;
  }

  // ---- the stack
  Ref make(Kind kind) {
    auto out = std::make_shared<Item>();
    out->kind = kind;
    return out;
  }
  void push(Ref item) { stack_.push_back(std::move(item)); }
  void push_integer(int64_t value, Kind kind = Kind::kInt) {
    Ref out = make(kind);
    out->integer = value;
    push(std::move(out));
  }
  void push_text(Kind kind, std::string text) {
    Ref out = make(kind);
    out->text = std::move(text);
    push(std::move(out));
  }
  Ref pop() {
    expect_value();
    Ref out = std::move(stack_.back());
    stack_.pop_back();
    return out;
  }
  Ref& top() {
    expect_value();
    return stack_.back();
  }
  std::vector<Ref> pop_to_mark() {
    if (marks_.empty()) bad("takes a mark that it does not have");
    const auto from = stack_.begin() + static_cast<ptrdiff_t>(marks_.back());
    std::vector<Ref> out(std::make_move_iterator(from), std::make_move_iterator(stack_.end()));
    stack_.erase(from, stack_.end());
    marks_.pop_back();
    return out;
  }
  void push_items(Kind kind, std::vector<Ref> items) {
    Ref out = make(kind);
    place(*out, items);
    out->items = std::move(items);
    push(std::move(out));
  }
  // An item is complete before it is placed in another, so no item contains itself.
  void place(Item& in, const std::vector<Ref>& items) const {
    if (in.placed) bad("changes a value that another contains");
    for (const Ref& item : items) {
      if (item.get() == &in) bad("has a value that contains itself");
      item->placed = true;
      in.depth = std::max(in.depth, item->depth + 1);
    }
    if (in.depth > deepest_) bad(cat("is nested deeper than ", deepest_, " levels"));
  }

 private:
  void expect_value() const {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) bad("takes a value that it does not have");
  }
  void append(std::vector<Ref> items, Kind kind) {
    Item& to = *top();
    if (keeps_nothing(to)) return;
    if (to.kind != kind) bad("adds items to something that is not a container");
    place(to, items);
    to.items.insert(to.items.end(), std::make_move_iterator(items.begin()),
                    std::make_move_iterator(items.end()));
    if (kind == Kind::kDict && to.items.size() % 2) bad("has a key without a value");
  }
  void recall(uint64_t at) {
    const auto found = memo_.find(at);
    if (found == memo_.end()) bad("recalls what it has not stored");
    push(found->second);
  }

  bool step(unsigned char op) {
    switch (op) {
      case 0x80: take(1); return true;                         // PROTO
      case '(': marks_.push_back(stack_.size()); return true;  // MARK
      case '0': pop(); return true;                            // POP
      case 'N': push(make(Kind::kNone)); return true;          // NONE
      case 0x88: push_integer(1, Kind::kBool); return true;    // NEWTRUE
      case 0x89: push_integer(0, Kind::kBool); return true;    // NEWFALSE
      case 'K': push_integer(static_cast<int64_t>(number(1))); return true;
      case 'M': push_integer(static_cast<int64_t>(number(2))); return true;
      case 'J': push_integer(static_cast<int32_t>(number(4))); return true;
      case 0x8a: long_integer(); return true;
      case 'G': big_float(); return true;
      case 'X': push_text(Kind::kString, std::string(take(number(4)))); return true;  // BINUNICODE
      case ')': push_items(Kind::kTuple, {}); return true;
      case ']': push_items(Kind::kList, {}); return true;
      case '}': push_items(Kind::kDict, {}); return true;
      case 't': push_items(Kind::kTuple, pop_to_mark()); return true;
      case 0x85:
      case 0x86:
      case 0x87: push_items(Kind::kTuple, pop_some(op - 0x84)); return true;
      case 'a': append(pop_some(1), Kind::kList); return true;
      case 'e': append(pop_to_mark(), Kind::kList); return true;
      case 's': append(pop_some(2), Kind::kDict); return true;
      case 'u': append(pop_to_mark(), Kind::kDict); return true;
      case 'q': memo_[number(1)] = top(); return true;  // BINPUT
      case 'r': memo_[number(4)] = top(); return true;
      case 'h': recall(number(1)); return true;
      case 'j': recall(number(4)); return true;
      default: return false;
    }
  }
  std::vector<Ref> pop_some(size_t count) {
    std::vector<Ref> items(count);
    for (size_t i = count; i-- > 0;) items[i] = pop();
    return items;
  }
  void long_integer() {
    const size_t width = number(1);
    if (width > 8) unsupported("an integer of more than 64 bits");
    uint64_t value = number(width);
    if (width && width < 8 && value >> (8 * width - 1)) value |= ~uint64_t{0} << (8 * width);
    push_integer(static_cast<int64_t>(value));
  }
  void big_float() {
    const std::string_view raw = take(8);
    uint64_t bits = 0;
    for (char ch : raw) bits = bits << 8 | static_cast<unsigned char>(ch);
    Ref out = make(Kind::kFloat);
    out->number = std::bit_cast<double>(bits);
    push(std::move(out));
  }

  std::string_view bytes_;
  const int deepest_;
  size_t at_ = 0, op_at_ = 0;
  std::vector<Ref> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, Ref> memo_;
};

}  // namespace stridec::frontend
