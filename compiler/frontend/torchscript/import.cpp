#include "compiler/frontend/torchscript/import.h"

#include <algorithm>
#include <cstring>

#include "compiler/base/number.h"
#include "compiler/base/text.h"
#include "compiler/frontend/aten/context.h"
#include "compiler/frontend/torchscript/builtins.h"
#include "compiler/frontend/torchscript/convert.h"
#include "compiler/frontend/torchscript/evaluator.h"
#include "compiler/frontend/torchscript/inputs.h"
#include "compiler/graph/guards.h"
#include "compiler/ops/op_table.h"

namespace stridec::torchscript {
namespace {

using VK = Value::Kind;

// What the program writes, which a pass finds and the next one makes states of.
struct Written {
  std::set<std::string> storages;
  std::map<std::string, Evaluator::Left> attributes;
};

// One run of forward(), or of the method chosen.
class Pass {
 public:
  Pass(const Archive& archive, Library& library, const ImportOptions& options, const Written& states,
       Imported& out)
      : archive_(archive),
        options_(options),
        out_(out),
        b_(out.graph, ops::shape_table()),
        weights_(archive, b_, states.storages),
        evaluator_(b_, archive, library, weights_, call_builtin) {
    b_.set_replaceable(options.replaceable);
    evaluator_.version = archive.version;
    evaluator_.operators = options.operators;
    evaluator_.attribute_states = states.attributes;
  }

  // What was written without being a state.
  Written run() {
    const Value module = evaluator_.from_pickle(archive_.module, "");
    if (!module.is(VK::kObject) || !module.object->type)
      fail(ErrorKind::kMalformed, "bad-archive", "the archive's top object is not a module");
    const auto& methods = module.object->type->methods;
    const auto method = methods.find(options_.method);
    const bool chosen = options_.method != "forward";
    if (method == methods.end())
      fail(chosen ? ErrorKind::kUsage : ErrorKind::kUnsupported, chosen ? "no-method" : "no-forward",
           cat("the module has no method ", options_.method, "() but ", names_of(methods)),
           "--method NAME compiles another one");
    Inputs inputs(evaluator_, options_, archive_);
    Arguments arguments = inputs.make(method->second);
    if (options_.torch_random) ops::add_torch_generator(b_, *options_.torch_random);
    const sym::Facts given = out_.graph.facts;
    Value result;
    try {
      result = evaluator_.call_from_states(module, options_.method, arguments);
    } catch (const Raised& raised) {
      problem(ErrorKind::kDoesNotFit, "raised",
              cat("with these inputs the program raises: ", unmarked(raised.message)),
              "the shapes and values of --shape and --input-value are those that the program refuses");
    }
    std::ranges::move(evaluator_.problems, std::back_inserter(out_.problems));
    out_.unknown = std::move(evaluator_.unknown);
    Written written{.storages = weights_.written(), .attributes = {}};
    if (out_.problems.empty()) written.attributes = evaluator_.changed_attributes();
    if (!written.storages.empty() || !written.attributes.empty()) return written;
    if (out_.problems.empty()) {
      add_output("", result);
      add_updated(inputs);
      weights_.update_states();
      aten::keep_generator(b_);
      evaluator_.update_attribute_states();
      graph::drop_implied_guards(out_.graph, given);
    }
    return {};
  }
  size_t operators() const { return evaluator_.calls; }
  uint64_t weight_bytes() const { return weights_.bytes(); }

 private:
  static std::string names_of(const std::map<std::string, Function>& methods) {
    if (methods.empty()) return "none at all";
    return join(methods, ", ", [](const auto& method) { return method.first; });
  }
  void problem(ErrorKind kind, std::string code, std::string message, std::string help) {
    out_.problems.push_back({.kind = kind,
                             .code = std::move(code),
                             .message = std::move(message),
                             .where = {},
                             .notes = {},
                             .help = std::move(help)});
  }

  // ---- outputs
  static std::string joined(const std::string& path, const std::string& name) {
    return path.empty() ? name : cat(path, ".", name);
  }
  void add_output(const std::string& path, const Value& value) {
    if (value.is(VK::kStored)) return add_output(path, evaluator_.loaded(value));
    expect_known(value);
    if (value.sequence && value.sequence->rows) {
      problem(ErrorKind::kUnsupported, "unsupported-output",
              "the program returns a list whose length only the run knows", "return torch.stack() of it");
    } else if (value.sequence && !value.is(VK::kEnum)) {
      for (size_t i = 0; i < value.items().size(); ++i) {
        const bool named = value.type && i < value.type->attributes.size();
        add_output(joined(path, named ? value.type->attributes[i].first : std::to_string(i)),
                   value.items()[i]);
      }
    } else if (value.dict) {
      for (const auto& [key, item] : value.dict->items) add_output(joined(path, printed(key)), item);
    } else if (value.is(VK::kTensor) || value.is_number()) {
      add_leaf(path.empty() ? "output" : path, value);
    } else if (!value.is_none() && !value.is(VK::kString)) {
      problem(ErrorKind::kUnsupported, "unsupported-output", cat("the program returns ", kind_name(value)),
              "return tensors, numbers, and tuples, lists and dicts of them");
    }
  }
  void add_leaf(std::string name, const Value& value) {
    // Python's floats are doubles.
    const bool real = value.is(VK::kFloat) || value.is_run_float();
    const aten::Value own = to_aten(b_, value);
    const ops::Term output = real ? aten::scalar_of(b_, own, DType::kF64) : aten::as_term(b_, own);
    aten::add_output(b_, std::move(name), output, value.is(VK::kTensor) && value.tensor.complex,
                     out_.warnings);
  }
  void add_updated(const Inputs& inputs) {
    for (const Inputs::Input& input : inputs.tensors())
      if (input.tensor.storage->base != input.initial || input.tensor.storage->stale)
        add_leaf(input.name + ".updated", Value(input.tensor));
  }

  const Archive& archive_;
  const ImportOptions& options_;
  Imported& out_;
  graph::Builder b_;
  Weights weights_;
  Evaluator evaluator_;
};

}  // namespace

bool is_module(const graph::Data& file) { return is_of_pytorch(file); }

Imported import_module(const std::string& path, const graph::Data& file, const ImportOptions& options) {
  const Archive archive = read_archive(file);
  Library library(archive);
  Written states;
  while (true) {
    Imported out;
    Pass pass(archive, library, options, states, out);
    Written written = pass.run();
    if (written.storages.empty() && written.attributes.empty()) {
      for (auto* list : {&out.problems, &out.warnings})
        for (Diagnostic& d : *list)
          if (d.where.file.empty()) d.where.file = path;
      out.graph.name = archive.root.empty() ? "model" : archive.root.substr(0, archive.root.size() - 1);
      out.summary =
          cat("TorchScript, ", pass.operators(), " operators, weights ", human_bytes(pass.weight_bytes()));
      return out;
    }
    states.storages.merge(written.storages);
    states.attributes.merge(written.attributes);
  }
}

}  // namespace stridec::torchscript
