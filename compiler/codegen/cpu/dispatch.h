// Selects the template that computes a nest's scratch and emits its kernel, and defines the symbol name and
// translation unit of a kernel's text.
#pragma once

#include <string>
#include <string_view>

#include "compiler/base/target.h"
#include "compiler/codegen/backend.h"
#include "compiler/loop/program.h"

namespace stridec::codegen::cpu {

// The placeholder for the ABI's header in the text of a kernel. Supporting units (Kernel::support) have none.
inline constexpr std::string_view kAbiInclude = "#include \"stridec/abi.h\"\n";

// The scratch that a thread needs for the nest's kernel (Kernel::scratch_bytes), from its schedule alone.
sym::Expr kernel_scratch(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target);
// Emits the kernel of one nest by its schedule: by a template, or by the general emitter.
Kernel emit_kernel(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target);
// The name of the function that a kernel's text defines.
std::string kernel_symbol(const std::string& text, const CpuTarget& target);
// The text that is compiled. Supporting units (Kernel::support) are separate entries of the list and are
// compiled unchanged.
std::string translation_unit(const Kernel& kernel, const std::string& symbol);

}  // namespace stridec::codegen::cpu
