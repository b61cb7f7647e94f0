#include "compiler/extend/kernel_file.h"

#include <algorithm>
#include <filesystem>

#include "compiler/base/diagnostic.h"
#include "compiler/base/files.h"
#include "compiler/base/sha256.h"
#include "compiler/base/target.h"
#include "compiler/base/text.h"
#include "compiler/extend/extensions.h"
#include "compiler/extend/json_place.h"
#include "compiler/extend/parse_operator.h"
#include "compiler/extend/run_reference.h"

namespace stridec::extend {
namespace {

using Json = JsonPlace::Json;

std::string lines_of(const JsonPlace& at) {
  return join(at.lines(), ";\n", [](const JsonPlace& line) { return line.text(); });
}

// The same as an operator whose reference is what it computes.
Json as_operator(const JsonPlace& at) {
  Json json = at.value();
  json["domain"] = "kernels";
  json["reference"] = {{"formula", at.at("computes").value()}};
  for (const char* member : {"relative", "absolute", "ulp", "assume"})
    if (const auto given = at.find(member)) json["reference"][member] = given->value();
  for (const char* member : {"computes", "where", "cpu", "relative", "absolute", "ulp", "assume"})
    json.erase(member);
  for (Json& input : json["inputs"])
    if (input.is_object()) input.erase("const");
  return json;
}

// The pattern knows dims by their names.
Dim dim_of(const DeclaredDim& declared, const JsonPlace& at) {
  if (declared.rest) return {.kind = Dim::Kind::kRest, .name = ""};
  if (declared.size.kind == Term::Kind::kName) return {.kind = Dim::Kind::kName, .name = declared.size.name};
  if (declared.size.kind == Term::Kind::kNumber)
    return {.kind = Dim::Kind::kSize, .name = "", .size = static_cast<int64_t>(declared.size.number)};
  at.fail("a dim of an input of a kernel must be a name, a number or '...'; write conditions in 'where'");
}

std::vector<Variable> variables_of(const UserOperator& op, const JsonPlace& inputs) {
  std::vector<Variable> out;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const DeclaredTensor& input = op.inputs[i];
    const JsonPlace at = inputs.items()[i];
    Variable variable{.name = input.name, .dtypes = types_of(op, input.type), .dtypes_text = input.type};
    if (const auto constant = at.find("const")) {
      if (!constant->value().is_boolean()) constant->fail("expected true or false");
      variable.constant = constant->value().get<bool>();
    }
    if (input.otherwise) at.fail("an input of a kernel cannot have a default");
    for (size_t d = 0; d < input.shape.size(); ++d)
      variable.dims.push_back(dim_of(input.shape[d], at.at("shape").items()[d]));
    if (!input.has_shape) variable.dims.push_back({.kind = Dim::Kind::kRest, .name = ""});
    out.push_back(std::move(variable));
  }
  return out;
}

// The definitions of outputs, in their order; the others are parts of theirs.
Side pattern_of(const UserOperator& op, const JsonPlace& computes) {
  Side side;
  std::vector<std::string> named;
  const auto is_output = [&](const std::string& name) {
    return std::ranges::count(op.outputs, name, &DeclaredTensor::name) > 0;
  };
  for (const Definition& each : op.reference->body.formula) {
    const bool result = std::ranges::any_of(each.names, is_output);
    if (result) named.insert(named.end(), each.names.begin(), each.names.end());
    (result ? side.results : side.locals).push_back(each);
  }
  if (!std::ranges::equal(named, op.outputs, {}, {}, &DeclaredTensor::name))
    computes.fail("the definitions must name the outputs in their order, and nothing else");
  for (const Definition& each : side.results)
    if (each.term.kind != Term::Kind::kCall) computes.fail("a result must be an operation");
  return side;
}

OwnKernel parse_kernel(const JsonPlace& at) {
  at.allow({"name", "description", "types", "inputs", "outputs", "attributes", "require", "body", "cost",
            "computes", "where", "cpu", "relative", "absolute", "ulp", "assume"});
  const JsonPlace computes = at.at("computes");
  if (!at.at("body").find("kernel")) at.at("body").fail("the body must be a kernel");
  if (!at.at("body").at("kernel").find("c"))
    at.at("body").at("kernel").fail("the kernel needs a text 'c', since it runs on CPUs");
  const Json json = as_operator(at);
  for (const char* member : {"relative", "absolute"})
    if (const auto given = at.find(member)) tolerance(*given);
  OwnKernel made{.op = parse_operator(JsonPlace(json, at.file(), at.pointer())),
                 .rule = {},
                 .path = at.file(),
                 .cpu = ""};
  made.op.name = made.op.name.substr(std::string_view("kernels::").size());
  made.rule.name = made.op.name;
  made.rule.variables = variables_of(made.op, at.at("inputs"));
  made.rule.match = pattern_of(made.op, computes);
  made.rule.text = lines_of(computes);
  if (const auto all = at.find("where"))
    for (const JsonPlace& each : all->items())
      made.rule.where.push_back(parse_expression(each.text(), each.place()));
  if (const auto cpu = at.find("cpu")) {
    made.cpu = cpu->text();
    const bool known = std::ranges::count(cpu_targets(), made.cpu, &CpuTarget::name) > 0;
    if (!known)
      cpu->fail(cat("'", made.cpu, "' is not one of ",
                    join(cpu_targets(), ", ", [](const CpuTarget& row) { return row.name; })));
  }
  return made;
}

}  // namespace

std::string_view name(KernelChoice::Kind kind) {
  static constexpr std::string_view kNames[] = {"chosen", "slower", "wrong", "failed", "untried"};
  return kNames[static_cast<size_t>(kind)];
}

KernelFile parse_kernels(const std::string& text, const std::string& path) {
  const Json json = parse_json(text, path);
  const JsonPlace root(json, path, "");
  root.allow({"name", "description", "kernels"});
  KernelFile file{.path = path, .name = path, .sha256 = sha256(text.data(), text.size())};
  if (const auto name = root.find("name")) file.name = name->text();
  for (const JsonPlace& each : root.at("kernels").items()) file.kernels.push_back(parse_kernel(each));
  return file;
}

KernelFile read_kernels(const std::string& path) { return parse_kernels(read_file(path), path); }

std::vector<std::string> kernel_files(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (entry.path().extension() == ".json") files.push_back(entry.path().string());
  if (error)
    fail(ErrorKind::kUnreadable, "no-folder", cat("'", folder, "' cannot be read: ", error.message()),
         "--kernels takes a folder with .json files");
  if (files.empty())
    fail(ErrorKind::kUsage, "no-kernels", cat("the folder '", folder, "' has no .json files"),
         "docs/operators.md says how a kernel is declared");
  std::ranges::sort(files);
  return files;
}

}  // namespace stridec::extend
