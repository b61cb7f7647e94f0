// A backend that builds nothing: it emits every nest as text, for tests and `inspect` without a toolchain.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/codegen/backend.h"
#include "compiler/loop/program.h"

namespace stridec::codegen::null {

struct Source {
  std::vector<std::string> nests;  // names of the nests that the text computes
  Kernel kernel;                   // the kernel of the first of them
};

// The texts that a backend would compile, each once, in the order of first launch. `kernel_of` is that
// backend's emitter (cpu::emit_kernel for a target).
std::vector<Source> emit(const loop::Program& program,
                         const std::function<Kernel(const loop::Nest& nest)>& kernel_of);

}  // namespace stridec::codegen::null
