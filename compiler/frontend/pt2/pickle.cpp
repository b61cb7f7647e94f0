#include "compiler/frontend/pt2/pickle.h"

#include <cstring>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/frontend/pickle/machine.h"
#include "compiler/frontend/pt2/json.h"
#include "compiler/frontend/pt2/scalar_type.h"

namespace stridec::pt2 {
namespace {

using Kind = Item::Kind;

constexpr int kDeepest = 100;
constexpr size_t kMostItems = 20'000'000;

class Machine final : public frontend::PickleMachine<Item> {
 public:
  explicit Machine(std::string_view bytes) : PickleMachine(bytes, kDeepest) {}

 private:
  [[noreturn]] void bad(const std::string& what) const override {
    malformed("a pickle of the archive " + what);
  }
  [[noreturn]] void unsupported(const std::string& what) const override {
    fail(ErrorKind::kUnsupported, "pickled-object", cat("a pickle of the archive has ", what),
         "save the program again with torch.export.save of PyTorch 2.9 or later");
  }
  void count_step() override {
    if (++steps_ > kMostItems) bad("is too long");
  }
  // Objects of unknown classes keep nothing.
  bool keeps_nothing(const Item& item) const override { return item.kind == Kind::kOther; }

  bool own_step(unsigned char op) override {
    switch (op) {
      case 'c': {  // GLOBAL
        const std::string_view module = line(), name = line();
        push_text(Kind::kOther, cat(module, " ", name));
        return true;
      }
      case 'Q': persistent(); return true;
      case 'R': reduce(); return true;
      case 'b': pop(); return true;   // BUILD: attributes of an object say nothing here
      case 0x81: pop(); return true;  // NEWOBJ: the class stands for its object
      default: return false;
    }
  }

  // ('storage', type, name, device, elements)
  void persistent() {
    const Ref id = pop();
    const bool storage = id->kind == Kind::kTuple && id->items.size() == 5 &&
                         id->items[0]->text == "storage" && id->items[1]->kind == Kind::kOther &&
                         id->items[2]->kind == Kind::kString;
    if (!storage) unsupported("a reference that is not a storage");
    Ref out = make(Kind::kOther);
    out->text = "storage";
    out->items = {id->items[1], id->items[2]};
    push(std::move(out));
  }

  void reduce() {
    const Ref args = pop(), f = pop();
    push(called(f, args));
  }
  Ref called(const Ref& f, const Ref& args) {
    if (args->kind != Kind::kTuple || f->kind != Kind::kOther) bad("calls something that is not a function");
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

  std::vector<Size> sizes(const Ref& tuple) const {
    std::vector<Size> out;
    for (const Ref& item : tuple->items) {
      if (item->kind != Kind::kInt) bad("has a tensor whose sizes are not integers");
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

  size_t steps_ = 0;
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
