// The table of symbols by which perf, gdb and other tools name the functions of an artifact.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace stridec::package {

// "conv+add+max" and 3 give "conv_add_max_3": a name that a debugger reads as one identifier.
std::string function_name(std::string_view kernel, size_t number);

// Keeps only functions in the table of symbols of a linked shared object, and renames those that `names` has
// (by symbol). Local functions of a kernel's source file, SYMBOL.cpp, are parts of it: "conv_add_max_3.part".
// Nothing that is loaded changes. An object without a table stays as it is.
std::string name_functions(std::string shared_object, const std::map<std::string, std::string>& names);

}  // namespace stridec::package
