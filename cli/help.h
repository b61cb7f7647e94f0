// The text of --help.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace stridec::cli {

// Usage, options by group with their defaults, examples, environment variables; at most 100 columns wide.
std::string help_text(const CLI::App& app);

// Wraps at spaces. Every line after the first begins with `indent` spaces; `at`: the columns that are used on
// the first line. A word that is too long has a line of its own.
std::string wrapped(const std::string& text, size_t indent, size_t at, size_t width);

}  // namespace stridec::cli
