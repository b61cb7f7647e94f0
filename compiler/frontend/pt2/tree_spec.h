// Names of a program's inputs and results from its tree specs: the structure of the Python arguments.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace stridec::pt2 {

// The path of each leaf in order: {"past", "0", "key"}. `fields` has the field names of registered named
// tuples. Throws Error kMalformed for text that is not a tree spec.
using Path = std::vector<std::string>;
std::vector<Path> leaf_paths(std::string_view spec, const std::map<std::string, Path>& fields);

// The same for a call: the first element of a path is the argument's name. `names` are those of the
// positional arguments.
std::vector<Path> argument_paths(std::string_view spec, const Path& names,
                                 const std::map<std::string, Path>& fields);

std::string joined(const Path& path);  // "past.0.key"

}  // namespace stridec::pt2
