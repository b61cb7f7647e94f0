// `inspect --format=dot, svg and html`: stages of a compilation as drawings.
#pragma once

#include <string>

#include "cli/stage_text.h"

namespace stridec::cli {

// Fails with a usage Error where the stage cannot be drawn in this form. `stage` is not empty.
void check_drawing(const std::string& stage, const std::string& format);
// As Graphviz's text, as SVG, or as one page of HTML with the stage's text below the drawing.
std::string stage_drawing(const FunctionResult& made, const StageView& view, const std::string& format);

}  // namespace stridec::cli
