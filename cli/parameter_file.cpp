#include "cli/parameter_file.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>

#include "compiler/base/diagnostic.h"
#include "compiler/base/files.h"
#include "compiler/base/text.h"
#include "compiler/frontend/common/mapped_file.h"
#include "compiler/frontend/onnx/read.h"
#include "compiler/frontend/onnx/tensor_data.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::json;

[[noreturn]] void malformed(const std::string& why) {
  fail(ErrorKind::kMalformed, "bad-safetensors", cat("the file is not a valid safetensors file: ", why));
}

constexpr std::pair<std::string_view, DType> kTypes[] = {
    {"F64", DType::kF64},   {"F32", DType::kF32},        {"F16", DType::kF16},        {"BF16", DType::kBF16},
    {"I64", DType::kI64},   {"I32", DType::kI32},        {"I16", DType::kI16},        {"I8", DType::kI8},
    {"U64", DType::kU64},   {"U32", DType::kU32},        {"U16", DType::kU16},        {"U8", DType::kU8},
    {"BOOL", DType::kBool}, {"F8_E4M3", DType::kF8E4M3}, {"F8_E5M2", DType::kF8E5M2},
};

DType dtype_of(const std::string& text, const std::string& tensor) {
  const auto found = std::ranges::find(kTypes, text, &std::pair<std::string_view, DType>::first);
  if (found == std::end(kTypes))
    malformed(cat("tensor '", tensor, "' has the unknown type '", text.substr(0, 40), "'"));
  return found->second;
}

FileTensor parse_tensor(const std::string& name, const Json& entry, std::string_view data) {
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() ||
      !entry.contains("shape") || !entry["shape"].is_array() || !entry.contains("data_offsets") ||
      !entry["data_offsets"].is_array() || entry["data_offsets"].size() != 2)
    malformed(cat("tensor '", name, "' lacks dtype, shape or data_offsets"));
  FileTensor out{.dtype = dtype_of(entry["dtype"].get<std::string>(), name), .shape = {}, .bytes = {}};
  uint64_t bytes = static_cast<uint64_t>(byte_size(out.dtype));
  for (const Json& dim : entry["shape"]) {
    if (!dim.is_number_unsigned()) malformed(cat("tensor '", name, "' has a dim that is not a size"));
    const uint64_t size = dim.get<uint64_t>();
    if (size > INT64_MAX || __builtin_mul_overflow(bytes, size, &bytes))
      malformed(cat("tensor '", name, "' is too large for memory"));
    out.shape.push_back(static_cast<int64_t>(size));
  }
  const Json &first = entry["data_offsets"][0], &end = entry["data_offsets"][1];
  if (!first.is_number_unsigned() || !end.is_number_unsigned() ||
      first.get<uint64_t>() > end.get<uint64_t>() || end.get<uint64_t>() > data.size() ||
      end.get<uint64_t>() - first.get<uint64_t>() != bytes)
    malformed(cat("tensor '", name, "' has data_offsets that do not fit its shape or the file"));
  out.bytes = data.substr(first.get<uint64_t>(), bytes);
  return out;
}

// The tensors follow each other without a gap, as the format demands. Names that are given twice leave one.
void check_cover(const std::map<std::string, FileTensor>& tensors, std::string_view data) {
  std::vector<std::pair<std::string_view, const std::string*>> parts;
  for (const auto& [name, tensor] : tensors) parts.emplace_back(tensor.bytes, &name);
  std::ranges::sort(parts, {}, [](const auto& p) { return std::pair(p.first.data(), p.first.size()); });
  const char* end = data.data();
  for (const auto& [bytes, name] : parts) {
    if (bytes.data() != end)
      malformed(cat("tensor '", *name, "' ", bytes.data() < end ? "overlaps another one" : "follows a gap"));
    end += bytes.size();
  }
  if (end != data.data() + data.size())
    malformed(cat("its last ", data.data() + data.size() - end, " bytes belong to no tensor"));
}

ParameterFile of_onnx(const std::string& path) {
  auto model = std::make_shared<onnx::Model>(onnx::read_model(path, {}));
  ParameterFile out{.owner = model, .tensors = {}};
  for (const onnx::Tensor& tensor : model->graph.initializers)
    if (const auto dtype = dtype_from_onnx(tensor.elem_type))
      out.tensors[tensor.name] = {*dtype,
                                  {tensor.dims.begin(), tensor.dims.end()},
                                  {reinterpret_cast<const char*>(tensor.bytes.data), tensor.bytes.size}};
  return out;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return cat("[", join(shape, ", ", [](int64_t dim) { return std::to_string(dim); }), "]");
}

}  // namespace

void check_tensors(const ParameterFile& file, const std::vector<DeclaredTensor>& declared, bool partial,
                   const std::string& code, const std::string& help) {
  std::vector<std::string> problems;
  for (const DeclaredTensor& wanted : declared) {
    const auto found = file.tensors.find(wanted.name);
    if (found == file.tensors.end()) {
      if (!partial) problems.push_back(cat("'", wanted.name, "' is missing"));
      continue;
    }
    const std::string shape = shape_text(found->second.shape);
    if (found->second.dtype != wanted.dtype || shape != wanted.shape)
      problems.push_back(cat("'", wanted.name, "' is ", name(found->second.dtype), shape,
                             ", the artifact's is ", name(wanted.dtype), wanted.shape));
  }
  if (problems.empty()) return;
  constexpr size_t kMostNotes = 20;
  Diagnostic all{.kind = ErrorKind::kDoesNotFit, .code = code, .message = problems.front(), .help = help};
  for (size_t i = 1; i < problems.size() && i <= kMostNotes; ++i) all.notes.push_back(problems[i]);
  if (problems.size() > kMostNotes) all.notes.push_back(cat(problems.size(), " problems in all"));
  throw Error(std::move(all));
}

void write_safetensors(const std::string& path, const std::vector<std::pair<std::string, Array>>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header;
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t at = 0;
  for (const auto& [name, array] : tensors) {
    const auto type = std::ranges::find(kTypes, array.dtype, &std::pair<std::string_view, DType>::second);
    if (type == std::end(kTypes))
      fail(ErrorKind::kUnsupported, "no-safetensors-type",
           cat("'", name, "' is ", stridec::name(array.dtype), ", which safetensors does not have"));
    header[name] = {
        {"dtype", type->first}, {"shape", array.shape}, {"data_offsets", {at, at + array.bytes.size()}}};
    at += array.bytes.size();
  }
  std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  UnfinishedFile file(path);
  file.write(&length, sizeof(length));
  file.write(text.data(), text.size());
  for (const auto& [name, array] : tensors) file.write(array.bytes.data(), array.bytes.size());
  file.commit();
}

ParameterFile parse_safetensors(std::string_view file) {
  constexpr uint64_t kMostHeader = 100'000'000;  // as the format's own reader
  uint64_t header = 0;
  if (file.size() < 8) malformed("it has fewer than 8 bytes");
  std::memcpy(&header, file.data(), 8);
  if (header > kMostHeader || header > file.size() - 8) malformed("its header is truncated");
  const Json json = Json::parse(file.substr(8, header), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) malformed("its header is not a JSON object");
  const std::string_view data = file.substr(8 + header);
  ParameterFile out;
  for (const auto& [name, entry] : json.items()) {
    if (name != "__metadata__")
      out.tensors.emplace(name, parse_tensor(name, entry, data));
    else if (entry.is_object())
      for (const auto& [key, value] : entry.items())
        if (value.is_string()) out.metadata[key] = value.get<std::string>();
  }
  check_cover(out.tensors, data);
  return out;
}

ParameterFile read_parameters(const std::string& path) {
  if (path.ends_with(".onnx")) return of_onnx(path);
  const auto file = frontend::map_file(path);
  try {
    ParameterFile out =
        parse_safetensors({reinterpret_cast<const char*>(file->bytes.data()), file->bytes.size()});
    out.owner = file;
    return out;
  } catch (Error& error) {
    error.diagnostic.where.file = path;
    throw;
  }
}

}  // namespace stridec::cli
