// The values that a program's inputs may have, derived from their uses: an index has to be within what it
// indexes, a size within its limits, the argument of a logarithm positive.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::loop {

// The program accepts any value from `least` to `most` without an error, as far as bounds on single elements
// can express it. Other values may be accepted too (negative indices), and inputs may have to be consistent
// with each other. Both bounds are expressions over the symbols that the inputs' shapes give; absent:
// unbounded on this side.
struct ValueRange {
  std::optional<sym::Expr> least, most;
  bool image = false;  // the bytes of an encoded image
  bool none() const { return !least && !most && !image; }
  bool operator==(const ValueRange&) const = default;
};

// By position in Program::inputs. Most precise before fusion, on a program with one nest per operator.
std::vector<ValueRange> input_ranges(const Program& program);

// The same for every integer buffer that the program's nests load, over any of its symbols.
std::map<BufferId, ValueRange> integer_ranges(const Program& program);

}  // namespace stridec::loop
