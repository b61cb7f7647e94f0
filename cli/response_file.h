// Response files: an argument @FILE stands for the arguments that the file contains.
#pragma once

#include <string>
#include <vector>

namespace stridec::cli {

// Replaces every @FILE, also inside response files, by the words of the file. White space separates words;
// quotes ('...', "...") and backslashes work as in a shell; a word that starts with # begins a comment up to
// the end of its line. Arguments after "--" stay as they are. Throws Error (kUnreadable, kUsage).
std::vector<std::string> expand_response_files(const std::vector<std::string>& arguments);

}  // namespace stridec::cli
