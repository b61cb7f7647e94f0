// The text of --help.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace stridec::cli {

// Usage, options by group with their defaults, examples, environment variables; at most 100 columns wide.
std::string help_text(const CLI::App& app);

}  // namespace stridec::cli
