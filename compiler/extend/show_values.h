// Texts of tensors for counterexamples.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/loop/interpret.h"

namespace stridec::extend {

std::string number(const loop::HostTensor& tensor, int64_t i);  // the element in row-major order
std::string place(const loop::HostTensor& tensor, int64_t i);   // its index: "[1, 0]"
std::string shown(const loop::HostTensor& tensor);              // type and first elements

}  // namespace stridec::extend
