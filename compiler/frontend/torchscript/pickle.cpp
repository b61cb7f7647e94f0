#include "compiler/frontend/torchscript/pickle.h"

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/frontend/pickle/machine.h"
#include "compiler/frontend/torchscript/element_type.h"

namespace stridec::torchscript {
namespace {

using Kind = Item::Kind;

constexpr int kDeepest = 200;
constexpr const char* kOfProgram = "__torch__.";

class Machine final : public frontend::PickleMachine<Item> {
 public:
  Machine(std::string_view bytes, const std::string& what) : PickleMachine(bytes, kDeepest), what_(what) {}

 private:
  [[noreturn]] void bad(const std::string& what) const override {
    fail(ErrorKind::kMalformed, "bad-archive", cat(what_, " ", what, " (byte ", op_at(), ")"),
         "save the module again with torch.jit.save");
  }
  [[noreturn]] void unsupported(const std::string& what) const override {
    fail(ErrorKind::kUnsupported, "pickled-object",
         cat(what_, " has ", what, ", which TorchScript does not write"),
         "save the module again with torch.jit.save");
  }

  bool own_step(unsigned char op) override {
    switch (op) {
      case '2': push(ItemRef(top())); return true;                    // DUP
      case 'l': push_items(Kind::kList, pop_to_mark()); return true;  // LIST
      case 'c': global(); return true;
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

  // ('storage', type, name, device, elements)
  void persistent() {
    const ItemRef id = pop();
    const bool storage = id->kind == Kind::kTuple && id->items.size() == 5 &&
                         id->items[0]->text == "storage" && id->items[1]->kind == Kind::kName &&
                         id->items[2]->kind == Kind::kString;
    if (!storage) unsupported("a reference that is not a storage");
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
    Item& to = *top();
    if (to.kind != Kind::kObject || !to.items.empty())
      bad("sets the state of something that is not a new object");
    place(to, {state});
    to.items = {std::move(state)};
  }

  void reduce() {
    const ItemRef args = pop(), f = pop();
    if (f->kind != Kind::kName) bad("calls something that is not a function");
    // The value of an enum is stored by itself.
    const bool one = args->kind != Kind::kTuple && f->text.starts_with(kOfProgram);
    if (args->kind != Kind::kTuple && !one) bad("calls something that is not a function");
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
      if (item->kind != Kind::kInt) bad("has a tensor whose sizes are not integers");
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

  const std::string& what_;
};

}  // namespace

ItemRef read_pickle(std::string_view bytes, const std::string& what) { return Machine(bytes, what).run(); }

}  // namespace stridec::torchscript
