#include "compiler/frontend/sample_inputs.h"

#include "compiler/frontend/common/mapped_file.h"
#include "compiler/frontend/pt2/import.h"

namespace stridec::frontend {

std::vector<pt2::SampleInput> sample_inputs(const std::string& path, const std::string& method) {
  const auto mapped = map_file(path);
  const graph::Data file{.owner = mapped,
                         .bytes = reinterpret_cast<const uint8_t*>(mapped->bytes.data()),
                         .size = mapped->bytes.size()};
  return pt2::is_program(file) ? pt2::sample_inputs(file, method) : std::vector<pt2::SampleInput>();
}

}  // namespace stridec::frontend
