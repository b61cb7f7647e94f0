// The part of the host program that is about contexts: the sizes that they are created with.
#pragma once

#include <span>
#include <string>

#include "compiler/codegen/host_run.h"

namespace stridec::codegen {

// A C condition that adds a guard's failure to `failure` and ends the function if it does not hold.
std::string check_text(const std::string& condition, const std::string& sentence,
                       std::span<const std::string> values, HostMessages& messages);

struct ContextText {
  std::string text;              // stridec_abi_symbol module_sizes[] and bind_context()
  std::vector<sym::Expr> sizes;  // the module's, in order
};

// The sizes of a context that runs all programs. Their text is empty if there are none.
ContextText context_text(std::span<const loop::Program* const> programs, const loop::ModuleValues& states,
                         HostMessages& messages);

}  // namespace stridec::codegen
