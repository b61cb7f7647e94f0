#include "compiler/frontend/torchscript/library.h"

#include "compiler/frontend/torchscript/parser.h"

namespace stridec::torchscript {

std::pair<std::string, std::string> split_name(const std::string& qualified) {
  const size_t dot = qualified.rfind('.');
  if (dot == std::string::npos) return {"", qualified};
  return {qualified.substr(0, dot), qualified.substr(dot + 1)};
}

const Source* Library::source(const std::string& module) {
  auto found = sources_.find(module);
  if (found == sources_.end()) {
    found = sources_.emplace(module, std::nullopt).first;
    if (const auto text = read_source(archive_, module)) found->second = parse_source(*text, module);
  }
  return found->second ? &*found->second : nullptr;
}

const Class* Library::find_class(const std::string& name) {
  const auto [module, own] = split_name(name);
  const Source* s = source(module);
  if (!s) return nullptr;
  const auto found = s->classes.find(own);
  return found == s->classes.end() ? nullptr : &found->second;
}

const Function* Library::find_function(const std::string& name) {
  const auto [module, own] = split_name(name);
  const Source* s = source(module);
  if (!s) return nullptr;
  const auto found = s->functions.find(own);
  return found == s->functions.end() ? nullptr : &found->second;
}

}  // namespace stridec::torchscript
