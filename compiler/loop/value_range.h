// Which values the inputs of a program may have, as far as what it does with them says so: an index has to
// lie inside what it indexes, a size within its limits, the argument of a logarithm above zero.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::loop {

// Any value from `least` to `most` is one that the program takes without an error, as far as bounds of
// single elements can say it; there may be others (negative indices), and inputs may have to fit each
// other besides. Both are expressions over the symbols that the inputs' shapes give. Absent: nothing
// bounds it on this side.
struct ValueRange {
  std::optional<sym::Expr> least, most;
  bool image = false;  // the bytes of an encoded image
  bool none() const { return !least && !most && !image; }
  bool operator==(const ValueRange&) const = default;
};

// By position in Program::inputs. Best of a program with one nest an operator, before fusion.
std::vector<ValueRange> input_ranges(const Program& program);

// Of every buffer of integers that the program's nests load, over any of its symbols.
std::map<BufferId, ValueRange> integer_ranges(const Program& program);

}  // namespace stridec::loop
