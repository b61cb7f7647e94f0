// The classes and functions of an archive, parsed when they are first asked for.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "compiler/frontend/torchscript/archive.h"
#include "compiler/frontend/torchscript/syntax.h"

namespace stridec::torchscript {

class Library {
 public:
  explicit Library(const Archive& archive) : archive_(archive) {}

  // By qualified name: "__torch__.torch.nn.functional.relu". Null if the archive has none. They live as long
  // as the library. Throws Error for a damaged source.
  const Class* find_class(const std::string& name);
  const Function* find_function(const std::string& name);

 private:
  const Source* source(const std::string& module);

  const Archive& archive_;
  std::map<std::string, std::optional<Source>> sources_;  // by module; none: the archive lacks it
};

// Of "__torch__.a.b.C": "__torch__.a.b" and "C".
std::pair<std::string, std::string> split_name(const std::string& qualified);

}  // namespace stridec::torchscript
