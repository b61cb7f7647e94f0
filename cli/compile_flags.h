// The flags that say how a model is compiled, shared by compile, check, inspect and verify.
#pragma once

#include <string>
#include <vector>

#include "compiler/compile.h"

namespace CLI {
class App;
}

namespace stridec::cli {

struct CompileFlags {
  std::string model, cpus, dims, mode = "default", weights = "embed";
  std::string tune_db, tune_shape;
  bool frozen = false;
  std::vector<std::string> settings;
  bool no_cache = false;

  void declare(CLI::App& app);
  // Throws a usage Error.
  CompileOptions options() const;
};

std::vector<std::string> split_list(const std::string& text);  // "a,b"

}  // namespace stridec::cli
