#include "compiler/codegen/embedded.h"

// Each is defined by stridec_embed() in CMake.
#define STRIDEC_EMBEDDED(name)                                                      \
  extern "C" const char stridec_embedded_##name[], stridec_embedded_##name##_end[]; \
  std::string_view stridec::codegen::name() {                                       \
    return {stridec_embedded_##name, stridec_embedded_##name##_end};                \
  }

STRIDEC_EMBEDDED(libc_stub)
STRIDEC_EMBEDDED(runtime_object)
STRIDEC_EMBEDDED(image_object)
STRIDEC_EMBEDDED(abi_header)
STRIDEC_EMBEDDED(runtime_header)
STRIDEC_EMBEDDED(fourier_text)
STRIDEC_EMBEDDED(philox_text)
STRIDEC_EMBEDDED(eigen_text)
