#include "compiler/frontend/torchscript/pickle.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/frontend/torchscript/element_type.h"

namespace stridec::torchscript {
namespace {

using Kind = Item::Kind;

constexpr int kDeepest = 200;
constexpr const char* kOfProgram = "__torch__.";

// Pickle protocol 2 (PEP 307): a stack machine. Objects are built bottom up, and the memo shares them.
class Machine {
 public:
  Machine(std::string_view bytes, const std::string& what) : bytes_(bytes), what_(what) {}

  ItemRef run() {
    while (true) {
      op_at_ = at_;
      const auto op = static_cast<unsigned char>(take(1)[0]);
      if (op == '.') {
        if (stack_.size() != 1 || !marks_.empty()) bad("ends with other than one value");
        return stack_[0];
      }
      if (!step(op)) unsupported(cat("opcode ", static_cast<int>(op), " at byte ", op_at_));
    }
  }

 private:
  [[noreturn]] void bad(const std::string& what) const {
    fail(ErrorKind::kMalformed, "bad-archive", cat(what_, " ", what, " (byte ", op_at_, ")"),
         "save the module again with torch.jit.save");
  }
  [[noreturn]] void unsupported(const std::string& what) const {
    fail(ErrorKind::kUnsupported, "pickled-object",
         cat(what_, " has ", what, ", which TorchScript does not write"),
         "save the module again with torch.jit.save");
  }

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

  ItemRef make(Kind kind) {
    auto out = std::make_shared<Item>();
    out->kind = kind;
    return out;
  }
  void push(ItemRef item) { stack_.push_back(std::move(item)); }
  void push_integer(int64_t value, Kind kind = Kind::kInt) {
    ItemRef out = make(kind);
    out->integer = value;
    push(std::move(out));
  }
  void push_text(Kind kind, std::string text) {
    ItemRef out = make(kind);
    out->text = std::move(text);
    push(std::move(out));
  }
  void expect_value() const {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) bad("takes a value that it does not have");
  }
  ItemRef pop() {
    expect_value();
    ItemRef out = std::move(stack_.back());
    stack_.pop_back();
    return out;
  }
  Item& top() {
    expect_value();
    return *stack_.back();
  }
  std::vector<ItemRef> pop_to_mark() {
    if (marks_.empty()) bad("takes a mark that it does not have");
    const auto from = stack_.begin() + static_cast<ptrdiff_t>(marks_.back());
    std::vector<ItemRef> out(std::make_move_iterator(from), std::make_move_iterator(stack_.end()));
    stack_.erase(from, stack_.end());
    marks_.pop_back();
    return out;
  }
  // An item is complete before it is placed in another, so no item contains itself.
  void place(Item& in, const std::vector<ItemRef>& items) const {
    if (in.placed) bad("changes a value that another contains");
    for (const ItemRef& item : items) {
      if (item.get() == &in) bad("has a value that contains itself");
      item->placed = true;
      in.depth = std::max(in.depth, item->depth + 1);
    }
    if (in.depth > kDeepest) bad(cat("is nested deeper than ", kDeepest, " levels"));
  }
  void push_items(Kind kind, std::vector<ItemRef> items) {
    ItemRef out = make(kind);
    place(*out, items);
    out->items = std::move(items);
    push(std::move(out));
  }
  void append(std::vector<ItemRef> items, Kind kind) {
    Item& to = top();
    if (to.kind != kind) bad("adds items to what is no container");
    place(to, items);
    to.items.insert(to.items.end(), std::make_move_iterator(items.begin()),
                    std::make_move_iterator(items.end()));
    if (kind == Kind::kDict && to.items.size() % 2) bad("has a key without a value");
  }
  void remember(uint64_t at) {
    expect_value();
    memo_[at] = stack_.back();
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
      case '2':
        expect_value();
        push(stack_.back());
        return true;  // DUP
      case 'N': push(make(Kind::kNone)); return true;
      case 0x88: push_integer(1, Kind::kBool); return true;
      case 0x89: push_integer(0, Kind::kBool); return true;
      case 'K': push_integer(static_cast<int64_t>(number(1))); return true;
      case 'M': push_integer(static_cast<int64_t>(number(2))); return true;
      case 'J': push_integer(static_cast<int32_t>(number(4))); return true;
      case 0x8a: long_integer(); return true;
      case 'G': big_float(); return true;
      case 'X': push_text(Kind::kString, std::string(take(number(4)))); return true;  // BINUNICODE
      case 'c': global(); return true;
      case ')': push_items(Kind::kTuple, {}); return true;
      case ']': push_items(Kind::kList, {}); return true;
      case '}': push_items(Kind::kDict, {}); return true;
      case 't': push_items(Kind::kTuple, pop_to_mark()); return true;
      case 'l': push_items(Kind::kList, pop_to_mark()); return true;
      case 0x85:
      case 0x86:
      case 0x87: short_tuple(op - 0x84); return true;
      case 'a': append_one(); return true;
      case 'e': append(pop_to_mark(), Kind::kList); return true;
      case 's': set_one(); return true;
      case 'u': append(pop_to_mark(), Kind::kDict); return true;
      case 'q': remember(number(1)); return true;
      case 'r': remember(number(4)); return true;
      case 'h': recall(number(1)); return true;
      case 'j': recall(number(4)); return true;
      case 'Q': persistent(); return true;
      case 'R': reduce(); return true;
      case 0x81: new_object(); return true;
      case 'b': build(); return true;
      default: return false;
    }
  }
  void global() {
    const std::string_view module = line(), name = line();
    push_text(Kind::kName, module.starts_with("__torch__") ? cat(module, ".", name) : cat(module, " ", name));
  }
  void short_tuple(int count) {
    std::vector<ItemRef> items(static_cast<size_t>(count));
    for (size_t i = items.size(); i-- > 0;) items[i] = pop();
    push_items(Kind::kTuple, std::move(items));
  }
  void append_one() {
    ItemRef item = pop();
    append({std::move(item)}, Kind::kList);
  }
  void set_one() {
    ItemRef value = pop(), key = pop();
    append({std::move(key), std::move(value)}, Kind::kDict);
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
    ItemRef out = make(Kind::kFloat);
    out->number = std::bit_cast<double>(bits);
    push(std::move(out));
  }

  // ('storage', type, name, device, elements)
  void persistent() {
    const ItemRef id = pop();
    const bool storage = id->kind == Kind::kTuple && id->items.size() == 5 &&
                         id->items[0]->text == "storage" && id->items[1]->kind == Kind::kName &&
                         id->items[2]->kind == Kind::kString;
    if (!storage) unsupported("a reference that is no storage");
    const std::string& type = id->items[1]->text;
    const auto number = storage_element_type(std::string_view(type).substr(type.find(' ') + 1));
    if (!number || !type.starts_with("torch ")) unsupported(cat("a storage of type ", type));
    ItemRef out = make(Kind::kStorage);
    out->text = id->items[2]->text;
    out->integer = *number;
    push(std::move(out));
  }

  void new_object() {
    const ItemRef arguments = pop(), type = pop();
    if (type->kind != Kind::kName || !type->text.starts_with(kOfProgram))
      unsupported(cat("an object of ", type->kind == Kind::kName ? type->text : "no class"));
    if (arguments->kind != Kind::kTuple) bad("makes an object without arguments");
    ItemRef out = make(arguments->items.empty() ? Kind::kObject : Kind::kCall);
    out->text = type->text;
    place(*out, arguments->items);
    out->items = arguments->items;
    push(std::move(out));
  }
  void build() {
    ItemRef state = pop();
    Item& to = top();
    if (to.kind != Kind::kObject || !to.items.empty()) bad("sets the state of what is no new object");
    place(to, {state});
    to.items = {std::move(state)};
  }

  void reduce() {
    const ItemRef args = pop(), f = pop();
    if (f->kind != Kind::kName) bad("calls what is no function");
    // The value of an enum stands by itself.
    const bool one = args->kind != Kind::kTuple && f->text.starts_with(kOfProgram);
    if (args->kind != Kind::kTuple && !one) bad("calls what is no function");
    push(called(f->text, one ? std::vector{args} : args->items));
  }
  ItemRef called(const std::string& f, const std::vector<ItemRef>& a) {
    if (f == "collections OrderedDict" && a.empty()) return make(Kind::kDict);
    if (f == "torch._utils _rebuild_parameter" && !a.empty()) return a[0];
    if (f == "torch._utils _rebuild_tensor_v2") return tensor(a, false);
    if (f == "torch._utils _rebuild_qtensor") return tensor(a, true);
    if (f == "torch.jit._pickle restore_type_tag" && !a.empty()) return a[0];
    if (f.starts_with("torch.jit._pickle build_") && a.size() == 1) return a[0];
    if (f == "torch device" && !a.empty()) {
      ItemRef out = make(Kind::kDevice);
      out->text = a[0]->text;
      return out;
    }
    if (!f.starts_with(kOfProgram)) unsupported(cat("a call of ", f));
    ItemRef out = make(Kind::kCall);
    out->text = f;
    place(*out, a);
    out->items = a;
    return out;
  }

  std::vector<int64_t> integers(const ItemRef& tuple) const {
    std::vector<int64_t> out;
    for (const ItemRef& item : tuple->items) {
      if (item->kind != Kind::kInt) bad("has a tensor whose sizes are no integers");
      out.push_back(item->integer);
    }
    return out;
  }
  // (storage, offset, sizes, strides, requires_grad, hooks); of a quantised one the quantizer after strides.
  ItemRef tensor(const std::vector<ItemRef>& a, bool quantized) {
    const bool good = a.size() >= 5 && a[0]->kind == Kind::kStorage && a[1]->kind == Kind::kInt &&
                      a[2]->kind == Kind::kTuple && a[3]->kind == Kind::kTuple &&
                      a[2]->items.size() == a[3]->items.size();
    if (!good) bad("has a tensor of another form than TorchScript's");
    ItemRef out = make(Kind::kTensor);
    out->tensor = {.element_type = a[0]->integer,
                   .storage = a[0]->text,
                   .offset = a[1]->integer,
                   .sizes = integers(a[2]),
                   .strides = integers(a[3]),
                   .quantized = quantized,
                   .quantizer = quantized ? a[4] : nullptr};
    return out;
  }

  std::string_view bytes_;
  const std::string& what_;
  size_t at_ = 0, op_at_ = 0;
  std::vector<ItemRef> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, ItemRef> memo_;
};

}  // namespace

ItemRef read_pickle(std::string_view bytes, const std::string& what) { return Machine(bytes, what).run(); }

}  // namespace stridec::torchscript
