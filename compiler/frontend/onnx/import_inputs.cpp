#include "compiler/frontend/onnx/import_inputs.h"

#include <optional>
#include <utility>

#include "compiler/base/text.h"
#include "compiler/frontend/onnx/input_symbols.h"
#include "compiler/frontend/onnx/schema.h"
#include "compiler/frontend/onnx/strings.h"
#include "compiler/ops/fixed_input.h"

namespace stridec::onnx {
namespace {

class InputImporter {
 public:
  InputImporter(const Model& model, const ImportOptions& options, Builder& builder,
                std::vector<Diagnostic>& problems, Slots& slots)
      : model_(model), options_(options), builder_(builder), problems_(problems), slots_(slots) {}

  void run() {
    InputSymbols symbols(model_.graph, options_);
    std::vector<std::pair<std::string, std::optional<Input>>> inputs;
    for (const ValueInfo& v : model_.graph.inputs) {
      if (auto given = options_.constants.find(v.name); given != options_.constants.end()) {
        if (given->second.elem_type != v.type.elem_type)
          fail(ErrorKind::kUsage, "constant-type",
               cat("input '", v.name, "' is ", elem_type_name(v.type.elem_type), ", but its constant is ",
                   elem_type_name(given->second.elem_type)));
        Slot& slot = slots_[v.name];
        slot.kind = Slot::Kind::kInitializer;
        slot.initializer = &given->second;
        continue;
      }
      inputs.emplace_back(v.name, input_of(v, symbols));
    }
    symbols.sizes().check_used(options_.absent);
    symbols.sizes().set_ranges(builder_.facts());
    for (auto& [name, input] : inputs) slots_[name] = input ? add_input(*input) : Slot();
    for (const auto& [name, values] : options_.input_values) fix_input(name, values);
  }

 private:
  void fix_input(const std::string& name, const std::vector<int64_t>& values) {
    const auto found = slots_.find(name);
    const bool absent = found == slots_.end() || found->second.kind == Slot::Kind::kInitializer;
    if (absent && options_.absent) {
      options_.absent->insert(cat("--input-value ", name));
      return;
    }
    if (absent)
      fail(ErrorKind::kUsage, "bad-input-value", cat("the model has no input '", name, "'"),
           cat("its inputs are ",
               join(model_.graph.inputs, ", ", [](const ValueInfo& input) { return input.name; })));
    Slot& slot = found->second;
    if (slot.kind == Slot::Kind::kFailed) return;
    const bool tensor = slot.kind == Slot::Kind::kTensor;
    slot = ops::fixed_input(builder_, name,
                            tensor ? std::optional(Term(builder_, slot.tensor)) : std::nullopt, values);
  }

  static constexpr int64_t kMaxItems = 4096;

  // An input of the model, as one or more inputs of the artifact.
  struct Input {
    Slot::Kind kind = Slot::Kind::kTensor;
    std::string name;
    graph::Type type;          // tensors and strings
    std::vector<Input> items;  // of a sequence; of a map: keys and values
  };

  Slot add_input(Input& input) {
    if (input.kind == Slot::Kind::kEmptyOptional) return Slot::empty_optional();
    if (input.kind == Slot::Kind::kMap) {
      Slot keys = add_input(input.items.at(0)), values = add_input(input.items.at(1));
      return Slot::map(std::move(keys), std::move(values));
    }
    if (input.kind == Slot::Kind::kSequence) {
      std::vector<Slot> items;
      for (Input& item : input.items) items.push_back(add_input(item));
      return Slot::sequence(std::move(items));
    }
    try {
      const Term term(builder_, builder_.input(input.name, std::move(input.type)));
      return input.kind == Slot::Kind::kStrings ? Slot(from_bytes(term)) : Slot(term);
    } catch (Error& e) {
      e.diagnostic.where = {.file = model_.file, .tensor = "input '" + input.name + "'"};
      throw;
    }
  }

  std::optional<Input> input_of(const ValueInfo& v, InputSymbols& symbols) {
    const auto problem = [&](std::string code, std::string message, std::string help) {
      problems_.push_back({.kind = ErrorKind::kUnsupported,
                           .code = std::move(code),
                           .message = std::move(message),
                           .where = {.file = model_.file, .tensor = "input '" + v.name + "'"},
                           .help = std::move(help)});
      return std::nullopt;
    };
    const auto tensor = [&](const std::string& name, const Type& type,
                            const std::vector<Dim>* given) -> std::optional<Input> {
      if (type.kind != Type::Kind::kTensor)
        return problem("unsupported-type", "inputs of type " + type_name(v.type) + " are not supported",
                       "tensors, maps, optionals, and sequences of tensors can be inputs");
      const bool strings = type.elem_type == kElemString;
      const auto dtype = strings ? DType::kU8 : dtype_from_onnx(type.elem_type);
      if (!dtype)
        return problem("unsupported-dtype",
                       "element type " + elem_type_name(type.elem_type) + " is not supported", "");
      if (!given && type.shape) given = &*type.shape;
      std::vector<Dim> unnamed;
      if (!given)
        if (const auto rank = symbols.given(v.name + ".rank"); rank && *rank <= 64) {
          unnamed.resize(static_cast<size_t>(*rank));
          given = &unnamed;
        }
      if (!given)
        return problem(
            "unknown-rank", "the model does not say how many dims the input has",
            cat("export the model with the shapes of its inputs, or say it: --dim ", v.name, ".rank=2"));
      Input out{
          .kind = strings ? Slot::Kind::kStrings : Slot::Kind::kTensor, .name = name, .type = {*dtype, {}}};
      for (size_t i = 0; i < given->size(); ++i) out.type.shape.push_back(symbols.dim(name, i, (*given)[i]));
      if (strings) out.type.shape.push_back(symbols.dim(name, 0, {.value = {}, .param = name + ".bytes"}));
      return out;
    };
    if (v.type.kind == Type::Kind::kMap && !v.type.element.empty()) {
      const std::vector<Dim> entries{{.value = {}, .param = v.name + ".size"}};
      auto keys =
          tensor(v.name + ".keys", {.kind = Type::Kind::kTensor, .elem_type = v.type.elem_type}, &entries);
      auto values = tensor(v.name + ".values", v.type.element[0], &entries);
      if (!keys || !values) return std::nullopt;
      return Input{.kind = Slot::Kind::kMap, .name = v.name, .items = {std::move(*keys), std::move(*values)}};
    }
    const auto found = options_.items.find(v.name);
    InputItems counted;
    const InputItems* items = found == options_.items.end() ? nullptr : &found->second;
    if (!items && v.type.kind != Type::Kind::kTensor)
      if (const auto length = symbols.given(v.name); length && *length <= kMaxItems) {
        const bool sequence = v.type.kind == Type::Kind::kSequence ||
                              (!v.type.element.empty() && v.type.element[0].kind == Type::Kind::kSequence);
        counted.present = sequence || *length > 0;
        counted.shapes.resize(static_cast<size_t>(*length));
        items = &counted;
      }
    const Type* type = &v.type;
    if (type->kind == Type::Kind::kOptional && !type->element.empty()) {
      if (items && !items->present) return Input{.kind = Slot::Kind::kEmptyOptional};
      type = &type->element[0];
    }
    const auto shape = [&](size_t i) {
      return items && i < items->shapes.size() && items->shapes[i] ? &*items->shapes[i] : nullptr;
    };
    if (type->kind != Type::Kind::kSequence || type->element.empty()) {
      if (type != &v.type && !items)
        return problem("optional-input", "whether the optional input is there must be known at compile time",
                       cat("say it: --dim ", v.name, "=1, or --dim ", v.name, "=0"));
      return tensor(v.name, *type, shape(0));
    }
    if (!items)
      return problem("sequence-length", "the number of tensors in the sequence must be known at compile time",
                     cat("say it: --dim ", v.name, "=3"));
    Input out{.kind = Slot::Kind::kSequence, .name = v.name};
    for (size_t i = 0; i < items->shapes.size(); ++i) {
      auto item = tensor(cat(v.name, "[", i, "]"), type->element[0], shape(i));
      if (!item) return std::nullopt;
      out.items.push_back(std::move(*item));
    }
    return out;
  }

  const Model& model_;
  const ImportOptions& options_;
  Builder& builder_;
  std::vector<Diagnostic>& problems_;
  Slots& slots_;
};

}  // namespace

void import_inputs(const Model& model, const ImportOptions& options, Builder& builder,
                   std::vector<Diagnostic>& problems, Slots& slots) {
  InputImporter(model, options, builder, problems, slots).run();
}

}  // namespace stridec::onnx
