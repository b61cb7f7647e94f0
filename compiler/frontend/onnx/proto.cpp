#include "compiler/frontend/onnx/proto.h"

#include <onnx/onnx-data.pb.h>
#include <onnx/onnx_pb.h>

#include <cstring>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/frontend/onnx/tensor_data.h"

namespace stridec::onnx {
namespace {

template <class T>
using Repeated = google::protobuf::RepeatedPtrField<T>;

std::string domain_of(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

std::string quoted(const std::string& name) { return name.empty() ? "without a name" : "'" + name + "'"; }

// ---- tensors ----

// Parses a file offset or length: decimal digits only.
uint64_t parse_decimal(const std::string& text, const std::string& key, const std::string& tensor) {
  uint64_t value = 0;
  bool good = !text.empty();
  for (char c : text) {
    good = good && c >= '0' && c <= '9' && !__builtin_mul_overflow(value, uint64_t{10}, &value) &&
           !__builtin_add_overflow(value, static_cast<uint64_t>(c - '0'), &value);
  }
  if (!good)
    fail(ErrorKind::kMalformed, "external-data",
         "tensor '" + tensor + "': external data " + key + " '" + text.substr(0, 40) +
             "' is not a non-negative number");
  return value;
}

Bytes external_bytes(const ::onnx::TensorProto& proto, uint64_t expected, TensorSource& source) {
  std::string location;
  uint64_t offset = 0;
  std::optional<uint64_t> length;
  for (const auto& entry : proto.external_data()) {
    if (entry.key() == "location")
      location = entry.value();
    else if (entry.key() == "offset")
      offset = parse_decimal(entry.value(), "offset", proto.name());
    else if (entry.key() == "length")
      length = parse_decimal(entry.value(), "length", proto.name());
    else if (entry.key() != "checksum" && entry.key() != "basepath")
      fail(ErrorKind::kMalformed, "external-data",
           "tensor '" + proto.name() + "': external data has an unknown key '" + entry.key().substr(0, 40) +
               "'");
  }
  if (location.empty())
    fail(ErrorKind::kMalformed, "external-data",
         "tensor '" + proto.name() + "': external data names no file");
  if (!source.external_data)
    fail(ErrorKind::kUnsupported, "external-data",
         "tensor '" + proto.name() + "' is stored in another file, '" + location + "'");
  if (length && *length != expected)
    fail(ErrorKind::kMalformed, "external-data",
         cat("tensor '", proto.name(), "' takes ", expected, " bytes, but its external data has length ",
             *length));
  auto& file = source.external[location];
  if (!file) {
    try {
      file = map_beneath(source.folders, location);
    } catch (Error& e) {
      e.diagnostic.where.tensor = "tensor " + quoted(proto.name());
      throw;
    }
  }
  const uint64_t size = file->bytes.size();
  if (offset > size || expected > size - offset)
    fail(ErrorKind::kMalformed, "missing-data",
         cat("tensor '", proto.name(), "': file '", location, "' ends at ", size, "; bytes ", offset, "..",
             offset + expected, " are asked for"),
         cat("copy or download '", file->path.string(),
             "' again: it is truncated, or belongs to another model"));
  return {file, file->bytes.data() + offset, expected};
}

// One byte per int32: for types that int32_data stores unpacked, and for the packed bytes of narrower types.
template <class To, class Field>
std::vector<std::byte> narrow(const Field& field) {
  std::vector<std::byte> out(sizeof(To) * static_cast<size_t>(field.size()));
  for (int i = 0; i < field.size(); ++i) {
    const auto value = static_cast<To>(field.Get(i));
    std::memcpy(out.data() + static_cast<size_t>(i) * sizeof(To), &value, sizeof(To));
  }
  return out;
}

std::vector<std::byte> typed_bytes(const ::onnx::TensorProto& proto) {
  const auto type = dtype_from_onnx(proto.data_type());
  if (!type) {
    return proto.data_type() == kElemComplex64 ? narrow<float>(proto.float_data())
                                               : narrow<double>(proto.double_data());
  }
  switch (*type) {
    case DType::kF32: return narrow<float>(proto.float_data());
    case DType::kF64: return narrow<double>(proto.double_data());
    case DType::kI64: return narrow<int64_t>(proto.int64_data());
    case DType::kU64: return narrow<uint64_t>(proto.uint64_data());
    case DType::kU32: return narrow<uint32_t>(proto.uint64_data());
    case DType::kI32: return narrow<int32_t>(proto.int32_data());
    case DType::kI16:
    case DType::kU16:
    case DType::kF16:
    case DType::kBF16: return narrow<uint16_t>(proto.int32_data());
    case DType::kF6E2M3:
    case DType::kF6E3M2: {  // one element per entry; raw_data packs them
      const std::string packed = pack(proto.data_type(), narrow<uint8_t>(proto.int32_data()));
      const auto* begin = reinterpret_cast<const std::byte*>(packed.data());
      return {begin, begin + packed.size()};
    }
    default: return narrow<uint8_t>(proto.int32_data());
  }
}

bool has_typed_data(const ::onnx::TensorProto& proto) {
  return proto.float_data_size() + proto.double_data_size() + proto.int32_data_size() +
             proto.int64_data_size() + proto.uint64_data_size() + proto.string_data_size() >
         0;
}

Bytes tensor_bytes(const ::onnx::TensorProto& proto, int64_t count, TensorSource& source) {
  const auto needed = stored_bytes(proto.data_type(), count);
  if (!needed)
    fail(ErrorKind::kMalformed, "tensor-size", "tensor '" + proto.name() + "' has more than 2^63 bits");
  Bytes data;
  std::string_view field = "raw_data";
  if (proto.data_location() == ::onnx::TensorProto::EXTERNAL) {
    data = external_bytes(proto, *needed, source);
    field = "external data";
  } else if (proto.has_segment()) {
    const auto begin = static_cast<uint64_t>(proto.segment().begin()),
               end = static_cast<uint64_t>(proto.segment().end());
    const auto file = source.file ? source.file->bytes : std::span<const std::byte>();
    if (begin > end || end > file.size())
      fail(ErrorKind::kUnsupported, "segmented-tensor",
           "tensor '" + proto.name() + "' is stored in segments");
    data = {source.file, file.data() + begin, end - begin};
  } else if (proto.has_raw_data()) {
    const std::string& raw = proto.raw_data();
    const auto* begin = reinterpret_cast<const std::byte*>(raw.data());
    data = own_bytes({begin, begin + raw.size()});
  } else {
    data = own_bytes(typed_bytes(proto));
    field = "data";
  }
  if (data.size != *needed) {
    const bool empty = data.size == 0 && !has_typed_data(proto);
    if (empty && source.zero_when_missing) {
      const auto zeros = frontend::map_zeros(*needed);
      return {zeros, zeros->bytes.data(), zeros->bytes.size()};
    }
    fail(ErrorKind::kMalformed, empty ? "missing-data" : "tensor-size",
         empty ? "tensor '" + proto.name() + "' has no data"
               : cat("tensor '", proto.name(), "' takes ", *needed, " bytes, but its ", field, " has ",
                     data.size),
         empty ? "the file holds the model's structure without its weights: take one that was saved with "
                 "them, or with a file of external data beside it"
               : "");
  }
  return data;
}

Tensor convert(const ::onnx::TensorProto& proto, TensorSource& source) {
  Tensor t{.name = proto.name(),
           .elem_type = proto.data_type(),
           .dims = {proto.dims().begin(), proto.dims().end()}};
  if (t.elem_type == kElemUndefined)
    fail(ErrorKind::kMalformed, "tensor-type", "tensor '" + t.name + "' has no element type");
  const auto count = element_count(t.dims);
  if (!count)
    fail(ErrorKind::kMalformed, "tensor-size",
         "tensor '" + t.name + "' has dims [" + join(t.dims, ",", [](int64_t d) {
           return std::to_string(d);
         }) + "]: negative, or more than 2^63 elements");
  if (t.elem_type == kElemString) {
    if (proto.string_data_size() != *count)
      fail(ErrorKind::kMalformed, "tensor-size",
           cat("tensor '", t.name, "' takes ", *count, " strings, but has ", proto.string_data_size()));
    t.strings = {proto.string_data().begin(), proto.string_data().end()};
    return t;
  }
  if (stored_bits(t.elem_type) == 0)
    fail(ErrorKind::kUnsupported, "unsupported-dtype",
         cat("tensor '", t.name, "' has element type ", t.elem_type, ", which is unknown"));
  t.bytes = unpack(t.elem_type, *count, tensor_bytes(proto, *count, source));
  return t;
}

Tensor convert(const ::onnx::SparseTensorProto& proto, TensorSource& source) {
  return densify(convert(proto.values(), source), convert(proto.indices(), source),
                 {proto.dims().begin(), proto.dims().end()});
}

// ---- types ----

Type convert(const ::onnx::TypeProto& proto);

template <class TensorType>
Type convert_tensor_type(Type::Kind kind, const TensorType& proto) {
  Type out{.kind = kind, .elem_type = proto.elem_type()};
  if (!proto.has_shape()) return out;
  out.shape.emplace();
  for (const auto& d : proto.shape().dim()) {
    Dim dim;
    if (d.has_dim_value() && d.dim_value() >= 0) dim.value = d.dim_value();  // exporters write -1 for unknown
    if (d.has_dim_param()) dim.param = d.dim_param();
    out.shape->push_back(std::move(dim));
  }
  return out;
}

Type convert(const ::onnx::TypeProto& proto) {
  switch (proto.value_case()) {
    case ::onnx::TypeProto::kTensorType: return convert_tensor_type(Type::Kind::kTensor, proto.tensor_type());
    case ::onnx::TypeProto::kSparseTensorType:
      return convert_tensor_type(Type::Kind::kSparseTensor, proto.sparse_tensor_type());
    case ::onnx::TypeProto::kSequenceType:
      return {.kind = Type::Kind::kSequence, .element = {convert(proto.sequence_type().elem_type())}};
    case ::onnx::TypeProto::kOptionalType:
      return {.kind = Type::Kind::kOptional, .element = {convert(proto.optional_type().elem_type())}};
    case ::onnx::TypeProto::kMapType:
      return {.kind = Type::Kind::kMap,
              .elem_type = proto.map_type().key_type(),
              .element = {convert(proto.map_type().value_type())}};
    case ::onnx::TypeProto::kOpaqueType: return {.kind = Type::Kind::kOpaque};
    default: return {};
  }
}

std::vector<ValueInfo> convert(const Repeated<::onnx::ValueInfoProto>& protos) {
  std::vector<ValueInfo> out;
  for (const auto& v : protos) out.push_back({v.name(), convert(v.type())});
  return out;
}

// ---- nodes and graphs ----

Graph convert(const ::onnx::GraphProto& proto, TensorSource& source, bool main);

// Files of IR version 1 omit the type.
AttributeKind kind_of(const ::onnx::AttributeProto& a) {
  if (a.type() != ::onnx::AttributeProto::UNDEFINED) return static_cast<AttributeKind>(a.type());
  if (a.has_f()) return AttributeKind::kFloat;
  if (a.has_i()) return AttributeKind::kInt;
  if (a.has_s()) return AttributeKind::kString;
  if (a.has_t()) return AttributeKind::kTensor;
  if (a.has_g()) return AttributeKind::kGraph;
  if (a.floats_size()) return AttributeKind::kFloats;
  if (a.ints_size()) return AttributeKind::kInts;
  return a.strings_size() ? AttributeKind::kStrings : AttributeKind::kUndefined;
}

Attribute convert(const ::onnx::AttributeProto& proto, TensorSource& source) {
  Attribute a{.name = proto.name(), .kind = kind_of(proto), .reference = proto.ref_attr_name()};
  switch (a.kind) {
    case AttributeKind::kFloat: a.floats = {proto.f()}; break;
    case AttributeKind::kInt: a.ints = {proto.i()}; break;
    case AttributeKind::kString: a.strings = {proto.s()}; break;
    case AttributeKind::kTensor:
      if (proto.has_t()) a.tensors.push_back(convert(proto.t(), source));
      break;
    case AttributeKind::kGraph:
      if (proto.has_g()) a.graphs.push_back(convert(proto.g(), source, false));
      break;
    case AttributeKind::kSparseTensor:
      if (proto.has_sparse_tensor()) a.tensors.push_back(convert(proto.sparse_tensor(), source));
      break;
    case AttributeKind::kType:
      if (proto.has_tp()) a.types.push_back(convert(proto.tp()));
      break;
    case AttributeKind::kFloats: a.floats = {proto.floats().begin(), proto.floats().end()}; break;
    case AttributeKind::kInts: a.ints = {proto.ints().begin(), proto.ints().end()}; break;
    case AttributeKind::kStrings: a.strings = {proto.strings().begin(), proto.strings().end()}; break;
    case AttributeKind::kTensors:
      for (const auto& t : proto.tensors()) a.tensors.push_back(convert(t, source));
      break;
    case AttributeKind::kGraphs:
      for (const auto& g : proto.graphs()) a.graphs.push_back(convert(g, source, false));
      break;
    case AttributeKind::kSparseTensors:
      for (const auto& t : proto.sparse_tensors()) a.tensors.push_back(convert(t, source));
      break;
    case AttributeKind::kTypes:
      for (const auto& t : proto.type_protos()) a.types.push_back(convert(t));
      break;
    case AttributeKind::kUndefined: break;
  }
  return a;
}

Node convert(const ::onnx::NodeProto& proto, TensorSource& source) {
  Node n{.name = proto.name(),
         .op_type = proto.op_type(),
         .domain = domain_of(proto.domain()),
         .overload = proto.overload()};
  n.inputs = {proto.input().begin(), proto.input().end()};
  n.outputs = {proto.output().begin(), proto.output().end()};
  for (const auto& a : proto.attribute()) n.attributes.push_back(convert(a, source));
  for (const auto& m : proto.metadata_props()) n.metadata[m.key()] = m.value();
  if (!proto.doc_string().empty()) n.metadata["doc_string"] = proto.doc_string();
  return n;
}

std::vector<Node> convert(const Repeated<::onnx::NodeProto>& protos, TensorSource& source, bool main) {
  std::vector<Node> out;
  out.reserve(static_cast<size_t>(protos.size()));
  int index = 0;
  for (const auto& proto : protos) {
    try {
      out.push_back(convert(proto, source));
    } catch (Error& e) {
      Location& where = e.diagnostic.where;
      if (where.node.empty()) where.node = describe({.name = proto.name(), .index = main ? index : -1});
      if (where.op.empty()) where.op = proto.op_type();
      throw;
    }
    out.back().index = main ? index : -1;
    ++index;
  }
  return out;
}

Graph convert(const ::onnx::GraphProto& proto, TensorSource& source, bool main) {
  Graph g{.name = proto.name(), .nodes = convert(proto.node(), source, main)};
  const auto add = [&](const auto& tensor, const std::string& name) {
    try {
      g.initializers.push_back(convert(tensor, source));
    } catch (Error& e) {
      if (e.diagnostic.where.tensor.empty()) e.diagnostic.where.tensor = "initializer " + quoted(name);
      throw;
    }
  };
  g.initializers.reserve(static_cast<size_t>(proto.initializer_size()));
  for (const auto& t : proto.initializer()) add(t, t.name());
  for (const auto& t : proto.sparse_initializer()) add(t, t.values().name());
  g.inputs = convert(proto.input());
  g.outputs = convert(proto.output());
  g.value_infos = convert(proto.value_info());
  for (const auto& entry : proto.metadata_props()) g.metadata[entry.key()] = entry.value();
  return g;
}

template <class Imports>
std::map<std::string, int> convert_opsets(const Imports& imports) {
  std::map<std::string, int> out;
  for (const auto& o : imports) {
    if (o.version() < 1 || o.version() > 1'000'000)
      fail(ErrorKind::kMalformed, "opset-version",
           cat("opset version ", o.version(), " of domain '", o.domain(), "' is out of range"));
    out[domain_of(o.domain())] = static_cast<int>(o.version());
  }
  return out;
}

Function convert(const ::onnx::FunctionProto& proto, TensorSource& source) {
  Function f{.name = proto.name(), .domain = domain_of(proto.domain()), .overload = proto.overload()};
  f.inputs = {proto.input().begin(), proto.input().end()};
  f.outputs = {proto.output().begin(), proto.output().end()};
  f.attributes = {proto.attribute().begin(), proto.attribute().end()};
  for (const auto& a : proto.attribute_proto()) f.attribute_defaults.push_back(convert(a, source));
  f.opsets = convert_opsets(proto.opset_import());
  f.nodes = convert(proto.node(), source, false);
  f.value_infos = convert(proto.value_info());
  return f;
}

// ---- conversion to protobuf ----

void to_proto(const Tensor& t, ::onnx::TensorProto& out, bool data) {
  out.set_name(t.name);
  out.set_data_type(t.elem_type);
  if (!data) return out.add_dims(0);
  for (int64_t d : t.dims) out.add_dims(d);
  for (const auto& s : t.strings) out.add_string_data(s);
  if (t.elem_type == kElemString) return;
  if (stored_bits(t.elem_type) < 8) return out.set_raw_data(pack(t.elem_type, {t.bytes.data, t.bytes.size}));
  out.set_raw_data(t.bytes.data, t.bytes.size);
}

void to_proto(const ValueInfo& v, ::onnx::ValueInfoProto& out) {
  out.set_name(v.name);
  type_to_proto(v.type, *out.mutable_type());
}

// Without `data`, the graph is empty except for its name.
void to_proto(const Graph& g, ::onnx::GraphProto& out, bool data) {
  out.set_name(g.name.empty() ? "body" : g.name);
  if (!data) return;
  for (const Node& n : g.nodes) node_to_proto(n, *out.add_node(), data);
  for (const Tensor& t : g.initializers) to_proto(t, *out.add_initializer(), data);
  for (const ValueInfo& v : g.inputs) to_proto(v, *out.add_input());
  for (const ValueInfo& v : g.outputs) to_proto(v, *out.add_output());
  for (const ValueInfo& v : g.value_infos) to_proto(v, *out.add_value_info());
}

void to_proto(const Attribute& a, ::onnx::AttributeProto& out, bool data) {
  out.set_name(a.name);
  out.set_type(static_cast<::onnx::AttributeProto::AttributeType>(a.kind));
  if (!a.reference.empty()) return out.set_ref_attr_name(a.reference);
  switch (a.kind) {
    case AttributeKind::kFloat:
      for (float f : a.floats) out.set_f(f);
      break;
    case AttributeKind::kInt:
      for (int64_t i : a.ints) out.set_i(i);
      break;
    case AttributeKind::kString:
      for (const auto& s : a.strings) out.set_s(s);
      break;
    case AttributeKind::kTensor:
      for (const auto& t : a.tensors) to_proto(t, *out.mutable_t(), data);
      break;
    case AttributeKind::kGraph:
      for (const auto& g : a.graphs) to_proto(g, *out.mutable_g(), data);
      break;
    case AttributeKind::kFloats:
      for (float f : a.floats) out.add_floats(f);
      break;
    case AttributeKind::kInts:
      for (int64_t i : a.ints) out.add_ints(i);
      break;
    case AttributeKind::kStrings:
      for (const auto& s : a.strings) out.add_strings(s);
      break;
    case AttributeKind::kTensors:
      for (const auto& t : a.tensors) to_proto(t, *out.add_tensors(), data);
      break;
    case AttributeKind::kGraphs:
      for (const auto& g : a.graphs) to_proto(g, *out.add_graphs(), data);
      break;
    case AttributeKind::kType:
      for (const auto& t : a.types) type_to_proto(t, *out.mutable_tp());
      break;
    case AttributeKind::kTypes:
      for (const auto& t : a.types) type_to_proto(t, *out.add_type_protos());
      break;
    case AttributeKind::kSparseTensor:  // densified while reading: only the kind is preserved
      out.mutable_sparse_tensor()->mutable_values()->set_name("values");
      out.mutable_sparse_tensor()->mutable_values()->set_data_type(
          a.tensors.empty() ? 1 : a.tensors[0].elem_type);
      out.mutable_sparse_tensor()->mutable_values()->add_dims(0);
      out.mutable_sparse_tensor()->add_dims(1);
      break;
    case AttributeKind::kSparseTensors:
    case AttributeKind::kUndefined: break;
  }
}

}  // namespace

Model parse_model(const std::string& structure, TensorSource& source) {
  ::onnx::ModelProto proto;
  const bool parsed = proto.ParseFromString(structure);
  if (!parsed || !proto.has_graph()) {
    ::onnx::TensorProto tensor;
    if (tensor.ParseFromString(structure) && tensor.has_data_type() && tensor.data_type() > 0)
      fail(ErrorKind::kMalformed, "not-a-model",
           "the file is not an ONNX model: it looks like a serialized ONNX tensor");
    if (parsed)
      fail(ErrorKind::kMalformed, "not-a-model", "the file is not an ONNX model: it holds no graph");
    fail(ErrorKind::kMalformed, "malformed-model",
         "the file is not a valid ONNX model: protobuf cannot parse it");
  }
  Model m{.ir_version = proto.ir_version(), .producer = proto.producer_name()};
  if (!proto.producer_version().empty()) m.producer += " " + proto.producer_version();
  m.opsets = convert_opsets(proto.opset_import());
  for (const auto& e : proto.metadata_props()) m.metadata[e.key()] = e.value();
  m.graph = convert(proto.graph(), source, true);
  for (const auto& f : proto.functions()) m.functions.push_back(convert(f, source));
  m.has_training_info = proto.training_info_size() > 0;
  return m;
}

Bytes stored_data(const ::onnx::TensorProto& proto, TensorSource& source) {
  const std::vector<int64_t> dims(proto.dims().begin(), proto.dims().end());
  return tensor_bytes(proto, element_count(dims).value_or(-1), source);
}

Tensor parse_tensor(std::span<const std::byte> bytes) {
  ::onnx::TensorProto proto;
  if (bytes.size() > INT32_MAX || !proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    fail(ErrorKind::kMalformed, "malformed-tensor", "the file is not a serialized ONNX tensor");
  TensorSource source{.external_data = false};
  return convert(proto, source);
}

namespace {

std::vector<Tensor> convert(const ::onnx::SequenceProto& proto) {
  if (proto.sparse_tensor_values_size() || proto.sequence_values_size() || proto.map_values_size() ||
      proto.optional_values_size())
    fail(ErrorKind::kUnsupported, "unsupported-type", "a sequence of anything but tensors is not supported");
  TensorSource source{.external_data = false};
  std::vector<Tensor> out;
  for (const auto& t : proto.tensor_values()) out.push_back(convert(t, source));
  return out;
}

template <class Proto>
Proto parsed(std::span<const std::byte> bytes, const char* what) {
  Proto proto;
  if (bytes.size() > INT32_MAX || !proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    fail(ErrorKind::kMalformed, "malformed-tensor", cat("the file is not a serialized ONNX ", what));
  return proto;
}

}  // namespace

// A map's keys and values, as one tensor each.
std::vector<Tensor> convert(const ::onnx::MapProto& proto) {
  const std::vector<Tensor> entries = convert(proto.values());
  const auto n = static_cast<int64_t>(entries.size());
  Tensor keys{.elem_type = proto.key_type(), .dims = {n}}, values{.dims = {n}};
  keys.strings = {proto.string_keys().begin(), proto.string_keys().end()};
  keys.bytes = own_bytes(narrow<int64_t>(proto.keys()));
  std::vector<std::byte> bytes;
  for (const Tensor& entry : entries) {
    values.elem_type = entry.elem_type;
    values.strings.insert(values.strings.end(), entry.strings.begin(), entry.strings.end());
    bytes.insert(bytes.end(), entry.bytes.data, entry.bytes.data + entry.bytes.size);
  }
  values.bytes = own_bytes(std::move(bytes));
  return {std::move(keys), std::move(values)};
}

Value parse_value(std::span<const std::byte> bytes, const Type& type) {
  if (type.kind == Type::Kind::kMap) return {.tensors = convert(parsed<::onnx::MapProto>(bytes, "map"))};
  if (type.kind == Type::Kind::kSequence)
    return {.tensors = convert(parsed<::onnx::SequenceProto>(bytes, "sequence"))};
  if (type.kind != Type::Kind::kOptional) return {.tensors = {parse_tensor(bytes)}};
  const auto proto = parsed<::onnx::OptionalProto>(bytes, "optional");
  TensorSource source{.external_data = false};
  if (proto.has_tensor_value()) return {.tensors = {convert(proto.tensor_value(), source)}};
  if (proto.has_sequence_value()) return {.tensors = convert(proto.sequence_value())};
  return {.present = false};
}

Function function_from_proto(const ::onnx::FunctionProto& function) {
  TensorSource source{.external_data = false};
  return convert(function, source);
}

Attribute attribute_from_bytes(const std::string& attribute_proto) {
  ::onnx::AttributeProto proto;
  proto.ParseFromString(attribute_proto);
  TensorSource source{.external_data = false};
  return convert(proto, source);
}

void type_to_proto(const Type& type, ::onnx::TypeProto& out) {
  const auto tensor = [&](auto& t) {
    t.set_elem_type(type.elem_type);
    if (!type.shape) return;
    t.mutable_shape();
    for (const Dim& d : *type.shape) {
      auto& dim = *t.mutable_shape()->add_dim();
      if (d.value)
        dim.set_dim_value(*d.value);
      else if (!d.param.empty())
        dim.set_dim_param(d.param);
    }
  };
  switch (type.kind) {
    case Type::Kind::kTensor: tensor(*out.mutable_tensor_type()); break;
    case Type::Kind::kSparseTensor: tensor(*out.mutable_sparse_tensor_type()); break;
    case Type::Kind::kSequence:
      type_to_proto(type.element.at(0), *out.mutable_sequence_type()->mutable_elem_type());
      break;
    case Type::Kind::kOptional:
      type_to_proto(type.element.at(0), *out.mutable_optional_type()->mutable_elem_type());
      break;
    case Type::Kind::kMap:
      out.mutable_map_type()->set_key_type(type.elem_type);
      type_to_proto(type.element.at(0), *out.mutable_map_type()->mutable_value_type());
      break;
    case Type::Kind::kOpaque: out.mutable_opaque_type(); break;
    case Type::Kind::kNone: break;
  }
}

void node_to_proto(const Node& node, ::onnx::NodeProto& out, bool data) {
  out.set_name(node.name);
  out.set_op_type(node.op_type);
  out.set_domain(node.domain);
  for (const auto& i : node.inputs) out.add_input(i);
  for (const auto& o : node.outputs) out.add_output(o);
  for (const auto& a : node.attributes) to_proto(a, *out.add_attribute(), data);
}

}  // namespace stridec::onnx
