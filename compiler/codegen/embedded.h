// Files of the source tree and of the build that stridec carries inside itself.
#pragma once

#include <string_view>

namespace stridec::codegen {

std::string_view libc_stub();       // the ELF file that artifacts are linked against; made from cpu/libc.map
std::string_view runtime_object();  // the runtime, to link into every artifact (runtime/runtime.cmake)
std::string_view image_object();    // decoding images, for artifacts that do (runtime/image)
std::string_view abi_header();      // runtime/include/stridec/abi.h, to paste into header-free sources
std::string_view runtime_header();  // runtime/include/stridec/runtime.h, for applications
std::string_view fourier_text();    // compiler/loop/fourier.h, likewise

}  // namespace stridec::codegen
