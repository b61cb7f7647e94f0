// The replaceable parameters of an artifact, through the C API. No variant of it needs to run here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/parameter_file.h"
#include "runtime/include/stridec/runtime.h"

namespace stridec::cli {

class ParameterWriter {
 public:
  explicit ParameterWriter(const std::string& artifact);  // throws Error, also if it has no parameters
  ~ParameterWriter();
  ParameterWriter(const ParameterWriter&) = delete;
  ParameterWriter& operator=(const ParameterWriter&) = delete;

  // Writes every parameter from the tensor of its name. Returns the names of tensors that are not parameters.
  // Throws one Error for all tensors that are missing (unless `partial`) or have another type or shape.
  std::vector<std::string> write(const ParameterFile& given, bool partial);
  const std::vector<std::string>& written() const { return written_; }
  size_t count() const { return parameters_.size(); }

  // The end of the weights section, with derived parameters computed; valid until the next call.
  struct Section {
    uint64_t offset;
    std::string_view bytes;
  };
  Section section();

 private:
  void check(stridec_status status) const;

  const stridec_api* api_;
  stridec_model* model_ = nullptr;
  stridec_context* context_ = nullptr;
  std::vector<DeclaredTensor> parameters_;
  std::vector<std::string> written_;
};

}  // namespace stridec::cli
