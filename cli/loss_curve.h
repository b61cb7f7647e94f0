// The losses of a training as a picture.
#pragma once

#include <string>
#include <vector>

namespace stridec::cli {

// An SVG file: one line over steps, with a logarithmic axis if all losses are positive. `first`: the number
// of the first step.
std::string loss_curve(const std::vector<double>& losses, int64_t first);

}  // namespace stridec::cli
