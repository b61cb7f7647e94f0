// What this machine's processor can execute, as the STRIDEC_CPU_* bits of abi.h.
#pragma once

#include <stdint.h>

namespace stridec::runtime {

class Text;

// Bits of a feature are set only where the operating system also saves its registers. AMX counts when
// want_amx asks for it and the kernel grants this process its use.
uint64_t cpu_features(bool want_amx);

// "avx512f, avx512bw"
void list_features(Text& text, uint64_t features);

}  // namespace stridec::runtime
