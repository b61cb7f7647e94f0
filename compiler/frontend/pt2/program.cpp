#include "compiler/frontend/pt2/program.h"

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/frontend/pt2/json.h"

namespace stridec::pt2 {
namespace {

using Kind = Argument::Kind;

constexpr int64_t kMajor = 8;
constexpr int kDeepestGraph = 32;

Graph decode_graph(const Json& json, int depth);

Size decode_size(const Json& json) {
  const Union u = union_of(json, "a size");
  if (u.tag == "as_int") return {.value = integer_of(u.value, "as_int"), .text = {}};
  if (u.tag != "as_expr") malformed(cat("a size is neither as_int nor as_expr but '", u.tag, "'"));
  return {.value = {}, .text = string_of(member(u.value, "expr_str"), "expr_str")};
}

std::vector<Size> decode_sizes(const Json& json, const char* what) {
  std::vector<Size> out;
  for (const Json& item : array_of(json, what)) out.push_back(decode_size(item));
  return out;
}

TensorMeta decode_meta(const Json& json) {
  TensorMeta out{.scalar_type = static_cast<int>(integer_of(member(json, "dtype"), "dtype")),
                 .layout = static_cast<int>(integer_of(member(json, "layout"), "layout")),
                 .sizes = decode_sizes(member(json, "sizes"), "sizes"),
                 .strides = decode_sizes(member(json, "strides"), "strides"),
                 .offset = {.value = 0, .text = {}}};
  if (const Json* offset = optional_member(json, "storage_offset")) out.offset = decode_size(*offset);
  return out;
}

Argument named(Kind kind, std::string name) { return {.kind = kind, .text = std::move(name)}; }

Argument integer(Kind kind, const Json& value) {
  return {.kind = kind, .integer = integer_of(value, "an argument")};
}

Argument name_of_tensor(const Json& json) {
  return named(Kind::kTensor, string_of(member(json, "name"), "name"));
}

template <class Decode>
Argument list_of(const Json& json, Decode&& decode) {
  Argument out{.kind = Kind::kList};
  for (const Json& item : array_of(json, "a list argument")) out.items.push_back(decode(item));
  return out;
}

Argument decode_int(const Json& json) { return integer(Kind::kInt, json); }
Argument decode_float(const Json& json) {
  return {.kind = Kind::kFloat, .number = number_of(json, "as_float")};
}
Argument decode_bool(const Json& json) {
  return {.kind = Kind::kBool, .integer = bool_of(json, "as_bool") ? 1 : 0};
}
Argument decode_string(const Json& json) { return named(Kind::kString, string_of(json, "as_string")); }

// A SymIntArgument and the like: a name, or the value itself.
Argument decode_symbolic(const Json& json, Kind kind) {
  const Union u = union_of(json, "a symbolic argument");
  if (u.tag == "as_name") return named(kind, string_of(u.value, "as_name"));
  if (u.tag == "as_int") return decode_int(u.value);
  if (u.tag == "as_float") return decode_float(u.value);
  if (u.tag == "as_bool") return decode_bool(u.value);
  malformed(cat("a symbolic argument is of the unknown kind '", u.tag, "'"));
}
Argument decode_sym_int(const Json& json) { return decode_symbolic(json, Kind::kSymInt); }
Argument decode_sym_float(const Json& json) { return decode_symbolic(json, Kind::kSymFloat); }
Argument decode_sym_bool(const Json& json) { return decode_symbolic(json, Kind::kSymBool); }

Argument decode_optional_tensor(const Json& json) {
  const Union u = union_of(json, "an optional tensor");
  return u.tag == "as_none" ? Argument() : name_of_tensor(u.value);
}

Argument decode_argument(const Json& json, int depth) {
  const auto [tag, value] = union_of(json, "an argument");
  if (tag == "as_none") return {};
  if (tag == "as_tensor") return name_of_tensor(value);
  if (tag == "as_tensors") return list_of(value, name_of_tensor);
  if (tag == "as_int") return decode_int(value);
  if (tag == "as_ints") return list_of(value, decode_int);
  if (tag == "as_float") return decode_float(value);
  if (tag == "as_floats") return list_of(value, decode_float);
  if (tag == "as_string") return decode_string(value);
  if (tag == "as_strings") return list_of(value, decode_string);
  if (tag == "as_bool") return decode_bool(value);
  if (tag == "as_bools") return list_of(value, decode_bool);
  if (tag == "as_sym_int") return decode_sym_int(value);
  if (tag == "as_sym_ints") return list_of(value, decode_sym_int);
  if (tag == "as_sym_float") return decode_sym_float(value);
  if (tag == "as_sym_floats") return list_of(value, decode_sym_float);
  if (tag == "as_sym_bool") return decode_sym_bool(value);
  if (tag == "as_sym_bools") return list_of(value, decode_sym_bool);
  if (tag == "as_scalar_type") return integer(Kind::kScalarType, value);
  if (tag == "as_memory_format") return integer(Kind::kMemoryFormat, value);
  if (tag == "as_layout") return integer(Kind::kLayout, value);
  if (tag == "as_device") return named(Kind::kDevice, string_of(member(value, "type"), "device"));
  if (tag == "as_optional_tensors") return list_of(value, decode_optional_tensor);
  if (tag == "as_optional_tensor") return decode_optional_tensor(value);
  if (tag == "as_complex")
    return {.kind = Kind::kComplex,
            .number = number_of(member(value, "real"), "real"),
            .imaginary = number_of(member(value, "imag"), "imag")};
  if (tag == "as_operator") return named(Kind::kString, string_of(value, "as_operator"));
  if (tag == "as_nested_tensors")
    return list_of(value, [](const Json& item) { return list_of(item, name_of_tensor); });
  if (tag == "as_int_lists")
    return list_of(value, [](const Json& item) { return list_of(item, decode_int); });
  if (tag == "as_float_lists")
    return list_of(value, [](const Json& item) { return list_of(item, decode_float); });
  if (tag == "as_graph") {
    Argument out = named(Kind::kGraph, string_of(member(value, "name"), "name"));
    out.graph = std::make_shared<const Graph>(decode_graph(member(value, "graph"), depth + 1));
    return out;
  }
  return named(Kind::kOther, tag);
}

std::vector<Argument> decode_arguments(const Json& json, const char* what, int depth) {
  std::vector<Argument> out;
  for (const Json& item : array_of(json, what)) out.push_back(decode_argument(item, depth));
  return out;
}

Node decode_node(const Json& json, int depth) {
  Node out{.target = string_of(member(json, "target"), "target"), .inputs = {}, .outputs = {}};
  if (const Json* name = optional_member(json, "name")) out.name = string_of(*name, "name");
  for (const Json& input : array_of(member(json, "inputs"), "inputs"))
    out.inputs.push_back(
        {string_of(member(input, "name"), "name"), decode_argument(member(input, "arg"), depth)});
  out.outputs = decode_arguments(member(json, "outputs"), "outputs", depth);
  if (const Json* metadata = optional_member(json, "metadata"))
    if (const Json* trace = optional_member(*metadata, "stack_trace"))
      out.stack_trace = string_of(*trace, "stack_trace");
  if (out.name.empty() && !out.outputs.empty()) out.name = out.outputs[0].text;
  return out;
}

Graph decode_graph(const Json& json, int depth) {
  if (depth > kDeepestGraph) malformed(cat("graphs are nested deeper than ", kDeepestGraph, " levels"));
  Graph out{.inputs = decode_arguments(member(json, "inputs"), "inputs", depth),
            .outputs = decode_arguments(member(json, "outputs"), "outputs", depth),
            .nodes = {},
            .tensors = {},
            .sizes = {}};
  for (const Json& node : array_of(member(json, "nodes"), "nodes"))
    out.nodes.push_back(decode_node(node, depth));
  for (const auto& [name, meta] : object_of(member(json, "tensor_values"), "tensor_values").items())
    out.tensors.emplace(name, decode_meta(meta));
  for (const auto& [name, size] : object_of(member(json, "sym_int_values"), "sym_int_values").items())
    out.sizes.emplace(name, decode_size(size));
  return out;
}

InputSpec decode_input(const Json& json) {
  using In = InputSpec::Kind;
  const auto [tag, value] = union_of(json, "an input");
  const auto tensor = [&](In kind, const char* key) {
    return InputSpec{kind, name_of_tensor(member(value, "arg")), string_of(member(value, key), key)};
  };
  if (tag == "user_input") return {In::kUser, decode_argument(member(value, "arg"), 0), {}};
  if (tag == "parameter") return tensor(In::kParameter, "parameter_name");
  if (tag == "buffer") return tensor(In::kBuffer, "buffer_name");
  if (tag == "tensor_constant") return tensor(In::kConstant, "tensor_constant_name");
  if (tag == "token") return {In::kToken, {}, {}};
  if (tag == "custom_obj")
    return {In::kCustomObject, {}, string_of(member(value, "custom_obj_name"), "custom_obj_name")};
  if (tag == "constant_input")
    return {In::kFixed, decode_argument(member(value, "value"), 0), string_of(member(value, "name"), "name")};
  malformed(cat("an input is of the unknown kind '", tag, "'"));
}

OutputSpec decode_output(const Json& json) {
  using Out = OutputSpec::Kind;
  const auto [tag, value] = union_of(json, "an output");
  const auto mutation = [&](Out kind, const char* key) {
    return OutputSpec{kind, name_of_tensor(member(value, "arg")), string_of(member(value, key), key)};
  };
  if (tag == "user_output") return {Out::kUser, decode_argument(member(value, "arg"), 0), {}};
  if (tag == "loss_output") return {Out::kUser, name_of_tensor(member(value, "arg")), {}};
  if (tag == "buffer_mutation") return mutation(Out::kBufferMutation, "buffer_name");
  if (tag == "parameter_mutation") return mutation(Out::kParameterMutation, "parameter_name");
  if (tag == "user_input_mutation") return mutation(Out::kInputMutation, "user_input_name");
  if (tag == "token") return {Out::kToken, {}, {}};
  if (tag == "gradient_to_parameter" || tag == "gradient_to_user_input")
    return {Out::kGradient, name_of_tensor(member(value, "arg")), {}};
  malformed(cat("an output is of the unknown kind '", tag, "'"));
}

void decode_call(const Json& module, Program& out) {
  const Json* calls = optional_member(module, "module_call_graph");
  if (!calls) return;
  for (const Json& entry : array_of(*calls, "module_call_graph")) {
    const Json* signature = optional_member(entry, "signature");
    if (!string_of(member(entry, "fqn"), "fqn").empty() || !signature) continue;
    out.in_spec = string_of(member(*signature, "in_spec"), "in_spec");
    out.out_spec = string_of(member(*signature, "out_spec"), "out_spec");
    if (const Json* names = optional_member(*signature, "forward_arg_names"))
      for (const Json& name : array_of(*names, "forward_arg_names"))
        out.argument_names.push_back(string_of(name, "forward_arg_names"));
    return;
  }
}

}  // namespace

Program decode_program(std::string_view text) {
  const Json json = parse_json(text, "the program");
  Program out;
  const Json& version = member(json, "schema_version");
  out.schema_major = integer_of(member(version, "major"), "major");
  out.schema_minor = integer_of(member(version, "minor"), "minor");
  if (out.schema_major != kMajor)
    fail(ErrorKind::kUnsupported, "schema-version",
         cat("the program has schema version ", out.schema_major, ".", out.schema_minor,
             "; this build reads ", kMajor, ".x (PyTorch 2.4 and later)"),
         "export it again with a current PyTorch");
  if (const Json* torch = optional_member(json, "torch_version"))
    out.torch_version = string_of(*torch, "torch_version");
  const Json& module = member(json, "graph_module");
  out.graph = decode_graph(member(module, "graph"), 0);
  const Json& signature = member(module, "signature");
  for (const Json& input : array_of(member(signature, "input_specs"), "input_specs"))
    out.inputs.push_back(decode_input(input));
  for (const Json& output : array_of(member(signature, "output_specs"), "output_specs"))
    out.outputs.push_back(decode_output(output));
  if (out.inputs.size() != out.graph.inputs.size() || out.outputs.size() != out.graph.outputs.size())
    malformed(cat("its signature has ", out.inputs.size(), " inputs and ", out.outputs.size(),
                  " outputs, its graph ", out.graph.inputs.size(), " and ", out.graph.outputs.size()));
  for (const auto& [name, range] :
       object_of(member(json, "range_constraints"), "range_constraints").items()) {
    Range& to = out.ranges[name];
    if (const Json* lower = optional_member(range, "min_val")) to.lower = integer_of(*lower, "min_val");
    if (const Json* upper = optional_member(range, "max_val")) to.upper = integer_of(*upper, "max_val");
  }
  if (const Json* guards = optional_member(json, "guards_code"))
    for (const Json& guard : array_of(*guards, "guards_code"))
      out.guards.push_back(string_of(guard, "guards_code"));
  decode_call(module, out);
  if (const Json* tuples = optional_member(module, "treespec_namedtuple_fields"))
    for (const auto& [name, fields] : tuples->items())
      for (const Json& field : array_of(member(fields, "field_names"), "field_names"))
        out.namedtuple_fields[name].push_back(string_of(field, "field_names"));
  return out;
}

std::map<std::string, Payload> decode_payloads(std::string_view text) {
  const Json json = parse_json(text, "the list of weights");
  std::map<std::string, Payload> out;
  for (const auto& [name, payload] : object_of(member(json, "config"), "config").items()) {
    Payload& to = out[name];
    to.path = string_of(member(payload, "path_name"), "path_name");
    to.pickled = bool_of(member(payload, "use_pickle"), "use_pickle");
    if (const Json* meta = optional_member(payload, "tensor_meta")) to.meta = decode_meta(*meta);
  }
  return out;
}

}  // namespace stridec::pt2
