// Reads files of --ops. A declaration with variadic tensors is parsed once for each number of tensors.
#include "compiler/base/diagnostic.h"
#include "compiler/base/files.h"
#include "compiler/base/sha256.h"
#include "compiler/base/text.h"
#include "compiler/extend/json_place.h"
#include "compiler/extend/parse_operator.h"
#include "compiler/extend/user_operator.h"
#include "compiler/extend/variadic.h"

namespace stridec::extend {
namespace {

using Json = JsonPlace::Json;

UserOperator read_operator(const JsonPlace& at, const std::string& path) {
  const bool input = is_variadic(at, "inputs"), output = is_variadic(at, "outputs");
  if (!input && !output) return parse_operator(at);
  const auto json = std::make_shared<const Json>(at.value());
  const auto instance = [json, path, pointer = at.pointer()](size_t inputs, size_t outputs) {
    const Json own = expanded(JsonPlace(*json, path, pointer), {.inputs = inputs, .outputs = outputs});
    return parse_operator(JsonPlace(own, path, pointer));
  };
  instance(1, 1);  // reports errors of the smallest instance
  UserOperator made = instance(2, 2);
  made.variadic =
      std::make_shared<const Variadic>(Variadic{.input = input,
                                                .output = output,
                                                .inputs = at.at("inputs").value().size() - input,
                                                .outputs = at.at("outputs").value().size() - output,
                                                .instance = instance});
  return made;
}

}  // namespace

UserOperator instance_of(const UserOperator& op, size_t inputs, size_t outputs) {
  if (!op.variadic) return op;
  const Variadic& all = *op.variadic;
  const auto count = [&](bool many, size_t given, size_t others, const char* what) -> size_t {
    if (!many) return 1;
    if (given <= others)
      fail(ErrorKind::kDoesNotFit, "does-not-fit",
           cat(op.name, ": the model's node has ", given, " ", what, ", but the operator takes ", others + 1,
               " or more"));
    return given - others;
  };
  return all.instance(count(all.input, inputs, all.inputs, "inputs"),
                      count(all.output, outputs, all.outputs, "outputs"));
}

OperatorFile parse_operators(const std::string& text, const std::string& path) {
  const Json json = parse_json(text, path);
  const JsonPlace root(json, path, "");
  root.allow({"name", "version", "description", "operators"});
  OperatorFile file{.path = path, .name = path, .sha256 = sha256(text.data(), text.size())};
  if (const auto name = root.find("name")) file.name = name->text();
  if (const auto version = root.find("version")) file.version = static_cast<int>(version->integer());
  for (const JsonPlace& each : root.at("operators").items()) {
    file.operators.push_back(read_operator(each, path));
    for (size_t i = 0; i + 1 < file.operators.size(); ++i)
      if (file.operators[i].name == file.operators.back().name)
        each.fail(cat("operator ", file.operators.back().name, " is declared twice"));
  }
  return file;
}

OperatorFile read_operators(const std::string& path) { return parse_operators(read_file(path), path); }

}  // namespace stridec::extend
