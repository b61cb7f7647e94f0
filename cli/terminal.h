// What the terminal can show: its width, colours, and lines that are drawn again.
#pragma once

#include <cstddef>

namespace stridec::cli {

// Columns to fit text into: of the terminal that stdout is, else $COLUMNS, else 100.
size_t columns();

// Whether a bar may be redrawn in place: a terminal, and $TERM is not "dumb".
bool can_redraw(int descriptor);

// The same, unless $NO_COLOR is set to anything (no-color.org).
bool has_colour(int descriptor);

}  // namespace stridec::cli
