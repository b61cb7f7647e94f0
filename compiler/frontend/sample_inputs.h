// Inputs that a model file has with it.
#pragma once

#include <string>
#include <vector>

#include "compiler/frontend/pt2/sample_inputs.h"

namespace stridec::frontend {

// By name; empty for files without. PyTorch programs have them. `method`: ImportOptions.
std::vector<pt2::SampleInput> sample_inputs(const std::string& path, const std::string& method);

}  // namespace stridec::frontend
