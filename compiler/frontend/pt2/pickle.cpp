#include "compiler/frontend/pt2/pickle.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_map>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/frontend/pt2/json.h"
#include "compiler/frontend/pt2/scalar_type.h"

namespace stridec::pt2 {
namespace {

using Kind = Item::Kind;
using Ref = std::shared_ptr<Item>;

constexpr int kDeepest = 100;
constexpr size_t kMostItems = 20'000'000;

// Pickle protocol 2 (PEP 307): a stack machine. Objects are built bottom up, and the memo shares them.
class Machine {
 public:
  explicit Machine(std::string_view bytes) : bytes_(bytes) {}

  Ref run() {
    while (true) {
      const size_t at = at_;
      const auto op = static_cast<unsigned char>(take(1)[0]);
      if (op == '.') {
        if (stack_.size() != 1 || !marks_.empty()) bad("ends with other than one value");
        return stack_[0];
      }
      if (!step(op)) unsupported(cat("opcode ", static_cast<int>(op), " at byte ", at));
      if (++steps_ > kMostItems) bad("is too long");
    }
  }

 private:
  [[noreturn]] static void bad(const std::string& what) { malformed("a pickle of the archive " + what); }
  [[noreturn]] static void unsupported(const std::string& what) {
    fail(ErrorKind::kUnsupported, "pickled-object", cat("a pickle of the archive has ", what),
         "save the program again with torch.export.save of PyTorch 2.9 or later");
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

  void push(Ref item) { stack_.push_back(std::move(item)); }
  Ref make(Kind kind) {
    auto out = std::make_shared<Item>();
    out->kind = kind;
    return out;
  }
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
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) bad("takes a value that it does not have");
    Ref out = std::move(stack_.back());
    stack_.pop_back();
    return out;
  }
  std::vector<Ref> pop_to_mark() {
    if (marks_.empty()) bad("takes a mark that it does not have");
    const auto from = stack_.begin() + static_cast<ptrdiff_t>(marks_.back());
    std::vector<Ref> out(std::make_move_iterator(from), std::make_move_iterator(stack_.end()));
    stack_.erase(from, stack_.end());
    marks_.pop_back();
    return out;
  }
  Item& top() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) bad("takes a value that it does not have");
    return *stack_.back();
  }
  void push_items(Kind kind, std::vector<Ref> items) {
    Ref out = make(kind);
    place(*out, items);
    out->items = std::move(items);
    push(std::move(out));
  }
  // An item is complete before it is placed in another, so no item contains itself.
  static void place(Item& in, const std::vector<Ref>& items) {
    if (in.placed) bad("changes a value that another contains");
    for (const Ref& item : items) {
      if (item.get() == &in) bad("has a value that contains itself");
      item->placed = true;
      in.depth = std::max(in.depth, item->depth + 1);
    }
    if (in.depth > kDeepest) bad(cat("is nested deeper than ", kDeepest, " levels"));
  }
  void append(std::vector<Ref> items) {
    Item& to = top();
    if (to.kind == Kind::kOther) return;  // objects of unknown classes keep nothing
    place(to, items);
    if (to.kind != Kind::kList && to.kind != Kind::kDict) bad("adds items to what is no container");
    to.items.insert(to.items.end(), std::make_move_iterator(items.begin()),
                    std::make_move_iterator(items.end()));
    if (to.kind == Kind::kDict && to.items.size() % 2) bad("has a key without a value");
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
      case 0x8a: return long_integer();
      case 'G': return big_float();
      case 'X': push_text(Kind::kString, std::string(take(number(4)))); return true;  // BINUNICODE
      case 'c': {                                                                     // GLOBAL
        const std::string_view module = line(), name = line();
        push_text(Kind::kOther, cat(module, " ", name));
        return true;
      }
      case ')': push_items(Kind::kTuple, {}); return true;
      case ']': push_items(Kind::kList, {}); return true;
      case '}': push_items(Kind::kDict, {}); return true;
      case 't': push_items(Kind::kTuple, pop_to_mark()); return true;
      case 0x85:
      case 0x86:
      case 0x87: {
        std::vector<Ref> items(op - 0x84);
        for (size_t i = items.size(); i-- > 0;) items[i] = pop();
        push_items(Kind::kTuple, std::move(items));
        return true;
      }
      case 'a': return append_one();
      case 'e': append(pop_to_mark()); return true;
      case 's': return set_one();
      case 'u': append(pop_to_mark()); return true;
      case 'q': memo_[number(1)] = stack_.empty() ? nullptr : stack_.back(); return true;  // BINPUT
      case 'r': memo_[number(4)] = stack_.empty() ? nullptr : stack_.back(); return true;
      case 'h': return recall(number(1));
      case 'j': return recall(number(4));
      case 'Q': return persistent();
      case 'R': return reduce();
      case 'b': pop(); return true;  // BUILD: attributes of an object say nothing here
      case 0x81: {                   // NEWOBJ
        pop();
        return true;  // the class stands for its object
      }
      default: return false;
    }
  }
  bool append_one() {
    Ref item = pop();
    append({std::move(item)});
    return true;
  }
  bool set_one() {
    Ref value = pop(), key = pop();
    append({std::move(key), std::move(value)});
    return true;
  }
  bool recall(uint64_t at) {
    const auto found = memo_.find(at);
    if (found == memo_.end() || !found->second) bad("recalls what it has not stored");
    push(found->second);
    return true;
  }
  bool long_integer() {
    const size_t width = number(1);
    if (width > 8) unsupported("an integer of more than 64 bits");
    uint64_t value = number(width);
    if (width && width < 8 && value >> (8 * width - 1)) value |= ~uint64_t{0} << (8 * width);
    push_integer(static_cast<int64_t>(value));
    return true;
  }
  bool big_float() {
    const std::string_view raw = take(8);
    uint64_t bits = 0;
    for (char ch : raw) bits = bits << 8 | static_cast<unsigned char>(ch);
    Ref out = make(Kind::kFloat);
    out->number = std::bit_cast<double>(bits);
    push(std::move(out));
    return true;
  }

  // ('storage', type, name, device, elements)
  bool persistent() {
    const Ref id = pop();
    const bool storage = id->kind == Kind::kTuple && id->items.size() == 5 &&
                         id->items[0]->text == "storage" && id->items[1]->kind == Kind::kOther &&
                         id->items[2]->kind == Kind::kString;
    if (!storage) unsupported("a reference that is no storage");
    Ref out = make(Kind::kOther);
    out->text = "storage";
    out->items = {id->items[1], id->items[2]};
    push(std::move(out));
    return true;
  }

  bool reduce() {
    const Ref args = pop(), f = pop();
    push(called(f, args));
    return true;
  }
  Ref called(const Ref& f, const Ref& args) {
    if (args->kind != Kind::kTuple || f->kind != Kind::kOther) bad("calls what is no function");
    const std::vector<Ref>& a = args->items;
    if (f->text == "collections OrderedDict" && a.empty()) return make(Kind::kDict);
    if (f->text.starts_with("torch._utils _rebuild_parameter") && !a.empty()) return a[0];
    if (f->text == "torch._utils _rebuild_tensor_v2" || f->text == "torch._utils _rebuild_tensor_v3")
      return tensor(a, f->text.ends_with("v3"));
    // A tensor with attributes of its own: (function, type, arguments, attributes).
    const bool attributes = f->text == "torch._tensor _rebuild_from_type_v2" && a.size() == 4 &&
                            (a[1]->text == "torch Tensor" || a[1]->text == "torch.nn.parameter Parameter");
    if (attributes && a[0]->text != f->text) return called(a[0], a[2]);
    // Not needed for tensors: devices, dtypes, objects of the user's.
    Ref out = make(Kind::kOther);
    out->text = f->text;
    return out;
  }

  static int scalar_type(const std::string& storage) {
    struct Row {
      const char* storage;
      int type;
    };
    constexpr Row kRows[] = {{"ByteStorage", 1},  {"CharStorage", 2},           {"ShortStorage", 3},
                             {"IntStorage", 4},   {"LongStorage", 5},           {"HalfStorage", 6},
                             {"FloatStorage", 7}, {"DoubleStorage", 8},         {"ComplexFloatStorage", 10},
                             {"BoolStorage", 12}, {"ComplexDoubleStorage", 11}, {"BFloat16Storage", 13}};
    for (const Row& row : kRows)
      if (storage == cat("torch ", row.storage)) return row.type;
    return 0;
  }

  static std::vector<Size> sizes(const Ref& tuple) {
    std::vector<Size> out;
    for (const Ref& item : tuple->items) {
      if (item->kind != Kind::kInt) bad("has a tensor whose sizes are no integers");
      out.push_back({.value = item->integer, .text = {}});
    }
    return out;
  }

  // (storage, offset, sizes, strides, requires_grad, hooks), and of v3 the dtype.
  Ref tensor(const std::vector<Ref>& a, bool typed) {
    const bool good = a.size() >= (typed ? 7 : 5) && a[0]->text == "storage" && a[0]->items.size() == 2 &&
                      a[1]->kind == Kind::kInt && a[2]->kind == Kind::kTuple && a[3]->kind == Kind::kTuple;
    if (!good) bad("has a tensor of another form than torch.save's");
    Ref out = make(Kind::kTensor);
    out->text = a[0]->items[1]->text;
    std::string type = a[0]->items[0]->text;
    if (typed) type = a[6]->text;
    out->meta.scalar_type = typed ? scalar_type_of(type.substr(type.find(' ') + 1)) : scalar_type(type);
    if (out->meta.scalar_type == 0) unsupported(cat("a tensor of ", type));
    out->meta.sizes = sizes(a[2]);
    out->meta.strides = sizes(a[3]);
    out->meta.offset = {.value = a[1]->integer, .text = {}};
    return out;
  }

  std::string_view bytes_;
  size_t at_ = 0, steps_ = 0;
  std::vector<Ref> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, Ref> memo_;
};

std::string_view text_of(const ZipBytes& data) {
  return {reinterpret_cast<const char*>(data.bytes), data.size};
}

}  // namespace

std::shared_ptr<Item> read_pickle(std::string_view bytes) { return Machine(bytes).run(); }

Saved read_saved(ZipBytes file, const std::string& what) {
  Saved out{.zip = open_zip(std::move(file)), .root = {}, .value = {}};
  const ZipEntry* data = nullptr;
  for (const ZipEntry& entry : out.zip.entries)
    if (entry.name.ends_with("/data.pkl")) data = &entry;
  if (!data) malformed(cat(what, " has no data.pkl"));
  out.root = data->name.substr(0, data->name.size() - std::strlen("data.pkl"));
  if (const ZipEntry* order = find_entry(out.zip, out.root + "byteorder"))
    if (text_of(read_entry(out.zip, *order)).starts_with("big"))
      fail(ErrorKind::kUnsupported, "byte-order", cat(what, " is big-endian"));
  out.value = read_pickle(text_of(read_entry(out.zip, *data)));
  return out;
}

const ZipEntry* find_storage(const Saved& saved, const std::string& name) {
  return find_entry(saved.zip, saved.root + "data/" + name);
}

}  // namespace stridec::pt2
