// Detects the instructions of this machine's processor, as the STRIDEC_CPU_* bits of abi.h.
#pragma once

#include <stdint.h>

namespace stridec::runtime {

class Text;

// Sets the bit of a feature only if the operating system also saves its registers. AMX bits are set only if
// want_amx is true and the kernel grants AMX to this process.
uint64_t cpu_features(bool want_amx);

// "avx512f, avx512bw"
void list_features(Text& text, uint64_t features);

}  // namespace stridec::runtime
