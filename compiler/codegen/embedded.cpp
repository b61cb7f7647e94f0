#include "compiler/codegen/embedded.h"

// Defined by stridec_embed() in CMake.
extern "C" const unsigned char stridec_embedded_libc_stub[], stridec_embedded_libc_stub_end[];
extern "C" const char stridec_embedded_runtime_object[], stridec_embedded_runtime_object_end[];
extern "C" const char stridec_embedded_abi_header[], stridec_embedded_abi_header_end[];

namespace stridec::codegen {

std::span<const unsigned char> libc_stub() {
  return {stridec_embedded_libc_stub, stridec_embedded_libc_stub_end};
}
std::string_view abi_header() { return {stridec_embedded_abi_header, stridec_embedded_abi_header_end}; }

std::string_view runtime_object() {
  return {stridec_embedded_runtime_object, stridec_embedded_runtime_object_end};
}

}  // namespace stridec::codegen
