#include "cli/parameters.h"

#include <algorithm>
#include <cstddef>

#include "cli/library.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"

namespace stridec::cli {
ParameterWriter::ParameterWriter(const std::string& artifact) : api_(load_api(artifact)) {
  if (api_->struct_size <= offsetof(stridec_api, context_parameters))
    fail(ErrorKind::kUnsupported, "no-parameters",
         cat("'", artifact, "' was compiled by an older stridec, which had no replaceable parameters"),
         "compile it again with --refit");
  char message[512] = "";
  stridec_model_options options{};
  options.struct_size = sizeof(options);
  options.flags = STRIDEC_MODEL_NO_RUN;
  if (const auto status = api_->model_open(&options, &model_, message, sizeof(message)))
    fail(kind_of(status), "cannot-open", message);
  stridec_context_options context{};
  context.struct_size = sizeof(context);
  if (const auto status = api_->context_create(model_, &context, &context_, message, sizeof(message)))
    fail(kind_of(status), "cannot-open", message);
  stridec_model_info info{};
  info.struct_size = sizeof(info);
  check(api_->model_info(model_, &info));
  for (int32_t i = 0; i < info.parameter_count; ++i) {
    stridec_value_info value{};
    value.struct_size = sizeof(value);
    check(api_->model_parameter(model_, i, &value));
    const auto dtype = parse_dtype(value.dtype_name);
    if (!dtype) fail(ErrorKind::kMalformed, "bad-artifact", cat("'", value.name, "' has an unknown type"));
    parameters_.push_back({value.name, value.shape, *dtype});
  }
  if (parameters_.empty())
    fail(ErrorKind::kUsage, "no-parameters", cat("'", artifact, "' has no replaceable parameters"),
         "compile the model with --refit 'PATTERN'");
}

ParameterWriter::~ParameterWriter() {
  api_->context_destroy(context_);
  api_->model_close(model_);
}

void ParameterWriter::check(stridec_status status) const {
  if (status == STRIDEC_OK) return;
  const char* sentence = api_->context_error(context_);
  fail(kind_of(status), "refit-failed", *sentence ? sentence : api_->status_name(status));
}

std::vector<std::string> ParameterWriter::write(const ParameterFile& given, bool partial) {
  check_tensors(given, parameters_, partial, "wrong-parameters",
                partial ? "" : "--partial keeps the values of parameters that the file lacks");
  for (const DeclaredTensor& parameter : parameters_) {
    const auto found = given.tensors.find(parameter.name);
    if (found == given.tensors.end()) continue;
    const FileTensor& tensor = found->second;
    std::vector<int64_t> shape = tensor.shape;
    stridec_tensor view{};
    view.data = const_cast<char*>(tensor.bytes.data());  // only read
    view.device = {STRIDEC_DEVICE_CPU, 0};
    view.ndim = static_cast<int32_t>(shape.size());
    view.dtype = dlpack_dtype(tensor.dtype);
    view.shape = shape.data();
    check(api_->context_write_state(context_, parameter.name.c_str(), &view));
    written_.push_back(parameter.name);
  }
  std::vector<std::string> unused;
  for (const auto& [name, tensor] : given.tensors)
    if (std::none_of(parameters_.begin(), parameters_.end(),
                     [&, &key = name](const DeclaredTensor& parameter) { return parameter.name == key; }))
      unused.push_back(name);
  return unused;
}

ParameterWriter::Section ParameterWriter::section() {
  uint64_t offset = 0, count = 0;
  const void* bytes = nullptr;
  check(api_->context_parameters(context_, &offset, &bytes, &count));
  return {offset, {static_cast<const char*>(bytes), count}};
}

}  // namespace stridec::cli
