// Files of the source tree and of the build that are embedded in stridec.
#pragma once

#include <string_view>

namespace stridec::codegen {

std::string_view libc_stub();       // ELF stub that artifacts link against; built from cpu/libc.map
std::string_view runtime_object();  // the runtime, linked into every artifact (runtime/runtime.cmake)
std::string_view image_object();    // image decoding, linked into artifacts that use it (runtime/image)
std::string_view abi_header();      // runtime/include/stridec/abi.h, to paste into header-free sources
std::string_view runtime_header();  // runtime/include/stridec/runtime.h, for applications
std::string_view fourier_text();    // compiler/loop/fourier.h, to paste into header-free sources
std::string_view philox_text();     // likewise compiler/loop/philox.h
std::string_view eigen_text();      // and compiler/loop/eigen.h

}  // namespace stridec::codegen
